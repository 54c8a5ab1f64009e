"""A corpus in the memory of the device that learns from it, and batches that are made there.

The program only says which stretches of the corpus a batch has; the device gathers the tokens, puts
[CLS] and [SEP] between them and hides some. So a fast GPU is never kept waiting for data, and every
batch has the same shapes. n places, s samples at most, m masked places.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from cloze.data.batch import IGNORE_INDEX, Ints
from cloze.data.corpus import Corpus
from cloze.data.packing import Batches, Epoch
from cloze.errors import InputError
from cloze.text.tokenizer import Tokenizer

_AT_ONCE = 2**22  # tokens read from the disk
_ROOM = 3  # samples in a batch, at most, by how many would fill it at full length


class DeviceCorpus:
    """A corpus on a device."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, device: torch.device) -> None:
        if tokenizer.cls_id is None or tokenizer.sep_id is None or tokenizer.pad_id is None:
            raise InputError(
                "this tokenizer has no [CLS], [SEP] and [PAD]",
                fix="use one of BERT's kind (wordpiece)",
            )
        self.device = device
        self.cls, self.sep, self.pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
        narrow = torch.int16 if corpus.vocabulary <= 1 << 15 else torch.int32
        self.ids = torch.empty(len(corpus), dtype=narrow, device=device)
        for place in range(0, len(corpus), _AT_ONCE):
            ids, _ = corpus.read(place, min(place + _AT_ONCE, len(corpus)))
            some = torch.from_numpy(ids.astype(np.int64))
            self.ids[place : place + len(some)] = some.to(device)
        special = torch.zeros(tokenizer.vocab_size, dtype=torch.bool)
        special[list(tokenizer.special_ids)] = True
        self.special = special.to(device)


@dataclass(frozen=True, kw_only=True, eq=False)
class CorpusSliceBatch:
    """A batch as the stretches of the corpus that its samples are made of."""

    source: DeviceCorpus
    a: Ints  # s 2: first, and one after the last
    b: Ints  # s 2
    labels: Ints  # s
    lengths: Ints  # s, tokens with [CLS] and [SEP]
    sample_ids: Ints  # s
    max_seqlen: int
    capacity: int  # n
    max_masked: int  # m, places for masked tokens
    num_masked: int  # how many of them are taken: less where the batch is not full
    seed: int | None = None  # of masks that are the same every time, and hide all they choose

    @classmethod
    def from_batch(cls, batch: "CorpusSliceBatch", **more: Any) -> Self:  # noqa: ANN401
        """The same batch as one of this kind, with what else that kind has."""
        given = {each.name: getattr(batch, each.name) for each in fields(CorpusSliceBatch)}
        return cls(**given, **more)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many targets each loss has."""
        return {"mlm": self.num_masked, "nsp": int((self.labels != IGNORE_INDEX).sum())}

    def split(self, parts: int) -> list[Self]:
        """The same samples in up to `parts` batches, each of its share of places."""
        bounds = np.unique(np.linspace(0, len(self.labels), parts + 1).astype(int)).tolist()
        return [self._part(first, last) for first, last in pairwise(bounds)]

    def _part(self, first: int, last: int) -> Self:
        some = slice(first, last)
        tokens = int(self.lengths[some].sum())
        share = max(1, round(self.num_masked * tokens / int(self.lengths.sum())))
        return replace(
            self,
            a=self.a[some],
            b=self.b[some],
            labels=self.labels[some],
            lengths=self.lengths[some],
            sample_ids=self.sample_ids[some],
            capacity=tokens,
            max_masked=share,
            num_masked=share,
        )

    @cached_property
    def max_samples(self) -> int:
        """Samples there is room for: the same number in every batch of a run."""
        return max(_ROOM * self.capacity // self.max_seqlen, len(self.labels))

    def gather_tokens(self) -> "TokenRow":
        """The tokens, laid one after another on the device."""
        source, device = self.source, self.source.device
        table = np.zeros((6, self.max_samples), np.int64)
        table[:, : len(self.labels)] = *self.a.T, *self.b.T, self.lengths, self.labels
        table[5, len(self.labels) :] = IGNORE_INDEX
        moved = torch.from_numpy(table)
        if device.type == "cuda":
            moved = moved.pin_memory().to(device, non_blocking=True)
        a, a_end, b, b_end, lengths, labels = moved
        ends = lengths.cumsum(0)  # s
        place = torch.arange(self.capacity, device=device)  # n
        sample = torch.searchsorted(ends, place, right=True).clamp(max=self.max_samples - 1)
        real = place < ends[-1]
        position = torch.where(real, place - (ends - lengths)[sample], 0)
        size = (a_end - a)[sample]  # of the first segment
        second = position > size + 1
        offset = torch.where(second, position - size - 2 + b[sample], position - 1 + a[sample])
        within = torch.where(second, b_end[sample], a_end[sample])
        ids = source.ids[offset.clamp(0, len(source.ids) - 1)].long()
        text = real & (position > 0) & (offset < within)
        ids = torch.where(text, ids, source.sep)
        ids = torch.where(position == 0, source.cls, ids)
        ids = torch.where(real, ids, source.pad)
        # what is left over makes sequences of its own, none too long
        over = ends[-1] + torch.arange(0, self.capacity, self.max_seqlen, device=device)
        over = torch.cat([over, over.new_full((1,), self.capacity)]).clamp(max=self.capacity)
        return TokenRow(
            ids=ids,
            token_type_ids=(second & real).long(),
            positions=position,
            cu_seqlens=torch.cat([ends - lengths, over]).int(),
            sample_starts=(ends - lengths).clamp(max=self.capacity - 1),
            labels=labels,
            is_text=text,
            maskable=real & ~source.special[ids],
        )


class TokenRow(NamedTuple):
    """A batch on the device, before anything is hidden."""

    ids: Tensor  # n
    token_type_ids: Tensor  # n
    positions: Tensor  # n, from 0 in every sequence
    cu_seqlens: Tensor  # int32, where each sequence begins, padding among them, and n
    sample_starts: Tensor  # s, where each sample begins
    labels: Tensor  # s, NO_LABEL where there is no sample
    is_text: Tensor  # n, whether a token is of the corpus: no [CLS], [SEP] or padding
    maskable: Tensor  # n


class CorpusSliceBatches:
    """The batches of `Batches` as stretches of a resident corpus."""

    def __init__(
        self, source: DeviceCorpus, batches: Batches, *, max_seqlen: int, mlm_probability: float
    ) -> None:
        self._source, self._batches = source, batches
        self._longest, self._rate = max_seqlen, mlm_probability

    def step(self, number: int) -> list[CorpusSliceBatch]:
        """The batches of a step."""
        return [self._batch(one) for one in self._batches.numbers(number)]

    def _batch(self, number: int) -> CorpusSliceBatch:
        number, place = self._batches.find(number)
        epoch = self._batches.epoch(number)
        self._batches.plan_ahead(number + 1)
        return self.make_batch(epoch, place)

    def make_batch(
        self,
        epoch: Epoch,
        place: int,
        *,
        seed: int | None = None,
        mlm_probability: float | None = None,
    ) -> CorpusSliceBatch:
        """One batch of an epoch, of this corpus or another view of it."""
        share = self._rate if mlm_probability is None else mlm_probability
        members, plan = epoch.packing[place], epoch.samples.plan
        lengths, capacity = plan.lengths[members], epoch.packing.capacity
        return CorpusSliceBatch(
            source=self._source,
            a=plan.a[members],
            b=plan.b[members],
            labels=plan.labels[members],
            lengths=lengths,
            sample_ids=members,
            max_seqlen=self._longest,
            capacity=capacity,
            max_masked=round(share * capacity),
            num_masked=round(share * int(lengths.sum())),
            seed=seed,
        )
