"""Aligned texts: line by line a sentence and its translation; and batches of them.

b sentences, s source tokens, t target tokens, n and m all of them in flat rows.
"""

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloze.data.batch import IGNORE_INDEX, Bools, Ints
from cloze.data.input_files import TextLines, open_binary
from cloze.data.randomness import Purpose, make_generator
from cloze.data.readers import Row, read_plain_text
from cloze.data.sources import read_rows
from cloze.errors import InputError
from cloze.files import PathLike

LOSS_NAME = "translate"  # of the loss
SIZE_MULTIPLE = 8  # rows and columns of rectangles whose shapes should come again


def read_lines_of_file(path: PathLike) -> list[Row]:
    """Every line of a file, blank ones too; packed files are told by their ending, no other is.

    `-` is standard input.
    """
    if os.fspath(path) == "-":
        return list(read_rows("-"))
    place = Path(path)
    if not place.exists():
        raise InputError(f"{path}: there is no such file", fix="check the spelling")
    found: list[Row] = []
    with open_binary(place) as stream:
        for row in read_plain_text(TextLines(stream, str(path))):
            if isinstance(row, InputError):
                raise row
            found.append(row)
    return found


@dataclass(frozen=True, kw_only=True)
class ParallelText:
    """Sentences and their translations."""

    source: Sequence[str]
    target: Sequence[str]
    num_blank: int = 0  # pairs that were left out, for one side said nothing

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.source)

    @property
    def fingerprint(self) -> list[int]:
        """What data these are."""
        digest = 0
        for pair in zip(self.source, self.target, strict=True):
            digest = zlib.crc32("\0".join(pair).encode("utf-8", "surrogatepass"), digest)
        return [len(self), digest]


def load_parallel_text(
    source: PathLike | Sequence[str], target: PathLike | Sequence[str]
) -> ParallelText:
    """Pairs from two files, or from two lists, that go together line by line."""
    names = [
        str(side) if isinstance(side, str | os.PathLike) else what
        for side, what in ((source, "the source"), (target, "the target"))
    ]
    sides = [
        [row.text for row in read_lines_of_file(side)]
        if isinstance(side, str | os.PathLike)
        else list(side)
        for side in (source, target)
    ]
    first, second = map(len, sides)
    if first != second:
        raise InputError(
            f"{names[0]} has {first:,} lines and {names[1]} {second:,}",
            fix="line n of one must be the translation of line n of the other",
        )
    said = [pair for pair in zip(*sides, strict=True) if pair[0].strip() and pair[1].strip()]
    if not said:
        raise InputError(f"there is no pair in {names[0]} and {names[1]}", fix="are they empty?")
    return ParallelText(
        source=[one for one, _ in said],
        target=[other for _, other in said],
        num_blank=first - len(said),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class TranslationBatch:
    """Two flat rows of sentences, each with its end; `lengths` of both part them."""

    source: Ints  # n
    target: Ints  # m
    source_lengths: Ints  # b
    target_lengths: Ints  # b
    sample_ids: Ints  # b
    scheduled_sampling_prob: float = (
        0.0  # share of the words before that are the model's own (scheduled sampling)
    )

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.sample_ids)

    @property
    def lengths(self) -> Ints:
        """Tokens of each pair."""
        return self.source_lengths + self.target_lengths

    @property
    def counts(self) -> Mapping[str, int]:
        """How many words there are to say."""
        return {LOSS_NAME: len(self.target)}

    def arrays(self, multiple: int = SIZE_MULTIPLE) -> dict[str, NDArray[Any]]:
        """Source ids (b s) and which are real; target ids (b t), NO_LABEL where there is none.

        Rows and columns are filled up to a multiple, so that few shapes occur. A row too many has
        one source token, for who may look at nothing is NaN, and no target.
        """
        rows = _rounded(len(self), multiple)
        real = _real(self.source_lengths, rows, multiple)
        told = _real(self.target_lengths, rows, multiple)
        source, targets = (
            np.zeros(real.shape, np.int64),
            np.full(told.shape, IGNORE_INDEX, np.int64),
        )
        source[real], targets[told] = self.source, self.target
        real[len(self) :, 0] = True
        found: dict[str, NDArray[Any]] = {
            "source": source,
            "attention_mask": real,
            "targets": targets,
        }
        return found | (
            {"scheduled_sampling_prob": np.array(self.scheduled_sampling_prob, np.float32)}
            if self.scheduled_sampling_prob
            else {}
        )

    def split(self, parts: int) -> list[Self]:
        """The same pairs in up to `parts` batches of about as many tokens each."""
        ends = self.lengths.cumsum()
        ideal = np.arange(1, parts) * ends[-1] / parts
        cuts = np.unique([0, *np.searchsorted(ends, ideal), len(self)]).tolist()
        return [self._part(slice(first, last)) for first, last in pairwise(cuts)]

    def _part(self, chosen: slice) -> Self:
        rows = {}
        for side in ("source", "target"):
            lengths = getattr(self, f"{side}_lengths")
            edges = np.concatenate([[0], lengths.cumsum()])
            rows[side] = getattr(self, side)[edges[chosen.start] : edges[chosen.stop]]
            rows[f"{side}_lengths"] = lengths[chosen]
        return replace(self, sample_ids=self.sample_ids[chosen], **rows)


class TranslationBatches:
    """Encoded pairs, and in which batch of which epoch each of them comes.

    Pairs of about one length lie in a batch of at most so many padded tokens a side, counted in
    rectangles of few shapes. The lengths in their order are the same every epoch, so that a step's
    epoch follows from its number; which of several equally long pairs go together, and the order
    of the batches, is drawn anew.
    """

    def __init__(
        self,
        source: Sequence[Sequence[int]],
        target: Sequence[Sequence[int]],
        *,
        batch_tokens: int,
        seed: int = 0,
    ) -> None:
        self._source, self._target = ([np.array(one) for one in side] for side in (source, target))
        self._seed = seed
        both = zip(source, target, strict=True)
        self._sizes = np.array([max(len(one), len(other)) for one, other in both], np.int64)
        self._cuts = list(pairwise(_cuts(np.sort(self._sizes), batch_tokens)))
        self._epoch, self._order, self._turns = -1, self._sizes, self._sizes

    @property
    def per_epoch(self) -> int:
        return len(self._cuts)

    def batch(self, step: int, scheduled_sampling_prob: float = 0.0) -> TranslationBatch:
        """The batch of a step."""
        epoch, at = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            rng = make_generator(self._seed, epoch, Purpose.ORDER)
            ties = rng.permutation(len(self._sizes))
            self._order = np.lexsort([ties, self._sizes])
            self._turns, self._epoch = rng.permutation(self.per_epoch), epoch
        first, last = self._cuts[self._turns[at]]
        return self._made(self._order[first:last], scheduled_sampling_prob)

    def batches(self) -> list[TranslationBatch]:
        """All of them once, by length."""
        order = np.argsort(self._sizes, kind="stable")
        return [self._made(order[first:last]) for first, last in self._cuts]

    def _made(self, chosen: Ints, own: float = 0.0) -> TranslationBatch:
        source, target = ([side[n] for n in chosen] for side in (self._source, self._target))
        return TranslationBatch(
            source=np.concatenate(source).astype(np.int64),
            target=np.concatenate(target).astype(np.int64),
            source_lengths=np.array([len(one) for one in source], np.int64),
            target_lengths=np.array([len(one) for one in target], np.int64),
            sample_ids=chosen,
            scheduled_sampling_prob=own,
        )


def _cuts(sizes: Ints, batch_tokens: int) -> list[int]:
    """Where batches begin among pairs in the order of their sizes, and the end."""
    cuts = [0]
    for at, size in enumerate(_rounded(sizes, SIZE_MULTIPLE).tolist()):
        if at > cuts[-1] and (at - cuts[-1] + 1) * size > batch_tokens:
            cuts.append(at)
    return [*cuts, len(sizes)]


def _real(lengths: Ints, rows: int, multiple: int) -> Bools:
    """Which places of the rectangle are real, in rows and columns: as many as there must be."""
    filled = np.zeros((rows, 1), np.int64)
    filled[: len(lengths), 0] = lengths
    return np.arange(_rounded(int(lengths.max()), multiple)) < filled


N = TypeVar("N", int, Ints)


def _rounded(number: N, multiple: int) -> N:
    return -(-number // multiple) * multiple
