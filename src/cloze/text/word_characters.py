"""Words as rows of character ids, for models that read every word letter by letter (ELMo).

An id of such a tokenizer is the row of a word: a symbol for its beginning, its UTF-8 bytes, a
symbol for its end, and padding up to 50. A word outside of the vocabulary has a row like any other.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import pre_tokenizers, processors

from cloze.errors import ConfigError, InputError
from cloze.files import read_json, write_json
from cloze.text.alignment import TokenAlignment
from cloze.text.checks import check_text, convert_errors, read_json_object
from cloze.text.counting import split_bert_words
from cloze.text.long_words import FAILED
from cloze.text.tokenizer import Tokenizer
from cloze.text.windows import Windows

MAX_CHARACTERS = 50
# ids after those of the 256 bytes
BEGIN_OF_TEXT, END_OF_TEXT, BEGIN_OF_WORD, END_OF_WORD, PADDING = range(256, 261)
NUM_CHARACTERS = 261
SETTING = "characters_per_word"  # of tokenizer_config.json, by which such a tokenizer is known
_SETTINGS_FILE = "tokenizer_config.json"
_SEPARATORS = re.compile("[\x1c-\x1f]")

Row = tuple[int, ...]


def _make_row(characters: Sequence[int]) -> Row:
    row = (BEGIN_OF_WORD, *characters[: MAX_CHARACTERS - 2], END_OF_WORD)
    return row + (PADDING,) * (MAX_CHARACTERS - len(row))


BOS_ROW, EOS_ROW = _make_row([BEGIN_OF_TEXT]), _make_row([END_OF_TEXT])
_SYMBOLS = {BOS_ROW: "<s>", EOS_ROW: "</s>"}


@lru_cache(maxsize=1 << 16)
def encode_word(word: str) -> Row:
    """The row of a word: 50 ids. Of a longer word the first 48 bytes are read."""
    return _make_row(word.encode(errors="replace"))


def encode_rows(words: Sequence[str]) -> NDArray[np.int16]:
    """The rows of many words: n 50."""
    rows = np.full((len(words), MAX_CHARACTERS), PADDING, np.int16)
    rows[:, 0] = BEGIN_OF_WORD
    for row, word in zip(rows, words, strict=True):
        data = word.encode(errors="replace")[: MAX_CHARACTERS - 2]
        row[1 : 1 + len(data)] = np.frombuffer(data, np.uint8)
        row[1 + len(data)] = END_OF_WORD
    return rows


class WordCharacterTokenizer(Tokenizer):
    """A tokenizer of whole words whose ids are rows of characters, a tuple for each word.

    Texts are enclosed in symbols for their beginning and their end, the second text of a pair too.
    """

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> Self:
        """The same words, and the symbols around each text."""
        start, end = (
            tokenizer.cls_token or tokenizer.bos_token,
            tokenizer.sep_token or tokenizer.eos_token,
        )
        if tokenizer.kind != "word" or start is None or end is None:
            raise ConfigError(
                f"the vocabulary is of the kind {tokenizer.kind}, but this model reads whole words",
                fix='use a vocabulary of the kind "word", or "spaced" for tokenized text',
            )
        backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
        backend.post_processor = processors.TemplateProcessing(
            single=f"{start}:0 $A:0 {end}:0",
            pair=f"{start}:0 $A:0 {end}:0 {start}:1 $B:1 {end}:1",
            special_tokens=[(token, backend.token_to_id(token)) for token in (start, end)],
        )
        return cls(
            backend, special_tokens=tokenizer.special_tokens, max_length=tokenizer.max_length
        )

    def save(self, folder: str | PathLike[str], *, token_types: bool = True) -> None:
        """Write the files, with a setting that says that ids are rows of characters."""
        super().save(folder, token_types=token_types)
        path = Path(folder) / _SETTINGS_FILE
        write_json(path, read_json(path) | {SETTING: MAX_CHARACTERS}, indent=2)

    def split_chunks(self, text: str) -> list[str]:
        """Parts of a text whose words, one after the other, are those of the text."""
        check_text(text, "the text")
        if isinstance(self.backend.pre_tokenizer, pre_tokenizers.BertPreTokenizer):
            return split_bert_words(text, chinese=True)
        # Python's `split` knows four separators more
        return [text] if _SEPARATORS.search(text) else text.split()

    def encode_words(self, texts: Sequence[str]) -> list[list[str]]:
        """The words of each text, also those that are not in the vocabulary."""
        unk, found = self.unk_token, []
        for text, encoding in zip(texts, self._encode(texts, special=False), strict=True):
            words = encoding.tokens
            if unk in words:
                offsets = encoding.offsets
                words = [
                    self._normalize(text[slice(*offsets[n])]) if word == unk else word
                    for n, word in enumerate(words)
                ]
            found.append(words)
        return found

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401 - those of the base class
    ) -> list[TokenAlignment]:
        """Encode many texts, or many pairs; see `Tokenizer.encode_batch`."""
        found = super().encode_batch(texts, pairs, **options)
        seconds = [""] * len(texts) if pairs is None else pairs
        return [
            self._with_rows(one, both) for one, *both in zip(found, texts, seconds, strict=True)
        ]

    def iterate_windows(
        self, text: str, pair: str | None = None, *, max_length: int, overlap: int
    ) -> Windows:
        """The windows of a text or pair; see `Tokenizer.iterate_windows`."""
        found = super().iterate_windows(text, pair, max_length=max_length, overlap=overlap)
        both = (text, pair or "")
        return Windows(
            spans=found.spans, alignments=(self._with_rows(one, both) for one in found.alignments)
        )

    def encode_ids(
        self, texts: Sequence[str], *, add_special_tokens: bool = True, limit: int | None = None
    ) -> list[list[Any]]:
        """The rows of the words of each text; see `Tokenizer.encode_ids`."""
        short = [one.text for one in self._shorten(texts, None, limit)]
        found = self._encode(short, special=add_special_tokens)
        return [
            self._make_rows(one.ids, one.tokens, one.offsets, one.sequence_ids, (text, ""))
            for one, text in zip(found, short, strict=True)
        ]

    def encode_ids_and_types(
        self, texts: Sequence[str], pairs: Sequence[str | None], *, limit: int | None = None
    ) -> list[tuple[list[Any], list[int]]]:
        """Rows and type ids of texts; see `Tokenizer.encode_ids_and_types`."""
        given = [pair for pair in pairs if pair is not None]
        second = (one.text for one in self._shorten(given, None, limit))
        first = [one.text for one in self._shorten(texts, None, limit)]
        inputs = [
            text if pair is None else (text, next(second))
            for text, pair in zip(first, pairs, strict=True)
        ]
        with convert_errors(InputError, "the tokenizer failed", fix=FAILED):
            found = self.backend.encode_batch(inputs)
        return [
            (
                self._make_rows(
                    one.ids,
                    one.tokens,
                    one.offsets,
                    one.sequence_ids,
                    both if isinstance(both, tuple) else (both, ""),
                ),
                one.type_ids,
            )
            for one, both in zip(found, inputs, strict=True)
        ]

    def _with_rows(self, found: TokenAlignment, texts: Sequence[str]) -> TokenAlignment:
        rows = self._make_rows(found.ids, found.tokens, found.offsets, found.sequence_ids, texts)
        tokens = [
            _SYMBOLS.get(row, token)
            if sequence is None
            else texts[sequence][slice(*offsets)]
            if token == self.unk_token
            else token
            for row, token, offsets, sequence in zip(
                rows, found.tokens, found.offsets, found.sequence_ids, strict=True
            )
        ]
        return replace(found, ids=rows, tokens=tokens)

    def _make_rows(
        self,
        ids: Sequence[Any],
        tokens: Sequence[str],
        offsets: Sequence[tuple[int, int]],
        sequence_ids: Sequence[int | None],
        texts: Sequence[str],
    ) -> list[Any]:
        """The row of each token; offsets are positions in the texts."""
        start, unk = self.start_id, self.unk_id
        rows: list[Any] = []
        for id_, token, (first, stop), sequence in zip(
            ids, tokens, offsets, sequence_ids, strict=True
        ):
            if isinstance(id_, tuple):  # of the first text of a window
                rows.append(id_)
            elif sequence is None:
                rows.append(BOS_ROW if id_ == start else EOS_ROW)
            elif id_ == unk:
                rows.append(encode_word(self._normalize(texts[sequence][first:stop])))
            else:
                rows.append(encode_word(token))
        return rows

    def _normalize(self, word: str) -> str:
        """A word of the text as the vocabulary would have it, such as in lower case."""
        normalizer = self.backend.normalizer
        normalized = word if normalizer is None else normalizer.normalize_str(word).strip()
        return normalized or word


def load_tokenizer(path: str | PathLike[str]) -> Tokenizer:
    """Load a tokenizer from a folder or file; its ids are rows of characters if it says so."""
    settings = Path(path) / _SETTINGS_FILE
    has_rows = settings.is_file() and SETTING in read_json_object(settings)
    return (WordCharacterTokenizer if has_rows else Tokenizer).load(path)
