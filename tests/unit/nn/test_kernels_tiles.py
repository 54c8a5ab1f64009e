"""The tiles of the attention kernels fit the shared memory of a GPU."""

import pytest

from cloze.nn.kernels.tiles import (
    PLAIN,
    ROTARY,
    SMALL,
    AttentionTiles,
    Tiles,
    choose_tiles,
    estimate_shared_bytes,
)

H200, A100, RTX = 232_448, 166_912, 101_376  # bytes that a block may have
KERNELS = AttentionTiles._fields

# kernel, (queries, keys, warps, stages), bytes of an element, head size, rotary, bytes needed:
# what Triton 3.6 compiled for an H200
MEASURED = [
    ("long_forward", (128, 64, 8, 3), 2, 64, False, 65_536),
    ("long_forward", (128, 64, 8, 3), 2, 128, False, 131_072),
    ("long_forward", (128, 64, 8, 3), 4, 32, False, 65_536),
    ("long_forward", (128, 64, 4, 3), 2, 64, True, 98_304),
    ("short_forward", (64, 64, 4, 2), 2, 64, True, 57_344),
    ("short_forward", (128, 128, 4, 1), 2, 64, True, 49_152),
    ("short_backward", (128, 32, 8, 3), 2, 64, False, 65_536),
    ("short_backward", (128, 32, 8, 3), 2, 32, False, 53_248),
    ("short_backward", (128, 32, 8, 3), 4, 32, False, 114_688),
    ("short_backward", (128, 32, 8, 3), 2, 64, True, 98_304),
    ("short_backward", (128, 32, 8, 1), 2, 64, True, 61_440),
    ("long_queries", (128, 64, 8, 3), 2, 64, False, 81_920),
    ("long_queries", (128, 64, 8, 3), 2, 64, True, 114_688),
    ("long_queries", (64, 32, 4, 1), 4, 32, False, 28_672),
    ("long_keys", (64, 64, 4, 3), 2, 64, False, 74_752),
    ("long_keys", (128, 128, 8, 2), 2, 128, False, 230_400),
    ("long_keys", (128, 128, 8, 2), 2, 64, True, 164_864),
    ("long_keys", (32, 64, 4, 1), 2, 128, False, 65_536),
    ("long_keys", (128, 128, 8, 2), 4, 64, True, 263_168),
]


@pytest.mark.parametrize(("kernel", "tiles", "size", "head_size", "rotary", "needed"), MEASURED)
def test_the_estimate_is_a_close_upper_bound(kernel, tiles, size, head_size, rotary, needed):
    estimate = estimate_shared_bytes(kernel, Tiles(*tiles), size, head_size, rotary=rotary)
    assert needed <= estimate <= 1.34 * needed


@pytest.mark.parametrize("head_size", [32, 64, 128])
@pytest.mark.parametrize("rotary", [False, True])
def test_half_precision_uses_the_timed_tiles(head_size, rotary):
    chosen = choose_tiles(2, head_size, rotary=rotary, shared_memory=H200)
    assert chosen == (ROTARY if rotary and head_size == 64 else PLAIN)


def test_float32_rotary_heads_use_smaller_tiles_for_gradients_of_keys():
    """Their timed tiles need 263,168 bytes, and an H200 has 232,448."""
    chosen = choose_tiles(4, 64, rotary=True, shared_memory=H200)
    assert chosen == ROTARY._replace(long_keys=SMALL.long_keys)
    assert choose_tiles(4, 64, rotary=False, shared_memory=H200) == PLAIN


@pytest.mark.parametrize("shared_memory", [A100, RTX])
@pytest.mark.parametrize("size", [2, 4])
def test_gpus_with_less_memory_use_small_tiles(size, shared_memory):
    assert choose_tiles(size, 64, rotary=True, shared_memory=shared_memory) == SMALL


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("head_size", [32, 64, 128])
@pytest.mark.parametrize("rotary", [False, True])
def test_chosen_tiles_fit(size, head_size, rotary):
    # float32 is computed in tests only, and those run on an H200
    for shared_memory in (H200, A100) if size == 2 else (H200,):
        chosen = choose_tiles(size, head_size, rotary=rotary, shared_memory=shared_memory)
        for kernel in KERNELS:
            tiles = getattr(chosen, kernel)
            needed = estimate_shared_bytes(kernel, tiles, size, head_size, rotary=rotary)
            assert needed <= shared_memory, kernel
