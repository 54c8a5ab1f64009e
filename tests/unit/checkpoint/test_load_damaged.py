"""Broken and hostile model folders: a clear error, before any allocation."""

import json
import pickle
import struct
import tracemalloc

import numpy as np
import pytest
import torch

import cloze
from cloze.errors import FolderError, InputError, MissingExtraError
from helpers import change_weights, raises, tiny_model


@pytest.fixture
def folder(tmp_path):
    return tiny_model("mlm").save(tmp_path / "model")


def header(entries, data=b""):
    raw = json.dumps(entries).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def tensor(kind="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": kind, "shape": list(shape), "data_offsets": list(offsets)}


HOSTILE = {
    "empty": b"",
    "seven bytes": b"1234567",
    "a huge header": struct.pack("<Q", 1 << 62) + b"{}",
    "a header past the end": struct.pack("<Q", 100) + b"{}",
    "not json": struct.pack("<Q", 4) + b"\xff\xfe{}",
    "a list": header([1, 2]),
    "deep nesting": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "a tensor past the end": header({"a": tensor(shape=(1000,), offsets=(0, 4000))}),
    "offsets backwards": header({"a": tensor(offsets=(4, 0))}, b"1234"),
    "negative offsets": header({"a": tensor(offsets=(-4, 0))}, b"1234"),
    "a terabyte in four bytes": header({"a": tensor(shape=(1 << 38,))}, b"1234"),
    "a negative shape": header({"a": tensor(shape=(-1, -1))}, b"1234"),
    "an unknown kind": header({"a": tensor(kind="F99")}, b"1234"),
    "not a tensor": header({"a": 7}),
    "sides without end": header({"a": tensor(shape=[10**17] * 200_000)}, b"1234"),
    "a side beyond reason": header({"a": tensor(shape=[0, 10**4000])}, b"1234"),
    "a header of megabytes": header({"a" * (5 << 20): tensor()}, b"1234"),
    "tensors without end": header(
        dict.fromkeys(map(str, range(10_001)), tensor(shape=[0], offsets=[0, 0]))
    ),
    "lists without end": header({"a": [[]] * 100_000}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_malicious_weights(folder, name):
    (folder / "model.safetensors").write_bytes(HOSTILE[name])
    tracemalloc.start()
    with raises(FolderError, "model.safetensors"):
        cloze.load(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 << 20


def test_truncated_weights_are_detected(folder):
    whole = (folder / "model.safetensors").read_bytes()
    for cut in np.linspace(0, len(whole) - 1, 25).astype(int):
        (folder / "model.safetensors").write_bytes(whole[:cut])
        with raises(FolderError, "safetensors"):
            cloze.load(folder)


def test_integers_are_not_weights(folder):
    change_weights(
        folder, lambda t: t.update({"bert.embeddings.LayerNorm.bias": torch.zeros(16).int()})
    )
    with raises(FolderError, "LayerNorm.bias", "I32"):
        cloze.load(folder)


def test_two_names_of_one_weight(folder):
    name = "bert.embeddings.LayerNorm.bias"
    change_weights(folder, lambda t: t.update({name.replace("bias", "beta"): t[name].clone()}))
    with raises(FolderError, "weight"):
        cloze.load(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000, b"null"])
def test_broken_configurations(folder, content):
    (folder / "config.json").write_bytes(content)
    with raises(FolderError, "config.json"):
        cloze.load(folder)


def test_a_configuration_that_is_too_large(folder):
    with (folder / "config.json").open("wb") as file:
        file.truncate(1 << 30)
    with raises(FolderError, "1,073,741,824", "bytes"):
        cloze.load(folder)


def test_errors_can_be_pickled():
    assert issubclass(InputError, ValueError)
    for error in (InputError("wrong", fix="right"), MissingExtraError("this", extra="that")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.fix) == (type(error), str(error), error.fix)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (torch.float32, float("nan")),
        (torch.float32, float("inf")),
        (torch.float32, float("-inf")),
        (torch.bfloat16, float("nan")),
        (torch.float8_e4m3fn, float("nan")),  # it has no infinity
    ],
)
def test_weights_with_nan_or_infinite_values(folder, kind, value):
    name = "bert.embeddings.position_embeddings.weight"

    def spoil(tensors):
        weight = tensors[name].clone()
        weight[3, 2] = value
        return {**tensors, name: weight.to(kind)}

    change_weights(folder, spoil)
    with raises(FolderError, name, "model.safetensors"):
        cloze.load(folder)
