"""Neural language models with a vocabulary of words: NNLM and LSTM.

b rows, t tokens, n order, v vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.models.configs.ngram import BOS, EOS
from cloze.models.language import LoadedModel, WordLanguageModel, batches
from cloze.nn.recurrent import State

Floats = NDArray[np.float32]

_WINDOWS = 2048  # scored at once
_STRETCH = 8192  # tokens that an LSTM reads at once: a GPU takes as many steps at one word
_SCORED = 512  # of them, whose scores of all words are held at a time


class NeuralLanguageModel(WordLanguageModel):
    """A module with `read` and `step` as a `LanguageModel`."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model.tokenizer)
        self.model = model
        self.kind = model.config.family
        self.module = model.module
        self.stepper = model.module
        self.device: torch.device = model.device

    @torch.inference_mode()
    def next_log_probs(self, context: Sequence[int]) -> Floats:
        """Log p(w | context) for every word, v."""
        ids = torch.tensor([list(context)], device=self.device)
        state = self.module.compute_state(ids[:, :-1])
        found, _ = self.module.step(ids[:, -1], state)
        return found[0].cpu().numpy()

    def _tensor(self, ids: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(ids)).to(self.device)


class NNLMLanguageModel(NeuralLanguageModel):
    """Every sentence is read from its begin symbol."""

    @torch.inference_mode()
    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every word but its first."""
        for batch in batches(sequences):
            yield from _split(np.concatenate(list(self._score(batch))), batch)

    def _score(self, sequences: Sequence[Sequence[int]]) -> Iterator[Floats]:
        reach = self.model.config.order - 1
        begin = [BOS] * (reach - 1)
        padded = [np.array([*begin, *one]) for one in sequences]
        views = np.lib.stride_tricks.sliding_window_view
        contexts = np.concatenate([views(one[:-1], reach) for one in padded])
        targets = np.concatenate([one[reach:] for one in padded])
        for at in range(0, len(targets), _WINDOWS):
            part = slice(at, at + _WINDOWS)
            yield _select(self.module(self._tensor(contexts[part])), self._tensor(targets[part]))


class LSTMLanguageModel(NeuralLanguageModel):
    """The text is one sequence in which sentences end; the state goes on from each to the next."""

    first = EOS

    @torch.inference_mode()
    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every word but its first, after the sequences before it."""
        state = self.module.init_state(1)
        for batch in batches(sequences):
            flat, state = self._score(batch, state)
            yield from _split(flat, batch)

    def _score(self, sequences: Sequence[Sequence[int]], state: State) -> tuple[Floats, State]:
        inputs, targets = (
            np.concatenate([one[part] for one in sequences]) for part in (slice(-1), slice(1, None))
        )
        found = []
        for at in range(0, len(targets), _STRETCH):
            part = slice(at, at + _STRETCH)
            vectors, state = self.module(self._tensor(inputs[part])[None], state)
            wanted = self._tensor(targets[part])
            for some, of in zip(vectors[0].split(_SCORED), wanted.split(_SCORED), strict=True):
                found.append(_select(self.module.logits(some), of))
        return np.concatenate(found), state


def _split(flat: Floats, sequences: Sequence[Sequence[int]]) -> Iterator[Floats]:
    """The scores of each sequence, which has one less than tokens."""
    ends = accumulate(len(one) - 1 for one in sequences)
    for one, end in zip(sequences, ends, strict=True):
        yield flat[end - len(one) + 1 : end]


def _select(scores: Tensor, targets: Tensor) -> Floats:
    """Log p of each target: b v, b -> b."""
    logs = scores.float().log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    return logs.cpu().numpy()
