"""A corpus in device memory, and batches that are assembled on the device.

The host only sends which slices of the corpus a batch contains; the device gathers the tokens,
inserts [CLS] and [SEP] and masks tokens. So the GPU never waits for data, and all batches have the
same shapes. n token positions, s samples at most, m masked positions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from cloze.data.batch import IGNORE_INDEX, Ints
from cloze.data.corpus import Corpus
from cloze.data.packing import Epoch, PackedBatches
from cloze.errors import InputError
from cloze.text.tokenizer import Tokenizer

_READ_TOKENS = 2**22  # tokens read from disk at once
_MAX_SAMPLES = 3  # in a batch, for each sample of maximum length that would fit


class DeviceCorpus:
    """The tokens of a corpus in the memory of a device, with their word starts if asked for."""

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        device: torch.device,
        *,
        with_words: bool = False,
    ) -> None:
        if tokenizer.start_id is None or tokenizer.end_id is None:
            raise InputError(
                "this tokenizer has no tokens that begin and end a sequence, such as [CLS] and "
                "[SEP]",
                fix="use a WordPiece or a byte-level BPE tokenizer",
            )
        self.device = device
        self.cls, self.sep = tokenizer.start_id, tokenizer.end_id
        self.pad = self.sep if tokenizer.pad_id is None else tokenizer.pad_id
        dtype = torch.int16 if corpus.vocab_size <= 1 << 15 else torch.int32
        self.ids = torch.empty(len(corpus), dtype=dtype, device=device)
        self.word_starts = torch.empty(
            len(corpus) if with_words else 0, dtype=torch.bool, device=device
        )
        for start in range(0, len(corpus), _READ_TOKENS):
            ids, words = corpus.read_tokens(start, min(start + _READ_TOKENS, len(corpus)))
            part = torch.from_numpy(ids.astype(np.int64))
            self.ids[start : start + len(part)] = part.to(device)
            if with_words:
                self.word_starts[start : start + len(part)] = torch.from_numpy(words).to(device)
        special = torch.zeros(tokenizer.vocab_size, dtype=torch.bool)
        special[list(tokenizer.special_ids)] = True
        self.special = special.to(device)


@dataclass(frozen=True, kw_only=True, eq=False)
class CorpusSliceBatch:
    """A batch given by the slices of the corpus that its samples consist of."""

    corpus: DeviceCorpus
    a: Ints  # s 2: start and end of the first segment
    b: Ints  # s 2, of the second segment
    labels: Ints  # s
    lengths: Ints  # s, tokens with [CLS] and [SEP]
    sample_ids: Ints  # s
    max_seqlen: int
    capacity: int  # n
    max_masked: int  # m, room for masked tokens
    num_masked: int  # number of masked tokens; less than m if the batch is not full
    seed: int | None = None  # for evaluation: fixed masks, and every selected token becomes [MASK]

    @classmethod
    def from_batch(cls, batch: "CorpusSliceBatch", **more: Any) -> Self:  # noqa: ANN401
        """Convert a batch to this class, with its additional fields."""
        values = {each.name: getattr(batch, each.name) for each in fields(CorpusSliceBatch)}
        return cls(**values, **more)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return int(self.lengths.sum())

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of targets of each loss."""
        return {"mlm": self.num_masked, "nsp": int((self.labels != IGNORE_INDEX).sum())}

    def split(self, parts: int) -> list[Self]:
        """Split into up to `parts` batches."""
        bounds = np.unique(np.linspace(0, len(self.labels), parts + 1).astype(int)).tolist()
        return [self._part(first, last) for first, last in pairwise(bounds)]

    def _part(self, first: int, last: int) -> Self:
        part = slice(first, last)
        tokens = int(self.lengths[part].sum())
        num_masked = max(1, round(self.num_masked * tokens / int(self.lengths.sum())))
        return replace(
            self,
            a=self.a[part],
            b=self.b[part],
            labels=self.labels[part],
            lengths=self.lengths[part],
            sample_ids=self.sample_ids[part],
            capacity=tokens,
            max_masked=num_masked,
            num_masked=num_masked,
        )

    @cached_property
    def max_samples(self) -> int:
        """Maximum number of samples: the same in every batch of a run."""
        return max(_MAX_SAMPLES * self.capacity // self.max_seqlen, len(self.labels))

    def gather_tokens(self) -> "TokenRow":
        """Gather the tokens on the device."""
        corpus, device = self.corpus, self.corpus.device
        table = np.zeros((6, self.max_samples), np.int64)
        table[:, : len(self.labels)] = *self.a.T, *self.b.T, self.lengths, self.labels
        table[5, len(self.labels) :] = IGNORE_INDEX
        rows = torch.from_numpy(table)
        if device.type == "cuda":
            rows = rows.pin_memory().to(device, non_blocking=True)
        a, a_end, b, b_end, lengths, labels = rows
        ends = lengths.cumsum(0)  # s
        index = torch.arange(self.capacity, device=device)  # n
        sample = torch.searchsorted(ends, index, right=True).clamp(max=self.max_samples - 1)
        is_token = index < ends[-1]  # not padding
        position = torch.where(is_token, index - (ends - lengths)[sample], 0)
        size = (a_end - a)[sample]  # of the first segment
        in_second = position > size + 1
        # index in the corpus, and the end of the segment there
        source = torch.where(in_second, position - size - 2 + b[sample], position - 1 + a[sample])
        source_end = torch.where(in_second, b_end[sample], a_end[sample])
        index_in_corpus = source.clamp(0, len(corpus.ids) - 1)
        ids = corpus.ids[index_in_corpus].long()
        is_text = is_token & (position > 0) & (source < source_end)
        word_starts = corpus.word_starts
        if len(word_starts):
            # as on the host, a word starts at each special token and at the first of a segment
            is_first = (position == 1) | (position == size + 2)
            word_starts = ~is_text | is_first | word_starts[index_in_corpus]
        ids = torch.where(is_text, ids, corpus.sep)
        ids = torch.where(position == 0, corpus.cls, ids)
        ids = torch.where(is_token, ids, corpus.pad)
        # the padding at the end forms sequences of its own, none longer than max_seqlen
        padding = ends[-1] + torch.arange(0, self.capacity, self.max_seqlen, device=device)
        padding = torch.cat([padding, padding.new_full((1,), self.capacity)])
        padding = padding.clamp(max=self.capacity)
        return TokenRow(
            ids=ids,
            token_type_ids=(in_second & is_token).long(),
            positions=position,
            cu_seqlens=torch.cat([ends - lengths, padding]).int(),
            sample_starts=(ends - lengths).clamp(max=self.capacity - 1),
            labels=labels,
            is_text=is_text,
            maskable=is_token & ~corpus.special[ids],
            word_starts=word_starts,
        )


class TokenRow(NamedTuple):
    """A packed batch on the device, before masking."""

    ids: Tensor  # n
    token_type_ids: Tensor  # n
    positions: Tensor  # n, from 0 in every sequence
    cu_seqlens: Tensor  # int32, start of each sequence, including padding, and n
    sample_starts: Tensor  # s
    labels: Tensor  # s, IGNORE_INDEX where there is no sample
    is_text: Tensor  # n, False for [CLS], [SEP] and padding
    maskable: Tensor  # n
    word_starts: Tensor  # n; empty if the corpus on the device has none


class CorpusSliceBatches:
    """The batches of `Batches` as slices of a corpus on a device."""

    def __init__(
        self,
        corpus: DeviceCorpus,
        batches: PackedBatches,
        *,
        max_seqlen: int,
        mlm_probability: float,
    ) -> None:
        self._corpus, self._batches = corpus, batches
        self._max_seqlen, self._mlm_probability = max_seqlen, mlm_probability

    def step(self, number: int) -> list[CorpusSliceBatch]:
        """The batches of a training step."""
        return self.make_batches(self._batches.batch_numbers(number))

    def make_batches(self, numbers: Iterable[int]) -> list[CorpusSliceBatch]:
        """The training batches with these numbers."""
        return [self._make_numbered(one) for one in numbers]

    def _make_numbered(self, number: int) -> CorpusSliceBatch:
        epoch, index = self._batches.locate(number)
        batches = self._batches.epoch(epoch)
        self._batches.prefetch_epoch(epoch + 1)
        return self.make_batch(batches, index)

    def make_batch(
        self,
        epoch: Epoch,
        index: int,
        *,
        seed: int | None = None,
        mlm_probability: float | None = None,
    ) -> CorpusSliceBatch:
        """A batch of an epoch, of this corpus or another split of it."""
        probability = self._mlm_probability if mlm_probability is None else mlm_probability
        members, plan = epoch.packing[index], epoch.samples.plan
        lengths, capacity = plan.lengths[members], epoch.packing.capacity
        return CorpusSliceBatch(
            corpus=self._corpus,
            a=plan.a[members],
            b=plan.b[members],
            labels=plan.labels[members],
            lengths=lengths,
            sample_ids=members,
            max_seqlen=self._max_seqlen,
            capacity=capacity,
            max_masked=round(probability * capacity),
            num_masked=round(probability * int(lengths.sum())),
            seed=seed,
        )
