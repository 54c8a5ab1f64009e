"""Pooling: the vector of a text from those of its tokens.

n tokens of a flat row, b sequences, t tokens of one, d size of a vector.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.nn.layout import Packed


def pool(
    vectors: Tensor, modes: Sequence[str], normalize: bool, *, skip_zeros: bool = False
) -> Tensor:
    """Pool the token vectors of sequences: b t d -> b (modes·d).

    With `skip_zeros`, vectors of zeros are left out: unknown words. A text without any vector has
    the vector zero.
    """
    if skip_zeros:
        rows = [one[one.any(-1)] for one in vectors]
        return torch.cat([pool(row[None], modes, normalize) for row in rows])
    dtype = torch.promote_types(vectors.dtype, torch.float32)
    if vectors.shape[1] == 0:
        return vectors.new_zeros(len(vectors), len(modes) * vectors.shape[-1], dtype=dtype)
    length = vectors.shape[1]
    pooled: dict[str, Callable[[], Tensor]] = {
        "cls": lambda: vectors[:, 0].to(dtype),
        "max": lambda: vectors.amax(1).to(dtype),
        "mean": lambda: vectors.mean(1, dtype=dtype),
        "mean_sqrt_len_tokens": lambda: vectors.sum(1, dtype=dtype) / length**0.5,
        "weightedmean": lambda: (
            _position_weights(length, vectors.device).to(dtype) @ vectors.to(dtype)
        ),
        "lasttoken": lambda: vectors[:, -1].to(dtype),
    }
    found = torch.cat([pooled[mode]() for mode in modes], dim=-1)
    return F.normalize(found, dim=-1) if normalize else found


def pool_packed(
    hidden: Tensor, packed: Packed, modes: Sequence[str], normalize: bool, *, skip_zeros: bool
) -> Tensor:
    """Pool the token vectors of each sequence of a flat row: n d -> b (modes·d)."""
    if not hidden.is_cuda or skip_zeros:
        parts = (
            pool(
                hidden[start : start + count * length].unflatten(0, (count, length)),
                *(modes, normalize),
                skip_zeros=skip_zeros,
            )
            for start, count, length in packed.runs
        )
        return torch.cat(list(parts))
    return _pool_padded(hidden, packed, modes, normalize)


def _pool_padded(hidden: Tensor, packed: Packed, modes: Sequence[str], normalize: bool) -> Tensor:
    """The same in a few operations on padded rows, not in some for each length."""
    lengths = np.array(packed.lengths, np.int64)
    table = np.stack([lengths.cumsum() - lengths, lengths], axis=1)  # start and length
    host = torch.from_numpy(table)
    host = host.pin_memory() if hidden.is_cuda else host
    start, length = host.to(hidden.device, non_blocking=True).unbind(1)  # b
    position = torch.arange(packed.max_seqlen, device=hidden.device)
    index = (start[:, None] + position).clamp_max_(len(hidden) - 1)
    return pool_masked(hidden[index].float(), length, modes, normalize=normalize)


def pool_segments(hidden: Tensor, starts: Tensor, segment: Tensor, mode: str) -> Tensor:
    """Pool the sequences of a flat row whose shape does not depend on their lengths: n d -> b d.

    `starts` (b) are the first tokens of the sequences, `segment` (n) is the sequence of each token;
    tokens of a segment that is not below b are padding. `mode` is mean or cls.
    """
    if mode == "cls":
        return hidden.index_select(0, starts).float()
    count = len(starts)
    sums = hidden.new_zeros(count + 1, hidden.shape[-1], dtype=torch.float32)
    sizes = hidden.new_zeros(count + 1, dtype=torch.float32)
    segment = segment.clamp(max=count)
    sums = sums.index_add(0, segment, hidden.float())
    sizes = sizes.index_add(0, segment, torch.ones_like(segment, dtype=torch.float32))
    return sums[:count] / sizes[:count, None].clamp(min=1)


def pool_masked(
    vectors: Tensor, length: Tensor, modes: Sequence[str], *, normalize: bool
) -> Tensor:
    """Pool the first `length` (b) vectors of each row: b t d -> b (modes·d)."""
    position = torch.arange(vectors.shape[1], device=vectors.device)
    real = (position < length[:, None]).unsqueeze(-1)  # b t 1
    zeroed = torch.where(real, vectors, 0.0)
    count = length[:, None].float()
    last = (position == length[:, None] - 1).unsqueeze(-1)
    pooled: dict[str, Callable[[], Tensor]] = {
        "cls": lambda: vectors[:, 0],
        "max": lambda: torch.where(real, vectors, -torch.inf).amax(1),
        "mean": lambda: zeroed.sum(1) / count,
        "mean_sqrt_len_tokens": lambda: zeroed.sum(1) / count.sqrt(),
        "weightedmean": lambda: (
            (zeroed * (position + 1.0)[:, None]).sum(1) / (count * (count + 1) / 2)
        ),
        "lasttoken": lambda: torch.where(last, vectors, 0.0).sum(1),
    }
    found = torch.cat([pooled[mode]() for mode in modes], dim=-1)
    return F.normalize(found, dim=-1) if normalize else found


def _position_weights(length: int, device: torch.device) -> Tensor:
    """Weights proportional to the position, 1, 2, 3 …, which sum to one (t)."""
    positions = torch.arange(1, length + 1, dtype=torch.float32, device=device)
    return positions / positions.sum()
