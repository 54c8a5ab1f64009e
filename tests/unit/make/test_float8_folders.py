"""Folders with eight bits a weight."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

import cloze
from cloze.errors import FolderError
from cloze.make.float8 import FLOAT8, LARGEST, save_float8, to_float8
from helpers import MASKED, files_of, raises, tiny_model


@pytest.fixture(params=MASKED)
def model(request):
    return tiny_model("mlm", family=request.param)


def test_matrices_are_rounded_and_the_rest_is_as_it_was(model, tmp_path):
    whole = load_file(model.save(tmp_path / "whole") / "model.safetensors")
    folder = save_float8(model, tmp_path / "small")
    stored = load_file(folder / "model.safetensors")
    assert stored.keys() == whole.keys()
    for name, weight in whole.items():
        if weight.dim() == 2:
            assert stored[name].dtype == FLOAT8
            assert torch.equal(stored[name].float(), weight.to(FLOAT8).float()), name
        else:
            assert torch.equal(stored[name], weight), name
    assert files_of(folder) == files_of(tmp_path / "whole")


def test_the_folder_opens_as_any_other(model, tmp_path):
    folder = save_float8(model, tmp_path / "small")
    opened = cloze.load(folder)
    assert not opened.report
    assert opened.dtype == torch.float32
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    texts = ["the cat sat", "a b c"]
    ours, theirs = cloze.embed(opened, texts), cloze.embed(model, texts)
    cosines = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    assert 0.95 < cosines.min() < 1  # rounded, not ruined
    assert cloze.load(folder, dtype="bfloat16").dtype == torch.bfloat16
    assert set(cloze.info(folder).dtypes) == {"F8_E4M3", "F32"}


def test_saving_what_was_opened_gives_whole_weights_again(model, tmp_path):
    opened = cloze.load(save_float8(model, tmp_path / "small"))
    again = cloze.load(opened.save(tmp_path / "whole"))
    assert set(cloze.info(tmp_path / "whole").dtypes) == {"F32"}
    for name, weight in opened.module.state_dict().items():
        assert torch.equal(again.module.state_dict()[name], weight)


def test_a_small_folder_is_a_fixed_point(model, tmp_path):
    first = save_float8(model, tmp_path / "first")
    second = save_float8(cloze.load(first), tmp_path / "second")
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


def test_what_is_there_is_kept(model, tmp_path):
    save_float8(model, tmp_path / "small")
    with raises(FolderError, "exists", fix="--force"):
        save_float8(model, tmp_path / "small")
    save_float8(model, tmp_path / "small", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


@pytest.mark.parametrize("odd", [2 * LARGEST, -2 * LARGEST, float("nan"), float("inf")])
def test_what_eight_bits_cannot_hold_stays_whole(odd):
    weight = torch.tensor([[1.0, odd]])
    assert to_float8(weight) is weight


@given(st.floats(2.0**-6, LARGEST, width=32), st.sampled_from([1, -1]))
def test_numbers_keep_four_binary_digits(value, sign):
    weight = torch.tensor([[sign * value]])
    assert abs(to_float8(weight).float().item() / weight.item() - 1) <= 2.0**-4
