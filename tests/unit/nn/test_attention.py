"""Attention over flat rows whose lengths only the device knows."""

import pytest
import torch
from torch.nn import functional as F

from cloze.errors import ConfigError
from cloze.models.build import build
from cloze.models.registry import FAMILIES
from cloze.nn import attention
from cloze.nn.attention import compute_varlen_attention, scaled_dot_product_attention
from cloze.nn.context import AttentionContext
from cloze.nn.layout import Packed, Varlen
from helpers import MASKED, raises, scramble

LENGTHS = (7, 1, 12, 4)


def row_of(lengths, *, empty=0, device="cpu"):
    cu_seqlens = torch.tensor([0, *lengths, *[0] * empty]).cumsum(0).int().to(device)
    return Varlen(cu_seqlens, Packed.from_lengths(lengths).position_ids.to(device), max(lengths))


def attend(qkv, row, window=None, is_causal=False):
    context = AttentionContext(
        row, max_seqlen=row.max_seqlen, device=qkv.device, is_causal=is_causal
    )
    return compute_varlen_attention(*qkv.chunk(3, 1), context, window_size=window)


@pytest.mark.parametrize("empty", [0, 3])
def test_tokens_attend_to_their_own_sequence(empty):
    parts = torch.randn(3, sum(LENGTHS), 2, 8, generator=torch.Generator().manual_seed(0))
    found = attend(torch.cat([*parts], 1), row_of(LENGTHS, empty=empty))
    at = 0
    for length in LENGTHS:
        query, key, value = parts[:, at : at + length].transpose(1, 2)  # h t d
        expected = F.scaled_dot_product_attention(query, key, value).transpose(0, 1)
        torch.testing.assert_close(found[at : at + length], expected)
        at += length


@pytest.mark.parametrize("window", [None, 6])
def test_causal_attention(window):
    qkv = torch.randn(sum(LENGTHS), 6, 8, generator=torch.Generator().manual_seed(0))
    changed = qkv.clone()
    changed[14:20] += 1.0  # the end of the third sequence
    row = row_of(LENGTHS)
    before, after = (attend(one, row, window, is_causal=True) for one in (qkv, changed))
    assert torch.equal(before[:14], after[:14])
    assert torch.equal(before[20:], after[20:])
    assert not torch.isclose(before[14:20], after[14:20]).all(-1).any()


@pytest.mark.parametrize("family", MASKED)
def test_packed_and_varlen_rows_give_the_same_result(family):
    config = FAMILIES[family].config_class(
        vocab_size=30,
        hidden_size=16,
        num_layers=3,
        num_heads=2,
        intermediate_size=32,
        max_positions=24,
    )
    model = scramble(build(config, ["mlm"], rng=torch.Generator()), scale=0.3).eval()
    ids = torch.randint(30, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))
    packed = model(ids, Packed.from_lengths(LENGTHS))
    torch.testing.assert_close(model(ids, row_of(LENGTHS, empty=2)), packed, rtol=1e-4, atol=1e-5)


def test_a_sliding_window():
    config = FAMILIES["modernbert"].config_class(
        vocab_size=30,
        hidden_size=16,
        num_layers=3,
        num_heads=2,
        intermediate_size=32,
        max_positions=24,
        window_size=4,
    )
    model = scramble(build(config, ["mlm"], rng=torch.Generator()), scale=0.3).eval()
    ids = torch.randint(30, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))
    packed = model(ids, Packed.from_lengths(LENGTHS))
    torch.testing.assert_close(model(ids, row_of(LENGTHS)), packed, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 80])
def test_long_sequences_on_a_gpu_equal_the_plain_computation(window, causal):
    lengths = (300, 7, 150)
    qkv = torch.randn(sum(lengths), 6, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    there, here = row_of(lengths, device="cuda"), row_of(lengths)
    found = attend(qkv.cuda(), there, window, causal).cpu()
    torch.testing.assert_close(found, attend(qkv, here, window, causal), rtol=2e-2, atol=2e-2)


def test_float32_on_a_gpu_is_an_error():
    class OnGpu(torch.Tensor):
        device = torch.device("cuda")

    qkv = torch.zeros(3, 3, 8).as_subclass(OnGpu)
    with raises(ConfigError, "torch.float32", fix="--dtype bfloat16"):
        attend(qkv, row_of((3,)))


def record_backends(monkeypatch):
    """Whether cuDNN may compute the attention of each call on what counts as a GPU here."""
    monkeypatch.setattr(attention, "CUDNN_DEVICES", {"cpu"})
    plain, allowed = F.scaled_dot_product_attention, []

    def record(*args):
        allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
        return plain(*args)

    monkeypatch.setattr(F, "scaled_dot_product_attention", record)
    return allowed


def test_cudnn_does_not_compute_gradients_with_a_mask(monkeypatch):
    allowed = record_backends(monkeypatch)
    qkv = torch.randn(3, 2, 4, 5, 8, requires_grad=True)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    scaled_dot_product_attention(*qkv, mask).sum().backward()
    scaled_dot_product_attention(*qkv, None)
    with torch.no_grad():
        scaled_dot_product_attention(*qkv, mask)
    assert allowed == [False, True, True]
    assert torch.backends.cuda.cudnn_sdp_enabled()


def test_attention_without_cudnn_can_be_compiled(monkeypatch):
    monkeypatch.setattr(attention, "CUDNN_DEVICES", {"cpu"})
    qkv = [torch.randn(2, 4, 5, 8, requires_grad=True) for _ in range(3)]
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    compiled = torch.compile(scaled_dot_product_attention, backend="aot_eager", fullgraph=True)
    found, expected = compiled(*qkv, mask), scaled_dot_product_attention(*qkv, mask)
    torch.testing.assert_close(found, expected)
    slope = torch.randn_like(found)
    grads = [torch.autograd.grad(one, qkv, slope) for one in (found, expected)]
    torch.testing.assert_close(*grads)
