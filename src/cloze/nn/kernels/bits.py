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
def factors(seed, rows, columns, SHARE: tl.constexpr):
    """For each row and column zero, or 1/(1 − SHARE)."""
    start = _mixed(tl.load(seed).to(tl.uint32))
    row = _mixed(rows.to(tl.uint32) + start)[:, None]
    bits = (row ^ (columns.to(tl.uint32) * 0x9E3779B1)[None, :]) * 0x7FEB352D
    bits ^= bits >> 15
    bits *= 0x846CA68B
    DROPPED: tl.constexpr = int(SHARE * 4294967296)
    return tl.where(bits >= DROPPED, 1.0 / (1.0 - SHARE), 0.0)
