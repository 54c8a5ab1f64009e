"""Load and rotate a tile of one head by its positions; rotate back and store its gradient."""

import triton
import triton.language as tl


@triton.jit
def _rotate(first, second, cos, sin):
    """Both halves of a head, rotated by the angles of their positions."""
    a, b = first.to(tl.float32), second.to(tl.float32)
    return (a * cos - b * sin).to(first.dtype), (b * cos + a * sin).to(first.dtype)


@triton.jit
def _load_angles(cos, sin, positions, real, HALF: tl.constexpr):
    angle = positions[:, None] * HALF + tl.arange(0, HALF)[None, :]
    return tl.load(cos + angle, real, 0.0), tl.load(sin + angle, real, 0.0)


@triton.jit
def load_rotated(at, cos, sin, positions, real, HALF: tl.constexpr, ROTARY: tl.constexpr):
    """Load queries or keys, one row per position, rotated; zeros where `real` is False."""
    if ROTARY:  # loaded in halves, a rotation needs no exchange between threads
        half = tl.arange(0, HALF)[None, :]
        first, second = tl.load(at + half, real, 0.0), tl.load(at + half + HALF, real, 0.0)
        c, s = _load_angles(cos, sin, positions, real, HALF)
        first, second = _rotate(first, second, c, s)
        both = tl.permute(tl.join(first, second), (0, 2, 1))
        return tl.reshape(both, (positions.shape[0], 2 * HALF))
    return tl.load(at + tl.arange(0, 2 * HALF)[None, :], real, 0.0)


@triton.jit
def store_rotated(at, grad, cos, sin, positions, real, HALF: tl.constexpr, ROTARY: tl.constexpr):
    """The backward pass of `load_rotated`."""
    dtype = at.dtype.element_ty
    if ROTARY:
        half = tl.arange(0, HALF)[None, :]
        parts = tl.permute(tl.reshape(grad, (positions.shape[0], 2, HALF)), (0, 2, 1))
        first, second = tl.split(parts)
        c, s = _load_angles(cos, sin, positions, real, HALF)
        first, second = _rotate(first, second, c, -s)
        tl.store(at + half, first.to(dtype), real)
        tl.store(at + half + HALF, second.to(dtype), real)
    else:
        tl.store(at + tl.arange(0, 2 * HALF)[None, :], grad.to(dtype), real)
