"""Masks and packed rows."""

import torch

from cloze.errors import InputError
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.nn.attention import Attention
from cloze.nn.context import AttentionContext
from cloze.nn.layout import Packed, causal_mask, expand_mask
from helpers import raises


def test_no_token_attends_to_a_later_one():
    x = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    attention = Attention(8, 2).double().eval()
    changed = x.clone()
    changed[:, 3:] += 1.0
    context = AttentionContext(max_seqlen=6, device=x.device, is_causal=True)
    before, after = attention(x, context), attention(changed, context)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])


def test_a_mask_of_queries_and_keys():
    rng = torch.Generator().manual_seed(0)
    module = build(
        BertConfig(vocab_size=20, hidden_size=8, num_layers=1, num_heads=2, intermediate_size=8),
        rng=rng,
    ).eval()
    ids = torch.arange(10)[None]
    left = module(ids, causal_mask(10)[None])
    assert torch.allclose(left[:, :4], module(ids[:, :4], causal_mask(4)[None]), atol=1e-6)


def test_a_one_dimensional_mask_is_an_error():
    with raises(InputError, "mask", "1", fix="(batch, keys)"):
        expand_mask(torch.ones(4))


def test_packed_runs_are_adjacent_sequences_of_equal_length():
    packed = Packed.from_lengths([3, 3, 1, 3])
    assert packed.runs == ((0, 2, 3), (6, 1, 1), (7, 1, 3))
    assert packed.starts.tolist() == [0, 3, 6, 7]
    assert packed.position_ids.tolist() == [0, 1, 2, 0, 1, 2, 0, 0, 1, 2]


def test_the_error_for_a_long_sequence_lists_the_truncations():
    rng = torch.Generator().manual_seed(0)
    shape = {
        "vocab_size": 20,
        "hidden_size": 8,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_size": 8,
        "max_positions": 4,
    }
    module = build(BertConfig(**shape), rng=rng)
    with raises(InputError, "5 tokens", "4 positions", fix=("head", "tail", "head+tail", "window")):
        module(torch.zeros(1, 5, dtype=torch.long))
