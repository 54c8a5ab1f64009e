"""A tile of one head on the GPU: read and turned by its places, turned back and written."""

import triton
import triton.language as tl


@triton.jit
def _turned(first, second, cos, sin):
    """Both halves of a head, turned by the angles of their places."""
    a, b = first.to(tl.float32), second.to(tl.float32)
    return (a * cos - b * sin).to(first.dtype), (b * cos + a * sin).to(first.dtype)


@triton.jit
def _angles(cos, sin, places, real, HALF: tl.constexpr):
    angle = places[:, None] * HALF + tl.arange(0, HALF)[None, :]
    return tl.load(cos + angle, real, 0.0), tl.load(sin + angle, real, 0.0)


@triton.jit
def read(at, cos, sin, places, real, HALF: tl.constexpr, TURNS: tl.constexpr):
    """Queries or keys, a row for each place; zeros where none is real."""
    if TURNS:  # read in halves, a turn needs no exchange between threads
        half = tl.arange(0, HALF)[None, :]
        first, second = tl.load(at + half, real, 0.0), tl.load(at + half + HALF, real, 0.0)
        c, s = _angles(cos, sin, places, real, HALF)
        first, second = _turned(first, second, c, s)
        both = tl.permute(tl.join(first, second), (0, 2, 1))
        return tl.reshape(both, (places.shape[0], 2 * HALF))
    return tl.load(at + tl.arange(0, 2 * HALF)[None, :], real, 0.0)


@triton.jit
def write(at, given, cos, sin, places, real, HALF: tl.constexpr, TURNS: tl.constexpr):
    """The gradient of `read`, to its place."""
    kind = at.dtype.element_ty
    if TURNS:
        half = tl.arange(0, HALF)[None, :]
        parts = tl.permute(tl.reshape(given, (places.shape[0], 2, HALF)), (0, 2, 1))
        first, second = tl.split(parts)
        c, s = _angles(cos, sin, places, real, HALF)
        first, second = _turned(first, second, c, -s)
        tl.store(at + half, first.to(kind), real)
        tl.store(at + half + HALF, second.to(kind), real)
    else:
        tl.store(at + tl.arange(0, 2 * HALF)[None, :], given.to(kind), real)
