"""Batches for language models: context windows (NNLM), consecutive segments (BPTT, ELMo).

b rows, t tokens per row, n order; u distinct words of a batch, c characters of each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloze.data.batch import Ints
from cloze.data.randomness import Purpose, make_generator
from cloze.text.word_characters import PADDING

LOSS_NAME, BACKWARD_LOSS_NAME = "lm", "lm_backward"
_WIDTH_MULTIPLE = 8  # of the number of characters, so that few shapes occur

StoredIds = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class LanguageModelBatch:
    """Input tokens and the tokens to predict."""

    inputs: Ints  # b t
    targets: Ints  # b, the token after each window; or b t, the token after each token
    sample_ids: Ints  # b; positions in the text, or row numbers
    keep_state: NDArray[np.float32]  # b, factor of the carried state: 1, or 0 to reset it
    lr_scale: float = 1.0  # factor of the learning rate: the length relative to the usual one

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of tokens to predict."""
        return {LOSS_NAME: self.targets.size}

    @property
    def size(self) -> int:
        """Number of tokens."""
        return self.targets.size

    @property
    def lengths(self) -> Ints:
        """Number of tokens to predict in each row."""
        return np.full(len(self.targets), self.targets[0].size)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The arrays that an objective reads."""
        return {
            "inputs": self.inputs,
            "targets": self.targets,
            "rows": self.sample_ids,
            "keep_state": self.keep_state,
        }

    def split(self, parts: int) -> list[Self]:
        """Split into up to `parts` batches."""
        names = ("inputs", "targets", "sample_ids", "keep_state")
        positions = np.array_split(np.arange(len(self.inputs)), min(parts, len(self.inputs)))
        return [
            replace(self, **{name: getattr(self, name)[part] for name in names})
            for part in positions
        ]


class ContextWindows:
    """Every token once per epoch, in random order, with the n−1 tokens before it.

    A window does not cross the end of a sentence: positions before it contain the BOS token.
    """

    def __init__(
        self,
        ids: StoredIds,
        *,
        order: int,
        bos_id: int,
        eos_id: int,
        batch_size: int,
        seed: int = 0,
    ) -> None:
        self._ids, self._context_size, self._bos_id = ids, order - 1, bos_id
        self._batch_size, self._seed = batch_size, seed
        self._context_lengths = _context_lengths(ids, eos_id, self._context_size)
        self._epoch, self._order = -1, np.zeros(0, np.int64)
        self.per_epoch = max(1, len(ids) // batch_size)

    def batch(self, step: int) -> LanguageModelBatch:
        """The batch of a step."""
        epoch, at = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            rng = make_generator(self._seed, epoch, Purpose.ORDER)
            self._epoch, self._order = epoch, rng.permutation(len(self._ids))
        chosen = np.arange(at * self._batch_size, (at + 1) * self._batch_size)
        return self._make_batch(self._order[chosen % len(self._order)])

    def _make_batch(self, positions: Ints) -> LanguageModelBatch:
        back = np.arange(self._context_size, 0, -1)  # t
        inside = back <= self._context_lengths[positions][:, None]  # b t
        tokens = self._ids[np.where(inside, positions[:, None] - back, 0)]
        return LanguageModelBatch(
            inputs=np.where(inside, tokens, self._bos_id).astype(np.int64),
            targets=self._ids[positions].astype(np.int64),
            sample_ids=positions,
            keep_state=np.ones(len(positions), np.float32),
        )


class BPTTBatches:
    """The text split into b rows that are read in parallel, t tokens at a time.

    Each batch continues where the previous one ended, so that the state of the model is carried
    over (truncated backpropagation through time). The text is circular: each epoch begins at a
    random position, so that the splits and the remainder that is left out differ. The state of each
    row is reset before a batch with probability `reset_prob`, as in the code of Merity et al. 2018:
    otherwise the model never sees the beginning of a text without context.

    With `is_variable` the number of tokens differs from batch to batch (Merity et al. 2018, §4.1):
    it is drawn from N(num_steps, 5), or with probability 0.05 from N(num_steps / 2, 5), and the
    learning rate is scaled with it. An epoch has the number of batches that cover the text on
    average.
    """

    SHORT_PROB, SPREAD, MIN_LENGTH = 0.05, 5.0, 5

    def __init__(
        self,
        ids: StoredIds,
        *,
        batch_size: int,
        num_steps: int,
        reset_prob: float = 0.0,
        seed: int = 0,
        is_variable: bool = False,
    ) -> None:
        self._ids, self._num_steps, self._reset_prob, self._seed = ids, num_steps, reset_prob, seed
        self._is_variable = is_variable
        self._epoch, self._ends = -1, np.zeros(0, np.int64)
        mean = num_steps * (1 - self.SHORT_PROB / 2) if is_variable else num_steps
        self.per_epoch = max(1, int(len(ids) // (batch_size * mean)))
        self._starts = (np.arange(batch_size) * self.per_epoch * mean).astype(np.int64)  # b

    def batch(self, step: int) -> LanguageModelBatch:
        """The batch of a step."""
        epoch, at = divmod(step, self.per_epoch)
        offset = make_generator(self._seed, epoch, Purpose.ORDER).integers(len(self._ids))
        draws = make_generator(self._seed, epoch, Purpose.ORDER, at + 1).random(len(self._starts))
        begin, end = self._find_slice(epoch, at)
        first = offset + self._starts + begin
        positions = first[:, None] + np.arange(end - begin + 1)  # b (t+1)
        tokens = self._ids[positions % len(self._ids)].astype(np.int64)
        return LanguageModelBatch(
            inputs=np.ascontiguousarray(tokens[:, :-1]),
            targets=np.ascontiguousarray(tokens[:, 1:]),
            sample_ids=np.arange(len(first)),
            keep_state=((draws >= self._reset_prob) & (at > 0)).astype(np.float32),
            lr_scale=(end - begin) / self._num_steps,
        )

    def _find_slice(self, epoch: int, at: int) -> tuple[int, int]:
        """Where a batch begins and ends in each row."""
        if not self._is_variable:
            return at * self._num_steps, (at + 1) * self._num_steps
        if epoch != self._epoch:
            rng = make_generator(self._seed, epoch, Purpose.LENGTH)
            is_short = rng.random(self.per_epoch) < self.SHORT_PROB
            centers = np.where(is_short, self._num_steps / 2, self._num_steps)
            lengths = rng.normal(centers, self.SPREAD).astype(np.int64)
            lengths = lengths.clip(min(self.MIN_LENGTH, self._num_steps), len(self._ids))
            self._epoch, self._ends = epoch, lengths.cumsum()
        return int(self._ends[at - 1]) if at else 0, int(self._ends[at])


@dataclass(frozen=True, kw_only=True, eq=False)
class WordBatch(LanguageModelBatch):
    """Inputs and targets are indices of the distinct words of the batch."""

    characters: NDArray[np.int16]  # u c
    word_ids: Ints  # u, the id in the vocabulary of each distinct word
    bos_id: int
    eos_id: int

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of words to predict in both directions: not the symbols where a text begins."""
        return {
            LOSS_NAME: int((self.word_ids[self.targets] != self.bos_id).sum()),
            BACKWARD_LOSS_NAME: int((self.word_ids[self.inputs] != self.eos_id).sum()),
        }

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The arrays that an objective reads."""
        words: dict[str, NDArray[Any]] = {
            "characters": self.characters,
            "word_ids": self.word_ids,
        }
        return {**super().arrays(), **words}


class WordBatches:
    """The batches of a text with the characters of its words, each word once.

    `characters` has the row of each id of the text, `word_ids` the id to predict: that of unknown
    words, which differ in their characters, is the same.
    """

    def __init__(
        self,
        batches: BPTTBatches,
        characters: NDArray[np.int16],
        word_ids: Ints,
        *,
        max_filter_width: int,
        bos_id: int,
        eos_id: int,
    ) -> None:
        self._batches, self._characters, self._word_ids = batches, characters, word_ids
        self._lengths, self._margin = (characters != PADDING).sum(1), max_filter_width
        self._bos_id, self._eos_id = bos_id, eos_id
        self.per_epoch = batches.per_epoch

    def batch(self, step: int) -> WordBatch:
        """The batch of a step."""
        found = self._batches.batch(step)
        words, index = np.unique([found.inputs, found.targets], return_inverse=True)
        inputs, targets = index.reshape(2, *found.inputs.shape)
        # with few different shapes: see `CharacterCNN.count_columns` for the width
        width = _round_up(self._lengths[words].max() + self._margin, _WIDTH_MULTIPLE)
        width = min(width, self._characters.shape[1])
        rows = _round_up(len(words), 1 << max(4, (found.size // 16).bit_length() - 1))
        characters = np.full((rows, width), PADDING, np.int16)
        characters[: len(words)] = self._characters[words, :width]
        word_ids = np.zeros(rows, np.int64)
        word_ids[: len(words)] = self._word_ids[words]
        return WordBatch(
            inputs=inputs,
            targets=targets,
            sample_ids=found.sample_ids,
            keep_state=found.keep_state,
            characters=characters,
            word_ids=word_ids,
            bos_id=self._bos_id,
            eos_id=self._eos_id,
        )


def _round_up(number: int, multiple: int) -> int:
    return -(-int(number) // multiple) * multiple


def _context_lengths(ids: StoredIds, eos_id: int, max_length: int) -> NDArray[np.int16]:
    """Number of tokens before each token in its sentence, at most `max_length`."""
    positions = np.arange(len(ids))
    starts = np.concatenate([[0], np.flatnonzero(ids[:-1] == eos_id) + 1])  # of sentences
    first = np.zeros(len(ids), np.int64)
    first[starts] = starts
    return np.minimum(positions - np.maximum.accumulate(first), max_length).astype(np.int16)
