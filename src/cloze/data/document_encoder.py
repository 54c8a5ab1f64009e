"""Documents to ids, fast: the work one process does on its part of a corpus."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, pairwise
from typing import Any, Self, TypeAlias

import numpy as np
import tokenizers

from cloze.data.config import Segmenter, Sentences
from cloze.data.shards import Array, EncodedDocuments
from cloze.errors import InputError, MissingExtraError
from cloze.text.sentences import split_sentences as split_sentences
from cloze.text.tokenizer import Tokenizer

Document: TypeAlias = list[bytes]  # its paragraphs, as UTF-8

RULES_VERSION = (
    1  # of this file and the sentence splitter: raise it when the same text gives other arrays
)
BATCH_CHARS = 2**19  # characters given to the tokenizer at once
MAX_CACHED_CHARS = (
    2**25
)  # characters of distinct pieces whose ids are remembered, PIECE more for each
ENTRY_CHARS = 32

# Tokenizers made of these treat what stands between two spaces alone, whatever surrounds it.
_LOCAL_NORMALIZERS = {"BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFD", "NFKC", "NFKD"}
_LOCAL_SPLITTERS = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
_LOCAL_FURTHER = _LOCAL_SPLITTERS | {"Punctuation", "Digits", "Split", "ByteLevel"}


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """All that decides what becomes of a text; it travels to the worker processes."""

    backend: str  # the tokenizer as JSON; it neither cuts nor pads
    vocab_size: int  # all ids are below this
    unk_id: int | None
    sentences: Sentences
    segmenter: Segmenter | None = None

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Tokenizer, sentences: Sentences, segmenter: Segmenter | None
    ) -> Self:
        """The recipe for a tokenizer, whatever its folder says about lengths."""
        plain = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
        plain.no_truncation()
        plain.no_padding()
        return cls(
            backend=plain.to_str(),
            vocab_size=tokenizer.vocab_size,
            unk_id=tokenizer.unk_id,
            sentences=sentences,
            segmenter=segmenter,
        )

    @property
    def fingerprint(self) -> Mapping[str, str | int | None]:
        """What a fingerprint holds of it."""
        words = self.segmenter
        return {
            "rules": RULES_VERSION,
            "tokenizer": blake2b(self.backend.encode(), digest_size=16).hexdigest(),
            "sentences": self.sentences,
            "segmenter": words and f"{words.__module__}.{getattr(words, '__qualname__', words)}",
        }


class DocumentEncoder:
    """Turns documents into ids.

    Running text repeats its words: where the tokenizer looks at nothing beyond a space, each
    distinct piece between spaces is tokenized once and remembered, and a batch of sentences becomes
    ids by looking its pieces up in a table. Elsewhere the piece is the sentence.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        self._settings = settings
        self._backend = tokenizers.Tokenizer.from_str(settings.backend)
        # "[MASK]" in a text is two brackets and a word, not an instruction.
        self._backend.encode_special_tokens = True
        self._is_separable = settings.segmenter is None and is_separable_at_spaces(
            json.loads(settings.backend)
        )
        self._clear_cache()

    def __call__(self, documents: Iterable[Document]) -> EncodedDocuments:
        """The ids of some documents."""
        parts: list[tuple[Array, Array, Array]] = []
        owners: list[int] = []
        batch: list[str] = []
        size = number = 0
        for number, document in enumerate(documents, 1):
            for sentence in chain.from_iterable(map(self._split_sentences, document)):
                batch.append(sentence)
                owners.append(number - 1)
                size += len(sentence)
                if size >= BATCH_CHARS:
                    parts.append(self._encode_sentences(batch))
                    batch, size = [], 0
        parts.append(self._encode_sentences(batch))
        ids, starts, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        unknown = self._settings.unk_id
        real = lengths > 0  # a sentence of control characters leaves nothing
        return EncodedDocuments(
            ids=ids,
            word_starts=starts,
            sentences=lengths[real],
            documents=np.bincount(np.array(owners, np.int64)[real], minlength=number),
            num_unknown=int(np.count_nonzero(ids == unknown)) if unknown is not None else 0,
        )

    def _split_sentences(self, paragraph: bytes) -> list[str]:
        text = paragraph.decode()
        if self._settings.sentences == "split":
            return split_sentences(text)
        return [line for line in text.splitlines() if line.strip()]

    def _clear_cache(self) -> None:
        self._codes = _FragmentNumbers()
        self._remembered = 0
        self._ids = _GrowingArray(choose_id_dtype(self._settings.vocab_size))
        self._starts = _GrowingArray(np.bool_)
        self._firsts, self._counts = (
            _GrowingArray(np.int64),
            _GrowingArray(np.int64),
        )  # of each piece

    def _encode_sentences(self, sentences: list[str]) -> tuple[Array, Array, Array]:
        """Ids, word starts and lengths of a batch of sentences."""
        pieces = [s.split(" ") if self._is_separable else [s] for s in sentences]
        codes = np.fromiter(map(self._codes.__getitem__, chain.from_iterable(pieces)), np.int64)
        self._tokenize_new()
        counts = self._counts.values[codes]
        ends = counts.cumsum()
        # The k-th token of a piece lies k places after the piece's first in the table.
        firsts = self._firsts.values[codes] - (ends - counts)
        places = np.arange(counts.sum()) + np.repeat(firsts, counts)
        edges = np.cumsum([0, *map(len, pieces)])
        lengths = np.diff(np.concatenate([[0], ends])[edges])
        encoded = self._ids.values[places], self._starts.values[places], lengths
        if self._remembered > MAX_CACHED_CHARS:
            self._clear_cache()
        return encoded

    def _tokenize_new(self) -> None:
        """Tokenize the pieces met for the first time, and add them to the table."""
        pieces, self._codes.new = self._codes.new, []
        self._remembered += sum(map(len, pieces)) + ENTRY_CHARS * len(pieces)
        encodings = self._backend.encode_batch(pieces, add_special_tokens=False)
        counts = np.array([len(encoding) for encoding in encodings], np.int64)
        self._firsts.extend(self._ids.used + counts.cumsum() - counts)
        self._counts.extend(counts)
        self._ids.extend(chain.from_iterable(encoding.ids for encoding in encodings))
        self._starts.extend(chain.from_iterable(map(self._find_word_starts, pieces, encodings)))

    def _find_word_starts(self, piece: str, encoding: tokenizers.Encoding) -> list[bool]:
        """Whether a word starts, token by token."""
        words = encoding.word_ids
        starts = [True, *(before != word for before, word in pairwise(words))][: len(words)]
        if self._settings.segmenter is None:
            return starts
        cuts = find_word_boundaries(piece, self._settings.segmenter)
        return [
            start and (first in cuts or not place)
            for place, (start, (first, _)) in enumerate(zip(starts, encoding.offsets, strict=True))
        ]


class _GrowingArray:
    """An array that grows at its end."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self.values: Array = np.empty(2**10, dtype)
        self.used = 0

    def extend(self, values: Iterable[Any]) -> None:
        new = np.fromiter(values, self.values.dtype)
        used = self.used + len(new)
        if used > len(self.values):
            self.values = np.concatenate([self.values, np.empty(used, self.values.dtype)])
        self.values[self.used : used] = new
        self.used = used


class _FragmentNumbers(dict[str, int]):
    """Numbers for pieces in the order they are met; `new` are those not yet in the table."""

    def __init__(self) -> None:
        self.new: list[str] = []

    def __missing__(self, piece: str) -> int:
        self.new.append(piece)
        return self.setdefault(piece, len(self))


def choose_id_dtype(vocabulary: int) -> type[np.uint16] | type[np.uint32]:
    """The smallest type that holds every id."""
    return np.uint16 if vocabulary <= 2**16 else np.uint32


def is_separable_at_spaces(tokenizer: Mapping[str, Any]) -> bool:
    """Whether a text's ids are those of its pieces between spaces, one after another."""
    normalizers = _list_components(tokenizer["normalizer"], "normalizers")
    splitters = _list_components(tokenizer["pre_tokenizer"], "pretokenizers")
    return (
        all(name in _LOCAL_NORMALIZERS for name in normalizers)
        and splitters[:1] != []
        and splitters[0] in _LOCAL_SPLITTERS
        and all(name in _LOCAL_FURTHER for name in splitters)
        and all(
            token["special"] or not (token["lstrip"] or token["rstrip"] or " " in token["content"])
            for token in tokenizer["added_tokens"]
        )
    )


def _list_components(described: Mapping[str, Any] | None, inside: str) -> list[str]:
    """The names of a tokenizer's parts, sequences laid open."""
    if described is None:
        return []
    if described["type"] != "Sequence":
        return [described["type"]]
    return [name for part in described[inside] for name in _list_components(part, inside)]


def find_word_boundaries(text: str, segmenter: Segmenter) -> set[int]:
    """The places in a text where one of the segmenter's words begins or ends."""
    cuts: set[int] = set()
    position = 0
    for word in segmenter(text):
        first = text.find(word, position)
        if first < 0:
            raise InputError(
                f"the segmenter gave {word!r}, which does not follow in {text[position:][:40]!r}",
                fix="use one that cuts the text and changes nothing in it",
            )
        position = first + len(word)
        cuts.update((first, position))
    return cuts


def segment_with_jieba(text: str) -> list[str]:
    """Chinese words by jieba, for masking whole words."""
    try:
        import jieba
    except ImportError as error:
        raise MissingExtraError("cutting Chinese text into words", extra="chinese") from error
    words: list[str] = jieba.lcut(text)
    return words


SEGMENTERS: Mapping[str, Segmenter] = {"jieba": segment_with_jieba}
