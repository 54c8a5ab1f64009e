"""Dropout by counting: what a place draws follows from its number, so no mask is ever kept."""

import triton
import triton.language as tl


@triton.jit
def _mixed(bits):
    """32 bits that look random, from any: two rounds of multiply and fold."""
    bits ^= bits >> 16
    bits *= 0x7FEB352D
    bits ^= bits >> 15
    bits *= 0x846CA68B
    return bits ^ (bits >> 16)


@triton.jit
def lots(seed, rows):
    """What each row draws with."""
    return _mixed(rows.to(tl.uint32) + _mixed(tl.load(seed).to(tl.uint32)))


@triton.jit
def kept(lot, first, COUNT: tl.constexpr, SHARE: tl.constexpr, APART: tl.constexpr):
    """Whether each place of rows (their lots) and COUNT columns stays.

    The first is a multiple of 16. Four columns draw together, a half of two numbers each: drawing
    is most of what dropout costs. They are two pairs, as far `APART` as a thread holds them: 2, or
    8 in what a product leaves. Of 16 bits, SHARE is exact to one in 65,536.
    """
    four = first // 4 + tl.arange(0, COUNT // 4)
    bits = (lot[:, None] ^ (four.to(tl.uint32) * 0x9E3779B1)[None, :]) * 0x7FEB352D
    bits ^= bits >> 15
    one, other = bits * 0x846CA68B, bits * 0xC2B2AE35
    drawn = tl.join(tl.join(one >> 16, other >> 16), tl.join(one & 0xFFFF, other & 0xFFFF))
    ROWS: tl.constexpr = lot.shape[0]
    drawn = tl.reshape(drawn, (ROWS, COUNT // (2 * APART), APART // 2, 2, 2))
    drawn = tl.reshape(tl.permute(drawn, (0, 1, 3, 2, 4)), (ROWS, COUNT))
    DROPPED: tl.constexpr = int(SHARE * 65536 + 0.5)
    return drawn >= DROPPED


@triton.jit
def factors(lot, first, COUNT: tl.constexpr, SHARE: tl.constexpr):
    """For each place zero, or 1/(1 − SHARE)."""
    return tl.where(kept(lot, first, COUNT, SHARE, 2), 1.0 / (1.0 - SHARE), 0.0)
