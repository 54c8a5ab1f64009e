"""Pickles are never opened, whatever the name of the file."""

import io
import json
import os
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import cloze
from cloze.checkpoint import state as states
from cloze.checkpoint.modules import build_feature_head
from cloze.checkpoint.task import FeatureSettings, Task
from cloze.checkpoint.word2vec import load_vectors
from cloze.errors import ClozeError, FolderError
from cloze.files import compute_sha256
from grams import text_model
from helpers import raises, tiny_model, word_model
from languages import neural_model
from saving_jobs import numbered
from translators import translator

INDEX = "model.safetensors.index.json"


class Hostile:
    """Makes a folder where it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.canary),)


def by_torch(thing: object, *, packed: bool) -> bytes:
    stream = io.BytesIO()
    torch.save({"weight": thing}, stream, _use_new_zipfile_serialization=packed)
    return stream.getvalue()


MAKES = {
    **{f"protocol {n}": partial(pickle.dumps, protocol=n) for n in range(6)},
    "torch, packed": partial(by_torch, packed=True),
    "torch, of old": partial(by_torch, packed=False),
}


@pytest.fixture(params=MAKES)
def hostile(request, tmp_path):
    """The bytes; whatever a test did, in the end nothing of them has run."""
    canary = tmp_path / "canary"
    content = MAKES[request.param](Hostile(canary))
    torch.load(io.BytesIO(content), weights_only=False) if "torch" in request.param else (
        pickle.loads(content)
    )
    canary.rmdir()  # so it bites, where it is let
    yield content
    assert not canary.exists()


def check_refused(folder, hostile, name, opener=cloze.load):
    (folder / name).write_bytes(hostile)
    with pytest.raises(ClozeError):
        opener(folder)


def test_under_every_name_of_weights(hostile, tmp_path):
    folder = tiny_model("mlm").save(tmp_path / "m")
    sound = (folder / "model.safetensors").read_bytes()
    check_refused(folder, hostile, "model.safetensors")
    (folder / "model.safetensors").unlink()
    for name in ("pytorch_model.bin", "model.bin", "model.pt", "model.pth", "model.ckpt"):
        check_refused(folder, hostile, name)
    with raises(FolderError, "pickle", "model.bin"):
        cloze.load(folder)
    for shard in ("pytorch_model.bin", "a.safetensors"):
        (folder / INDEX).write_text(json.dumps({"weight_map": {"a": shard}}))
        check_refused(folder, hostile, shard)
    (folder / "model.safetensors").write_bytes(sound)  # beside sound weights they do not matter
    for name in ("training_args.bin", "optimizer.pt", "pytorch_model.bin.index.json"):
        (folder / name).write_bytes(hostile)
    assert cloze.load(folder).task_heads == ("mlm",)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "cloze.json", INDEX])
def test_under_the_names_of_settings(hostile, tmp_path, name):
    folder = tiny_model("mlm").save(tmp_path / "m")
    if name == INDEX:
        (folder / "model.safetensors").unlink()
    check_refused(folder, hostile, name)


def test_as_a_feature_head(hostile, tmp_path):
    features = FeatureSettings(input_size=16)
    body = tiny_model("mlm", task=Task(name="classify", features=features))
    folder = replace(body, feature_head=build_feature_head(features, 2)).save(tmp_path / "m")
    assert cloze.load(folder).feature_head is not None
    check_refused(folder, hostile, "reader.safetensors")


def test_in_folders_of_our_own_families(hostile, tmp_path):
    vectors = word_model(words=("a",), vectors=torch.ones(1, 2).numpy())
    for name, save in {
        "ngram": text_model(2).save,
        "lstm": neural_model("lstm").save,
        "transformer": translator().save,
        "words": vectors.save,
    }.items():
        check_refused(save(tmp_path / name), hostile, "model.safetensors")


@pytest.mark.parametrize("name", ["words.bin", "words.kv", "words.vec", "words.txt"])
def test_as_a_file_of_word_vectors(hostile, tmp_path, name):
    check_refused(tmp_path, hostile, name, lambda folder: load_vectors(folder / name))


def test_in_a_training_state_whose_manifest_agrees(hostile, tmp_path):
    path = states.save_state(tmp_path / "state", numbered(1))
    (path / "model.safetensors").write_bytes(hostile)
    listed = {
        file.name: [file.stat().st_size, compute_sha256(file)]
        for file in path.iterdir()
        if file.name != states.MANIFEST
    }
    (path / states.MANIFEST).write_bytes(states._encode_json(states._make_manifest(listed)))
    with raises(FolderError, "damaged"):
        states.read_state(path)
