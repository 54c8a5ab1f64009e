"""One suite over every registered family and every view: it applies, or an error says why not."""

import json

import pytest
import torch
from typer.testing import CliRunner

import cloze
from cloze.cli.app import app
from cloze.cli.explain import SUBCOMMANDS
from cloze.errors import ClozeError, InputError
from cloze.models.registry import FAMILIES
from cloze.plot.view import View
from cloze.tasks.explain.views import PARTS, VIEWS, list_views
from families import MADE
from helpers import raises, tiny_model

# one model of every family, and one BERT with every head
NAMES = [
    *{name.partition(",")[0]: name for name in reversed(MADE)}.values(),
    *(name for name in MADE if name.startswith("bert,")),
    "elmo, published",
    "gpt2, lm",
    "bert, without heads",
]
MODELS = MADE | {"bert, without heads": tiny_model}
TEXTS = {"translator": "ein Hund läuft", "encoder": "the cat [MASK] the cat .", "": "the cat sat"}
# inputs other than one text (files, written by `data_files`), and options, by the name of a view
INPUTS: dict[str, tuple] = {}
OPTIONS: dict[str, dict] = {
    "patching": {"parts": "blocks"},
    "cka": {"batch_size": 8},
    "occurrences": {"word": "cat"},
}


@pytest.fixture(scope="module", autouse=True)
def data_files(tmp_path_factory):
    """The files of the views that read many texts."""
    folder = tmp_path_factory.mktemp("texts")
    texts, tagged = folder / "texts.txt", folder / "tagged.conll"
    texts.write_text("the cat sat .\na cat , a b c .\n" * 4)
    rows = "the DET\ncat NOUN\nsat VERB\n. X\n\na DET\nb NOUN\nc NOUN\n. X\n\n"
    tagged.write_text(rows * 8)
    INPUTS.update(heads=(texts,), cka=(texts,), probe=(tagged,), occurrences=(texts,))


def text_of(model):
    kind = model.family.kind
    is_masked = kind == "encoder" and "mlm" in model.task_heads and not model.is_causal
    return TEXTS.get(kind if kind == "translator" or is_masked else "")


def inputs_of(model, view):
    """The inputs of a view; a model for question answering predicts for a pair only."""
    has_pair = "span" in model.task_heads and "answer" in VIEWS[view].functions
    return INPUTS.get(view, (text_of(model), *(["a cat sat ."] if has_pair else [])))


def options_of(model, view):
    """The options of a view; a text that differs in a word, if it needs another one."""
    other = text_of(model).replace("the", "a", 1).replace("ein", "zwei", 1)
    return OPTIONS.get(view, {}) | ({"from_text": other} if view == "patching" else {})


def explain(model, view):
    options = options_of(model, view)
    return cloze.explain(model, *inputs_of(model, view), view=view, **options)


def traces(model):
    """What a view could leave behind in the module."""
    if not isinstance(model.module, torch.nn.Module):
        return []
    # private attributes are for inference: they follow changes of the weights
    return [
        (
            *(len(part._forward_hooks), len(part._forward_pre_hooks), part.training),
            *sorted(name for name in vars(part) if not name.startswith("_")),
        )
        for part in model.module.modules()
    ]


@pytest.mark.parametrize("name", dict.fromkeys(NAMES))
def test_every_view_applies_or_says_why_not(name):
    model = MODELS[name]()
    able, before = list_views(model), traces(model)
    weights = model.module.state_dict() if before else {}
    values = {key: value.clone() for key, value in weights.items()}
    assert list(cloze.info(model).views) == able
    for view in VIEWS:
        if view not in able:
            with raises(InputError, view, model.family.description, fix=able or "another model"):
                explain(model, view)
            continue
        found = explain(model, view)
        assert isinstance(found, View)
        assert found.figures, view
        assert found.title, view
        json.dumps(found.to_dict(), allow_nan=False)
        html = found.html()
        assert "http:" not in html.replace("http://www.w3.org/", ""), view
        assert "https:" not in html, view
        assert traces(model) == before, view
    assert all(torch.equal(value, weights[key]) for key, value in values.items())


def test_every_family_that_reads_text_can_be_inspected():
    for name in dict.fromkeys(NAMES):
        model = MODELS[name]()
        assert list_views(model) or model.family.kind in ("image_generator", "dual_encoder"), name
    assert {part for family in FAMILIES.values() for part in family.parts} <= set(PARTS)
    for kind in VIEWS.values():
        assert set(kind.parts) <= set(PARTS)


def test_a_view_does_not_depend_on_the_state_of_torch():
    model = tiny_model("mlm")
    for view in list_views(model):
        torch.manual_seed(1)
        one = explain(model, view).to_dict()
        torch.manual_seed(2)
        with torch.inference_mode():
            assert explain(model, view).to_dict() == one, view


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model("mlm").save(tmp_path_factory.mktemp("explain") / "model")


def run(*words):
    return CliRunner().invoke(app, ["explain", *map(str, words)], prog_name="cloze")


def test_every_view_is_a_command_that_prints_what_python_returns(folder):
    assert list(SUBCOMMANDS) == list(VIEWS)
    model = cloze.load(folder)
    for view in list_views(model):
        inputs, given = inputs_of(model, view), options_of(model, view).items()
        options = [f"--{key.replace('_', '-')}={value}" for key, value in given]
        ran = run(view, folder, *inputs, *options, "--json")
        assert ran.exit_code == 0, ran.stderr
        assert json.loads(ran.stdout) == json.loads(json.dumps(explain(model, view).to_dict())), (
            view
        )


def test_two_texts_and_two_models_side_by_side(folder, tmp_path):
    model, text = cloze.load(folder), TEXTS["encoder"]
    other = tiny_model("mlm", family="modernbert")
    for view in list_views(model):
        if view in INPUTS:
            continue
        options = options_of(model, view)
        both = cloze.explain.compare(
            (model, text), (model, "a [MASK] b"), (other, text), view=view, **options
        )
        first, second, third = both.data["views"]
        assert {key: first[key] for key in first if key != "title"} == explain(
            model, view
        ).to_dict()
        assert (first["title"], second["title"]) != (third["title"], third["title"])
        assert both.title == explain(model, view).title.partition(":")[0]
        assert both.html().count("<h3") >= 3
    page, drawing = tmp_path / "both.html", tmp_path / "both.svg"
    ran = run(
        *("attention", folder, text, "--against-text", "a b", "--against", folder),
        *("--html", page, "--svg", drawing),
    )
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout.split() == [str(page), str(drawing)]
    assert drawing.read_text("utf-8").startswith("<svg")
    assert "<!doctype html>" in page.read_text("utf-8")


@pytest.mark.usefixtures("font")
def test_the_command_writes_a_png_file(folder, tmp_path):
    drawing = tmp_path / "view.png"
    assert run("attention", folder, TEXTS["encoder"], "--png", drawing).exit_code == 0
    assert drawing.read_bytes().startswith(b"\x89PNG")


def test_a_text_that_is_too_long_is_truncated_with_a_statement(folder):
    model = cloze.load(folder)
    with pytest.warns(UserWarning, match="longer than the model's maximum of 24"):
        view = cloze.explain.attention(model, "the cat [MASK] " + "a " * 100)
    assert "characters were not read" in view.note
    assert view.note in view.html()


def test_bad_input_is_named(folder, tmp_path, monkeypatch):
    model = cloze.load(folder)
    with raises(InputError, "text", "empty"):
        cloze.explain.attention(model, "  ")
    with raises(InputError, "list", fix="one text"):
        cloze.explain.attention(model, ["the cat"])
    with raises(InputError, "pair", "empty"):
        cloze.explain.attention(model, "the cat", "")
    with raises(InputError, "pair", fix="leave out"):
        cloze.explain.attention(tiny_model("lm", family="gpt2"), "the cat", "sat")
    with raises(InputError, "characters"):
        cloze.explain.attention(model, "a" * 10_000_001)
    with raises(InputError, "view", "atention", fix="attention"):
        cloze.explain(model, "the cat", view="atention")
    with raises(InputError, "attention", "layr", fix="layer"):
        cloze.explain.attention(model, "the cat", layr=1)
    with raises(ClozeError, "nowhere"):
        cloze.explain.attention(str(tmp_path / "nowhere"), "the cat")
    with raises(InputError, "model", "int"):
        cloze.explain.attention(5, "the cat")

    monkeypatch.chdir(tmp_path)
    existing = tmp_path / "attention.html"
    assert run("attention", folder, "the cat").exit_code == 0
    assert existing.is_file()
    for words, names in (
        (["attention", folder, "the cat"], ["attention.html", "--force"]),
        (["attention", folder, "", "--json"], ["text", "empty"]),
        (["attention", folder, "the cat", "--png", "x.jpg"], ["x.jpg", ".png"]),
        (["attention", folder, "the cat", "--svg", existing / "x.svg"], ["x.svg"]),
        (["attention", folder, "the cat", "--layers", "3", "--json"], ["3", "layer"]),
        (["attention", folder, "the cat", "--heads", "5", "--json"], ["5", "head"]),
    ):
        ran = run(*words)
        assert ran.exit_code == 1, (words, ran.stdout)
        assert all(name in ran.stderr for name in names), ran.stderr
    assert run("atention", folder, "the cat").exit_code == 2
