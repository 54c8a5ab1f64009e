"""Model cards."""

import json

import pytest

import cloze
from cloze.errors import FolderError, InputError
from cloze.make.float8 import save_float8
from cloze.report.model_card import (
    ModelFacts,
    TrainingText,
    build_model_card,
    read_scores,
    write_model_card,
)
from helpers import raises, tiny_model

RECIPE = """\
# The complete recipe of this run.

[model]
start = "org/name"

[corpus]
sources = ["/home/someone/text/wiki-00.txt.xz", "../books-*.txt.xz", "~/more/reviews.txt"]
hold_out = 0.01
"""
ROWS = [
    {"kind": "train", "step": 1, "tokens": 100, "seconds": 1.5, "mlm_accuracy": 0.9},
    {"kind": "eval", "step": 2, "mlm_accuracy": 0.25, "unigram_baseline": 0.05},
    {"kind": "train", "step": 1234, "tokens": 1_234_567, "seconds": 1200.0},
    {
        "kind": "eval",
        "step": 1234,
        "mlm_accuracy": 0.6123,
        "unigram_baseline": 0.048,
        "perplexity": 7.254,
    },
]
CORPUS = {
    "documents": 2544,
    "held_out": 26,
    "sentences": 320_742,
    "tokens": 11_051_469,
    "words": 8_720_638,
    "unknown_rate": 0.000134,
}
ABOUT = ModelFacts(
    summary="A model to test with.",
    texts=[TrainingText(name="English | Wikipedia", licence="CC BY-SA 3.0", source="its authors")],
    machine="one card",
    limitations=["It knows cats."],
    storage="0.1 points lost",
)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "corpus.json").write_text(json.dumps(CORPUS))
    lines = [json.dumps(row) for row in ROWS]
    (folder / "metrics.jsonl").write_text("\n".join([*lines, '{"kind": "eval", "ste']))
    return folder


@pytest.fixture
def model(tmp_path):
    return save_float8(tiny_model("mlm", family="modernbert"), tmp_path / "cloze-xx")


def test_everything_that_was_measured_is_told(run, model):
    text = build_model_card(run, model, ABOUT, {"SST-2 dev": 0.895, "STS-B dev": "82.1 ± 0.3"})
    for fact in (
        "# cloze-xx\n\nA model to test with.",
        'cloze fill cloze-xx "The capital of France is [MASK]."',
        "- ModernBertForMaskedLM: 2 layers, hidden size 16, 2 heads; ",
        "- 25 tokens (wordpiece, uncased)",
        "values as F8_E4M3); 0.1 points lost",
        "| English \\| Wikipedia | CC BY-SA 3.0 | its authors |",
        "2,544 documents, 320,742 sentences, 8,720,638 words, 11,051,469 tokens; 26 of the",
        f"On one card, with cloze {cloze.__version__}:",
        "1,234 steps · 1,234,567 tokens · 20:00 of training\n\n```toml\n",
        "| MLM accuracy, held-out documents | 61.2\N{NO-BREAK SPACE}% |",
        "| unigram baseline | 4.8\N{NO-BREAK SPACE}% |",
        "| perplexity of masked tokens, held-out documents | 7.254 |",
        "| SST-2 dev | 89.5\N{NO-BREAK SPACE}% |",
        "| STS-B dev | 82.1 ± 0.3 |",
        "- The maximum input length is 24 tokens.\n- It knows cats.\n- ",
    ):
        assert fact in text


def test_the_runs_before_are_told_in_their_order(run, model, tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    (first / "recipe.toml").write_text("[samples]\nlength = 96\n")
    (first / "metrics.jsonl").write_text(json.dumps(ROWS[0] | {"step": 5678, "tokens": 999}))
    text = build_model_card(run, model, ABOUT, {}, earlier=[first])
    before, found, after = text.partition("\n\nthen, initialized from that model: 1,234 steps")
    assert found
    assert "5,678 steps · 999 tokens" in before
    assert "length = 96" in before
    assert "length = 96" not in after


def test_no_folder_of_the_machine_is_told(run, model):
    text = build_model_card(run, model, ABOUT, {})
    assert 'sources = ["wiki-00.txt.xz", "books-*.txt.xz", "reviews.txt"]' in text
    assert 'start = "org/name"' in text
    assert str(run.parent) not in text


def test_a_model_without_a_masked_head_is_shown_by_its_vectors(run, tmp_path):
    text = build_model_card(run, tiny_model().save(tmp_path / "body"), ABOUT, {})
    assert 'cloze embed body "A text."' in text
    assert "import AutoTokenizer, AutoModel\n" in text
    assert "fill-mask" not in text


@pytest.mark.parametrize("name", ["recipe.toml", "corpus.json", "metrics.jsonl"])
def test_a_file_that_is_missing(run, model, name):
    (run / name).unlink()
    with raises(FolderError, name):
        build_model_card(run, model, ABOUT, {})


@pytest.mark.parametrize("content", ["{", "[]", '{"documents": 3}'])
def test_counts_that_are_broken(run, model, content):
    (run / "corpus.json").write_text(content)
    with raises(FolderError, "corpus.json"):
        build_model_card(run, model, ABOUT, {})


def test_scores_come_from_a_file(tmp_path):
    path = tmp_path / "scores.json"
    path.write_text('{"SST-2": 0.9, "STS-B": "82 ± 1"}')
    assert read_scores(path) == {"SST-2": 0.9, "STS-B": "82 ± 1"}
    for wrong in ("[1]", '{"a": [1]}', '{"a": true}', '{"a": NaN}'):
        path.write_text(wrong)
        with raises(InputError, "scores", fix="SST-2"):
            read_scores(path)
    path.write_text("{")
    with raises(InputError, "scores", fix="JSON"):
        read_scores(path)
    with raises(InputError, "scores"):
        read_scores(tmp_path / "nowhere.json")


@pytest.mark.parity
def test_the_hub_reads_its_front_matter(run, model):
    hub = pytest.importorskip("huggingface_hub", reason="pip install huggingface_hub")
    path = write_model_card(run, model, ABOUT, {})
    assert path == model / "README.md"
    data = hub.ModelCard.load(path).data
    assert (data.language, data.license, data.library_name) == ("en", "apache-2.0", "transformers")
    assert data.pipeline_tag == "fill-mask"
    assert data.tags == ["modernbert", "cloze"]
    assert data["mask_token"] == "[MASK]"
