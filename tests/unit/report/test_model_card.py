"""Model cards."""

import json
from dataclasses import replace

import pytest

import cloze
from cloze.data.images.decode import encode_png
from cloze.data.images.drawings import make_drawing
from cloze.errors import FolderError, InputError
from cloze.interop.sentence_transformers import Pooling
from cloze.make.float8 import save_float8
from cloze.plot.format import format_percent
from cloze.report.image_card import find_image_example
from cloze.report.model_card import (
    ModelFacts,
    TrainingText,
    build_model_card,
    read_scores,
    write_model_card,
)
from helpers import raises, tiny_model
from images import clip_model, diffusion_model

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
        'cloze fill cloze-xx "In winter the lake is covered with [MASK]."',
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


def test_a_contrastive_run_after_the_pre_training(run, tmp_path):
    last = tmp_path / "pairs"
    last.mkdir()
    (last / "recipe.toml").write_text("task = 'embed'\n")
    (last / "metrics.jsonl").write_text(json.dumps(ROWS[0] | {"step": 300}))
    pooled = replace(tiny_model("mlm", family="modernbert"), pooling=Pooling())
    model = save_float8(pooled, tmp_path / "cloze-xx")
    with raises(FolderError, "data.json"):
        build_model_card(last, model, ABOUT, {}, earlier=[run])
    (last / "data.json").write_text('{"training": 5000, "dev": 9, "texts": 7000}')
    text = build_model_card(last, model, ABOUT, {}, earlier=[run])
    for fact in (
        "cloze.similarity(model, ",
        "SentenceTransformer(folder)",
        "2,544 documents, ",
        "The last run read 5,000 pairs of 7,000 texts",
        "then, initialized from that model: 300 steps",
    ):
        assert fact in text
    assert "held-out documents |" not in text


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


IMAGE_ROWS = {
    "clip": {"kind": "eval", "step": 3, "recall_at_1": 0.5, "chance_recall_at_1": 0.01},
    "diffusion": {"kind": "eval", "step": 3, "diffusion": 0.0625},
}


@pytest.fixture(params=["clip", "diffusion"])
def image_run(request, tmp_path):
    """The folder of a run on images, which is that of its model."""
    make = {"clip": clip_model, "diffusion": diffusion_model}[request.param]
    folder = make().save(tmp_path / "cloze-images")
    (folder / "recipe.toml").write_text('[data]\nsources = ["/home/someone/pictures"]\n')
    (folder / "data.json").write_text('{"images": 1200, "training": 1000, "held_out": 200}')
    rows = [{"kind": "train", "step": 3, "images": 24, "seconds": 2.0}, IMAGE_ROWS[request.param]]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return request.param, folder


def test_models_of_images_are_shown_with_images(image_run):
    kind, folder = image_run
    text = build_model_card(folder, folder, ABOUT, {"colors": 0.9})
    assert "1,200 images; 1,000 of them were trained on, and 200 were held out" in text
    assert "## Training images and licences" in text
    assert "3 steps · 24 images" in text
    assert "/home/someone" not in text
    assert "None" not in text
    facts = {
        "clip": (
            "cloze classify cloze-images --images heart.png",
            "embed(images=",
            format_percent(0.5),
        ),
        "diffusion": ("cloze draw cloze-images", 'draw("a red heart", seed=1)', "0.0625"),
    }
    for fact in (*facts[kind], format_percent(0.9), "library_name: cloze", "16 × 16 pixels"):
        assert fact in text
    (folder / "data.json").write_text("{}")
    with raises(FolderError, "data.json"):
        build_model_card(folder, folder, ABOUT, {})
    (folder / "data.json").unlink()
    with raises(FolderError, "data.json"):
        build_model_card(folder, folder, ABOUT, {})


def test_the_examples_of_models_of_images_run(image_run, tmp_path, monkeypatch):
    kind, folder = image_run
    monkeypatch.chdir(tmp_path)
    (tmp_path / "heart.png").write_bytes(encode_png(make_drawing(0, 0, 20)[1]))
    model = cloze.load(folder)
    example = find_image_example(model.info())
    found = [eval(f"model.{call}", {"model": model}) for call in example.calls]
    assert len(found) == len(example.calls)
    if kind == "diffusion":
        assert (tmp_path / "heart.png").stat().st_size > 0
    else:
        assert found[0].shape == found[1].shape
        assert found[2][0].label in ("a red heart", "a blue circle")


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
