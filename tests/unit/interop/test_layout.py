"""Rules for stored weights: concatenate, split, transpose."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from cloze.checkpoint.modules import _make_stored_tensors, _read_weights, write_module
from cloze.checkpoint.weights import read_header
from cloze.interop.huggingface import HuggingFaceLayout
from cloze.interop.layout import Rule, make_rule
from cloze.models.configs.bert import BertConfig


def test_stored_shapes():
    assert Rule(("a",)).stored_shape((3, 4)) == (3, 4)
    assert Rule(("a",)).stored_shape(()) == ()
    assert Rule(("q", "k", "v")).stored_shape((9, 4)) == (3, 4)
    assert Rule(("q", "k", "v")).stored_shape((9,)) == (3,)
    assert Rule(("c",), transpose=True).stored_shape((9, 4)) == (4, 9)
    assert Rule(("c",), transpose=True).stored_shape((9,)) == (9,)
    assert Rule(("c",), part=(1, 3)).stored_shape((3, 4)) == (9, 4)
    assert Rule(("c",), transpose=True, part=(1, 3)).stored_shape((3, 4)) == (4, 9)


def test_entries_of_a_table():
    assert make_rule("dense", "h.1.", ".weight") == Rule(("h.1.dense.weight",))
    assert make_rule(("q", "k"), "", ".bias") == Rule(("q.bias", "k.bias"))
    turned = make_rule(Rule(("c_attn",), transpose=True), "h.0.", ".weight")
    assert turned == Rule(("h.0.c_attn.weight",), transpose=True)


RULES = {
    "plain": Rule(("x",)),
    "qkv": Rule(("q", "k", "v")),
    "fused": Rule(("c_attn",), transpose=True),
    "fused.bias": Rule(("c_attn.bias",), transpose=True),
    "second": Rule(("pair",), part=(1, 2)),
    "first": Rule(("pair",), part=(0, 2)),
    "turned.0": Rule(("both",), transpose=True, part=(0, 2)),
    "turned.1": Rule(("both",), transpose=True, part=(1, 2)),
    "scalar": Rule(("scale",)),
}
SHAPES = {
    "plain": (2, 3),
    "qkv": (6, 2),
    "fused": (6, 2),
    "fused.bias": (6,),
    "second": (2, 3),
    "first": (2, 3),
    "turned.0": (2, 3),
    "turned.1": (2, 3),
    "scalar": (),
}


def test_stored_and_loaded_weights_are_equal(tmp_path):
    ours = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    stored = _make_stored_tensors(RULES, ours)
    assert torch.equal(stored["k"], ours["qkv"][2:4])
    assert torch.equal(stored["c_attn"], ours["fused"].T)
    assert torch.equal(stored["c_attn.bias"], ours["fused.bias"])
    assert torch.equal(stored["pair"], torch.cat([ours["first"], ours["second"]]))
    assert torch.equal(stored["both"], torch.cat([ours["turned.0"], ours["turned.1"]]).T)
    for name, rule in RULES.items():
        for part in rule.names:
            assert stored[part].shape == rule.stored_shape(SHAPES[name]), name
    from safetensors.torch import save_file

    save_file(stored, tmp_path / "model.safetensors")
    found = read_header(tmp_path / "model.safetensors")
    again = _read_weights(RULES, {name: name for name in stored}, found)
    assert all(torch.equal(again[name], ours[name]) for name in ours)
    assert all(one.is_contiguous() for one in again.values())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2, 6)
        self.out = nn.Linear(2, 2)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(5, 2)
        self.blocks = nn.ModuleList([Block(), Block()])


def test_a_layout_like_gpt2_is_one_table(tmp_path):
    """Conv1D stores [in, out], with query, key and value in one matrix."""
    layout = HuggingFaceLayout(
        family="bert",
        prefix="transformer.",
        settings={"vocab_size": "vocab_size"},
        architectures={"GPT2Model": ()},
        weights={
            "word": "transformer.wte",
            "qkv": Rule(("attn.c_attn",), transpose=True),
            "out": Rule(("attn.c_proj",), transpose=True),
        },
        block="transformer.h.{n}.",
    )
    module = Decoder()
    write_module(module, BertConfig(vocab_size=5), layout, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["h.1.attn.c_attn.weight"].shape == (2, 6)
    assert torch.equal(stored["h.1.attn.c_attn.weight"], module.blocks[1].qkv.weight.T)
    assert torch.equal(stored["h.0.attn.c_proj.bias"], module.blocks[0].out.bias)
    assert stored.keys() >= {"wte.weight", "h.0.attn.c_attn.bias"}
    rules = layout.map_weights(BertConfig(vocab_size=5), module.state_dict())
    wanted = {name for rule in rules.values() for name in rule.names}
    names = layout.find_names(None, stored, wanted)
    assert names["transformer.h.0.attn.c_attn.weight"] == "h.0.attn.c_attn.weight"
    read = _read_weights(rules, names, read_header(tmp_path / "model.safetensors"))
    assert all(torch.equal(read[name], one) for name, one in module.state_dict().items())


def test_a_weight_without_an_entry():
    layout = HuggingFaceLayout(
        family="bert", prefix="b.", settings={}, architectures={}, weights={}, block="b.{n}."
    )
    with pytest.raises(KeyError, match="dense"):
        layout.map_weights(BertConfig(vocab_size=5), ["dense.weight"])
