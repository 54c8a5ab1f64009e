"""Parallel text: sentences and their translations, line by line, and batches of them.

b sentences, s source tokens, t target tokens, n and m tokens of all sentences.
"""

import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloze.data.batch import IGNORE_INDEX, Bools, Ints, split_evenly
from cloze.data.input_files import TextLines, open_binary
from cloze.data.randomness import Purpose, make_generator
from cloze.data.readers import Row, read_plain_text
from cloze.data.sources import read_rows
from cloze.errors import InputError
from cloze.files import PathLike

LOSS_NAME = "translate"
SIZE_MULTIPLE = 8  # of padded rows and columns, so that few shapes occur
B = TypeVar("B")


def read_all_lines(path: PathLike) -> list[Row]:
    """Read every line of a file, including blank ones; files are decompressed by their ending.

    `-` is standard input.
    """
    if os.fspath(path) == "-":
        return list(read_rows("-"))
    file = Path(path)
    if not file.exists():
        raise InputError(f"{path}: no such file", fix="check the path")
    rows: list[Row] = []
    with open_binary(file) as stream:
        for row in read_plain_text(TextLines(stream, str(path))):
            if isinstance(row, InputError):
                raise row
            rows.append(row)
    return rows


@dataclass(frozen=True, kw_only=True)
class ParallelText:
    """Sentences and their translations."""

    source: Sequence[str]
    target: Sequence[str]
    num_blank: int = 0  # pairs that were left out because one side is blank

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.source)

    @property
    def fingerprint(self) -> list[int]:
        """Number of pairs and a checksum."""
        digest = 0
        for pair in zip(self.source, self.target, strict=True):
            digest = zlib.crc32("\0".join(pair).encode("utf-8", "surrogatepass"), digest)
        return [len(self), digest]


def load_parallel_text(
    source: PathLike | Sequence[str], target: PathLike | Sequence[str]
) -> ParallelText:
    """Load parallel text from two files or two lists, line by line."""
    names = [
        str(side) if isinstance(side, str | os.PathLike) else what
        for side, what in ((source, "the source"), (target, "the target"))
    ]
    sides = [
        [row.text for row in read_all_lines(side)]
        if isinstance(side, str | os.PathLike)
        else list(side)
        for side in (source, target)
    ]
    first, second = map(len, sides)
    if first != second:
        raise InputError(
            f"{names[0]} has {first:,} lines, {names[1]} has {second:,}",
            fix="line n of one file must be the translation of line n of the other",
        )
    pairs = [pair for pair in zip(*sides, strict=True) if pair[0].strip() and pair[1].strip()]
    if not pairs:
        raise InputError(
            f"there are no sentence pairs in {names[0]} and {names[1]}",
            fix="check that the files are not empty",
        )
    return ParallelText(
        source=[sentence for sentence, _ in pairs],
        target=[sentence for _, sentence in pairs],
        num_blank=first - len(pairs),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class TranslationBatch:
    """Packed source and target sentences, each with its EOS token."""

    source: Ints  # n
    target: Ints  # m
    source_lengths: Ints  # b
    target_lengths: Ints  # b
    sample_ids: Ints  # b
    # probability that an input token is the model's own prediction
    scheduled_sampling_prob: float = 0.0

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.sample_ids)

    @property
    def lengths(self) -> Ints:
        """Tokens of each pair."""
        return self.source_lengths + self.target_lengths

    @property
    def size(self) -> int:
        """Number of source and target tokens."""
        return len(self.source) + len(self.target)

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of target tokens."""
        return {LOSS_NAME: len(self.target)}

    def arrays(self, multiple: int = SIZE_MULTIPLE) -> dict[str, NDArray[Any]]:
        """Padded source ids (b s), their attention mask, and target ids (b t).

        Rows and columns are padded to a multiple, so that few shapes occur. A padding row has one
        source token, because attention over no token is NaN, and no target (IGNORE_INDEX).
        """
        rows = _round_up(len(self), multiple)
        is_source = _padding_mask(self.source_lengths, rows, multiple)
        is_target = _padding_mask(self.target_lengths, rows, multiple)
        source, targets = (
            np.zeros(is_source.shape, np.int64),
            np.full(is_target.shape, IGNORE_INDEX, np.int64),
        )
        source[is_source], targets[is_target] = self.source, self.target
        is_source[len(self) :, 0] = True
        arrays: dict[str, NDArray[Any]] = {
            "source": source,
            "attention_mask": is_source,
            "targets": targets,
        }
        return arrays | (
            {"scheduled_sampling_prob": np.array(self.scheduled_sampling_prob, np.float32)}
            if self.scheduled_sampling_prob
            else {}
        )

    def split(self, parts: int) -> list[Self]:
        """Split into up to `parts` batches with about the same number of tokens."""
        return [self._part(slice(*bounds)) for bounds in split_evenly(self.lengths, parts)]

    def _part(self, chosen: slice) -> Self:
        rows = {}
        for side in ("source", "target"):
            lengths = getattr(self, f"{side}_lengths")
            edges = np.concatenate([[0], lengths.cumsum()])
            rows[side] = getattr(self, side)[edges[chosen.start] : edges[chosen.stop]]
            rows[f"{side}_lengths"] = lengths[chosen]
        return replace(self, sample_ids=self.sample_ids[chosen], **rows)


class SortedBatches(ABC, Generic[B]):
    """Batches of pairs of similar size, of at most `batch_tokens` padded tokens.

    The sorted sizes are the same in every epoch, so that the epoch of a step follows from its
    number; which of several equally long pairs are in a batch, and the order of the batches, is
    random.
    """

    def __init__(self, sizes: Sequence[int], *, batch_tokens: int, seed: int = 0) -> None:
        self._seed = seed
        self._sizes = np.array(sizes, np.int64)
        self._bounds = list(pairwise(_batch_starts(np.sort(self._sizes), batch_tokens)))
        self._epoch, self._order, self._batch_order = -1, self._sizes, self._sizes

    @property
    def per_epoch(self) -> int:
        return len(self._bounds)

    @abstractmethod
    def make_batch(self, chosen: Ints) -> B:
        """The batch of the pairs with these indices."""

    def batch(self, step: int) -> B:
        """The batch of a step."""
        epoch, at = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            rng = make_generator(self._seed, epoch, Purpose.ORDER)
            ties = rng.permutation(len(self._sizes))
            self._order = np.lexsort([ties, self._sizes])
            self._batch_order, self._epoch = rng.permutation(self.per_epoch), epoch
        first, last = self._bounds[self._batch_order[at]]
        return self.make_batch(self._order[first:last])

    def batches(self) -> list[B]:
        """All batches once, by length."""
        order = np.argsort(self._sizes, kind="stable")
        return [self.make_batch(order[first:last]) for first, last in self._bounds]


class TranslationBatches(SortedBatches[TranslationBatch]):
    """Batches of encoded pairs for an encoder–decoder, padded to the longer side."""

    def __init__(
        self,
        source: Sequence[Sequence[int]],
        target: Sequence[Sequence[int]],
        *,
        batch_tokens: int,
        seed: int = 0,
    ) -> None:
        self._source, self._target = ([np.array(one) for one in side] for side in (source, target))
        both = zip(source, target, strict=True)
        sizes = [max(len(one), len(other)) for one, other in both]
        super().__init__(sizes, batch_tokens=batch_tokens, seed=seed)

    def make_batch(self, chosen: Ints) -> TranslationBatch:
        """The batch of the pairs with these indices."""
        source, target = ([side[n] for n in chosen] for side in (self._source, self._target))
        return TranslationBatch(
            source=np.concatenate(source).astype(np.int64),
            target=np.concatenate(target).astype(np.int64),
            source_lengths=np.array([len(one) for one in source], np.int64),
            target_lengths=np.array([len(one) for one in target], np.int64),
            sample_ids=chosen,
        )


def _batch_starts(sizes: Ints, batch_tokens: int) -> list[int]:
    """The start of each batch in the pairs sorted by size, and the end."""
    starts = [0]
    for at, size in enumerate(_round_up(sizes, SIZE_MULTIPLE).tolist()):
        if at > starts[-1] and (at - starts[-1] + 1) * size > batch_tokens:
            starts.append(at)
    return [*starts, len(sizes)]


def _padding_mask(lengths: Ints, rows: int, multiple: int) -> Bools:
    """True for the tokens of a padded array with so many rows, False for padding."""
    row_lengths = np.zeros((rows, 1), np.int64)
    row_lengths[: len(lengths), 0] = lengths
    return np.arange(_round_up(int(lengths.max()), multiple)) < row_lengths


N = TypeVar("N", int, Ints)


def _round_up(number: N, multiple: int) -> N:
    return -(-number // multiple) * multiple
