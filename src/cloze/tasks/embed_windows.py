"""The vectors of a long text in windows, of which only a few are in memory.

n consecutive tokens of a text, t all of them with its special tokens, d size of the layers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.progress import ProgressCallback
from cloze.tasks.text_encoding import EncodedText
from cloze.text.alignment import TokenAlignment
from cloze.text.truncation import find_max_context_windows
from cloze.text.windows import Windows

# sequences of ids to the vectors of their tokens, in order, as float32 on the CPU
ComputeVectors = Callable[[Sequence[Sequence[int]]], Sequence[Tensor]]
_COLUMNS = ("ids", "tokens", "offsets", "words", "type_ids", "sequence_ids")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """The tokens of a window that have the most context in it, or all special tokens at the end."""

    positions: Tensor  # n: in the text with its special tokens
    length: int  # t
    vectors: Tensor  # n d
    window: TokenAlignment | None = None
    rows: range = range(0)  # the positions in the window


def pool_windows(
    windows: Windows,
    compute: ComputeVectors,
    modes: Sequence[str],
    normalize: bool,
    *,
    batch: int,
    progress: ProgressCallback | None = None,
) -> Tensor:
    """The pooled vector of a text (modes·d); `batch` windows are computed at a time.

    The same as `features.pool` of the merged windows, except that sums are 64-bit numbers.
    """
    total, weighted = (torch.zeros((), dtype=torch.float64) for _ in range(2))
    most = torch.full((), -torch.inf, dtype=torch.float64)
    ends: dict[int, Tensor] = {}
    length = 0
    for part in _iterate_parts(windows, compute, batch, progress):
        length, vectors = part.length, part.vectors.double()
        total = total + vectors.sum(0)
        weighted = weighted + (part.positions + 1).double() @ vectors
        most = torch.maximum(most, vectors.amax(0))
        at_ends = (part.positions == 0) | (part.positions == length - 1)
        ends.update(zip(part.positions[at_ends].tolist(), vectors[at_ends], strict=True))
    pooled: dict[str, Callable[[], Tensor]] = {
        "cls": lambda: ends[0],
        "max": lambda: most,
        "mean": lambda: total / length,
        "mean_sqrt_len_tokens": lambda: total / length**0.5,
        "weightedmean": lambda: weighted / (length * (length + 1) / 2),
        "lasttoken": lambda: ends[length - 1],
    }
    found = torch.cat([pooled[mode]() for mode in modes]).float()
    return F.normalize(found, dim=-1) if normalize else found


def merge_windows(
    windows: Windows,
    compute: ComputeVectors,
    *,
    batch: int,
    progress: ProgressCallback | None = None,
) -> tuple[Tensor, TokenAlignment]:
    """The token vectors of a text (t d) and the alignment of its tokens.

    Each token is taken from the window with the most context around it; special tokens, which are
    in every window, are averaged. Only the result and `batch` windows are in memory.
    """
    merged = torch.empty(0)
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for part in _iterate_parts(windows, compute, batch, progress):
        if not len(merged):
            merged = part.vectors.new_empty(part.length, part.vectors.shape[-1])
        merged[part.positions] = part.vectors
        if part.window is not None:
            # the special tokens before the text are those of the first window
            start = part.rows.start if columns["ids"] else 0
            is_last = part.window.kept_ranges[0][0].stop == windows.spans[-1].stop
            stop = len(part.window) if is_last else part.rows.stop
            for name, column in columns.items():
                column += getattr(part.window, name)[start:stop]
    kept = (range(windows.spans[-1].stop),)
    make: Callable[..., TokenAlignment] = TokenAlignment
    return merged, make(**columns, kept_ranges=(kept, ()))


def _iterate_parts(
    windows: Windows, compute: ComputeVectors, batch: int, progress: ProgressCallback | None
) -> Iterator[_Part]:
    """The tokens of a text in order, then its special tokens."""
    total, remaining = windows.spans[-1].stop, windows.iterate_own()
    special: dict[int, Tensor] = {}  # sums of the vectors, by position
    length = done = 0
    while some := list(islice(remaining, batch)):
        found = compute([window.ids for window, _ in some])
        for (window, rows), vectors in zip(some, found, strict=True):
            inside, span = window.token_range(), window.kept_ranges[0][0]
            length = len(window) + total - len(span)
            for n, is_special in enumerate(window.special_tokens_mask):
                if is_special:
                    position = n if n < inside.start else n + total - len(span)
                    special[position] = special.get(position, 0.0) + vectors[n].double()
            if rows:
                yield _Part(
                    positions=torch.arange(rows.start, rows.stop) + span.start,
                    length=length,
                    vectors=vectors[rows.start : rows.stop],
                    window=window,
                    rows=rows,
                )
        done += len(some)
        if progress:
            progress("sequences", done, len(windows))
    if special:
        yield _Part(
            positions=torch.tensor(list(special)),
            length=length,
            vectors=(torch.stack(list(special.values())) / len(windows)).float(),
        )


def merge_all_windows(encoded: EncodedText, parts: Sequence[Tensor]) -> Tensor:
    """Merge the token vectors of the windows of a text (t d), which are all in memory.

    Each token is taken from the window with the most context around it; special tokens, which are
    in every window, are averaged.
    """
    assert encoded.encoding is not None
    spans = [window.kept_ranges[0][0] for window in encoded.windows]
    special = torch.tensor(encoded.encoding.special_tokens_mask)
    merged = parts[0].new_empty(len(encoded.encoding), parts[0].shape[-1])
    merged[special] = torch.stack(
        [
            part[torch.tensor(w.special_tokens_mask)]
            for part, w in zip(parts, encoded.windows, strict=True)
        ]
    ).mean(0)
    tokens = [
        part[~torch.tensor(w.special_tokens_mask)]
        for part, w in zip(parts, encoded.windows, strict=True)
    ]
    merged[~special] = torch.stack(
        [
            tokens[n][token - spans[n].start]
            for token, n in enumerate(find_max_context_windows(spans))
        ]
    )
    return merged
