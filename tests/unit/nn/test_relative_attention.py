"""Relative attention: against its definition, in every layout, with a cache."""

import pytest
import torch

from cloze.nn.attention import KVCache
from cloze.nn.context import AttentionContext
from cloze.nn.layout import Packed, Varlen
from cloze.nn.relative_attention import RelativeAttention, skew

SIZE, HEADS = 8, 2


@pytest.fixture(scope="module", params=[3, 20])  # shorter and longer than the sequences
def attention(request):
    torch.manual_seed(0)
    return RelativeAttention(SIZE, HEADS, max_distance=request.param).double().eval()


def reference(attention, x):
    """Every score by the definition, one pair of tokens at a time: t d -> t d."""
    query, key, value = attention.qkv(x).chunk(3, -1)
    table = attention.distances.weight
    size = SIZE // HEADS
    rows = []
    for q in range(len(x)):
        heads = []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = torch.stack(
                [
                    query[q, part] @ (key[k, part] + table[min(q - k, len(table) - 1), part])
                    for k in range(q + 1)
                ]
            )
            heads.append((scores / size**0.5).softmax(-1) @ value[: q + 1, part])
        rows.append(torch.cat(heads))
    return attention.out(torch.stack(rows))


def causal(layout, length):
    return AttentionContext(layout, max_seqlen=length, device=torch.device("cpu"), is_causal=True)


def test_by_its_definition(attention):
    x = torch.randn(3, 11, SIZE, dtype=torch.float64)
    found = attention(x, causal(None, 11))
    torch.testing.assert_close(found, torch.stack([reference(attention, one) for one in x]))


@pytest.mark.parametrize("kind", ["packed", "varlen"])
def test_flat_rows_equal_single_sequences(attention, kind):
    lengths = [7, 7, 4, 1]
    x = torch.randn(sum(lengths), SIZE, dtype=torch.float64)
    layout = Packed.from_lengths(lengths)
    if kind == "varlen":
        ends = torch.tensor([0, *lengths]).cumsum(0).int()
        layout = Varlen(ends, layout.position_ids, max(lengths))
    expected = torch.cat([reference(attention, one) for one in x.split(lengths)])
    torch.testing.assert_close(attention(x, causal(layout, 7)), expected)


def test_a_cache_gives_the_same(attention):
    """Rows of different lengths are padded in the middle, as in `decode/causal_encoder.py`."""
    rows = torch.randn(2, 9, SIZE, dtype=torch.float64)
    lengths, cache = [6, 3], KVCache()
    attention(rows[:, :6], causal(None, 6), cache)
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    for step in range(3):
        mask = torch.cat([mask, torch.ones(2, 1, dtype=torch.bool)], 1)
        positions = torch.tensor(lengths)[:, None] + step
        context = AttentionContext(
            mask,
            max_seqlen=mask.shape[1],
            device=torch.device("cpu"),
            position_ids=positions,
        )
        x = torch.stack([row[at] for row, at in zip(rows, positions[:, 0], strict=True)])[:, None]
        found = attention(x, context, cache)[:, 0]
        for row, at, one in zip(rows, positions[:, 0], found, strict=True):
            torch.testing.assert_close(one, reference(attention, row[: at + 1])[-1])


def test_weights_are_those_that_attention_uses(attention):
    x = torch.randn(1, 6, SIZE, dtype=torch.float64)
    weights = attention.weights(x, causal(None, 6))
    assert torch.allclose(weights.sum(-1), torch.ones(()).double())
    assert not weights.triu(1).any()
    value = attention.qkv(x).chunk(3, -1)[2].unflatten(-1, (HEADS, -1)).transpose(1, 2)
    mixed = attention.out((weights @ value).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(mixed, attention(x, causal(None, 6)))


def test_training_with_dropout_has_the_same_mean():
    torch.manual_seed(0)
    attention = RelativeAttention(SIZE, HEADS, dropout=0.5, max_distance=4)
    x = torch.randn(1, 5, SIZE)
    with torch.no_grad():
        draws = torch.stack([attention.train()(x, causal(None, 5)) for _ in range(4000)])
        expected = attention.eval()(x, causal(None, 5))
    assert (draws.mean(0) - expected).abs().max() < 0.05
    assert draws.std(0).max() > 0.05


def test_skew():
    by_distance = torch.tensor([[[9, 9, 0], [9, 1, 0], [2, 1, 0]]])  # columns: distance 2, 1, 0
    assert skew(by_distance)[0].tril().tolist() == [[0, 0, 0], [1, 0, 0], [2, 1, 0]]
