"""`dtype`: int8 and auto."""

import json

import numpy as np
import pytest

import cloze
from cloze.checkpoint import precision
from cloze.errors import ConfigError, InputError
from grams import text_model
from helpers import raises, tiny_model


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cloze" / "dtypes.json"


@pytest.fixture
def folder(tmp_path):
    return tiny_model("mlm", hidden_size=32).save(tmp_path / "model")


def test_int8_is_loaded_shown_and_undone(folder):
    exact, model = cloze.load(folder, device="cpu"), cloze.load(folder, dtype="int8")
    assert "int8" in repr(model)
    vectors = exact.embed(["the cat sat", "a b"])
    found = model.embed(["the cat sat", "a b"])
    assert not np.array_equal(found, vectors)
    assert np.allclose(found, vectors, atol=0.1)
    assert np.allclose(model.to("cpu", "float32").embed(["the cat sat", "a b"]), vectors, atol=1e-5)
    assert np.array_equal(model.to(dtype="int8").embed(["the cat sat", "a b"]), found)
    words = [mask.predictions[0].word for mask in model.fill("the [MASK]").masks]
    assert len(words) == 1


def test_auto_measures_once_and_reports(folder, cache, monkeypatch):
    timed = {"float32": 1.0, "bfloat16": 0.6, "int8": 0.4}
    measured = []

    def time_embedding(model, dtype):
        measured.append(dtype)
        found, _ = original(model, dtype)
        return found, timed[dtype]

    original = precision._time_embedding
    monkeypatch.setattr(precision, "_time_embedding", time_embedding)
    monkeypatch.setattr(precision, "MIN_COSINE", 0.9)
    model = cloze.load(folder, device="cpu", dtype="auto")
    assert "int8" in repr(model)
    assert set(measured) >= {"float32", "int8"}
    measured.clear()
    assert "int8" in repr(cloze.load(folder, device="cpu", dtype="auto"))
    assert not measured
    (choice,) = cloze.info(folder).auto_dtype
    assert (choice.dtype, choice.speedup) == ("int8", 2.5)
    assert choice.dtype in choice.describe()
    assert str(folder) in cache.read_text()


def test_auto_keeps_float32_if_others_are_not_exact(folder, cache, monkeypatch):
    monkeypatch.setattr(precision, "MIN_COSINE", 0.9999999)
    exact = cloze.load(folder, device="cpu").embed("a b")
    model = cloze.load(folder, device="cpu", dtype="auto")
    assert "float32" in repr(model)
    assert np.allclose(model.embed("a b"), exact, atol=1e-6)


def test_new_weights_are_measured_again(folder, cache, monkeypatch):
    cloze.load(folder, device="cpu", dtype="auto")
    tiny_model("mlm", hidden_size=64).save(folder, force=True)
    cloze.load(folder, device="cpu", dtype="auto")
    assert len(json.loads(cache.read_text())) == 2


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "{"])
def test_a_damaged_cache_is_replaced(folder, cache, content):
    cache.parent.mkdir(parents=True)
    cache.write_text(content)
    cloze.load(folder, device="cpu", dtype="auto")
    assert cloze.info(folder).auto_dtype


def test_models_that_have_no_int8():
    with raises(InputError, "int8", fix="float32"):
        text_model().to(dtype="int8")
    assert text_model().to(dtype="auto")
    with raises(ConfigError, "dtype", "int9"):
        tiny_model().to(dtype="int9")


def test_an_unknown_dtype_names_the_choices(folder):
    with raises(ConfigError, "dtype", "int7", fix=("int8", "auto", "bfloat16")):
        cloze.load(folder, dtype="int7")
