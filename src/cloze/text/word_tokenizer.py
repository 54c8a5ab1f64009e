"""Split text into the words of word vectors, as word2vec's trainer does.

A word is a sequence of letters and digits, with apostrophes inside it ("don't"); every ideograph is
a word. Every other character that is not a space, such as a punctuation mark, is a token, too, so
that each word of a tagged sentence has one; most vocabularies do not have them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, Self

from cloze.files import read_json, write_json
from cloze.text import tokenizer_files as files
from cloze.text.checks import check_text, check_texts
from cloze.text.tokenizer import Tokenizer
from cloze.text.words import PLAIN_WORD, WORD

SETTINGS_FILE = "tokenizer_config.json"
JOIN = "_"  # between the words of a phrase
_PLAIN_TOKEN, _TOKEN = (re.compile(rf"{one.pattern}|\S") for one in (PLAIN_WORD, WORD))
_SPACED_TOKEN = re.compile(r"\S+")

Word = tuple[str, int, int]  # as it is looked up, start and end in the text


class WordIndex(Protocol):
    """The words that have vectors."""

    def __len__(self) -> int: ...
    def __contains__(self, word: object) -> bool: ...
    def find_id(self, word: str) -> Any:  # noqa: ANN401
        """The id of a word or the ids of its parts; of an unknown word, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordEncoding:
    """The tokens of a text or a pair, with the attributes of `tokenizers.Encoding`."""

    ids: list[Any]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]
    type_ids: list[int]
    sequence_ids: list[int | None]

    def __len__(self) -> int:
        return len(self.ids)


class WordTokenizer(Tokenizer):
    """Text to the ids of words, without special tokens.

    Args:
        words: the vocabulary.
        spaced: whether words are separated by spaces already.
        lowercase: whether words are looked up in lower case.
        phrases: how many times neighbouring words are joined where the vocabulary has the phrase.
        max_length: maximum number of words that are read; None: no limit.
    """

    def __init__(
        self,
        words: WordIndex,
        *,
        spaced: bool = False,
        lowercase: bool = False,
        phrases: int = 0,
        max_length: int | None = None,
    ) -> None:
        self._words, self._spaced, self._phrases = words, spaced, phrases
        self.vocab_size, self.lowercase, self.max_length = len(words), lowercase, max_length
        self.kind, self.special_tokens, self.special_ids = "word", {}, frozenset()
        for role in files.ROLES:
            setattr(self, f"{role}_token", None)
            setattr(self, f"{role}_id", None)

    def with_max_length(self, max_length: int | None) -> Self:
        """The same tokenizer with another maximum number of words."""
        return type(self)(
            self._words,
            spaced=self._spaced,
            lowercase=self.lowercase,
            phrases=self._phrases,
            max_length=max_length,
        )

    def save(self, folder: str | PathLike[str], *, token_types: bool = True) -> None:  # noqa: ARG002
        """Write the maximum number of words, if there is one; the words are in the model."""
        if self.max_length is not None:
            write_json(Path(folder) / SETTINGS_FILE, {"model_max_length": self.max_length})

    def encode_ids(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool = True,  # noqa: ARG002
        limit: int | None = None,  # noqa: ARG002
    ) -> list[list[Any]]:
        """The ids of the words of each text."""
        return [
            [self._words.find_id(word) for word, *_ in self.split(one)]
            for one in check_texts(texts)
        ]

    def encode_ids_and_types(
        self, texts: Sequence[str], pairs: Sequence[str | None], *, limit: int | None = None
    ) -> list[tuple[list[Any], list[int]]]:
        """The ids of texts, each with a pair or None, and type ids."""
        firsts = self.encode_ids(texts, limit=limit)
        seconds = self.encode_ids([pair or "" for pair in pairs], limit=limit)
        both = zip(firsts, seconds, strict=True)
        return [(one + other, [0] * len(one) + [1] * len(other)) for one, other in both]

    def count_tokens(self, text: str) -> int:
        """Number of words of a text."""
        return len(self.split(check_text(text, "the text")))

    def num_special_tokens(self, *, pair: bool = False) -> int:  # noqa: ARG002
        """There are no special tokens."""
        return 0

    def split(self, text: str) -> list[Word]:
        """The words of a text, and where they are in it."""
        pattern = _SPACED_TOKEN if self._spaced else _PLAIN_TOKEN if text.isascii() else _TOKEN
        found = [(match.group(), *match.span()) for match in pattern.finditer(text)]
        if self.lowercase:
            found = [(word.lower(), start, end) for word, start, end in found]
        for _ in range(self._phrases):
            found = self._join_phrases(found)
        return found

    def _join_phrases(self, words: list[Word]) -> list[Word]:
        """Join neighbouring words that the vocabulary has as a phrase, from the left."""
        joined: list[Word] = []
        free = False  # whether the last word may still be part of a phrase
        for word, start, end in words:
            if free and (phrase := f"{joined[-1][0]}{JOIN}{word}") in self._words:
                joined[-1] = (phrase, joined[-1][1], end)
                free = False
            else:
                joined.append((word, start, end))
                free = True
        return joined

    @staticmethod
    def is_long(text: str) -> bool:  # noqa: ARG004
        """Whether only a part of a text is in memory at a time: never."""
        return False

    def _encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, special: bool = True
    ) -> list[Any]:
        del special
        sides = [[text] for text in check_texts(texts)]
        if pairs is not None:
            sides = [[*one, pair] for one, pair in zip(sides, check_texts(pairs), strict=True)]
        return [self._encode_sides(one) for one in sides]

    def _encode_sides(self, sides: Sequence[str]) -> WordEncoding:
        split = [self.split(text) for text in sides]
        words = [word for each in split for word in each]
        numbers = [number for number, each in enumerate(split) for _ in each]
        return WordEncoding(
            ids=[self._words.find_id(word) for word, *_ in words],
            tokens=[word for word, *_ in words],
            offsets=[(start, end) for _, start, end in words],
            word_ids=[number for each in split for number in range(len(each))],
            type_ids=numbers,
            sequence_ids=list(numbers),
        )


def read_max_length(folder: Path) -> int | None:
    """The maximum number of words that `WordTokenizer.save` wrote; None if there is none."""
    file = folder / SETTINGS_FILE
    values = read_json(file) if file.is_file() else None
    found = values.get("model_max_length") if isinstance(values, dict) else None
    return found if isinstance(found, int) and found > 0 else None
