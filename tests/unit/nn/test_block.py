"""Blocks with a cache, step by step, equal one pass with a causal mask."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cloze.nn.attention import Attention, CrossAttention, KVCache, RotaryAttention
from cloze.nn.block import FeedForward, PostNormBlock, PreNormBlock
from cloze.nn.context import AttentionContext
from helpers import scramble

CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def random(*shape, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def make_block(kind, attention, *, cross):
    ffn = FeedForward(16, 24, F.gelu)
    cross_attention = CrossAttention(16, 2) if cross else None
    if kind is PostNormBlock:
        block = kind(attention, ffn, dropout=0.1, norm_eps=1e-5, cross_attention=cross_attention)
    else:
        block = kind(
            attention,
            ffn,
            attention_norm=nn.LayerNorm(16),
            ffn_norm=nn.LayerNorm(16),
            dropout=0.1,
            ffn_dropout=0.1,
            cross_attention=cross_attention,
            cross_attention_norm=nn.LayerNorm(16) if cross else None,
        )
    return scramble(block, scale=0.4).double().eval()


@pytest.mark.parametrize("kind", [PostNormBlock, PreNormBlock])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("cross", [False, True])
@torch.no_grad()
def test_a_cache_equals_a_causal_mask(kind, rotary, cross):
    attention = RotaryAttention(16, 2, rope_theta=500.0) if rotary else Attention(16, 2)
    block = make_block(kind, attention, cross=cross)
    x, source = random(3, 5, 16), random(3, 4, 16, seed=1)
    mask = torch.tensor([[True] * 4, [True] * 2 + [False] * 2, [True] * 3 + [False]])
    encoder = {"encoder_states": source, "encoder_mask": mask} if cross else {}
    context = AttentionContext(max_seqlen=5, device=CPU, is_causal=True, **encoder)
    whole = block(x, context)
    cache = KVCache(encoder_kv=block.cross_attention.project_encoder(source) if cross else None)
    encoder.pop("encoder_states", None)  # the cache has them
    for step in range(5):
        position_ids = torch.tensor([step])
        context = AttentionContext(
            max_seqlen=step + 1, device=CPU, position_ids=position_ids, **encoder
        )
        next_token = block(x[:, step : step + 1], context, cache)
        torch.testing.assert_close(next_token[:, 0], whole[:, step], **CLOSE)
    assert cache.past.key.shape == (3, 5, 2, 8)


@torch.no_grad()
def test_several_tokens_before_the_first_step():
    block = make_block(PostNormBlock, Attention(16, 2), cross=False)
    x, cache = random(2, 6, 16), KVCache()
    whole = block(x, AttentionContext(max_seqlen=6, device=CPU, is_causal=True))
    prompt = AttentionContext(max_seqlen=5, device=CPU, is_causal=True)
    torch.testing.assert_close(block(x[:, :5], prompt, cache), whole[:, :5], **CLOSE)
    step = AttentionContext(max_seqlen=6, device=CPU)
    torch.testing.assert_close(block(x[:, 5:], step, cache), whole[:, 5:], **CLOSE)


@torch.no_grad()
def test_adjacent_rows_share_a_source():
    """As in beam search: two hypotheses of each of three sentences."""
    attention = scramble(CrossAttention(16, 2)).double().eval()
    source, x = random(3, 4, 16), random(6, 1, 16, seed=1)
    mask = torch.tensor([[True] * 4, [True] * 2 + [False] * 2, [True] * 3 + [False]])
    shared = AttentionContext(max_seqlen=1, device=CPU, encoder_states=source, encoder_mask=mask)
    repeated = AttentionContext(
        max_seqlen=1,
        device=CPU,
        encoder_states=source.repeat_interleave(2, 0),
        encoder_mask=mask.repeat_interleave(2, 0),
    )
    torch.testing.assert_close(attention(x, shared), attention(x, repeated), **CLOSE)


def test_reordering_does_not_change_the_cache():
    cache = KVCache()
    key, value = random(3, 1, 2, 8), random(3, 1, 2, 8, seed=1)
    cache.append(key, value)
    other = cache.reorder(torch.tensor([2, 2, 0]))
    other.append(key, value)
    assert torch.equal(cache.past.key, key)
    assert torch.equal(other.past.key[:, 0], key[[2, 2, 0], 0])
    assert KVCache().reorder(torch.tensor([0])).past is None
