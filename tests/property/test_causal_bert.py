"""A causal BERT attends to no later token, in all layouts."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.nn.layout import Packed, Varlen
from generated_examples import examples
from helpers import scramble

SHAPE = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_layers": 3,
    "num_heads": 2,
    "intermediate_size": 8,
    "max_positions": 24,
}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
MODULE = scramble(
    build(BertConfig(**SHAPE, is_causal=True), rng=torch.Generator()), scale=0.5
).eval()
LENGTHS = st.lists(st.integers(1, 24), min_size=1, max_size=5)


def some_rows(lengths, seed):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 20, (length,), generator=rng) for length in lengths]


def varlen(lengths):
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    return Varlen(bounds, Packed.from_lengths(lengths).position_ids, max(lengths))


@examples(40)
@given(lengths=LENGTHS, seed=st.integers(0, 99), left=st.booleans())
def test_layouts_agree(lengths, seed, left):
    rows = some_rows(lengths, seed)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    flat = torch.cat(rows)
    with torch.no_grad():
        alone = torch.cat([MODULE(row[None])[0] for row in rows])
        padded = MODULE(pad_sequence(rows, batch_first=True), real)
        torch.testing.assert_close(padded[real], alone, **CLOSE)
        for row in (Packed.from_lengths(lengths), varlen(lengths)):
            torch.testing.assert_close(MODULE(flat, row), alone, **CLOSE)
        if left:  # padding that comes first sees no token before it
            padded = MODULE(pad_sequence(rows, batch_first=True).flip(1), real.flip(1))
    assert padded.isfinite().all()


@examples(60)
@given(lengths=LENGTHS, seed=st.integers(0, 99), data=st.data())
def test_a_later_token_changes_no_earlier_vector(lengths, seed, data):
    rows = some_rows(lengths, seed)
    which = data.draw(st.integers(0, len(rows) - 1))
    place = data.draw(st.integers(0, lengths[which] - 1))
    changed = [row.clone() for row in rows]
    changed[which][place] = (changed[which][place] + 1) % 20
    same = torch.ones(sum(lengths), dtype=torch.bool)
    first = sum(lengths[:which])
    same[first + place : first + lengths[which]] = False
    with torch.no_grad():
        for row in (Packed.from_lengths(lengths), varlen(lengths)):
            before, after = MODULE(torch.cat(rows), row), MODULE(torch.cat(changed), row)
            assert torch.equal(before[same], after[same])
            assert not torch.equal(before[first + place], after[first + place])
