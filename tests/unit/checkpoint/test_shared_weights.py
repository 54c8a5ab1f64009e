"""A text encoder that a folder shares with a built-in model."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.source import builtin
from cloze.errors import ConfigError, FolderError
from cloze.files import compute_sha256
from cloze.models.configs.nested import NestedConfig
from helpers import raises, tiny_model
from images import diffusion_model


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A diffusion model, and the folder of its text encoder, which is built in."""
    encoder = tiny_model("mlm", family="modernbert")
    folder = encoder.save(tmp_path / "builtin" / "small-en")
    monkeypatch.setattr("cloze.checkpoint.source.BUILTIN", tmp_path / "builtin")
    assert builtin() == {"small-en": folder}
    model = diffusion_model(text_family="modernbert")
    own = model.module.text_encoder
    stored = cloze.load(folder, device="cpu").module.state_dict()
    own.load_state_dict({name: stored[name] for name in own.state_dict()})
    nested = NestedConfig(
        model.config.text.config, "small-en", compute_sha256(folder / "model.safetensors")
    )
    config = replace(model.config, text=nested)
    model.module.config = config
    return replace(model, config=config), folder


def test_weights_are_stored_once_and_draw_the_same(shared, tmp_path):
    model, _ = shared
    folder = model.save(tmp_path / "pictures")
    whole = replace(
        model, config=replace(model.config, text=replace(model.config.text, builtin="", sha256=""))
    ).save(tmp_path / "whole")
    sizes = [(one / "model.safetensors").stat().st_size for one in (folder, whole)]
    encoder = sum(weight.numel() for weight in model.module.text_encoder.parameters())
    assert sizes[1] - sizes[0] >= 4 * encoder
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).unlink()
    loaded = cloze.load(folder, device="cpu")
    assert not loaded.report.missing
    again = loaded.save(tmp_path / "again")
    for one in (loaded, cloze.load(again, device="cpu"), cloze.load(whole, device="cpu")):
        assert np.array_equal(
            cloze.draw(one, "a b", steps=2).pixels, cloze.draw(model, "a b", steps=2).pixels
        )
    names = json.loads((folder / "config.json").read_text())["text"]
    assert names["builtin"] == "small-en"


def test_another_version_or_a_damaged_name_is_refused(shared, tmp_path):
    model, encoder = shared
    folder = model.save(tmp_path / "pictures")
    values = json.loads((folder / "config.json").read_text())

    def change(**settings):
        text = {**values["text"], **settings}
        (folder / "config.json").write_text(json.dumps({**values, "text": text}))

    for settings, error, name in (
        ({"builtin": "other-en"}, FolderError, "other-en"),
        ({"builtin": "../pictures"}, FolderError, "pictures"),
        ({"sha256": "0" * 64}, FolderError, "version"),
        ({"sha256": "x"}, FolderError, "sha256"),
        ({"builtin": 3}, FolderError, "builtin"),
        ({"norm_eps": 0.1}, FolderError, "settings"),
    ):
        change(**settings)
        with raises(error, name):
            cloze.load(folder, device="cpu")
    change()
    weights = cloze.load(encoder, device="cpu")
    with torch.no_grad():
        weights.module.embeddings.word.weight.add_(1)
    weights.save(encoder, force=True)
    with raises(FolderError, "version", fix="version"):
        cloze.load(folder, device="cpu")
    with raises(ConfigError, "sha256"):
        NestedConfig.from_table({"family": "modernbert", "builtin": "a"}, "text")
