"""Pairs as single sequences: bos, source, separator, target, eos, for a decoder-only model.

n tokens, b sequences, m target tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cloze.data.batch import Ints
from cloze.data.labelled.batch import EncodedExample, TaskBatch, collate_examples
from cloze.data.parallel_text import LOSS_NAME, SortedBatches

SOURCE_LOSS = "source_lm"  # the loss of the source tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class SequenceBatch(TaskBatch):
    """Packed sequences; `positions` are the separator and the target tokens without the last.

    The `targets` are the tokens after them: the target and eos.
    """

    max_positions: int  # padded rows are not longer
    has_source_loss: bool = False  # whether the source tokens are targets of a loss, too

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of target tokens, and of source tokens with a loss."""
        if not self.has_source_loss:
            return super().counts
        return {**super().counts, SOURCE_LOSS: len(self.input_ids) - len(self.positions)}

    @property
    def padded_length(self) -> int:
        return min(super().padded_length, self.max_positions)


class SequenceBatches(SortedBatches[SequenceBatch]):
    """Batches of sequences of similar length, of at most `batch_tokens` tokens with padding."""

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        *,
        max_positions: int,
        has_source_loss: bool = False,
        batch_tokens: int,
        seed: int = 0,
    ) -> None:
        """`prompts` end with the separator, `targets` with eos, which is predicted but not read."""
        self._prompts, self._targets = prompts, targets
        self._max_positions, self._has_source_loss = max_positions, has_source_loss
        sizes = [len(one) + len(other) - 1 for one, other in zip(prompts, targets, strict=True)]
        super().__init__(sizes, batch_tokens=batch_tokens, seed=seed)

    def make_batch(self, chosen: Ints) -> SequenceBatch:
        """The batch of the pairs with these indices."""
        batch = collate_examples(LOSS_NAME, [[self._encode(n)] for n in chosen.tolist()])
        values: dict[str, Any] = {one.name: getattr(batch, one.name) for one in fields(batch)}
        return SequenceBatch(
            **values, max_positions=self._max_positions, has_source_loss=self._has_source_loss
        )

    def _encode(self, index: int) -> EncodedExample:
        prompt, target = self._prompts[index], self._targets[index]
        ids = [*prompt, *target[:-1]]
        return EncodedExample(
            ids=ids,
            type_ids=[0] * len(ids),
            positions=range(len(prompt) - 1, len(ids)),
            targets=list(target),
            example=index,
        )
