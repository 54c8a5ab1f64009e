"""Evaluation mode, modules on the meta device, devices without float64."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from cloze.models.build import build_on_meta
from cloze.models.configs.bert import BertConfig
from cloze.nn.utils import eval_mode, float64_device, skip_allocation


def test_eval_mode_restores_the_mode_of_every_submodule():
    net = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.Dropout()))
    net[1].eval()  # frozen, while the rest learns
    net[1][1].train()
    before = [part.training for part in net.modules()]
    asked = []

    def fail():
        with eval_mode(net):
            asked.extend(part.training for part in net.modules())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert asked == [False] * len(before)
    assert [part.training for part in net.modules()] == before


def test_a_device_without_float64_uses_the_cpu():
    assert float64_device(torch.device("mps")) == torch.device("cpu")
    assert float64_device(torch.device("cuda", 1)) == torch.device("cuda", 1)


def test_modules_on_the_meta_device_have_shapes_only():
    module = build_on_meta(BertConfig.preset("tiny", vocab_size=99), ("mlm",))
    assert all(weight.is_meta for weight in module.parameters())
    assert next(module.embeddings.parameters()).shape == (99, 128)


def test_outside_of_it_weights_are_initialized():
    with skip_allocation():
        torch.nn.Linear(3, 3)
    assert torch.nn.Linear(3, 3).weight.abs().sum() > 0


def test_building_on_the_meta_device_imports_no_compiler():
    """Its import takes longer than opening a model does."""
    program = (
        "import sys; from cloze.models.build import build_on_meta;"
        "from cloze.models.configs.bert import BertConfig;"
        "build_on_meta(BertConfig.preset('tiny', vocab_size=99), ('mlm', 'nsp'));"
        "print('torch._dynamo' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "False\n", ran.stderr
