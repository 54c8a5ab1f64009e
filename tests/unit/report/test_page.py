import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cloze.errors import FolderError
from cloze.report.charts import running_mean
from cloze.report.page import build_report, write_report
from helpers import raises

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
CONFIG = {
    "seed": 7,
    "model": {
        "kind": "bert",
        "hidden_size": 256,
        "nested": {
            "eps": 1e-12,
        },
    },
    "data": {"sources": ["a.txt", "b.txt"], "empty": {}},
}
CORPUS = {"documents": 52_341, "tokens": 30_451_229, "unknown": 3_045, "bytes": 67_123_456}
FILLS = [
    {"text": "Paris is the [MASK] of it.", "before": [["##ly", 0.0003]], "after": [["end", 0.5]]}
]
NEIGHBOURS = [{"text": "Open the file.", "neighbours": [["Read the file.", 0.91], ["No.", -0.1]]}]


def metrics(steps: int = 20) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        rows.append(
            {
                "kind": "train",
                "step": step,
                "tokens": 1000 * step,
                "seconds": 3.0 * step,
                "lr": 1e-3,
                "loss": 9.0,
                "mlm_loss": 8.0 + step % 2,
                "mlm_accuracy": 0.3,
                "nsp_accuracy": 0.5,
                "tokens_per_second": 333.0,
            }
        )
        if step % 10 == 0:
            rows.append(
                {
                    "kind": "eval",
                    "step": step,
                    "mlm_loss": 2.5,
                    "perplexity": 12.18,
                    "mlm_accuracy": 0.4,
                    "unigram_baseline": 0.05,
                    "nsp_accuracy": 0.6,
                    "majority_baseline": 0.55,
                }
            )
    return rows


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)} = {toml(v)}' for k, v in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def folder(path: Path, **contents: Any) -> Path:
    run = path / "my-bert"
    run.mkdir()
    for name, content in contents.items():
        if name == "recipe":
            lines = (f"{json.dumps(key)} = {toml(value)}\n" for key, value in content.items())
            (run / "recipe.toml").write_text("".join(lines), encoding="utf-8")
        elif name == "metrics":
            lines = (json.dumps(row) + "\n" for row in content)
            (run / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
        else:
            (run / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return run


EVERYTHING = {
    "metrics": metrics(),
    "fills": FILLS,
    "neighbours": NEIGHBOURS,
    "corpus": CORPUS,
    "recipe": CONFIG,
}


def titles(run: Path) -> list[str]:
    return [section["title"] for section in build_report(run).data["sections"]]


def part(run: Path, title: str) -> Any:
    (found,) = [one for one in build_report(run).data["sections"] if one["title"] == title]
    return found["parts"]


def charts(run: Path) -> dict[str, dict[str, Any]]:
    wide, grid = part(run, "Training")
    return {
        chart["title"]: {series["name"]: series for series in chart["series"]}
        for chart in (wide, *grid["parts"])
    }


def test_a_whole_run(tmp_path: Path) -> None:
    run = folder(tmp_path, **EVERYTHING)
    assert titles(run) == [
        "Result",
        "Training",
        "Masked-token predictions",
        "Nearest neighbours",
        "Data",
        "Configuration",
    ]
    path = write_report(run)
    assert path == run / "report.html"
    html = path.read_text(encoding="utf-8")
    assert "<h1>my-bert</h1>" in html
    assert "20 steps · 20,000 tokens · 1:00 of training" in html
    assert build_report(run, title="Another").data["title"] == "Another"


def test_the_curves(tmp_path: Path) -> None:
    found = charts(folder(tmp_path, metrics=metrics()))
    assert list(found) == [
        "Loss",
        "MLM accuracy",
        "NSP accuracy",
        "Learning rate",
        "Tokens per second",
    ]
    assert list(found["Loss"]) == ["training", "held out"]
    assert found["Loss"]["training"]["y"] == [8.0 + step % 2 for step in range(1, 21)]
    assert found["Loss"]["held out"] == {"name": "held out", "x": [10, 20], "y": [2.5, 2.5]}
    assert found["MLM accuracy"]["unigram baseline"] == {
        "name": "unigram baseline",
        "x": [1, 20],
        "y": [0.05, 0.05],
    }
    assert found["NSP accuracy"]["majority baseline"]["y"] == [0.55, 0.55]
    html = build_report(tmp_path / "my-bert").html()
    assert html.count('class="reference"') == 4  # the two lines and their names


def test_a_long_run_shows_its_mean_before_its_noise(tmp_path: Path) -> None:
    loss = charts(folder(tmp_path, metrics=metrics(400)))["Loss"]
    assert list(loss) == ["training", "as logged", "held out"]
    assert loss["as logged"]["y"][:3] == [9.0, 8.0, 9.0]
    assert loss["training"]["y"][200] == pytest.approx(8.5, abs=0.05)


def test_the_result_is_the_last_evaluation(tmp_path: Path) -> None:
    last = {"kind": "eval", "step": 11, "mlm_accuracy": 0.45, "perplexity": None}
    rows = [*metrics(10), last]
    (facts,) = part(folder(tmp_path, metrics=rows), "Result")
    found = {fact["label"]: fact for fact in facts["facts"]}
    assert found["MLM accuracy"]["value"] == 0.45
    assert found["MLM accuracy"]["detail"] == "unigram baseline 5.0\xa0%"
    assert found["ratio to the baseline"]["text"] == "9.0×"
    assert found["perplexity"]["value"] == 12.18
    assert found["NSP accuracy"]["detail"] == "majority baseline 55.0\xa0%"


BEST = [
    {"kind": "eval", "step": 10, "accuracy": 0.5, "matthews_correlation": 0.1, "score": 0.5},
    {"kind": "eval", "step": 20, "accuracy": 0.7, "matthews_correlation": 0.4, "score": 0.7},
    {"kind": "eval", "step": 30, "accuracy": 0.7, "matthews_correlation": 0.3, "score": 0.7},
    {"kind": "eval", "step": 40, "accuracy": 0.6, "matthews_correlation": 0.2, "score": 0.6},
]


def test_the_result_is_that_of_the_model_that_was_kept(tmp_path: Path) -> None:
    run = folder(tmp_path, metrics=BEST)
    (facts,) = part(run, "Result")
    told = {fact["label"]: fact["text"] for fact in facts["facts"]}
    assert told == {
        "accuracy": "70.00\xa0%",
        "Matthews correlation": "0.4000",
    }  # of equal ones the first
    assert "the best model (step 20)" in build_report(run).html()
    (grid,) = part(run, "Training")
    assert [(one["title"], one["mark"]) for one in grid["parts"]] == [
        ("Accuracy", [20, "best"]),
        ("Matthews correlation", [20, "best"]),
    ]


def test_where_no_score_was_a_number_the_last_was_kept(tmp_path: Path) -> None:
    run = folder(tmp_path, metrics=[row | {"score": None} for row in BEST])
    assert "(step 40)" in build_report(run).html()


def test_what_was_done_after_the_best_evaluation_counts(tmp_path: Path) -> None:
    """A threshold is chosen in the end; one of a model that is no longer the best is not told."""
    rows = [*BEST, {"kind": "kept", "step": 10, "accuracy": 0.9}]
    (tmp_path / "old").mkdir()
    (facts,) = part(folder(tmp_path / "old", metrics=rows), "Result")
    assert facts["facts"][0]["value"] == 0.7
    run = folder(tmp_path, metrics=[*rows, {"kind": "kept", "step": 20, "accuracy": 0.8}])
    (facts,) = part(run, "Result")
    assert facts["facts"][0]["value"] == 0.8
    (grid,) = part(run, "Training")
    assert grid["parts"][0]["series"][0]["y"] == [0.5, 0.7, 0.7, 0.6]


def test_a_translator_is_told_by_its_bleu(tmp_path: Path) -> None:
    scores = {"loss": 1.5, "perplexity": 4.5, "accuracy": 0.6}
    rows = [{"kind": "eval", "step": n, "bleu": 30.0 + n, **scores} for n in (1, 2)]
    run = folder(tmp_path, metrics=rows)
    (facts,) = part(run, "Result")
    assert [fact["label"] for fact in facts["facts"]] == ["BLEU", "perplexity", "accuracy"]
    assert facts["facts"][0]["text"] == "32.0"
    assert charts(run)["BLEU"]["held out"]["y"] == [31.0, 32.0]


def test_the_fills_stand_side_by_side(tmp_path: Path) -> None:
    only = {"text": "Only <mask>.", "truth": "one", "after": [["one", 1], ["two", 0]]}
    run = folder(tmp_path, fills=[*FILLS, only])
    (grid,) = part(run, "Masked-token predictions")
    first, second = grid["parts"]
    assert [bars["title"] for bars in first["parts"]] == ["before", "after"]
    assert first["parts"][0]["rows"] == [["thely", 0.0003]]  # with the word before
    assert [bars["title"] for bars in second["parts"]] == ["after"]
    html = build_report(run).html()
    assert "<mark>[MASK]</mark>" in html
    assert "<mark>&lt;mask&gt;</mark>" in html
    assert second["head"]["note"] == "original: one"
    assert html.count('<tr class="right">') == 1


@pytest.mark.parametrize("nested", [False, True])
def test_the_data(tmp_path: Path, nested: bool) -> None:
    content = {"format": "cloze corpus", "summary": CORPUS, "shards": []} if nested else CORPUS
    (facts,) = part(folder(tmp_path, corpus=content), "Data")
    found = {fact["label"]: (fact["text"], fact["value"]) for fact in facts["facts"]}
    assert found == {
        "documents": ("52,341", 52_341),
        "tokens": ("30.5M", 30_451_229),
        "unknown tokens": ("3,045", 3_045),
        "size on disk": ("67.1\xa0MB", 67_123_456),
        "unknown token rate": ("0.01\xa0%", 3_045 / 30_451_229),
    }


def test_the_configuration_is_complete(tmp_path: Path) -> None:
    (grid,) = part(folder(tmp_path, recipe=CONFIG), "Configuration")
    assert {table["title"]: table["rows"] for table in grid["parts"]} == {
        "recipe": [["seed", 7]],
        "model": [["kind", "bert"], ["hidden_size", 256], ["nested.eps", 1e-12]],
        "data": [["sources", '["a.txt", "b.txt"]'], ["empty", "{}"]],
    }


def test_a_group_may_be_called_like_the_rest(tmp_path: Path) -> None:
    (grid,) = part(folder(tmp_path, recipe={"seed": 1, "run": {"a": 2}}), "Configuration")
    assert [table["rows"] for table in grid["parts"]] == [[["seed", 1]], [["a", 2]]]


@pytest.mark.parametrize("missing", EVERYTHING)
def test_what_is_missing_leaves_no_hole(tmp_path: Path, missing: str) -> None:
    contents = {name: content for name, content in EVERYTHING.items() if name != missing}
    whole = [
        "Result",
        "Training",
        "Masked-token predictions",
        "Nearest neighbours",
        "Data",
        "Configuration",
    ]
    gone = {
        "metrics": ["Result", "Training"],
        "fills": ["Masked-token predictions"],
        "neighbours": ["Nearest neighbours"],
        "corpus": ["Data"],
        "recipe": ["Configuration"],
    }[missing]
    assert titles(folder(tmp_path, **contents)) == [name for name in whole if name not in gone]


@pytest.mark.parametrize(
    "key",
    ["mlm_loss", "mlm_accuracy", "nsp_accuracy", "lr", "tokens_per_second", "unigram_baseline"],
)
def test_a_measure_that_is_missing_leaves_no_hole(tmp_path: Path, key: str) -> None:
    rows = [{name: row[name] for name in row if name != key} for row in metrics()]
    run = folder(tmp_path, metrics=rows)
    html = build_report(run).html()
    assert "no values" not in html
    if key == "mlm_loss":  # then the sum is all there is
        assert charts(run)["Loss"]["training"]["y"][0] == 9.0
    else:
        names = {"lr": "learning rate", "unigram_baseline": "unigram"}
        assert f'"name":"{names.get(key, key)}"' not in html


def test_only_one_row_only_training_only_evaluation(tmp_path: Path) -> None:
    for number, rows in enumerate(
        [
            metrics(1),
            metrics(20)[:9],
            [row for row in metrics() if row["kind"] == "eval"],
            [{"step": 3}],
        ]
    ):
        place = tmp_path / str(number)
        place.mkdir()
        run = folder(place, metrics=rows, recipe=CONFIG)
        assert "no values" not in write_report(run).read_text(encoding="utf-8")


def test_a_loss_that_was_no_number_leaves_a_gap(tmp_path: Path) -> None:
    rows = metrics(5)
    rows[2]["mlm_loss"] = None
    rows[3]["mlm_loss"] = math.nan
    assert charts(folder(tmp_path, metrics=rows))["Loss"]["training"]["y"] == [9, 8, None, None, 9]


def test_a_line_cut_off_by_a_kill_is_counted_and_the_rest_is_shown(tmp_path: Path) -> None:
    run = folder(tmp_path, metrics=metrics(5))
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'[1, 2]\n{"kind": "train", "ste')
    assert charts(run)["Learning rate"]["learning rate"]["x"] == [1, 2, 3, 4, 5]
    (said,) = part(run, "Files that cannot be read")
    assert said["text"] == "metrics.jsonl: 2 lines are not rows of metrics"


def test_translations_stand_beside_what_is_right(tmp_path: Path) -> None:
    one = {"source": "eine Katze", "reference": "a cat", "translation": "the cat"}
    (table,) = part(folder(tmp_path, samples=[one]), "Translations")
    assert table["rows"] == [["eine Katze", "a cat", "the cat"]]
    (tmp_path / "my-bert" / "samples.json").write_text("[]")
    with raises(FolderError, "my-bert"):  # an empty section is left out
        build_report(tmp_path / "my-bert")
    (tmp_path / "my-bert" / "samples.json").write_text("[{}]")
    assert titles(tmp_path / "my-bert") == ["Files that cannot be read"]


@pytest.mark.parametrize("name", ["fills", "neighbours", "corpus"])
@pytest.mark.parametrize(
    "content", [b"{", b"\xff\xfe", b"7", b'["text"]', b'[{"txt": 1}]', b'"text"', b"null"]
)
def test_a_broken_file_is_named_and_the_rest_is_shown(
    tmp_path: Path, name: str, content: bytes
) -> None:
    run = folder(tmp_path, **EVERYTHING)
    (run / f"{name}.json").write_bytes(content)
    (said,) = part(run, "Files that cannot be read")
    assert said["text"].startswith(f"{name}.json cannot be read (")
    assert len(titles(run)) == 6
    write_report(run)


def test_hostile_text_is_only_text(tmp_path: Path) -> None:
    class Tags(HTMLParser):
        def __init__(self, html: str) -> None:
            super().__init__()
            self.found: list[str] = []
            self.feed(html)

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found += [tag, *(name for name, _ in attrs)]

    def contents(text: str) -> dict[str, Any]:
        return {
            "metrics": [row | {text: 1, "kind": row["kind"]} for row in metrics()],
            "fills": [
                {"text": text, "truth": text, "before": [[text, 0.1]], "after": [[text, 0.2]]}
            ],
            "neighbours": [{"text": text, "neighbours": [[text, 0.5]]}],
            "corpus": {text: 5},
            "recipe": {text: text, text + "2": {text: [text]}},
        }

    pages = []
    for number, text in enumerate(["harmless", HOSTILE]):
        place = tmp_path / str(number)
        place.mkdir()
        pages.append(build_report(folder(place, **contents(text)), title=text).html())
    assert Tags(pages[0]).found == Tags(pages[1]).found
    assert re.search("alert", pages[1])


def test_no_folder_no_report(tmp_path: Path) -> None:
    with raises(FolderError, "folder", fix="folder"):
        build_report(tmp_path / "nowhere")


def test_nothing_to_report(tmp_path: Path) -> None:
    with raises(FolderError, "training run", fix="metrics.jsonl"):
        write_report(tmp_path)
    assert not list(tmp_path.iterdir())


def test_running_means_are_shorter_at_the_ends_and_keep_gaps() -> None:
    assert running_mean([1, 2, 3, 4, 5], 3) == [1.5, 2, 3, 4, 4.5]
    assert running_mean([1, None, 3, 5], 3) == [1, None, 4, 4]
    assert running_mean([], 3) == []
