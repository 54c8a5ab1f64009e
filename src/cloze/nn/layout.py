"""How the sequences of a batch are stored, and which tokens may attend to which.

b batch, h heads, q queries, k keys; n tokens of a flat row, t length of one sequence.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cloze.errors import InputError


@dataclass(frozen=True)
class Packed:
    """Sequences concatenated into a flat row without padding; the host knows their lengths.

    Each token attends to its own sequence only. Adjacent sequences of equal length form a run,
    which attention computes as one batch without mask or padding. Sort sequences by length to make
    runs long.
    """

    lengths: tuple[int, ...]
    device: torch.device | None = None

    @classmethod
    def from_lengths(cls, lengths: Iterable[int], device: torch.device | None = None) -> "Packed":
        return cls(tuple(int(length) for length in lengths), device)

    @property
    def max_seqlen(self) -> int:
        """The length of the longest sequence."""
        return max(self.lengths, default=0)

    @cached_property
    def starts(self) -> Tensor:
        """Index of the first token of each sequence, its [CLS]: b."""
        return torch.tensor([0, *accumulate(self.lengths)][:-1], device=self.device)

    @cached_property
    def position_ids(self) -> Tensor:
        """0, 1, 2 … within each sequence: n."""
        lengths = np.array(self.lengths, np.int64)
        first = np.repeat(lengths.cumsum() - lengths, lengths)
        positions = torch.from_numpy(np.arange(len(first)) - first)
        if self.device is not None and self.device.type == "cuda":  # else the copy would block
            positions = positions.pin_memory()
        return positions.to(self.device, non_blocking=True)

    @cached_property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """(first token, number of sequences, their length) of each run."""
        return tuple(self._runs())

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        start = 0
        for length, same in groupby(self.lengths):
            count = sum(1 for _ in same)
            yield start, count, length
            start += count * length


class Varlen(NamedTuple):
    """Sequences concatenated into a flat row; only the device knows their lengths.

    Unlike those of `Packed`, its shapes do not depend on the lengths, so that a compiled step or a
    CUDA graph fits every batch: `cu_seqlens` may end with empty sequences.
    """

    cu_seqlens: Tensor  # b + 1, int32: cumulative lengths, from 0
    position_ids: Tensor  # n: 0, 1, 2 … within each sequence
    max_seqlen: int  # no sequence is longer


FLAT = (Packed, Varlen)
AttentionLayout = Tensor | Packed | Varlen | None
"""What callers pass as `attention_mask`: a mask (b k of real tokens, or b q k), a flat row, or None
for sequences of one length."""


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Position q may attend to every k <= q: q k."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def window_mask(length: int, reach: int, device: torch.device | None = None) -> Tensor:
    """Position q may attend to every k with |q − k| <= reach: q k."""
    position = torch.arange(length, device=device)
    return (position[:, None] - position).abs() <= reach


def expand_mask(attention_mask: Tensor) -> Tensor:
    """Expand a mask (b k of real tokens, or b q k) for attention: b 1 q k."""
    mask = attention_mask.bool()
    if mask.dim() == 2:  # noqa: PLR2004
        return mask[:, None, None, :]  # b k -> b 1 1 k
    if mask.dim() == 3:  # noqa: PLR2004
        return mask[:, None]  # b q k -> b 1 q k
    raise InputError(
        f"the attention mask has {mask.dim()} dimensions",
        fix="pass (batch, keys) with 1 for real tokens, or (batch, queries, keys)",
    )


def apply_sliding_window(
    mask: Tensor | None, reach: int, length: int, device: torch.device
) -> Tensor | None:
    """Restrict `mask` to keys at most `reach` positions away.  Beltagy et al. 2020, §3.1."""
    if length <= reach + 1:
        return mask
    return _combine(mask, window_mask(length, reach, device))


def apply_causal_mask(mask: Tensor | None, length: int, device: torch.device) -> Tensor:
    """Restrict `mask` so that no token attends to a later one."""
    return _combine(mask, causal_mask(length, device))


def _combine(mask: Tensor | None, visible: Tensor) -> Tensor:
    """The intersection of a mask (b 1 q k) and `visible` (q k)."""
    if mask is None:
        return visible
    if mask.shape[-2] == 1:  # b 1 1 k: padding may attend anywhere, as softmax over nothing is NaN
        visible = visible | ~mask.mT  # b 1 q k
    return mask & visible


def add_end_tokens(
    input_ids: Tensor, packed: Packed, end_id: int, max_length: int | None = None
) -> tuple[Tensor, Packed, Tensor]:
    """Add an end token to every sequence of a flat row that is shorter than `max_length`.

    The ids, their layout, and the indices of the tokens that were there before (n).
    """
    longer = [length + (max_length is None or length < max_length) for length in packed.lengths]
    layout = Packed.from_lengths(longer, packed.device)
    kept = packed.position_ids + torch.repeat_interleave(
        layout.starts, torch.tensor(packed.lengths, device=layout.starts.device)
    )
    ids = input_ids.new_full((sum(longer),), end_id)
    return ids.index_copy(0, kept, input_ids), layout, kept
