"""`fuse` and `unfuse` exchange classes; without a GPU the results are identical."""

from copy import deepcopy

import pytest
import torch
from torch.nn import functional as F

from cloze.interpret.capture import capture
from cloze.models.build import build
from cloze.models.configs.transformer import TransformerConfig
from cloze.models.registry import FAMILIES
from cloze.models.transformer import Transformer
from cloze.nn import kernels
from cloze.nn.attention import Attention
from cloze.nn.block import FeedForward, GatedFeedForward, PostNormBlock
from cloze.nn.context import AttentionContext
from cloze.nn.fuse import FUSED, fuse, move_to_device, unfuse
from cloze.nn.graph_encoder import EncoderGraphs
from cloze.nn.layout import Packed, Varlen
from cloze.nn.positions import RotaryTable, apply_rotary
from helpers import MASKED, scramble

SHAPE = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_layers": 3,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_positions": 24,
}
LENGTHS = (7, 7, 3)
IDS = torch.randint(30, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))


def encoder(family):
    config = FAMILIES[family].config_class(**SHAPE)
    return scramble(build(config, ["mlm"], rng=torch.Generator()), scale=0.3)


def classes_of(model):
    return [type(part) for part in model.modules()]


def layouts():
    packed = Packed.from_lengths(LENGTHS)
    cu_seqlens = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    return packed, Varlen(cu_seqlens, packed.position_ids, max(LENGTHS))


@pytest.mark.parametrize("family", MASKED)
def test_a_fused_model_computes_the_same_and_can_be_undone(family):
    model = encoder(family)
    before, names = classes_of(model), list(model.state_dict())
    plain = [model.eval()(IDS, layout) for layout in layouts()]
    parameters = list(model.parameters())
    assert fuse(fuse(model)) is model
    assert not set(classes_of(model)) & set(FUSED)
    assert list(model.state_dict()) == names
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    for expected, layout in zip(plain, layouts(), strict=True):
        assert torch.equal(model(IDS, layout), expected)
    with capture(model, Attention) as weights, capture(model, FeedForward) as nets:
        model(IDS[None, :7])
    assert len(weights) == len(nets) == 3
    assert classes_of(unfuse(model)) == before


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_fused_translator_computes_the_same(norm):
    config = TransformerConfig(
        vocab_size=30, hidden_size=16, num_layers=2, num_heads=2, intermediate_size=32, norm=norm
    )
    model = Transformer(config)
    source, target = IDS[None, :7], IDS[None, 7:12]
    real = torch.ones_like(source, dtype=torch.bool)
    found = []
    for change in (unfuse, fuse):
        torch.manual_seed(0)
        hidden = change(model).train()(source, real, target)
        state = model.eval().init_state(source, real)
        found.append([hidden, model.step(target[:, 0], state)[0]])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_moving_to_a_cpu_leaves_plain_modules():
    model = encoder("bert")
    before = classes_of(model)
    assert classes_of(move_to_device(fuse(model), torch.device("cpu"), torch.float64)) == before
    assert model.embeddings.word.weight.dtype == torch.float64


class Recorded:
    """Stands in for the operators of the kernels, computed plainly."""

    def __init__(self):
        self.calls = []

    def add_norm(self, x, y, weight, bias, _seed, added_bias, eps, _p):
        self.calls.append("add_norm" if added_bias is None else "add_norm with bias")
        if added_bias is not None:  # whose gradient the kernel computes; y has it detached
            y = y + (added_bias - added_bias.detach())
        return F.layer_norm(x + y, x.shape[-1:], weight, bias, eps), x + y

    def gelu(self, inner, bias, gated):
        self.calls.append("gelu")
        inner = inner if bias is None else inner + bias
        if not gated:
            return F.gelu(inner)
        value, gate = inner.chunk(2, -1)
        return F.gelu(value) * gate

    def attention(self, qkv, cu_seqlens, cos, sin, _seed, max_seqlen, reach, _p, is_causal):
        self.calls.append("rotary attention" if cos.numel() else "attention")
        positions = torch.cat([torch.arange(n) for n in cu_seqlens.diff().tolist()])
        positions = F.pad(positions, (0, len(qkv) - len(positions)))  # a row may be longer
        context = AttentionContext(
            Varlen(cu_seqlens, positions, max_seqlen),
            max_seqlen=max_seqlen,
            device=qkv.device,
            is_causal=is_causal,
        )
        query, key, value = (part.transpose(0, 1) for part in qkv.chunk(3, 1))
        if cos.numel():
            table = RotaryTable(cos, sin).select(positions)
            query, key = (
                apply_rotary(part.transpose(0, 1), table).transpose(0, 1) for part in (query, key)
            )
        mask = context.attn_mask(2 * reach if reach < max_seqlen else None)
        return (F.scaled_dot_product_attention(query, key, value, mask).transpose(0, 1),)


@pytest.fixture
def recorded(monkeypatch):
    """Every kernel applies, and is computed plainly."""
    made = Recorded()
    monkeypatch.setattr(kernels, "is_supported", lambda *_: True)
    monkeypatch.setattr(kernels, "can_attend", lambda *_: True)
    monkeypatch.setattr(kernels, "can_fit", lambda *_: True)
    monkeypatch.setattr("cloze.nn.kernels.ops.cloze", made, raising=False)
    return made


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("family", MASKED)
def test_the_inputs_of_the_kernels(family, mode, recorded):
    """Outputs and all gradients are those of the plain model."""
    config = FAMILIES[family].config_class(**SHAPE, dropout=0.0, attention_dropout=0.0)
    plain = scramble(build(config, ["mlm"], rng=torch.Generator()), scale=0.3)
    fused = fuse(deepcopy(plain))
    row, found = layouts()[1], []
    for model in (plain, fused):
        hidden = model.train(mode == "train")(IDS, row)
        hidden.square().sum().backward()
        named = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
        found.append({"hidden": hidden.detach()} | named)
    one, other = found
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-5)
    norm = "add_norm with bias" if mode == "train" else "add_norm"
    expected = {"modernbert": ["rotary attention", "gelu"]}
    assert recorded.calls == expected.get(family, ["attention", norm, "gelu", norm]) * 3


@pytest.mark.parametrize("family", MASKED)
def test_the_kernels_of_captured_rows(family, recorded):
    """Rows of fixed shape, as in CUDA graphs; sums and norms are one kernel in every family."""
    config = FAMILIES[family].config_class(**SHAPE)
    model = scramble(build(config, ["mlm"], rng=torch.Generator()), scale=0.3).eval()
    packed, types = Packed((7, 5, 2)), torch.zeros(14, dtype=torch.long)
    with torch.inference_mode():
        expected = model(IDS[:14], packed, types)
        found = EncoderGraphs().compute(fuse(model), IDS[:14], packed, types, None)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    attention = "rotary attention" if family == "modernbert" else "attention"
    assert recorded.calls == [attention, "add_norm", "gelu", "add_norm"] * 3


def test_other_activations_use_no_kernel(recorded):
    for kind in (FeedForward, GatedFeedForward):
        net, x = kind(8, 12, F.relu), torch.randn(3, 8)
        assert torch.equal(net(x), fuse(net)(x))
    assert not recorded.calls


def test_a_decoder_block_fuses_its_norms(recorded):
    config = TransformerConfig(
        vocab_size=30, hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, dropout=0.0
    )
    model = Transformer(config)
    source = IDS[None, :7]
    real = torch.ones_like(source, dtype=torch.bool)
    expected = model(source, real, source)
    torch.testing.assert_close(fuse(model)(source, real, source), expected)
    assert recorded.calls == ["add_norm with bias"] * 5
    assert isinstance(model.decoder[0], PostNormBlock)
