"""One suite over every registered family: build, save, load, and do what it says it can."""

import inspect
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import cloze
from cloze.checkpoint.contents import read_folder
from cloze.cli.app import app
from cloze.errors import ClozeError, FolderError
from cloze.interop.own import OwnLayout
from cloze.models.capabilities import Contents
from cloze.models.registry import FAMILIES, get_family, resolve
from families import MADE
from grams import TEXT
from helpers import ENCODERS, files_of, raises
from images import drawings
from translators import TEXTS


def index_texts(model):
    """Index two texts, and find one of them."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [{"id": "one", "text": "the cat sat"}, {"id": "two", "text": "a dog"}]
        cloze.index(model, rows, f"{folder}/index", store="exact")
        with cloze.open_index(f"{folder}/index", model=model) as opened:
            (hit,) = opened.search("dog", mode="bm25").hits
            assert hit.id == "two"
            return [one.id for one in opened.search("the cat sat", mode="dense").hits]


def index_images(model):
    """Index two images, and find one of them by itself and by a text."""
    images = [{"image": one.content, "caption": one.caption} for one in drawings(2)]
    with tempfile.TemporaryDirectory() as folder:
        cloze.index(model, images, f"{folder}/index", store="exact")
        with cloze.open_index(f"{folder}/index", model=model) as opened:
            found = opened.search(images=images[1]["image"], k=1).hits
            assert found[0].text == images[1]["caption"]
            return [one.text for one in opened.search("a b", mode="dense").hits]


FUNCTIONS = {
    "fill": lambda model: cloze.fill(model, "a [MASK] b"),
    "embed": lambda model: cloze.embed(model, ["a b", "c"]),
    "tokenize": lambda model: cloze.tokenize(model, "the cat"),
    "classify": lambda model: cloze.classify(model, "a b", pair="c"),
    "tag": lambda model: cloze.tag(model, "a b c"),
    "answer": lambda model: cloze.answer(model, "a b", "c d e"),
    "choose": lambda model: cloze.choose(model, "a b", ["c", "d"]),
    "suggest": lambda model: cloze.suggest(model, "the cat"),
    "generate": lambda model: cloze.generate(model, "the", seed=0),
    "score": lambda model: cloze.score(model, "the cat"),
    "similar": lambda model: cloze.similar(model, "cat"),
    "similarity": lambda model: cloze.similarity(model, ["a b", "c"]),
    "rerank": lambda model: cloze.rerank(model, "a b", ["c", "a"], by="embeddings"),
    "index": lambda model: index_texts(model),
    "translate": lambda model: cloze.translate(model, "ein Hund"),
    "summarize": lambda model: cloze.summarize(model, "ein Hund", max_length=5),
    "draw": lambda model: cloze.draw(model, "a b", steps=2),
}
OF_IMAGES = {  # those of a model of texts and images that differ
    "classify": lambda model: cloze.classify(
        model, images=[one.content for one in drawings(2)], labels=["a", "b c"]
    ),
    "index": index_images,
}
COMMANDS = {
    "fill": ["a [MASK] b"],
    "embed": ["a b"],
    "tokenize": ["the cat"],
    "classify": ["a b"],
    "tag": ["a b c"],
    "answer": ["a b", "c d e"],
    "choose": ["a b", "c", "d"],
    "suggest": ["the cat"],
    "generate": ["the"],
    "score": ["the cat"],
    "similar": ["cat"],
    "similarity": ["a b", "c"],
    "rerank": ["a b", "c", "a", "--by", "embeddings"],
    "translate": ["ein Hund"],
    "summarize": ["ein Hund"],
    "draw": ["a b", "--json"],
}
OWN_LAYOUT_ENCODERS = {"music-transformer", "retro"}
NOT_IN_TRANSFORMERS = {"gpt3", *OWN_LAYOUT_ENCODERS}
EXPORTS = {
    "ngram": "arpa",
    "word2vec": "word2vec",
    "elmo": "allennlp",
    "gpt3": "onnx",
    **{name: "huggingface" for name in ENCODERS if name not in NOT_IN_TRANSFORMERS},
}
DATA = {"language_model": [TEXT], "translator": [TEXTS[:3], TEXTS[:3]]}


def list_functions(model):
    """How to call each function for a model."""
    return FUNCTIONS | (OF_IMAGES if model.family.kind == "dual_encoder" else {})


def test_no_family_is_left_out():
    assert {name.partition(",")[0] for name in MADE} == set(FAMILIES)


@pytest.fixture(scope="module")
def save_once(tmp_path_factory):
    """The folder of a model by its name, which no test changes."""
    return cache(lambda name: MADE[name]().save(tmp_path_factory.mktemp("family") / "model"))


@pytest.fixture(params=MADE)
def folder(request, save_once):
    return save_once(request.param)


@pytest.fixture
def own_folder(folder, tmp_path):
    """A copy that a test may change."""
    return Path(shutil.copytree(folder, tmp_path / "own"))


def test_what_is_saved_again_is_the_same_to_the_byte(folder, tmp_path):
    again = cloze.load(folder).save(tmp_path / "again")
    assert files_of(again) == files_of(folder)
    for name in files_of(folder):
        assert (again / name).read_bytes() == (folder / name).read_bytes(), name


def test_a_folder_says_what_its_model_says(folder):
    contents, model, found = read_folder(folder), cloze.load(folder), cloze.info(folder)
    assert contents.family is model.family is get_family(found.family)
    assert contents.config == model.config
    assert contents.capabilities == model.capabilities == found.capabilities
    assert model.tokenizer is not None
    assert (contents.tokenizer is None) == (model.family.tokenizer is not None)
    assert found.total_parameters == model.num_parameters
    assert model.device == torch.device("cuda" if torch.cuda.is_available() else "cpu") or (
        model.family.open is not None
    )
    assert "\n" not in repr(model)
    assert repr(model).startswith(f"Model(family={model.family.name!r}")


def test_it_does_what_it_says_and_refuses_the_rest_in_words(folder):
    able, model = cloze.info(folder).capabilities, cloze.load(folder)
    assert able.keys() & FUNCTIONS.keys()
    for name, call in list_functions(model).items():
        if name in able:
            assert call(model) is not None
        else:
            with raises(ClozeError, "cannot", name, fix=list(able)):
                call(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_command_refuses_in_the_same_words(family, save_once):
    folder = str(save_once(next(name for name in MADE if name.partition(",")[0] == family)))
    able = cloze.info(folder).capabilities
    for name, arguments in COMMANDS.items():
        if name not in able:
            ran = CliRunner().invoke(app, [name, folder, *arguments], prog_name="cloze")
            assert ran.exit_code == 1, (name, ran.stderr)
            problem, _, fix = ran.stderr.partition("fix:")
            assert name in problem or "not word vectors" in problem
            assert all(one in fix for one in able), (name, fix)


def test_it_evaluates_and_exports_where_it_says_so(folder, tmp_path):
    model = cloze.load(folder)
    predicts = {
        "score",
        "translate",
        "summarize",
    } & model.capabilities.keys()  # not a published ELMo
    if "evaluate" in model.capabilities and model.family.kind in DATA and predicts:
        assert cloze.evaluate(model, DATA[model.family.kind]).scores
    name = EXPORTS.get(model.family.name)
    assert (name is not None) == ("export" in model.capabilities)
    if name is not None:
        assert cloze.export(name, model, tmp_path / "out").exists()


def test_answers_do_not_depend_on_the_state_of_torch(folder):
    able, model = cloze.info(folder).capabilities, cloze.load(folder)
    functions = list_functions(model)
    for name in sorted(able.keys() & functions.keys()):
        torch.manual_seed(1)
        one = repr(functions[name](model))
        torch.manual_seed(2)
        with torch.inference_mode():
            assert repr(functions[name](model)) == one


def test_an_empty_folder_is_filled_and_another_is_kept(folder, tmp_path):
    model = cloze.load(folder)
    (tmp_path / "empty").mkdir()
    model.save(tmp_path / "empty")
    assert files_of(tmp_path / "empty") == files_of(folder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    with raises(FolderError, "full", "exists"):
        model.save(tmp_path / "full")
    assert files_of(tmp_path / "full") == {"notes"}


def test_a_folder_that_is_cut_is_refused(own_folder):
    file = own_folder / "model.safetensors"
    whole = file.read_bytes()
    for size in (4, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with raises(FolderError, "model.safetensors"):
            cloze.load(own_folder)


def test_another_kind_is_refused_before_weights_are_read(own_folder):
    (own_folder / "model.safetensors").write_bytes(b"")
    kind = read_family_kind(own_folder)
    wrong = "encoder" if kind != "encoder" else "translator"
    with raises(ClozeError, str(own_folder)):
        cloze.load(own_folder, kind=wrong)


def read_family_kind(folder):
    from cloze.checkpoint.contents import read_family

    return read_family(folder).kind


@pytest.mark.parametrize("name", FAMILIES)
def test_every_capability_is_a_function_of_the_package(name):
    heads = ("mlm", "nsp", "sequence", "token", "span", "choice")
    for is_causal in (False, True):
        found = FAMILIES[name].capabilities(Contents(task_heads=heads, is_causal=is_causal))
        for function, returned in found.items():
            assert inspect.isfunction(getattr(cloze, function))
            assert returned


@pytest.mark.parametrize("name", FAMILIES)
def test_a_configuration_needs_a_vocabulary_before_it_builds(name):
    family = get_family(name)
    config = family.config_class()
    assert config.vocab_size == 0
    with raises(ClozeError, "vocab_size"):
        config.check_complete()
    own = isinstance(resolve(family.layout), OwnLayout)
    assert own == (name not in ENCODERS or name in OWN_LAYOUT_ENCODERS)
