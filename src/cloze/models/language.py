"""What every language model can do: give the probability of the next token.  v vocabulary."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloze.models.configs.ngram import BOS, EOS, SYMBOLS, UNK
from cloze.models.registry import Family
from cloze.text.tokenizer import Tokenizer

Logs: TypeAlias = NDArray[np.floating[Any]]  # natural logarithms
T = TypeVar("T")

_BATCH = 1000  # texts at once


class LanguageModel(Protocol):
    """An n-gram model, NNLM, LSTM or causal encoder, as `suggest`, `generate` and metrics use it.

    `cloze.decode.language.language_model` makes one of a loaded model. Ids are the model's own. A
    sequence is what is scored as a whole: a begin symbol, tokens, an end symbol. An optional
    `stepper` (read, step, reorder) decodes several rows at once; an optional `path` explains a
    probability.
    """

    @property
    def words(self) -> Sequence[str]:
        """The token of every id."""

    @property
    def unknown(self) -> int | None:
        """The id of the unknown token, if there is one."""

    @property
    def end(self) -> int | None:
        """The id that ends a text, if there is one."""

    def begin(self, text: str) -> list[int]:
        """The ids of a prompt: the begin symbol and the tokens, without an end symbol."""

    def sequences(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts to score, each with its begin and end symbols."""

    def shown(self, id: int) -> str:
        """A token as text for a reader."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens."""

    def next_log_probs(self, context: Sequence[int]) -> Logs:
        """Log p(w | context) for every w of the vocabulary, v."""

    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Logs]:
        """For each sequence log p of every token but the first, given those before it.

        A model that reads its sequences as one text carries its state from each to the next. They
        are read a batch at a time, so there may be more of them than fit into memory.
        """


class LoadedModel(Protocol):
    """What an adapter reads of a `cloze.checkpoint.model.Model`, which is above this layer."""

    @property
    def module(self) -> Any: ...  # noqa: ANN401 (of the family's class)
    @property
    def config(self) -> Any: ...  # noqa: ANN401
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def family(self) -> Family: ...
    @property
    def task_heads(self) -> tuple[str, ...]: ...
    @property
    def limit(self) -> int: ...
    @property
    def device(self) -> Any: ...  # noqa: ANN401 (a torch.device; torch is not imported here)


def batches(stream: Iterable[T]) -> Iterator[list[T]]:
    """Texts or sequences, as many as are worth computing at once."""
    left = iter(stream)
    while batch := list(islice(left, _BATCH)):
        yield batch


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of word-level models: <unk>, <s>, </s>, then a tokenizer's tokens in order.

    The tokenizer's special tokens are left out, as they never occur; in a text they are unknown.
    """

    tokenizer: Tokenizer

    @cached_property
    def words(self) -> list[str]:
        return [*SYMBOLS, *self._tokens]

    @cached_property
    def _tokens(self) -> dict[str, int]:
        tokenizer = self.tokenizer
        tokens = sorted(tokenizer.backend.get_vocab().items(), key=lambda item: item[1])
        return {token: id_ for token, id_ in tokens if id_ not in tokenizer.special_ids}

    @cached_property
    def _numbers(self) -> list[int]:
        """The model's id for each of the tokenizer's."""
        found = [UNK] * self.tokenizer.vocab_size
        for number, id_ in enumerate(self._tokens.values(), len(SYMBOLS)):
            found[id_] = number
        return found

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts."""
        numbers = self._numbers
        return [
            [numbers[id_] for id_ in ids]
            for ids in self.tokenizer.encode_ids(texts, add_special_tokens=False)
        ]

    def shown(self, number: int) -> str:
        """A word for a reader: of byte-level tokens the text."""
        word = self.words[number]
        if number < len(SYMBOLS):
            return word
        return (
            self.tokenizer.decode([self._tokens[word]], skip_special_tokens=False).strip() or word
        )

    def text(self, numbers: Sequence[int]) -> str:
        """The text of ids, without <s> and </s>; unknown words stay unknown."""
        unknown = self.tokenizer.unk_id
        ids = [
            unknown if n == UNK else self._tokens[self.words[n]]
            for n in numbers
            if n not in (BOS, EOS)
        ]
        return self.tokenizer.decode(
            [id_ for id_ in ids if id_ is not None], skip_special_tokens=False
        )


class WordLanguageModel:
    """How a model with such a vocabulary reads and writes text: that part of a `LanguageModel`."""

    first: int = BOS  # what stands before a sentence

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocabulary = Vocabulary(tokenizer)

    @property
    def words(self) -> Sequence[str]:
        return self.vocabulary.words

    @property
    def unknown(self) -> int:
        return UNK

    @property
    def end(self) -> int:
        return EOS

    def begin(self, text: str) -> list[int]:
        """The ids of a prompt, and what stands before it."""
        return [self.first, *self.vocabulary.ids([text])[0]]

    def sequences(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts with their begin and end symbols."""
        return [[self.first, *ids, EOS] for ids in self.vocabulary.ids(texts)]

    def shown(self, id: int) -> str:
        """A word for a reader."""
        return self.vocabulary.shown(id)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of words."""
        return self.vocabulary.text(ids)
