"""Dropout with random bits computed from seed, row and column, so that no mask is stored."""

import triton
import triton.language as tl


@triton.jit
def _hash(bits):
    """32 random-looking bits from any: two rounds of multiply and xor-shift."""
    bits ^= bits >> 16
    bits *= 0x7FEB352D
    bits ^= bits >> 15
    bits *= 0x846CA68B
    return bits ^ (bits >> 16)


@triton.jit
def row_bits(seed, rows):
    """The random bits of each row."""
    return _hash(rows.to(tl.uint32) + _hash(tl.load(seed).to(tl.uint32)))


@triton.jit
def keep_mask(bits, first, COUNT: tl.constexpr, P: tl.constexpr, STRIDE: tl.constexpr):
    """The elements of rows (given by their bits) and COUNT columns that are not dropped.

    `first` is a multiple of 16. Four columns share one draw, 16 bits each: drawing is most of what
    dropout costs. They are two pairs, STRIDE columns apart, as a thread holds them: 2, or 8 in the
    result of a matrix product. P is exact to one in 65,536.
    """
    four = first // 4 + tl.arange(0, COUNT // 4)
    drawn = (bits[:, None] ^ (four.to(tl.uint32) * 0x9E3779B1)[None, :]) * 0x7FEB352D
    drawn ^= drawn >> 15
    one, other = drawn * 0x846CA68B, drawn * 0xC2B2AE35
    halves = tl.join(tl.join(one >> 16, other >> 16), tl.join(one & 0xFFFF, other & 0xFFFF))
    ROWS: tl.constexpr = bits.shape[0]
    halves = tl.reshape(halves, (ROWS, COUNT // (2 * STRIDE), STRIDE // 2, 2, 2))
    halves = tl.reshape(tl.permute(halves, (0, 1, 3, 2, 4)), (ROWS, COUNT))
    DROPPED: tl.constexpr = int(P * 65536 + 0.5)
    return halves >= DROPPED


@triton.jit
def dropout_factors(bits, first, COUNT: tl.constexpr, P: tl.constexpr):
    """For each element 0, or 1/(1 − P)."""
    return tl.where(keep_mask(bits, first, COUNT, P, 2), 1.0 / (1.0 - P), 0.0)
