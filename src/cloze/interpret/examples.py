"""Texts whose outputs are explained, in batches of similar lengths.

b rows, t tokens of all sides, c characters of a word.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from cloze.config import in_range
from cloze.data.batch import batch_by_tokens
from cloze.interpret.scores import Batch, HeadScore, Score, join_scores

BATCH_TOKENS = 2048  # activations of this many tokens fit the caches of a CPU
GPU_BATCH_TOKENS = 16_384
_READ_HEADS = ("mlm", "token", "span")  # they read one token, which cannot be dropped


@dataclass(frozen=True, kw_only=True)
class Example:
    """One output of one text. A translator has two sides: the source, then the target."""

    score: Score  # its position and index are numbers
    ids: Sequence[Any]  # of an ELMo the characters of each word
    type_ids: Sequence[int] = ()
    source_ids: Sequence[int] = ()  # of a translator
    removable: Sequence[bool]  # tokens of all sides that can be removed: no special tokens

    @property
    def sizes(self) -> list[int]:
        """The number of tokens of each side."""
        return [len(self.source_ids), len(self.ids)] if self.source_ids else [len(self.ids)]

    def __len__(self) -> int:
        """The number of tokens of all sides."""
        return len(self.source_ids) + len(self.ids)

    @property
    def read_token(self) -> int | None:
        """The token whose vector the head reads, so that it cannot be dropped; None: there is none.

        A head that reads the sequence has none, nor has a language model, which then reads the
        token before.
        """
        score = self.score
        if not isinstance(score, HeadScore) or score.head not in _READ_HEADS:
            return None
        return int(score.position)

    def split(self, values: Tensor) -> tuple[Tensor, ...]:
        """Values of all tokens by side."""
        return values.split(self.sizes)


@dataclass(frozen=True, kw_only=True)
class ExampleBatch:
    """Examples as one batch, with the score of its rows."""

    examples: Sequence[Example]
    batch: Batch
    score: Score

    def __len__(self) -> int:
        return len(self.examples)

    def split_sides(
        self, flags: Sequence[Tensor], rows: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Flags of all tokens of the rows (t each), by side, padded with False: b t."""
        chosen = self.examples if rows is None else [self.examples[row] for row in rows]
        parts = (example.split(one) for example, one in zip(chosen, flags, strict=True))
        device = self.batch.ids.device
        sides = zip(*parts, strict=True)
        longest = [self.batch.ids.shape[1]]
        if self.batch.source_ids is not None:
            longest.insert(0, self.batch.source_ids.shape[1])
        return [
            _pad_to(list(side), length).to(device)
            for side, length in zip(sides, longest, strict=True)
        ]


def iterate_batches(
    module: nn.Module, examples: Sequence[Example], batch_tokens: int | None = None
) -> Iterator[tuple[list[int], ExampleBatch]]:
    """Batches of examples with the same kind of score and similar lengths, and their indices."""
    device = next(module.parameters()).device
    most = batch_tokens or (BATCH_TOKENS if device.type == "cpu" else GPU_BATCH_TOKENS)
    in_range("batch_tokens", most, 1, 1 << 30)
    kinds: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for number, example in enumerate(examples):
        score = example.score
        has_others = isinstance(score, HeadScore) and score.others is not None
        kind = (score.head, score.activation) if isinstance(score, HeadScore) else ()
        kinds[type(score), has_others, *kind].append(number)
    for group in kinds.values():
        for some in batch_by_tokens([len(examples[n]) for n in group], most):
            numbers = [group[n] for n in some]
            rows = [examples[n] for n in numbers]
            score = join_scores([one.score for one in rows])
            yield (
                numbers,
                ExampleBatch(examples=rows, batch=_make_batch(rows, device), score=score),
            )


def _make_batch(rows: Sequence[Example], device: torch.device) -> Batch:
    ids, mask = _pad([one.ids for one in rows], device)
    types = _pad([one.type_ids for one in rows], device)[0] if rows[0].type_ids else None
    if not rows[0].source_ids:
        return Batch(ids=ids, mask=mask, type_ids=types)
    source_ids, source_mask = _pad([one.source_ids for one in rows], device)
    return Batch(ids=ids, mask=mask, source_ids=source_ids, source_mask=source_mask)


def _pad(rows: Sequence[Sequence[Any]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Padded ids (b t, or b t c), and which are real; None if all are."""
    lengths = [len(row) for row in rows]
    if len(set(lengths)) == 1:
        return torch.tensor(rows, device=device), None
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    mask = torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]
    return ids.to(device), mask.to(device)


def _pad_to(rows: list[Tensor], length: int) -> Tensor:
    found = rows[0].new_zeros(len(rows), length)
    for row, values in zip(found, rows, strict=True):
        row[: len(values)] = values
    return found
