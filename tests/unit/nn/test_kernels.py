"""Our own kernels for GPUs, each beside the plain way to compute the same.

They need CUDA; or Triton on any machine, with TRITON_INTERPRET=1 and `pytest -m gpu` on this file
(the interpreter of Triton 3.6 cannot count with numpy 2.4: it needs an older one).
"""

from copy import deepcopy

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton")

from cloze.nn import kernels
from cloze.nn.attention import Attention, RotaryAttention
from cloze.nn.block import FeedForward, GatedFeedForward, PostNormBlock
from cloze.nn.context import AttentionContext
from cloze.nn.fuse import fuse
from cloze.nn.kernels.tiles import SMALL
from cloze.nn.layout import Varlen
from cloze.nn.positions import compute_rotary_table

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),  # interpreter's
]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = [torch.bfloat16, torch.float32] if DEVICE == "cuda" else [torch.float32]
CLOSE = {
    torch.bfloat16: {"rtol": 2e-2, "atol": 3e-2},
    torch.float32: {"rtol": 2e-2, "atol": 2e-2},  # a GPU multiplies float32 in TF32
}


def drawn(*shape, dtype=torch.float32, seed=0):
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return numbers.to(DEVICE, dtype).requires_grad_()


def seed(number=7):
    return torch.tensor([number], dtype=torch.int32, device=DEVICE)


def both_ways(kernel, plain, *inputs):
    """Results and gradients of both, from one random slope."""
    found = []
    for function in (kernel, plain):
        given = [one.detach().clone().requires_grad_() for one in inputs]
        out = function(*given)
        slope = drawn(*out.shape, seed=99).detach().to(out.dtype)
        out.backward(slope)
        found.append([out.detach(), *(one.grad for one in given)])
    return zip(*found, strict=True)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("rows", [37, 150])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_gelu(gated, biased, rows, dtype):
    def plain(inner, bias=0.0):
        inner = inner.float() + bias
        if not gated:
            return F.gelu(inner).to(dtype)
        value, gate = inner.chunk(2, -1)
        return (F.gelu(value) * gate).to(dtype)

    def kernel(inner, bias=None):
        return torch.ops.cloze.gelu(inner, bias, gated)

    inner = 4 * drawn(rows, 2 * 550, dtype=dtype).detach()
    biases = [drawn(2 * 550, seed=1)] if biased else []
    for a, b in both_ways(kernel, plain, inner, *biases):
        near = CLOSE[dtype] | ({"atol": 0.3} if a.ndim == 1 else {})  # sums over all rows
        torch.testing.assert_close(a, b, **near)


def test_gelu_is_exact_to_a_millionth():
    x = torch.linspace(-12, 12, 4096, device=DEVICE).view(4, 1024)
    torch.testing.assert_close(torch.ops.cloze.gelu(x, None, False), F.gelu(x), rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_a_network_with_kernels_computes_the_same(kind, monkeypatch):
    net, x, found = kind(48, 80, F.gelu).to(DEVICE), drawn(13, 48), []
    monkeypatch.setattr(kernels, "is_supported", lambda *_: True)
    for change in (lambda net: net, fuse):
        change(net).zero_grad()
        out = net(x)
        out.backward(drawn(13, 48, seed=1).detach())
        found.append([out.detach(), *(one.grad.clone() for one in net.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(1, 48), (13, 768), (3, 700, 320), (9, 1030)])
def test_add_norm(shape, dtype):
    width = shape[-1]
    weight, bias = drawn(width, seed=3), drawn(width, seed=4)
    x, y = drawn(*shape, dtype=dtype, seed=1), drawn(*shape, dtype=dtype, seed=2)

    def kernel(x, y, weight, bias):
        return torch.ops.cloze.add_norm(x, y, weight, bias, seed(), None, 1e-5, 0.0)[0]

    def plain(x, y, weight, bias):
        return F.layer_norm((x + y).float(), (width,), weight, bias, 1e-5).to(x.dtype)

    for a, b in both_ways(kernel, plain, x, y, weight, bias):
        near = CLOSE[dtype] | ({"atol": 0.3} if a.ndim == 1 else {})  # sums over all rows
        torch.testing.assert_close(a, b, **near)


LENGTHS = (7, 128, 1, 50, 0, 0)
LONG = (7, 300, 1, 0, 129, 0)


def row_of(lengths=LENGTHS, is_causal=False):
    """A context of sequences in a flat row."""
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int().to(DEVICE)
    positions = torch.cat([torch.arange(length) for length in lengths]).to(DEVICE)
    layout = Varlen(cu_seqlens, positions, max(lengths))
    device = torch.device(DEVICE)
    return AttentionContext(layout, max_seqlen=max(lengths), device=device, is_causal=is_causal)


def run_attention(qkv, row, *, table=None, window=None, share=0.0):
    none = qkv.new_empty(0)
    cos, sin = (none, none) if table is None else table
    reach = row.reach(window)
    reach = row.max_seqlen if reach is None else reach
    return torch.ops.cloze.attention(
        qkv, row.layout.cu_seqlens, cos, sin, seed(), row.max_seqlen, reach, share, row.is_causal
    )[0]


def plain_attention(qkv, row, *, rotary=False, window=None):
    """The whole square of the row, masked."""
    heads, width = qkv.shape[1] // 3, qkv.shape[2]
    if rotary:
        layer = RotaryAttention(heads * width, heads, rope_theta=10_000.0)
        query, key, value = layer.split_qkv(qkv, row)
    else:
        query, key, value = qkv.chunk(3, 1)
    query, key, value = (part.transpose(0, 1) for part in (query, key, value))
    mask = row.attn_mask(window)
    return F.scaled_dot_product_attention(query, key, value, mask).transpose(0, 1)


def compare_attention(row, rotary, width, dtype, window=None):
    table = compute_rotary_table(row.max_seqlen, width, device=DEVICE) if rotary else None
    qkv = drawn(len(row.position_ids), 6, width, dtype=dtype)
    for a, b in both_ways(
        lambda x: run_attention(x, row, table=table, window=window),
        lambda x: plain_attention(x, row, rotary=rotary, window=window),
        qkv,
    ):
        torch.testing.assert_close(a, b, **CLOSE[dtype])


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("window", [None, 10])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("lengths", [LENGTHS, (3, 9), LONG])
def test_attention(lengths, turns, causal, window, dtype):
    compare_attention(row_of(lengths, causal), turns, 64, dtype, window)


@pytest.mark.parametrize("lengths", [LENGTHS, (3, 9), LONG])
def test_attention_with_small_tiles(lengths, monkeypatch):
    monkeypatch.setattr(kernels.attention, "_tiles_for", lambda *_: SMALL)
    compare_attention(row_of(lengths), True, 64, KINDS[0])


@pytest.mark.parametrize("window", [None, 140])
@pytest.mark.parametrize("width", [32, 128])
@pytest.mark.parametrize("lengths", [(40, 64), (130, 200)])
def test_attention_with_any_head_size(lengths, width, window):
    compare_attention(row_of(lengths), True, width, KINDS[0], window)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of keys past the end
@pytest.mark.parametrize("lengths", [(5, 100), (5, 200)])
def test_attention_of_very_low_scores(lengths):
    row = row_of(lengths)
    qkv = drawn(sum(lengths), 6, 64, dtype=KINDS[0]).detach()
    qkv[:, :2], qkv[:, 2:4] = -30.0, 1.0  # all at −240
    for a, b in both_ways(lambda x: run_attention(x, row), lambda x: plain_attention(x, row), qkv):
        torch.testing.assert_close(a, b, **CLOSE[KINDS[0]])


def learnt(block, x, row, slope):
    """Gradients of the input and of all weights; in bfloat16 unless on a CPU."""
    device = next(block.parameters()).device
    x = x.detach().to(device).requires_grad_()
    layout = Varlen(row.layout[0].to(device), row.layout[1].to(device), row.max_seqlen)
    context = AttentionContext(layout, max_seqlen=row.max_seqlen, device=device)
    with torch.autocast(device.type, torch.bfloat16, enabled=x.dtype == torch.bfloat16):
        out = block(x, context)
    (out.float() * slope.to(device)).sum().backward()
    return [x.grad, *(weight.grad for weight in block.parameters())]


@pytest.mark.skipif(DEVICE == "cpu", reason="a block calls the kernels on a GPU only")
@pytest.mark.parametrize("longest", [100, 300])
def test_a_block(longest):
    torch.manual_seed(0)
    row, x = row_of((20, longest)), drawn(20 + longest, 128, dtype=torch.bfloat16)
    block = PostNormBlock(
        Attention(128, 2), FeedForward(128, 256, F.gelu), dropout=0.0, norm_eps=1e-12
    )
    slope = drawn(20 + longest, 128, seed=4).detach()
    exact = learnt(deepcopy(block), x.float(), row, slope)
    for ours, plain in zip(learnt(fuse(block.to(DEVICE)), x, row, slope), exact, strict=True):
        assert (ours.float().cpu() - plain.cpu()).norm() < 0.03 * plain.norm()


def kept_places(row, share, width, dtype):
    """Which weights are not dropped, n h k: with rows of 1 as values the result is the weights."""
    qkv = drawn(len(row.position_ids), 6, width, dtype=dtype, seed=3).detach()
    qkv[:, 4:] = torch.eye(width, device=DEVICE, dtype=dtype)[row.position_ids][:, None]
    return run_attention(qkv, row, share=share) != 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("longest", [128, 200])  # back in one kernel, or in two
def test_attention_dropout_is_the_same_in_the_backward_pass(longest, causal):
    lengths, width, share, dtype = (20, 128, 77), 128, 0.3, KINDS[0]
    row = row_of(lengths, causal)
    row.max_seqlen = longest
    kept = kept_places(row, share, width, dtype)
    seen = sum(n * (n + 1) / 2 if causal else n * n for n in lengths) * 2
    assert kept.sum().item() / seen == pytest.approx(0.7, abs=0.01)

    def plain(qkv):
        mixed = []
        parts = zip(qkv.float().split(lengths), kept.split(lengths), strict=True)
        for part, stays in parts:
            query, key, value = part.transpose(0, 1).chunk(3)  # h t d
            scores = query @ key.transpose(1, 2) / width**0.5
            if causal:
                scores = scores.masked_fill(torch.ones_like(scores[0]).triu(1) > 0, -torch.inf)
            weights = scores.softmax(-1) * stays.transpose(0, 1)[..., : len(part)]
            mixed.append((weights @ value / (1 - share)).transpose(0, 1))
        return torch.cat(mixed).to(qkv.dtype)

    qkv = drawn(sum(lengths), 6, width, dtype=dtype)
    for a, b in both_ways(lambda x: run_attention(x, row, share=share), plain, qkv):
        torch.testing.assert_close(a, b, **CLOSE[dtype])


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("width", [64, 768])
def test_add_norm_computes_the_gradient_of_the_bias(width, share):
    x, y = (drawn(500, width, dtype=KINDS[0], seed=one) for one in (1, 2))
    ones = torch.ones(width, device=DEVICE)
    bias = torch.zeros(width, device=DEVICE, requires_grad=True)
    out = torch.ops.cloze.add_norm(x, y, ones, ones, seed(), bias, 1e-5, share)[0]
    out.backward(drawn(500, width, seed=99).detach().to(out.dtype))
    # of numbers that are rounded to bfloat16
    torch.testing.assert_close(bias.grad, y.grad.float().sum(0), rtol=1e-2, atol=0.1)


def slope_along(function, x, way, step=1e-2):
    """The derivative in one direction: by differences, and by the gradient."""
    x = x.detach().requires_grad_()
    out = function(x)
    weights = drawn(*out.shape, seed=5).detach()
    (out * weights).sum().backward()
    with torch.no_grad():
        ahead, behind = ((function(x + sign * step * way) * weights).sum() for sign in (1, -1))
    return ((ahead - behind) / (2 * step)).item(), (x.grad * way).sum().item()


@pytest.mark.parametrize("what", ["norm", "norm of x"])
def test_the_backward_pass_draws_the_same_dropout(what):
    other, ones = drawn(50, 64, seed=8).detach(), torch.ones(64, device=DEVICE)

    def function(x):
        x, y = (x, other) if what == "norm of x" else (other, x)
        return torch.ops.cloze.add_norm(x, y, ones, ones, seed(), None, 1e-5, 0.3)[0]

    by_steps, by_gradient = slope_along(function, drawn(50, 64), drawn(50, 64, seed=6).detach())
    assert by_steps == pytest.approx(by_gradient, rel=0.03, abs=0.3)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("words", [10, 1000, 5000])
def test_cross_entropy(words, dtype):
    scores = drawn(33, words, dtype=dtype)
    scores.data[:, -1] = -torch.inf  # a word that never scores
    targets = torch.randint(0, words - 1, (33,), generator=torch.Generator().manual_seed(1))
    targets = targets.to(DEVICE)
    targets[:4] = scores[:4].argmax(-1)
    targets[::5] = -100
    plain = scores.detach().float().requires_grad_()
    losses = F.cross_entropy(plain, targets, reduction="none")
    losses.sum().backward()
    loss, hits, slope = torch.ops.cloze.cross_entropy(scores.detach(), targets)
    torch.testing.assert_close(loss, losses.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(slope.float(), plain.grad, rtol=1e-2, atol=1e-4)
    assert torch.equal(hits.bool(), (scores.argmax(-1) == targets) & (targets >= 0))


def test_of_equal_logits_the_first_is_the_highest():
    scores = torch.tensor([[0.0, 2.0, 2.0, 1.0]] * 3, device=DEVICE)
    targets = torch.tensor([1, 2, 3], device=DEVICE)
    assert torch.ops.cloze.cross_entropy(scores, targets)[1].tolist() == [1.0, 0.0, 0.0]


def draw_dropout(number, share=0.1):
    zeros, ones = torch.zeros(400, 768, device=DEVICE), torch.ones(400, 768, device=DEVICE)
    weight = torch.ones(768, device=DEVICE)
    total = torch.ops.cloze.add_norm(zeros, ones, weight, weight, seed(number), None, 1e-5, share)[
        1
    ]
    return (total == 0).float()


def test_dropout_statistics():
    one, other = draw_dropout(1), draw_dropout(2)
    assert one.mean().item() == pytest.approx(0.1, abs=0.003)
    # deviations of the shares of rows and columns, as binomial ones
    assert one.mean(1).std().item() == pytest.approx((0.09 / 768) ** 0.5, rel=0.15)
    assert one.mean(0).std().item() == pytest.approx((0.09 / 400) ** 0.5, rel=0.15)
    for a, b in ((one, other), (one[1:], one[:-1]), (one[:, 1:], one[:, :-1])):
        both = torch.stack([a.flatten(), b.flatten()])
        assert abs(torch.corrcoef(both)[0, 1].item()) < 0.01
    assert torch.equal(one, draw_dropout(1))


def test_which_tensors_are_supported():
    qkv = torch.empty(3, 6, 64, device=DEVICE, dtype=torch.bfloat16)
    there = DEVICE == "cuda"
    assert kernels.is_supported(qkv) == there
    assert not kernels.is_supported(qkv.float())
    assert kernels.can_attend(qkv, kernels.MAX_SEQLEN) == there
    assert not kernels.can_attend(qkv, kernels.MAX_SEQLEN + 1)
    assert not kernels.can_attend(torch.empty_like(qkv)[..., :48], 128)


def test_operators_in_inference_mode_are_plain_functions():
    """The first call of a torch operator imports torch's compiler; these do not call one."""
    x, y, weight = drawn(5, 32), drawn(5, 32, seed=1), drawn(32, seed=2)
    arguments = (x, y, weight, weight, seed(), None, 1e-5, 0.0)
    assert kernels.get_operator("gelu") is torch.ops.cloze.gelu
    expected = torch.ops.cloze.add_norm(*arguments)[0]
    with torch.inference_mode():
        assert kernels.get_operator("gelu") is kernels.FUNCTIONS["gelu"]
        found = kernels.get_operator("add_norm")(*arguments)[0]
        torch.testing.assert_close(found, expected)
        gelu = kernels.get_operator("gelu")(x, None, True)
    torch.testing.assert_close(gelu, torch.ops.cloze.gelu(x, None, True))
