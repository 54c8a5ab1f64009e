"""Padded, packed and single texts have the same vectors, for any lengths and windows."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

from cloze.models.build import build
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.nn.layout import Packed
from cloze.nn.positions import apply_rotary, compute_rotary_table
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


@examples(40)
@given(
    lengths=st.lists(st.integers(1, 24), min_size=1, max_size=5),
    window=st.integers(1, 30),
    every=st.integers(1, 3),
)
def test_layouts_agree(lengths, window, every):
    config = ModernBertConfig(**SHAPE, window_size=window, global_attention_every=every)
    module = scramble(build(config, rng=torch.Generator()), scale=0.5).eval()
    rng = torch.Generator().manual_seed(window)
    rows = [torch.randint(0, 20, (length,), generator=rng) for length in lengths]
    with torch.no_grad():
        alone = torch.cat([module(row[None])[0] for row in rows])
        flat = module(torch.cat(rows), Packed.from_lengths(lengths))
        real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        padded = module(pad_sequence(rows, batch_first=True), real)
    torch.testing.assert_close(flat, alone, **CLOSE)
    torch.testing.assert_close(padded[real], alone, **CLOSE)
    assert padded.isfinite().all()


@examples(60)
@given(
    first=st.integers(0, 200),
    second=st.integers(0, 200),
    shift=st.integers(0, 200),
    theta=st.floats(1.0, 1e6),
)
def test_a_product_depends_on_the_distance_only(first, second, shift, theta):
    """(R_m q)·(R_n k) = q·(R_{n−m} k), Su et al. 2021, eq. 11; and lengths stay."""
    query, key = torch.randn(2, 1, 1, 16, generator=torch.Generator().manual_seed(first)).double()
    table = compute_rotary_table(401, 16, theta=theta)

    def product(at, to):
        first, second = (table.select(torch.tensor([position])) for position in (at, to))
        return (apply_rotary(query, first) * apply_rotary(key, second)).sum()

    here, there = product(first, second), product(first + shift, second + shift)
    torch.testing.assert_close(here, there, rtol=0, atol=1e-3)
    rotated = apply_rotary(query, table.select(torch.tensor([first])))
    torch.testing.assert_close(rotated.norm(), query.norm(), rtol=1e-5, atol=0)
