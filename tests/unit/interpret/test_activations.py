"""Recorded activations equal a direct forward, for every family with feed-forward networks."""

import pytest
import torch
from torch.nn import functional as F

from cloze.errors import InputError
from cloze.interpret.activations import (
    capture_activations,
    list_neuron_layers,
    parse_neuron,
    select_neuron_layers,
)
from cloze.models.build import build
from cloze.models.configs.transformer import TransformerConfig
from cloze.models.configs.ulmfit import ULMFiTConfig
from cloze.models.registry import FAMILIES
from cloze.nn.block import GatedFeedForward
from cloze.nn.fuse import fuse
from helpers import ENCODERS, raises, scramble

SHAPE = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 64,
    "max_positions": 12,
}
IDS = torch.tensor([[5, 6, 7, 8, 9]])


def make(family):
    config = FAMILIES[family].config_class(**SHAPE)
    return scramble(build(config, (), rng=torch.Generator().manual_seed(0))).eval()


@pytest.mark.parametrize("family", ENCODERS)
def test_activations_equal_a_direct_forward_and_those_of_fused_blocks(family):
    module = make(family)
    layers = list_neuron_layers(module)
    assert [(layer.name, layer.size) for layer in layers] == [("1", 64), ("2", 64)]
    inputs = []
    hooks = [
        block.ffn.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
        for block in module.blocks
    ]
    with torch.no_grad(), capture_activations(layers) as captured:
        module(IDS)
    for hook in hooks:
        hook.remove()
    for block, x, layer in zip(module.blocks, inputs, layers, strict=True):
        up = F.linear(x, block.ffn.up.weight, block.ffn.up.bias)
        if isinstance(block.ffn, GatedFeedForward):
            value, gate = up.chunk(2, -1)
            expected = block.ffn.activation(value) * gate
        else:
            expected = block.ffn.activation(up)
        torch.testing.assert_close(captured[layer.name], expected.clamp(min=0))
        assert (captured[layer.name] > 0).any()
    with torch.no_grad(), capture_activations(list_neuron_layers(fuse(module))) as fused:
        module(IDS)
    for name, values in captured.items():
        torch.testing.assert_close(fused[name], values)


def test_hooks_are_removed_after_an_error_and_reduce_is_applied_at_once():
    module = make("bert")
    layers = list_neuron_layers(module)
    with pytest.raises(RuntimeError, match="stop"), capture_activations(layers):
        raise RuntimeError("stop")
    assert not any("expand" in vars(layer.module) for layer in layers)
    with torch.no_grad(), capture_activations(layers) as whole:
        module(IDS)
    with torch.no_grad(), capture_activations(layers[1:], lambda _, x: x[..., 3]) as captured:
        module(IDS)
    assert list(captured) == ["2"]
    assert torch.equal(captured["2"], whole["2"][..., 3])


def test_both_sides_of_a_translator_and_recurrent_layers_have_neurons():
    shape = {"vocab_size": 20, "hidden_size": 8, "num_heads": 2, "intermediate_size": 16}
    config = TransformerConfig(**shape, num_layers=2)
    module = build(config, (), rng=torch.Generator().manual_seed(0))
    names = [layer.name for layer in list_neuron_layers(module)]
    assert names == ["encoder.1", "encoder.2", "decoder.1", "decoder.2"]
    config = ULMFiTConfig(vocab_size=20, embedding_size=4, hidden_size=6, num_layers=2)
    module = scramble(build(config, (), rng=torch.Generator().manual_seed(0))).eval()
    layers = list_neuron_layers(module)
    with torch.no_grad(), capture_activations(layers) as captured:
        hidden = list(module.hidden_states(IDS))
    for layer, expected in zip(layers, hidden[1:], strict=True):
        torch.testing.assert_close(captured[layer.name], expected.clamp(min=0))


def test_layers_and_neurons_are_selected_by_name():
    layers = list_neuron_layers(make("bert"))
    assert select_neuron_layers(layers, None) == layers
    assert select_neuron_layers(layers, ["-1", "1", "2"]) == [layers[1], layers[0]]
    assert parse_neuron("2:7", layers) == (layers[1], 7)
    with raises(InputError, "3", fix=["1", "2"]):
        select_neuron_layers(layers, ["3"])
    with raises(InputError, "7", fix="3:120"):
        parse_neuron("7", layers)
    with raises(InputError, "1", "64", fix="63"):
        parse_neuron("1:64", layers)
