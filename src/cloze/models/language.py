"""The interface of language models: probabilities of the next token.  v vocabulary."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloze.models.configs.ngram import BOS, EOS, SYMBOLS, UNK
from cloze.models.registry import Family
from cloze.text.counting import MAX_WORDS
from cloze.text.tokenizer import Tokenizer
from cloze.text.word_characters import (
    BOS_ROW,
    EOS_ROW,
    WordCharacterTokenizer,
    encode_rows,
    encode_word,
)

Logs: TypeAlias = NDArray[np.floating[Any]]  # natural logarithms
T = TypeVar("T")

_BATCH = 1000  # texts at once


class LanguageModel(Protocol):
    """An n-gram model, NNLM, LSTM or causal encoder, for `suggest`, `generate` and metrics.

    `cloze.decode.language.language_model` adapts a loaded model to it. Ids are the model's own. A
    model may also be an `IncrementalDecoder` with a `start` method (`cloze.decode.language`), which
    decodes many prompts at once, and may have `backoff_path`, which explains a probability. If
    `log_probs` carries a state, `sentence_log_probs` scores each sequence alone.
    """

    @property
    def vocabulary(self) -> Sequence[str]:
        """The token of every id."""

    @property
    def unk_id(self) -> int | None:
        """The id of the unknown token, if there is one."""

    @property
    def eos_id(self) -> int | None:
        """The id of the token that ends a text, if there is one."""

    def encode_prompt(self, text: str) -> list[int]:
        """The ids of a prompt: the begin symbol and the tokens, without an end symbol."""

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts to score: begin symbol, tokens, end symbol of each."""

    def decode_token(self, id: int) -> str:
        """One token as readable text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a sequence of ids."""

    def next_log_probs(self, context: Sequence[int]) -> Logs:
        """Log p(w | context) for every w of the vocabulary, v."""

    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Logs]:
        """For each sequence log p of every token but the first, given those before it.

        A model of continuous text (LSTM) carries its state from one sequence to the next. They
        are read in batches, so there may be more of them than fit into memory.
        """


class LoadedModel(Protocol):
    """The attributes that adapters use of `cloze.checkpoint.model.Model`, a higher layer."""

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
    def max_length(self) -> int: ...
    @property
    def device(self) -> Any: ...  # noqa: ANN401 (a torch.device; torch is not imported here)


def batches(stream: Iterable[T]) -> Iterator[list[T]]:
    """Texts or sequences in lists of at most 1000, which are computed together."""
    remaining = iter(stream)
    while batch := list(islice(remaining, _BATCH)):
        yield batch


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of n-gram models, NNLM and LSTM: <unk>, <s>, </s>, then a tokenizer's tokens.

    The special tokens of the tokenizer are not in it; in a text they are unknown.
    """

    tokenizer: Tokenizer

    @cached_property
    def tokens(self) -> list[str]:
        """The token of every id."""
        return [*SYMBOLS, *self._tokenizer_ids]

    @cached_property
    def _tokenizer_ids(self) -> dict[str, int]:
        """The tokenizer's id of each of its tokens, ascending."""
        tokenizer = self.tokenizer
        tokens = sorted(tokenizer.backend.get_vocab().items(), key=lambda item: item[1])
        return {token: id_ for token, id_ in tokens if id_ not in tokenizer.special_ids}

    @cached_property
    def model_ids(self) -> list[int]:
        """The model's id for each of the tokenizer's ids."""
        ids = [UNK] * self.tokenizer.vocab_size
        for model_id, tokenizer_id in enumerate(self._tokenizer_ids.values(), len(SYMBOLS)):
            ids[tokenizer_id] = model_id
        return ids

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, without begin and end symbols."""
        model_ids = self.model_ids
        return [
            [model_ids[id_] for id_ in ids]
            for ids in self.tokenizer.encode_ids(texts, add_special_tokens=False)
        ]

    def decode_token(self, id: int) -> str:
        """One token as readable text; a byte-level token is decoded."""
        token = self.tokens[id]
        if id < len(SYMBOLS):
            return token
        text = self.tokenizer.decode([self._tokenizer_ids[token]], skip_special_tokens=False)
        return text.strip() or token

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without <s> and </s>; an unknown token is the tokenizer's."""
        unk_id = self.tokenizer.unk_id
        tokenizer_ids = [
            unk_id if id_ == UNK else self._tokenizer_ids[self.tokens[id_]]
            for id_ in ids
            if id_ not in (BOS, EOS)
        ]
        return self.tokenizer.decode(
            [id_ for id_ in tokenizer_ids if id_ is not None], skip_special_tokens=False
        )


@dataclass(frozen=True)
class OpenVocabulary(Vocabulary):
    """The vocabulary of ELMo: the ids of unknown words follow those of the known ones.

    So their characters can be read. Such ids are valid for this object only, and as a word to
    predict each of them is <unk>.
    """

    tokenizer: WordCharacterTokenizer

    @cached_property
    def spellings(self) -> list[str]:
        """The word of every id, also of the unknown words that were encoded so far."""
        return list(self.tokens)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: id_ for id_, word in enumerate(self.tokens) if id_ >= len(SYMBOLS)}

    @cached_property
    def _chunk_ids(self) -> dict[str, list[int]]:
        return {}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, without begin and end symbols.

        Each distinct chunk between white space is tokenized only once, which is many times as fast.
        """
        chunks = [self.tokenizer.split_chunks(text) for text in texts]
        known, ids, spellings = self._chunk_ids, self._ids, self.spellings
        if len(known) > MAX_WORDS:
            known.clear()
        new = list(dict.fromkeys(one for some in chunks for one in some if one not in known))
        for chunk, words in zip(new, self.tokenizer.encode_words(new), strict=True):
            for word in words:
                if word not in ids:
                    ids[word] = len(spellings)
                    spellings.append(word)
            known[chunk] = [ids[word] for word in words]
        return [[id_ for one in some for id_ in known[one]] for some in chunks]

    def characters(self) -> NDArray[np.int16]:
        """The rows of characters of all words: n c."""
        rows = encode_rows(self.spellings)
        rows[BOS], rows[EOS] = BOS_ROW, EOS_ROW
        return rows

    def characters_of(self, ids: Iterable[int]) -> NDArray[np.int16]:
        """The rows of characters of these words: n c."""
        symbols = {BOS: BOS_ROW, EOS: EOS_ROW}
        rows = [symbols.get(id_) or encode_word(self.spellings[id_]) for id_ in ids]
        return np.array(rows, np.int16)

    def decode_token(self, id: int) -> str:
        """One word; an unknown one as it is spelled."""
        return super().decode_token(id) if id < len(self.tokens) else self.spellings[id]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without <s> and </s>; an unknown word is the tokenizer's."""
        return super().decode([id_ if id_ < len(self.tokens) else UNK for id_ in ids])


def count_unknown(model: LanguageModel, ids: Iterable[int]) -> int:
    """How many of the tokens of a text are unknown; ids beyond the vocabulary are, too."""
    size = len(model.vocabulary)
    return sum(id_ == model.unk_id or id_ >= size for id_ in ids)


class WordLanguageModel:
    """Base class of models with such a vocabulary: how they encode and decode text."""

    bos_id: int = BOS  # the token before the first one of a sentence

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._vocabulary = Vocabulary(tokenizer)

    @property
    def context_size(self) -> int:
        """The number of tokens before a word that its probability depends on."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> Sequence[str]:
        return self._vocabulary.tokens

    @property
    def unk_id(self) -> int:
        return UNK

    @property
    def eos_id(self) -> int:
        return EOS

    def encode_prompt(self, text: str) -> list[int]:
        """The begin symbol and the tokens of a prompt; of a very long one, only its end."""
        end = self._vocabulary.tokenizer.take_tail(text, self.context_size)
        return [self.bos_id, *self._vocabulary.encode([end])[0]]

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Begin symbol, tokens, end symbol of each text."""
        return [[self.bos_id, *ids, EOS] for ids in self._vocabulary.encode(texts)]

    def decode_token(self, id: int) -> str:
        """One token as readable text."""
        return self._vocabulary.decode_token(id)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a sequence of ids."""
        return self._vocabulary.decode(ids)
