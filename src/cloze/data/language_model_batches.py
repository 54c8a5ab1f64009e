"""Running text as language models read it: windows that slide over it, or strips side by side.

b rows, t tokens of each, n order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloze.data.batch import Ints
from cloze.data.randomness import Purpose, make_generator

LOSS_NAME = "lm"  # of the loss

Stored = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class LanguageModelBatch:
    """Words to foretell, and the words they are foretold from; all batches of a run are alike."""

    inputs: Ints  # b t
    targets: Ints  # b, the word after each window; or b t, the word after each
    sample_ids: Ints  # b; places in the text, or numbers of the strips
    keep_state: NDArray[np.float32]  # b, of what a strip remembers: 1, or 0 where it begins anew

    @property
    def counts(self) -> Mapping[str, int]:
        """How many words are foretold."""
        return {LOSS_NAME: self.targets.size}

    @property
    def lengths(self) -> Ints:
        """Words that each row foretells."""
        return np.full(len(self.targets), self.targets[0].size)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """All that an objective reads."""
        return {
            "inputs": self.inputs,
            "targets": self.targets,
            "rows": self.sample_ids,
            "keep_state": self.keep_state,
        }

    def split(self, parts: int) -> list[Self]:
        """The same rows in up to `parts` batches."""
        names = ("inputs", "targets", "sample_ids", "keep_state")
        places = np.array_split(np.arange(len(self.inputs)), min(parts, len(self.inputs)))
        return [
            replace(self, **{name: getattr(self, name)[some] for name in names}) for some in places
        ]


class ContextWindows:
    """Every word once in an epoch, in another order each time, with the n−1 words before it.

    A window does not look past the end of the sentence before: there it sees the begin symbol.
    """

    def __init__(
        self, ids: Stored, *, order: int, bos: int, end: int, batch: int, seed: int = 0
    ) -> None:
        self._ids, self._reach, self._bos = ids, order - 1, bos
        self._batch, self._seed = batch, seed
        self._before = _before(ids, end, self._reach)
        self._epoch, self._order = -1, np.zeros(0, np.int64)
        self.per_epoch = max(1, len(ids) // batch)

    def batch(self, step: int) -> LanguageModelBatch:
        """The batch of a step."""
        epoch, at = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            rng = make_generator(self._seed, epoch, Purpose.ORDER)
            self._epoch, self._order = epoch, rng.permutation(len(self._ids))
        chosen = np.arange(at * self._batch, (at + 1) * self._batch)
        return self._at(self._order[chosen % len(self._order)])

    def _at(self, places: Ints) -> LanguageModelBatch:
        back = np.arange(self._reach, 0, -1)  # t
        inside = back <= self._before[places][:, None]  # b t
        words = self._ids[np.where(inside, places[:, None] - back, 0)]
        return LanguageModelBatch(
            inputs=np.where(inside, words, self._bos).astype(np.int64),
            targets=self._ids[places].astype(np.int64),
            sample_ids=places,
            keep_state=np.ones(len(places), np.float32),
        )


class BPTTBatches:
    """The text cut into b strips that are read side by side, t words of each at a time.

    Where a batch ends the next one goes on, so that what a model remembers is carried over
    (truncated backpropagation through time). The text is a circle: each epoch begins at another
    place of it, so that it is never cut twice at the same words, and leaves out another rest. A
    share `reset` of the strips forgets before each batch, as in the code of Merity et al. 2018: a
    model that has always read for hours would be lost at the start of a text.
    """

    def __init__(
        self, ids: Stored, *, batch: int, num_steps: int, reset_prob: float = 0.0, seed: int = 0
    ) -> None:
        self._ids, self._length, self._reset, self._seed = ids, num_steps, reset_prob, seed
        self.per_epoch = max(1, len(ids) // (batch * num_steps))
        self._starts = np.arange(batch) * self.per_epoch * num_steps  # b

    def batch(self, step: int) -> LanguageModelBatch:
        """The batch of a step."""
        epoch, at = divmod(step, self.per_epoch)
        begin = make_generator(self._seed, epoch, Purpose.ORDER).integers(len(self._ids))
        forgets = make_generator(self._seed, epoch, Purpose.ORDER, at + 1).random(len(self._starts))
        first = begin + self._starts + at * self._length
        places = first[:, None] + np.arange(self._length + 1)  # b (t+1)
        words = self._ids[places % len(self._ids)].astype(np.int64)
        return LanguageModelBatch(
            inputs=np.ascontiguousarray(words[:, :-1]),
            targets=np.ascontiguousarray(words[:, 1:]),
            sample_ids=np.arange(len(first)),
            keep_state=((forgets >= self._reset) & (at > 0)).astype(np.float32),
        )


def _before(ids: Stored, end: int, most: int) -> NDArray[np.int16]:
    """How many words of its own sentence stand before each word, up to so many."""
    places = np.arange(len(ids))
    begins = np.concatenate([[0], np.flatnonzero(ids[:-1] == end) + 1])  # of sentences
    first = np.zeros(len(ids), np.int64)
    first[begins] = begins
    return np.minimum(places - np.maximum.accumulate(first), most).astype(np.int16)
