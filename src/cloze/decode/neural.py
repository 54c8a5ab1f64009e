"""Adapters of NNLM and LSTM to `LanguageModel`.

b rows, t tokens, n order, v vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.data.batch import batch_by_tokens
from cloze.models.configs.ngram import BOS, EOS
from cloze.models.language import LoadedModel, WordLanguageModel, batches
from cloze.nn.recurrent import State
from cloze.text.alignment import count_removed_chars

Floats = NDArray[np.float32]

MAX_PROMPT_TOKENS = 1 << 16  # that an LSTM reads of a prompt
_NNLM_BATCH = 2048  # contexts of an NNLM that are computed together
_LSTM_SLICE = 8192  # tokens that an LSTM reads in one call
_ROW_SLICE = 128  # tokens of each row, where it reads several rows at once
_PADDING = -100  # of targets
_LOGITS_BATCH = 512  # tokens whose logits (over the whole vocabulary) are in memory together


class NeuralLanguageModel(WordLanguageModel):
    """Base class: a module with `step` and `reorder` as a `LanguageModel` and `PromptDecoder`."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model.tokenizer)
        self.model = model
        self.kind = model.config.family
        self.module = model.module
        self.device: torch.device = model.device

    @torch.inference_mode()
    def next_log_probs(self, context: Sequence[int]) -> Floats:
        """Log p(w | context) for every token, v."""
        log_probs, _ = self.step(*self.start([context]))
        return log_probs[0].cpu().numpy()

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Any]:
        """The last token of each prompt (b), and the state after the tokens before it."""
        tokens = torch.tensor([prompt[-1] for prompt in prompts], device=self.device)
        return tokens, self._compute_state([prompt[:-1] for prompt in prompts])

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:  # noqa: ANN401
        """Log-probabilities of the next token (b v) after one more token of each row (b)."""
        log_probs, state = self.module.step(tokens, state)
        return log_probs, state

    def reorder(self, state: Any, indices: Tensor) -> Any:  # noqa: ANN401
        """The state of the rows at `indices`."""
        return self.module.reorder(state, indices)

    def merge(self, states: Sequence[Any]) -> Any:  # noqa: ANN401
        """One state with the rows of several."""
        raise NotImplementedError

    def _compute_state(self, prefixes: Sequence[Sequence[int]]) -> Any:  # noqa: ANN401
        """The state after each prefix, which may have any length."""
        raise NotImplementedError

    def _to_tensor(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def _to_targets(self, ids: NDArray[Any]) -> Tensor:
        """The ids to predict, which may differ from those that are read."""
        return self._to_tensor(ids)


class NNLMLanguageModel(NeuralLanguageModel):
    """An NNLM; every sentence starts with its begin symbol and is scored alone."""

    @property
    def context_size(self) -> int:
        order: int = self.model.config.order
        return order - 1

    def _compute_state(self, prefixes: Sequence[Sequence[int]]) -> Tensor:
        context_size = self.context_size
        padding = [self.module.config.bos_id] * context_size
        rows = [[*padding, *prefix[-context_size:]][-context_size:] for prefix in prefixes]
        state: Tensor = self.module.compute_state(torch.tensor(rows, device=self.device))
        return state

    def merge(self, states: Sequence[Tensor]) -> Tensor:
        """One state with the rows of several."""
        return torch.cat(list(states))

    @torch.inference_mode()
    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every token but the first."""
        for batch in batches(sequences):
            yield from _split(np.concatenate(list(self._score(batch))), batch)

    def _score(self, sequences: Sequence[Sequence[int]]) -> Iterator[Floats]:
        context_size = self.context_size
        padding = [BOS] * (context_size - 1)
        padded = [np.array([*padding, *ids]) for ids in sequences]
        windows = np.lib.stride_tricks.sliding_window_view
        contexts = np.concatenate([windows(ids[:-1], context_size) for ids in padded])
        targets = np.concatenate([ids[context_size:] for ids in padded])
        for start in range(0, len(targets), _NNLM_BATCH):
            part = slice(start, start + _NNLM_BATCH)
            logits = self.module(self._to_tensor(contexts[part]))
            yield _gather_log_probs(logits, self._to_tensor(targets[part]))


class LSTMLanguageModel(NeuralLanguageModel):
    """An LSTM, which reads sentences as one continuous text, each ended by </s>.

    A sentence therefore begins after the </s> of the one before it, and the state is carried over.
    Of a prompt of more than 65,536 tokens it reads the last ones.
    """

    bos_id = EOS
    context_size = max_length = MAX_PROMPT_TOKENS

    def encode_prompt(self, text: str) -> list[int]:
        """The begin symbol and the tokens of a prompt, or its last ones."""
        begin, *ids = super().encode_prompt(text)
        return [begin, *ids[-self.max_length :]]

    def count_unread_chars(self, text: str) -> int:
        """The number of characters of a prompt that are left out because it is too long."""
        tokenizer = self.model.tokenizer
        end = tokenizer.take_tail(text, self.max_length)
        (ids,) = tokenizer.encode_ids([end], add_special_tokens=False)
        if len(ids) <= self.max_length:
            return len(text) - len(end)
        offsets = tokenizer.encode(end, add_special_tokens=False).offsets
        kept = [range(len(ids) - self.max_length, len(ids))]
        return len(text) - len(end) + count_removed_chars(offsets, kept)

    def _compute_state(self, prefixes: Sequence[Sequence[int]]) -> State:
        """Without padding: prefixes that are read completely leave the batch, shortest first."""
        order = sorted(range(len(prefixes)), key=lambda n: len(prefixes[n]))
        state, states, start, rest = self.module.init_state(len(order)), [], 0, order
        for length, group in groupby(order, key=lambda n: len(prefixes[n])):
            if length > start:
                ids = torch.tensor([prefixes[n][start:length] for n in rest], device=self.device)
                for part in ids.split(_LSTM_SLICE, 1):
                    _, state = self.module(part, state)
            done, rows = len(list(group)), torch.arange(len(rest), device=self.device)
            states.append(self.module.reorder(state, rows[:done]))
            state, start, rest = self.module.reorder(state, rows[done:]), length, rest[done:]
        inverse = torch.tensor(order, device=self.device).argsort()
        reordered: State = self.module.reorder(self.merge(states), inverse)
        return reordered

    def merge(self, states: Sequence[State]) -> State:
        """One state with the rows of several."""
        merged: State = tuple(torch.cat(parts, 1) for parts in zip(*states, strict=True))  # l b d
        return merged

    @torch.inference_mode()
    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every token but the first, given all sequences before it."""
        state = self.module.init_state(1)
        for batch in batches(sequences):
            flat, state = self._score(batch, state)
            yield from _split(flat, batch)

    @torch.inference_mode()
    def sum_log_probs(self, sequences: Sequence[Sequence[int]], rows: int) -> float:
        """Σ log p of the sequences, read as `rows` texts at once, each from the initial state.

        A GPU is many times faster with several rows; the beginning of each has less context.
        """
        inputs, targets = (
            np.concatenate([ids[part] for ids in sequences]) for part in (slice(-1), slice(1, None))
        )
        length = -(-len(targets) // rows)
        padding = (0, rows * length - len(targets))
        inputs, targets = (
            np.pad(one, padding, constant_values=fill).reshape(rows, length)
            for one, fill in ((inputs, EOS), (targets, _PADDING))
        )
        state, total = self.module.init_state(rows), 0.0
        for start in range(0, length, _ROW_SLICE):
            part = slice(start, start + _ROW_SLICE)
            hidden, state = self.module(self._to_tensor(inputs[:, part]), state)
            wanted = self._to_tensor(targets[:, part]).flatten()
            logits = self.module.logits(hidden.flatten(0, 1)).float()
            total -= float(
                torch.nn.functional.cross_entropy(
                    logits, wanted, ignore_index=_PADDING, reduction="sum"
                )
            )
        return total

    @torch.inference_mode()
    def sentence_log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """The same, but each sequence is read from the initial state."""
        for batch in batches(sequences):
            scores: dict[int, Floats] = {}
            for numbers in batch_by_tokens([len(ids) for ids in batch], _LSTM_SLICE):
                rows = [batch[n] for n in numbers]
                scores.update(zip(numbers, _split(self._score_rows(rows), rows), strict=True))
            yield from (scores[n] for n in range(len(batch)))

    def _score_rows(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Log p of all tokens but the first of each row, row after row."""
        if len(rows) == 1:  # it may be long
            return self._score(rows, self.module.init_state(1))[0]
        longest = max(map(len, rows))
        padded = np.array([[*ids, *[EOS] * (longest - len(ids))] for ids in rows])
        real = np.arange(1, longest) < np.array([[len(ids)] for ids in rows])  # b t
        inputs, targets = self._to_tensor(padded[:, :-1]), self._to_targets(padded[:, 1:][real])
        hidden, _ = self.module(inputs, self.module.init_state(len(rows)))
        vectors = hidden[self._to_tensor(real)].split(_LOGITS_BATCH)
        scores = [
            _gather_log_probs(self.module.logits(some), ids)
            for some, ids in zip(vectors, targets.split(_LOGITS_BATCH), strict=True)
        ]
        return np.concatenate(scores)

    def _score(self, sequences: Sequence[Sequence[int]], state: State) -> tuple[Floats, State]:
        inputs, targets = (
            np.concatenate([ids[part] for ids in sequences]) for part in (slice(-1), slice(1, None))
        )
        scores = []
        for start in range(0, len(targets), _LSTM_SLICE):
            part = slice(start, start + _LSTM_SLICE)
            hidden, state = self.module(self._to_tensor(inputs[part])[None], state)
            wanted = self._to_targets(targets[part]).split(_LOGITS_BATCH)
            for vectors, ids in zip(hidden[0].split(_LOGITS_BATCH), wanted, strict=True):
                scores.append(_gather_log_probs(self.module.logits(vectors), ids))
        return np.concatenate(scores), state


def _split(flat: Floats, sequences: Sequence[Sequence[int]]) -> Iterator[Floats]:
    """The scores of each sequence, one fewer than its tokens."""
    ends = accumulate(len(ids) - 1 for ids in sequences)
    for ids, end in zip(sequences, ends, strict=True):
        yield flat[end - len(ids) + 1 : end]


def _gather_log_probs(logits: Tensor, targets: Tensor) -> Floats:
    """Log p of each target: b v, b -> b."""
    log_probs = logits.float().log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    return log_probs.cpu().numpy()
