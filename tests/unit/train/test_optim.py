import torch
from torch import nn

from cloze.errors import ConfigError
from cloze.train.config import OptimizerConfig
from cloze.train.optim import build_optimizer, set_lr
from helpers import raises
from training import tiny_bert


def test_norms_and_biases_do_not_decay_and_all_else_does():
    model = tiny_bert()
    made = build_optimizer(model, OptimizerConfig(weight_decay=0.01))
    decay = {id(w): group["weight_decay"] for group in made.param_groups for w in group["params"]}
    free = {
        f"{name}.{weight}"
        for name, part in model.named_modules()
        for weight, _ in part.named_parameters(recurse=False)
        if isinstance(part, nn.LayerNorm) or weight == "bias"
    }
    named = dict(model.named_parameters())
    assert {name for name, weight in named.items() if decay[id(weight)] == 0.0} == free
    assert all(decay[id(named[name])] == 0.01 for name in named.keys() - free)
    assert decay[id(model.embeddings.word.weight)] == 0.01


def test_frozen_weights_are_left_to_themselves():
    model = tiny_bert()
    model.embeddings.requires_grad_(False)
    made = build_optimizer(model, OptimizerConfig())
    known = {id(weight) for group in made.param_groups for weight in group["params"]}
    assert known == {id(weight) for weight in model.parameters() if weight.requires_grad}


def test_the_schedule_scales_the_highest_rate_of_each_group():
    made = build_optimizer(tiny_bert(), OptimizerConfig(lr=0.5))
    made.param_groups[1]["peak"] = 0.1
    assert set_lr(made, 0.5) == 0.25
    assert [group["lr"] for group in made.param_groups] == [0.25, 0.05]
    set_lr(made, 1.0)
    assert [group["lr"] for group in made.param_groups] == [0.5, 0.1]


def test_one_step_is_adamw_as_published():
    """θ ← θ − η(m̂/(√v̂ + ε) + λθ).  Loshchilov and Hutter 2017, algorithm 2."""
    weight = nn.Linear(3, 2, bias=False).double()
    before = weight.weight.detach().clone()
    made = build_optimizer(weight, OptimizerConfig(lr=0.1, weight_decay=0.2, eps=1e-6))
    weight(torch.ones(1, 3, dtype=torch.double)).sum().backward()
    gradient = weight.weight.grad
    assert gradient is not None
    step = gradient / (gradient.abs() + 1e-6)
    made.step()
    torch.testing.assert_close(weight.weight.detach(), before - 0.1 * (step + 0.2 * before))


def test_an_unknown_optimiser():
    with raises(ConfigError, "adamw"):
        OptimizerConfig(name="adam")
