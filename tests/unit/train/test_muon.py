"""Muon: what it does to matrices, to the rest, and when it is told to hold back."""

from dataclasses import replace
from itertools import repeat

import pytest
import torch

from cloze.models.build import build
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.train.config import OptimizerConfig
from cloze.train.muon import orthogonalize
from cloze.train.optim import build_optimizer
from cloze.train.state import restore, snapshot
from training import new_state, packed, steps_of, tiny_bert

CONFIG = OptimizerConfig(name="muon", lr=0.02, adamw_lr=1e-3)


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 12, 5), (2, 5, 12)])
def test_the_singular_values_come_close_to_one(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = orthogonalize(matrices).float()
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.5
    assert values.max() < 1.4
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    nearest = u @ v
    cosine = torch.nn.functional.cosine_similarity(found.flatten(1), nearest.flatten(1))
    assert cosine.min() > 0.95


def test_matrices_of_the_blocks_and_nothing_else_go_to_muon():
    config = ModernBertConfig.preset("tiny", vocab_size=50)
    model = build(config, ["mlm"], rng=torch.Generator())
    made = build_optimizer(model, CONFIG)
    parts = {id(w): group["parts"] for group in made.param_groups for w in group["params"]}
    named = dict(model.named_parameters())
    assert parts.keys() == {id(weight) for weight in named.values()}
    for name, weight in named.items():
        joined = {"qkv.weight": 3, "up.weight": 2}.get(".".join(name.split(".")[-2:]), 1)
        assert parts[id(weight)] == (joined if "blocks" in name and weight.ndim == 2 else 0)
    assert {group["peak"] for group in made.param_groups} == {0.02, 1e-3}


def test_query_key_and_value_are_made_orthogonal_apart():
    model = tiny_bert()
    made = build_optimizer(model, OptimizerConfig(name="muon", lr=1.0, weight_decay=0.0))
    weight = model.blocks[0].attention.qkv.weight
    before = weight.detach().clone()
    rng = torch.Generator().manual_seed(0)
    for one in model.parameters():
        one.grad = torch.randn(one.shape, generator=rng)
    made.step()
    for third in (before - weight.detach()).chunk(3):
        assert torch.linalg.svdvals(third).min() > 0.3


def test_a_model_learns_by_it():
    config = replace(CONFIG, adamw_lr=1e-2)  # embeddings of nothing have far to go
    state = new_state(made=lambda model: build_optimizer(model, config))
    again = [packed(range(8))]
    steps = steps_of(state, 60, source=lambda _: repeat(again))
    assert steps[-1].means["mlm"] < 0.5 * steps[0].means["mlm"]


def test_a_held_back_step_changes_nothing():
    model = tiny_bert()
    made = build_optimizer(model, CONFIG)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    made.step()
    before = [weight.detach().clone() for weight in model.parameters()]
    moments = [made.state[w]["momentum"].clone() for w in made.param_groups[0]["params"]]
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, torch.nan)
    made.found_inf = torch.tensor(1.0)
    made.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    kept = [made.state[w]["momentum"] for w in made.param_groups[0]["params"]]
    assert all(torch.equal(a, b) for a, b in zip(moments, kept, strict=True))


def test_it_resumes_to_the_bit():
    straight = new_state(made=lambda model: build_optimizer(model, CONFIG))
    expected = [step.means for step in steps_of(straight, 8)]
    stopped = new_state(made=lambda model: build_optimizer(model, CONFIG))
    first = [step.means for step in steps_of(stopped, 8, upto=3)]
    again = new_state(made=lambda model: build_optimizer(model, CONFIG))
    restore(again, snapshot(stopped, {}), {})
    assert first + [step.means for step in steps_of(again, 8)] == expected
