"""Modules that are asked in the midst of learning."""

import pytest
import torch
from torch import nn

from cloze.nn.utils import eval_mode, float64_device


def test_each_part_is_afterwards_as_it_was_whatever_happens():
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


def test_a_device_without_float64_leaves_it_to_the_cpu():
    assert float64_device(torch.device("mps")) == torch.device("cpu")
    assert float64_device(torch.device("cuda", 1)) == torch.device("cuda", 1)
