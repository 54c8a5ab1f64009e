"""Tile sizes of the attention kernels, and the shared memory that they need.

This file needs no Triton, so that the choice can be tested on any machine. d head size.
"""

from typing import NamedTuple


class Tiles(NamedTuple):
    """Tile sizes and launch options of a kernel."""

    queries: int
    keys: int
    warps: int
    stages: int  # of its pipelined loop: how many tiles are loaded ahead
    registers: int | None = None  # limit per thread; fewer let more programs run at once


class AttentionTiles(NamedTuple):
    """The tiles of all kernels; `python bench/tiles.py` times alternatives."""

    short_forward: Tiles
    short_backward: Tiles  # sequences with at most this many queries are computed in one kernel
    long_forward: Tiles
    long_queries: Tiles  # gradients of queries
    long_keys: Tiles  # gradients of keys and values


# the fastest for heads of 64 on an H200: BERT's with dropout, and rotary ones without
PLAIN = AttentionTiles(
    short_forward=Tiles(64, 64, 4, 2),
    short_backward=Tiles(128, 32, 8, 3, 128),
    long_forward=Tiles(128, 64, 8, 3),
    long_queries=Tiles(128, 64, 8, 3, 128),
    long_keys=Tiles(64, 64, 4, 3, 168),
)
ROTARY = AttentionTiles(
    short_forward=Tiles(128, 128, 4, 1),
    short_backward=Tiles(128, 32, 8, 1, 128),
    long_forward=Tiles(128, 64, 4, 3),
    long_queries=Tiles(128, 64, 8, 3, 128),
    long_keys=Tiles(128, 128, 8, 2),
)
SMALL = AttentionTiles(  # for less shared memory; chosen to fit, not timed
    short_forward=Tiles(64, 64, 4, 1),
    short_backward=Tiles(64, 32, 4, 1),
    long_forward=Tiles(64, 64, 4, 1),
    long_queries=Tiles(64, 32, 4, 1),
    long_keys=Tiles(32, 64, 4, 1),
)
MIN_SHARED = 200 * 1024  # bytes per multiprocessor; with less, all tiles are small
TIMED_HEAD_SIZE = 64
_FLOAT32 = 4  # bytes


def choose_tiles(
    element_size: int, head_size: int, *, rotary: bool, shared_memory: int
) -> AttentionTiles:
    """The fastest tiles that fit the shared memory of a chip, in bytes.

    Rotary heads of other sizes than were timed take the tiles of plain ones, which are smaller.
    """
    if shared_memory < MIN_SHARED:
        return SMALL
    timed = ROTARY if rotary and head_size == TIMED_HEAD_SIZE else PLAIN
    fitting = {}
    for kernel, tiles in timed._asdict().items():
        needed = estimate_shared_bytes(kernel, tiles, element_size, head_size, rotary=rotary)
        fitting[kernel] = tiles if needed <= shared_memory else getattr(SMALL, kernel)
    return AttentionTiles(**fitting)


def estimate_shared_bytes(
    kernel: str, tiles: Tiles, element_size: int, head_size: int, *, rotary: bool
) -> int:
    """An upper bound of the shared memory that a kernel needs, in bytes.

    It holds the operands of products, streamed tiles once for each stage, and float32 angles with
    all but one of them. Measured with Triton 3.6 on an H200.
    """
    q, k = (size * head_size * element_size for size in (tiles.queries, tiles.keys))
    scores = tiles.queries * tiles.keys
    ahead = tiles.stages - 1
    angles = rotary * head_size * _FLOAT32  # of one position
    is_float32 = element_size == _FLOAT32
    if kernel == "long_keys":
        statistics = ahead * 2 * tiles.queries * _FLOAT32
        loop = 2 * k + 2 * q * tiles.stages + scores * element_size + statistics
        gradients = tiles.keys * head_size * _FLOAT32 * (2 if rotary else 1)
        return max(loop + ahead * tiles.queries * angles, 2 * k + gradients)
    needed = 2 * k * tiles.stages + ahead * tiles.keys * angles
    if kernel.endswith("forward"):
        return q + needed
    needed += 2 * q + k * is_float32  # products of float32 need a transposed copy
    if kernel == "long_queries":
        return needed
    needed += scores * (element_size + _FLOAT32) + 2 * q * is_float32
    return needed + 2 * tiles.keys * angles
