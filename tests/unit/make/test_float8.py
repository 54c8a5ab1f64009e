"""Weights in eight bits, rounded with an eye on the text they read."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import cloze
from cloze.make.float8 import round_columns, round_weights, save_float8, to_float8
from generated_examples import examples
from helpers import tiny_model

TEXTS = [
    "the cat sat.",
    "abc the cats, def",
    "[MASK] sat the a",
    "j i h g f e d c b a",
    "猫 the 猫",
]


def loss(weight, other, inputs):
    return float(((weight - other).double() @ inputs.double().T).square().sum())


def drawn(seed, rows=24, width=16, count=200):
    rng = torch.Generator().manual_seed(seed)
    mixing = torch.randn(width, width, generator=rng)
    inputs = torch.randn(count, width, generator=rng) @ mixing  # columns that lean on each other
    return torch.randn(rows, width, generator=rng) / 8, inputs


@examples(25)
@given(st.integers(0, 10_000))
def test_what_it_says_is_nearer_than_with_the_nearest_numbers(seed):
    weight, inputs = drawn(seed)
    fitted = round_columns(weight, inputs.T @ inputs)
    assert torch.equal(to_float8(fitted).float(), fitted)  # eight bits hold it
    assert loss(fitted, weight, inputs) < loss(to_float8(weight).float(), weight, inputs)


def test_inputs_that_never_come_do_no_harm():
    weight, inputs = drawn(0)
    inputs[:, 3:] = 0
    assert torch.isfinite(round_columns(weight, inputs.T @ inputs)).all()
    near = round_columns(weight, torch.zeros(16, 16))
    assert torch.equal(near, to_float8(weight).float())  # nothing to lean on: the nearest


def test_a_model_keeps_its_vectors_through_the_file(tmp_path):
    model = tiny_model("mlm", family="modernbert")
    before = {name: one.clone() for name, one in model.module.state_dict().items()}
    exact = cloze.embed(model, TEXTS)
    off = {}
    for name, one in (("nearest", model), ("fitted", round_weights(model, TEXTS))):
        opened = cloze.load(save_float8(one, tmp_path / name), device="cpu")
        off[name] = np.abs(cloze.embed(opened, TEXTS) - exact).mean()
    assert off["fitted"] < off["nearest"]
    for name, one in model.module.state_dict().items():
        assert torch.equal(one, before[name]), name


def test_it_tells_how_far_it_is():
    told = []
    round_weights(
        tiny_model("mlm", family="modernbert"), TEXTS, progress=lambda *said: told.append(said)
    )
    assert [count for _, count, _ in told] == list(range(1, 1 + told[-1][-1]))
