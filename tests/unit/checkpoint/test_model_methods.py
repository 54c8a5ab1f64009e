"""The methods of a loaded model: the public functions, `to`, `repr`, and errors of `load`."""

import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.methods import ModelMethods
from cloze.errors import ConfigError, InputError
from grams import text_model
from helpers import check_mentions, raises, tiny_model, word_model
from translators import translator

METHODS = [name for name in vars(ModelMethods) if not name.startswith("_")]


def vectors():
    table = np.eye(3, 4, dtype=np.float32)
    return word_model(words=["cat", "dog", "mat"], vectors=table)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_signature_and_help_of_its_function(name):
    function, method = getattr(cloze, name), getattr(tiny_model("mlm"), name)
    parameters = dict(inspect.signature(function).parameters)
    del parameters["model"]
    assert dict(inspect.signature(method).parameters).keys() == parameters.keys()
    assert method.__doc__
    if name != "export":
        assert method.__doc__ == function.__doc__
        assert list(inspect.signature(method).parameters.values()) == list(parameters.values())


def test_every_function_of_a_model_is_a_method():
    first = {
        name: next(iter(inspect.signature(getattr(cloze, name)).parameters), None)
        for name in cloze.__all__
        if inspect.isfunction(getattr(cloze, name))
    }
    assert {name for name, parameter in first.items() if parameter == "model"} - {"glue"} == {
        *METHODS
    } - {"export", "explain"}


def test_a_method_returns_what_its_function_returns():
    model = tiny_model("mlm")
    assert model.fill("a [MASK]") == cloze.fill(model, "a [MASK]")
    assert model.fill(["a [MASK]"], top=2) == cloze.fill(model, ["a [MASK]"], top=2)
    assert np.array_equal(model.embed(["a b"]), cloze.embed(model, ["a b"]))
    assert model.tokenize("the cat").ids == model.tokenizer.encode("the cat").ids
    assert model.score("a b") == cloze.score(model, "a b")
    grams = text_model(2)
    assert grams.suggest("the") == cloze.suggest(grams, "the")
    assert grams.generate("the", seed=1) == cloze.generate(grams, "the", seed=1)
    words = vectors()
    assert words.similar("cat") == cloze.similar(words, "cat")
    assert words.analogy("cat", "dog", "mat") == cloze.analogy(words, "cat", "dog", "mat")


def test_the_views_of_a_model_are_those_of_the_function():
    model = tiny_model("mlm")
    expected = cloze.explain(model, "the cat", view="attention").to_dict()
    assert model.explain("the cat").to_dict() == expected
    assert model.explain.attention("the cat").to_dict() == expected
    assert dir(model.explain) == dir(cloze.explain)
    with pytest.raises(AttributeError, match="atention.*attention"):
        _ = model.explain.atention


def test_several_words_and_texts_may_be_any_iterable():
    words = vectors()
    assert words.similar(("cat", "dog")) == words.similar(iter(["cat", "dog"]))
    assert words.combine({"cat"}, iter(["dog"])) == words.combine("cat", ["dog"])
    assert words.odd_one_out(iter(["cat", "dog", "mat"])).query == "cat, dog, mat"
    assert words.plot_vectors(iter(["cat"])).rows == ["cat"]
    assert words.plot_words(iter(["cat", "dog"]), iter([words.similar("cat")])).points
    with raises(InputError, "word", "int"):
        words.odd_one_out([1, 2, 3])
    model = tiny_model("mlm")
    both = model.tokenize(iter(["a", "b"]), pair=("c", "d"))
    assert [one.ids for one in both] == [model.tokenize(*pair).ids for pair in ("ac", "bd")]


def test_a_model_exports_itself(tmp_path):
    model = tiny_model("mlm")
    assert model.export("huggingface", tmp_path / "out") == tmp_path / "out"
    assert cloze.load(tmp_path / "out").fill("a [MASK]").best == model.fill("a [MASK]").best
    with raises(InputError, "out", fix="force"):
        model.export("huggingface", tmp_path / "out")


@pytest.mark.parametrize("made", [text_model, vectors, lambda: translator("transformer")])
def test_an_unsupported_method_names_those_that_are_supported(made):
    model = made()
    for name in ("fill", "classify"):
        with raises(InputError, name, fix=tuple(model.capabilities)):
            getattr(model, name)("a [MASK]")
    with raises(InputError, "translate", fix=("fill", "embed")):
        tiny_model("mlm").translate("a")


def test_to_moves_in_place_and_returns_the_model(tmp_path):
    folder = tiny_model("mlm").save(tmp_path / "model")
    model = cloze.load(folder, device="cpu")
    assert model.to("cpu", "bfloat16") is model
    assert model.dtype == torch.bfloat16
    assert next(model.module.parameters()).dtype == torch.bfloat16
    loaded = cloze.load(folder, device="cpu", dtype=torch.bfloat16)
    assert np.allclose(model.embed("a b"), loaded.embed("a b"), atol=1e-3)
    assert model.to(torch.float32).dtype == torch.float32
    assert model.to(torch.device("cpu")).to().dtype == torch.float32
    with raises(ConfigError, "dtype", "int8"):
        model.to(dtype=torch.int8)
    with raises(ConfigError, "device", "gpu"):
        model.to("gpu")


def test_a_head_on_features_is_described_and_moved(tmp_path):
    base = tiny_model().save(tmp_path / "base")
    rows = [{"text": "a b", "label": "good"}, {"text": "c d", "label": "bad"}] * 8
    cloze.finetune("classify", base, rows, tmp_path / "run", "features", dev=rows, progress=False)
    model = cloze.load(tmp_path / "run")
    described = cloze.info(tmp_path / "run")
    assert {"classify", "embed"} <= model.capabilities.keys()
    assert described.labels == ("bad", "good")
    assert replace(model.info(), size_bytes=0, dtypes={}) == replace(
        described, size_bytes=0, dtypes={}
    )
    model.to("cpu", "bfloat16")
    loaded = cloze.load(tmp_path / "run", device="cpu", dtype="bfloat16")
    assert model.classify("a b").scores == pytest.approx(loaded.classify("a b").scores, abs=1e-3)


@pytest.mark.gpu
def test_to_cuda_is_as_loaded_there(tmp_path):
    folder = tiny_model("mlm").save(tmp_path / "model")
    model = cloze.load(folder, device="cpu").to("cuda", "bfloat16")
    loaded = cloze.load(folder, device="cuda", dtype="bfloat16")
    assert [*map(type, model.module.modules())] == [*map(type, loaded.module.modules())]
    assert np.allclose(model.embed(["a b"]), loaded.embed(["a b"]), atol=1e-2)
    back = model.to("cpu", "float32")
    plain = cloze.load(folder, device="cpu")
    assert [*map(type, back.module.modules())] == [*map(type, plain.module.modules())]
    assert np.allclose(back.embed(["a b"]), plain.embed(["a b"]), atol=1e-1)


def test_models_without_a_network_stay_in_float32():
    for model in (text_model(2), vectors()):
        assert model.to("cpu") is model
        assert model.to("cpu", "float32") is model
        with raises(InputError, "bfloat16", fix="float32"):
            model.to(dtype="bfloat16")


def test_repr_names_size_task_device_and_dtype():
    model = tiny_model("sequence", labels=("good", "bad"))
    model = replace(model, task=cloze.checkpoint.task.Task(name="classify"))
    check_mentions(
        repr(model), "bert", "num_layers=2", "'classify'", "('good', 'bad')", "cpu", "float32"
    )
    check_mentions(repr(model), f"parameters={model.num_parameters}")
    assert "device" not in repr(text_model(2))


def test_notebooks_show_a_table_without_markup_of_labels():
    model = tiny_model("sequence", labels=("<b>", "bad"))
    shown = replace(model, task=cloze.checkpoint.task.Task(name="classify"))._repr_html_()
    check_mentions(shown, "bert", "classify", "&lt;b&gt;, bad", "float32", "embed")
    assert "<b>" not in shown
    many = tiny_model("sequence", labels=tuple(f"label{n}" for n in range(50)))
    shown = replace(many, task=cloze.checkpoint.task.Task(name="classify"))._repr_html_()
    check_mentions(shown, "label19 and 30 more")


def test_info_of_a_loaded_model_is_that_of_its_folder(tmp_path):
    for number, model in enumerate((tiny_model("mlm", "nsp"), text_model(2), vectors())):
        folder = model.save(tmp_path / str(number))
        described, loaded = cloze.info(folder), cloze.load(folder)
        assert replace(loaded.info(), size_bytes=0) == replace(described, size_bytes=0)
        assert cloze.info(model).folder is None
    vector_table = vectors().module
    assert cloze.info(vector_table).parameters == {"vectors": 12}
    assert cloze.info(tiny_model("mlm").to(dtype="bfloat16")).dtypes.keys() == {"BF16"}


@pytest.mark.parametrize("given", [None, 5, b"folder", Path], ids=str)
def test_load_needs_a_path_or_a_name(given):
    with raises(InputError, "model", fix=("path", "name")):
        cloze.load(given)


def test_a_loaded_model_is_not_loaded_again():
    with raises(InputError, "already"):
        cloze.load(tiny_model("mlm"))


def test_load_remembers_the_folder(tmp_path):
    folder = tiny_model("mlm").save(tmp_path / "model")
    assert cloze.load(folder).folder == folder
