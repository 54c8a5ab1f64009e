"""Adapter of ELMo to `LanguageModel`: its forward direction, and scores of its backward one.

b rows, t tokens, p width of one direction, v vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cloze.decode.neural import Floats, LSTMLanguageModel
from cloze.errors import InputError
from cloze.models.configs.ngram import BOS, UNK
from cloze.models.elmo import Elmo, State
from cloze.models.language import LoadedModel, OpenVocabulary
from cloze.text.word_characters import WordCharacterTokenizer


class ElmoLanguageModel(LSTMLanguageModel):
    """An ELMo that reads each text alone, from <s> to </s>, unless its states are carried over.

    Unknown words have ids of their own, because their characters are read; as words to predict they
    are <unk>.
    """

    bos_id = BOS

    def __init__(self, model: LoadedModel, *, is_backward: bool = False) -> None:
        if model.module.output is None:
            raise InputError(
                "this ELMo has no output layer, so it cannot predict words",
                fix="use it with embed, or train one with cloze pretrain --family elmo",
            )
        super().__init__(model)
        assert isinstance(model.tokenizer, WordCharacterTokenizer)
        self._words = self._vocabulary = OpenVocabulary(model.tokenizer)
        self.module = _Direction(model.module, self._words, is_backward=is_backward)
        self._carries_state: bool = model.config.carry_state

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, State]:
        """The last token of each prompt (b), and the state after the tokens before it."""
        self.module.prepare()
        return super().start(prompts)

    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every token but the first."""
        self.module.prepare()
        if self._carries_state:
            return super().log_probs(sequences)
        return super().sentence_log_probs(sequences)

    def sentence_log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """The same, but each sequence is read from the initial state."""
        self.module.prepare()
        return super().sentence_log_probs(sequences)

    def backward_log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every token but the last, given those after it, reversed."""
        backward = ElmoLanguageModel(self.model, is_backward=True)
        backward.module.vocabulary = self._words
        return backward.log_probs(ids[::-1] for ids in sequences)

    def _to_targets(self, ids: NDArray[Any]) -> Tensor:
        """Words outside of the vocabulary are predicted as <unk>."""
        return self._to_tensor(np.where(ids < self.model.config.vocab_size, ids, UNK))


class _Direction:
    """One direction of an ELMo, as `LSTMLanguageModel` uses a module."""

    def __init__(self, module: Elmo, vocabulary: OpenVocabulary, *, is_backward: bool) -> None:
        self.vocabulary, self._module, self.config = vocabulary, module, module.config
        self._layers = module.backward_layers if is_backward else module.forward_layers
        self._parts = slice(2, 4) if is_backward else slice(0, 2)
        self._output: tuple[Tensor, Tensor] | None = None

    def prepare(self) -> None:
        """Compute the output layer: its weights may have changed since."""
        if self._module.needs_vocabulary:
            characters = self.vocabulary.characters_of(range(self.config.vocab_size))
            self._module.set_vocabulary(torch.from_numpy(characters))
        assert self._module.output is not None
        with torch.inference_mode():
            self._output = self._module.output()

    def __call__(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        words, index = np.unique(ids.cpu().numpy(), return_inverse=True)
        characters = torch.from_numpy(self.vocabulary.characters_of(words.tolist()))
        cnn = self._module.embeddings
        vectors = cnn(cnn.trim(characters).to(ids.device))
        x = F.embedding(torch.from_numpy(index.reshape(ids.shape)).to(ids.device), vectors)
        hidden, after = self._module.read_direction(self._layers, x, state)
        return hidden, tuple(after)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits over the vocabulary: … p -> … v."""
        assert self._output is not None
        return F.linear(hidden, *self._output)

    def init_state(self, batch_size: int) -> State:
        """The states before the first token: zeros."""
        return self._module.init_state(batch_size)[self._parts]

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Log-probabilities of the next token (b v) after one more of each row (b)."""
        hidden, state = self(tokens[:, None], state)
        return self.logits(hidden[:, 0]).float().log_softmax(-1), state

    def reorder(self, state: State, rows: Tensor) -> State:
        """The state of other rows."""
        return tuple(part[:, rows] for part in state)
