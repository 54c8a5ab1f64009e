"""Results: lists of them, tables, and HTML for notebooks."""

import builtins
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cloze
from cloze.errors import MissingLibraryError
from cloze.results import Results
from cloze.tasks.aggregation import Span
from cloze.tasks.answer import AnswerCandidate, AnswerResult
from cloze.tasks.choose import Choice
from cloze.tasks.classify import Classification
from cloze.tasks.fill import FillResult, MaskPrediction, MaskResult
from cloze.tasks.generate import Generation, Generations
from cloze.tasks.score import MinimalPairScores, PairScore, TextScore, TokenScore
from cloze.tasks.similar import Neighbor, OddOneOut, Similar
from cloze.tasks.suggest import Suggestion, Suggestions
from cloze.tasks.tag import TagResult
from cloze.tasks.translate import Translation, TranslationCandidate
from cloze.tasks.word_alignment import Alignment
from cloze.train.result import RunResult
from helpers import raises

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
EVIL = "<script>alert(1)</script>"


def make_fill(text: str = "A [MASK] slept.", words: tuple[str, ...] = ("cat", "dog")) -> FillResult:
    predictions = tuple(
        MaskPrediction(word=word, score=0.5 / n, ids=(n,), text=f"A {word} slept.")
        for n, word in enumerate(words, 1)
    )
    return FillResult(text=text, masks=(MaskResult(start=2, end=8, predictions=predictions),))


def make_classification(text: str, /, **scores: float) -> Classification:
    label = max(scores, key=scores.__getitem__)
    return Classification(text=text, label=label, score=scores[label], scores=scores)


def make_tag(text: str, label: str) -> TagResult:
    span = Span(text=text[:3], label=label, start=0, end=3, score=0.75)
    return TagResult(text=text, words=((0, 3),), tags=(label,), scores=(0.75,), spans=(span,))


def make_answer(question: str, context: str) -> AnswerResult:
    best = AnswerCandidate(text=context[4:7], start=4, end=7, logit=3.0, probability=0.9)
    none = AnswerCandidate(text="", start=0, end=0, logit=0.0, probability=0.1)
    return AnswerResult(
        question=question,
        context=context,
        text=best.text,
        start=4,
        end=7,
        logit=3.0,
        probability=0.9,
        candidates=(best, none),
        no_answer_margin=-3.0,
    )


def make_choice(text: str, option: str) -> Choice:
    return Choice(
        context=text,
        question=text,
        options=(option, "no"),
        option=0,
        text=option,
        score=0.7,
        scores=(0.7, 0.3),
    )


def make_translation(source: str, target: str) -> Translation:
    weights = np.array([[0.9, 0.1]], np.float32)
    alignment = Alignment(source=(source, "b"), target=(target,), weights=weights)
    first = TranslationCandidate(
        text=target, score=-1.0, log_probability=-2.0, finished=True, alignment=alignment
    )
    second = TranslationCandidate(text=target, score=-2.0, log_probability=-4.0, finished=False)
    return Translation(source=source, candidates=(first, second))


def make_all(text: str) -> list[Any]:
    """A result of each function, with the same text wherever a user or a model may write one."""
    token = TokenScore(token=text, id=1, log_probability=-2.0)
    generation = Generation(
        text=text,
        continuation=text,
        tokens=(text,),
        log_probability=-1.0,
        score=-1.0,
        finish_reason="end",
    )
    pair = PairScore(good=text, bad=text, good_score=-1.0, bad_score=-2.0)
    accuracy = cloze.metrics.bootstrap.Interval(value=1.0, low=1.0, high=1.0)
    return [
        make_fill("A [MASK] " + text, (text,)),
        make_classification(text, **{text: 0.9, "other": 0.1}),
        make_classification(text, **{text: 4.0}),
        make_tag(text, text),
        make_answer(text, text),
        make_choice(text, text),
        make_translation(text, text),
        TextScore(text=text, tokens=(token,), unknown=0),
        Generations(text=text, continuations=(generation,)),
        Suggestions(
            text=text,
            suggestions=(Suggestion(word=text, probability=0.5, id=1),),
            unk_probability=0.0,
        ),
        Similar(query=text, words=(Neighbor(word=text, score=0.5),)),
        OddOneOut(query=text, word=text, fits=(Neighbor(word=text, score=0.5),)),
        MinimalPairScores(pairs=(pair,), accuracy=accuracy, reduction="sum"),
    ]


class Reader(HTMLParser):
    """The elements and the text of HTML; every element must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.styles: list[str] = []
        self.marked: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open.append(tag)
        assert not any(name.startswith("on") or name == "src" for name, _ in attrs)
        self.styles += [value or "" for name, value in attrs if name == "style"]
        if tag == "mark":
            self.marked.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data
        if "mark" in self._open:
            self.marked[-1] += data


@pytest.mark.parametrize("result", make_all(EVIL), ids=lambda result: type(result).__name__)
def test_html_escapes_texts_and_labels(result: Any) -> None:
    found = Reader(result._repr_html_())
    assert "script" not in found.tags
    assert "alert(1)" in found.text


@pytest.mark.parametrize("result", make_all("word"), ids=lambda result: type(result).__name__)
def test_every_result_is_a_table_and_an_object(result: Any) -> None:
    frame = result.to_pandas()
    assert len(frame) == len(result.to_records()) > 0
    assert list(frame.columns)[: len(result.record_columns)] == list(result.record_columns)
    assert Results([result]).to_dict() == [result.to_dict()]


def test_tables_have_a_row_per_prediction() -> None:
    assert make_fill().to_pandas().to_dict("list") == {
        "text": ["A [MASK] slept."] * 2,
        "mask": [1, 1],
        "word": ["cat", "dog"],
        "score": [0.5, 0.25],
    }
    assert make_classification("fine", good=0.9, bad=0.1).to_pandas().to_dict("list") == {
        "text": ["fine"],
        "pair": [None],
        "label": ["good"],
        "score": [0.9],
        "bad": [0.1],
        "good": [0.9],
    }
    assert make_tag("Ada slept.", "PER").to_records() == [
        {
            "text": "Ada slept.",
            "span": "Ada",
            "label": "PER",
            "start": 0,
            "end": 3,
            "score": 0.75,
        }
    ]
    assert [row["text"] for row in make_answer("Who?", "The dog slept.").to_records()] == [
        "dog",
        "",
    ]
    assert [row["option"] for row in make_choice("a", "b").to_records()] == [0, 1]


def test_label_named_like_a_column_keeps_both() -> None:
    frame = make_classification("fine", text=0.9, other=0.1).to_pandas()
    assert list(frame["text"]) == ["fine"]
    assert list(frame["score: text"]) == [0.9]


def test_results_are_a_list_that_joins_a_table_of_inputs() -> None:
    import pandas as pd

    one, two = make_fill(), make_fill("A [MASK] barked.", ("dog",))
    results = Results([one, two])
    assert results == [one, two]
    assert results[1] is two
    assert isinstance(results[:1], Results)
    frame = results.to_pandas()
    assert list(frame.index) == [0, 0, 1]
    inputs = pd.DataFrame({"source": ["x", "y"]})
    assert list(inputs.join(frame)["source"]) == ["x", "x", "y"]


def test_table_without_rows_has_its_columns() -> None:
    empty = TagResult(text="a", words=(), tags=(), scores=(), spans=())
    for frame in (empty.to_pandas(), Results([empty, empty]).to_pandas()):
        assert list(frame.columns) == ["text", "span", "label", "start", "end", "score"]
        assert frame.empty
    assert Results().to_pandas().empty


def test_notebook_shows_the_first_results_of_many() -> None:
    results = Results([make_tag(f"Ada {n:02} slept.", "PER") for n in range(30)])
    found = Reader(results._repr_html_())
    assert found.text.count("slept") == 20
    assert "20 of 30" in found.text
    assert "Ada 20" not in found.text


def test_html_marks_spans_and_answers() -> None:
    tagged = make_tag("Ada slept.", "PER")
    assert Reader(tagged._repr_html_()).marked == ["AdaPER"]
    context = "The dog slept." + " It was late." * 100
    answered = Reader(make_answer("Who?", context)._repr_html_())
    assert answered.marked == ["dog"]
    assert answered.text.count("late") < 100  # a long context is shortened
    assert "(no answer)" in answered.text


def test_bars_are_as_long_as_the_probability() -> None:
    styles = Reader(make_classification("fine", good=0.9, bad=0.1)._repr_html_()).styles
    assert [part for style in styles for part in ("90.0%", "10.0%") if part in style] == [
        "90.0%",
        "10.0%",
    ]


def test_tokens_are_colored_by_surprisal() -> None:
    tokens = tuple(
        TokenScore(token="a", id=1, log_probability=value)
        for value in (0.0, -2.0, -9.0, -99.0, -np.inf, np.nan)
    )
    html = TextScore(text="a", tokens=tokens, unknown=0)._repr_html_()
    alphas = [
        float(style.split("hsla(")[1].split(")")[0].split(",")[3])
        for style in Reader(html).styles
        if "hsla" in style
    ]
    sure, likely, rare, unlikely, never, unknown = alphas
    assert 0 == sure == unknown < likely < rare < unlikely == never < 1


def test_translation_shows_its_alignment() -> None:
    html = make_translation("a dog", "ein Hund")._repr_html_()
    assert "svg" in Reader(html).tags
    blank = Translation(source="", candidates=())
    assert "svg" not in Reader(blank._repr_html_()).tags


def test_functions_return_results_for_several_inputs() -> None:
    model = cloze.load(GOLDEN / "bert_mlm_nsp" / "model")
    several = cloze.fill(model, ["the [MASK]", "a [MASK]"], top=2)
    assert isinstance(several, Results)
    assert list(several.to_pandas()["text"]) == ["the [MASK]"] * 2 + ["a [MASK]"] * 2
    assert several[0] == cloze.fill(model, "the [MASK]", top=2)
    tokens = cloze.tokenize(model, ["the"])
    assert tokens.to_pandas()["token"].iloc[0] == "[CLS]"


def test_evaluation_and_comparison_are_tables() -> None:
    folders = [str(GOLDEN / name / "model") for name in ("bert_sequence", "distilbert_sequence")]
    data = str(GOLDEN / "data" / "labels.tsv")
    made = cloze.evaluate(folders[0], data)
    frame = made.to_pandas()
    rows = dict(zip(frame["metric"], frame["score"], strict=True))
    assert rows == made.scores | made.baseline
    assert rows["majority_baseline"] == made.baseline["majority_baseline"] > 0
    assert "Report" in made._repr_html_()
    assert "majority baseline" in made._repr_html_().partition("<details>")[0]
    compared = cloze.compare(folders, data, resamples=10)
    table = compared.to_pandas()
    assert list(table["model"]) == [entry.name for entry in compared.entries]
    assert (table["accuracy_low"] <= table["accuracy"]).all()
    assert set(table["majority_baseline"]) == {made.baseline["majority_baseline"]}


def test_missing_pandas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def fail(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fail)
    with raises(MissingLibraryError, "pandas", fix="pip install pandas"):
        make_fill().to_pandas()


def test_notebook_says_how_much_was_not_read() -> None:
    shown = [one for one in make_all("a word") if hasattr(one, "truncated_chars")]
    assert len(shown) == 9
    for one in shown:
        assert "not read" not in one._repr_html_()
        assert "1,234 characters were not read" in replace(one, truncated_chars=1234)._repr_html_()


def test_repr_is_short_and_leaves_out_defaults():
    shown = repr(
        Classification(text="good " * 1000, pair=None, label="a", score=1.0, scores={"a": 1.0})
    )
    assert len(shown) < 300
    assert shown.startswith("Classification(text='good good")
    assert "label='a'" in shown
    assert "truncated_chars" not in shown


def test_a_run_and_a_description_are_tables_too() -> None:
    run = RunResult(folder=Path("runs/m"), task="classify", scores={"accuracy": 0.75}, steps=9)
    assert "settings" not in repr(run)
    assert repr(run).startswith("RunResult(folder=")
    assert run.to_pandas().to_dict("records") == [
        {
            "folder": str(Path("runs/m")),
            "task": "classify",
            "accuracy": 0.75,
            "best_step": 0,
            "steps": 9,
            "seconds": 0.0,
        }
    ]
    shown = Reader(run._repr_html_()).text
    assert "0.7500" in shown
    assert "classify" in shown
    trials = RunResult(folder=Path("m"), trials=(run, run))
    assert trials.to_pandas()["accuracy"].tolist() == [0.75, 0.75]
    found = cloze.info("cloze-en")
    (row,) = found.to_pandas().to_dict("records")
    assert row["total_parameters"] == found.total_parameters
    assert f"{found.total_parameters:,}" in Reader(found._repr_html_()).text
    assert len(repr(found)) < 2000
