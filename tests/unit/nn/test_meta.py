"""Nets without memory: shapes alone, and nothing imported to get them."""

import subprocess
import sys

import torch

from cloze.models.build import build_on_meta
from cloze.models.configs.bert import BertConfig
from cloze.nn.utils import skip_allocation


def test_a_net_without_memory_has_shapes_and_no_values():
    module = build_on_meta(BertConfig.preset("tiny", vocab_size=99), ("mlm",))
    assert all(weight.is_meta for weight in module.parameters())
    assert next(module.embeddings.parameters()).shape == (99, 128)


def test_outside_weights_are_drawn_as_ever():
    with skip_allocation():
        torch.nn.Linear(3, 3)
    assert torch.nn.Linear(3, 3).weight.abs().sum() > 0


def test_shapes_are_made_without_the_compiler():
    """Its import takes longer than opening a model does."""
    program = (
        "import sys; from cloze.models.build import build_on_meta;"
        "from cloze.models.configs.bert import BertConfig;"
        "build_on_meta(BertConfig.preset('tiny', vocab_size=99), ('mlm', 'nsp'));"
        "print('torch._dynamo' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "False\n", ran.stderr
