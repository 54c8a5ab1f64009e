"""Encodes documents as token ids, with word starts and sentence lengths."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from typing import Any, Self, TypeAlias

import numpy as np
import tokenizers

from cloze.data.config import Segmenter, Sentences
from cloze.data.shards import Array, EncodedDocuments
from cloze.errors import InputError, MissingExtraError
from cloze.text.sentences import find_sentence_spans
from cloze.text.tokenizer import Tokenizer

Document: TypeAlias = list[bytes]  # its paragraphs, as UTF-8

RULES_VERSION = 3  # increase it if this file or the sentence splitter encodes a text differently
BATCH_CHARS = 2**19  # characters that are tokenized at once
# The cache is cleared when its fragments have this many characters, plus ENTRY_CHARS for each.
MAX_CACHED_CHARS = 2**25
ENTRY_CHARS = 32

# Tokenizers that consist of these components encode the text between two spaces independently of
# the text around it.
_SEPARABLE_NORMALIZERS = {
    "BertNormalizer",
    "Lowercase",
    "StripAccents",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
}
_SPACE_SPLITTERS = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
_SEPARABLE_SPLITTERS = _SPACE_SPLITTERS | {"Punctuation", "Digits", "Split", "ByteLevel"}


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """Everything that determines the encoding of a text; it is sent to the worker processes."""

    backend: str  # the tokenizer as JSON, without truncation and padding
    vocab_size: int  # all ids are below this
    unk_id: int | None
    sentences: Sentences
    segmenter: Segmenter | None = None

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Tokenizer, sentences: Sentences, segmenter: Segmenter | None
    ) -> Self:
        """The settings for a tokenizer; its truncation and padding are ignored."""
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
        """The values that identify these settings in the fingerprint of a corpus."""
        function = self.segmenter
        return {
            "rules": RULES_VERSION,
            "tokenizer": blake2b(self.backend.encode(), digest_size=16).hexdigest(),
            "sentences": self.sentences,
            "segmenter": function
            and f"{function.__module__}.{getattr(function, '__qualname__', function)}",
        }


class DocumentEncoder:
    """Encodes documents.

    Words repeat in running text. If the tokenizer encodes the text between two spaces independently
    of its context, such a fragment is tokenized once and its ids are cached: a batch of sentences
    is encoded by looking up its fragments in a table. With other tokenizers, a fragment is a whole
    sentence.

    If the tokenizer encodes white space (byte-level BPE, characters), a sentence begins with the
    white space before it, and a paragraph with a line break: the sentences together are the
    running text, also if the paragraphs of a document are encoded in several calls.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        self._settings = settings
        self._backend = tokenizers.Tokenizer.from_str(settings.backend)
        # "[MASK]" in a text is two brackets and a word, not a special token.
        self._backend.encode_special_tokens = True
        self._is_separable = settings.segmenter is None and is_separable_at_spaces(
            json.loads(settings.backend)
        )
        self._keeps_space = self._encode("a a") != 2 * self._encode("a")
        line_break = self._encode("\n")
        is_known = bool(line_break) and settings.unk_id not in line_break
        self._paragraph_break = "\n" if is_known else " "
        self._clear_cache()

    def __call__(
        self, documents: Iterable[Document], *, continues: bool = False
    ) -> EncodedDocuments:
        """Encode some documents; the first one may continue the last one of an earlier call."""
        encoded: list[tuple[Array, Array, Array]] = []
        document_numbers: list[int] = []  # of each sentence
        batch: list[str] = []
        size = count = 0
        for count, document in enumerate(documents, 1):
            for sentence in self._split_sentences(document, continues=continues and count == 1):
                batch.append(sentence)
                document_numbers.append(count - 1)
                size += len(sentence)
                if size >= BATCH_CHARS:
                    encoded.append(self._encode_sentences(batch))
                    batch, size = [], 0
        encoded.append(self._encode_sentences(batch))
        ids, starts, lengths = (np.concatenate(arrays) for arrays in zip(*encoded, strict=True))
        unk_id = self._settings.unk_id
        has_tokens = lengths > 0  # a sentence of control characters has none
        return EncodedDocuments(
            ids=ids,
            word_starts=starts,
            sentences=lengths[has_tokens],
            documents=np.bincount(
                np.array(document_numbers, np.int64)[has_tokens], minlength=count
            ),
            num_unknown=int(np.count_nonzero(ids == unk_id)) if unk_id is not None else 0,
        )

    def _encode(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def _split_sentences(self, document: Document, *, continues: bool = False) -> Iterator[str]:
        """The sentences, with the white space before them if the tokenizer encodes it."""
        for number, paragraph in enumerate(document):
            text = paragraph.decode()
            before = self._paragraph_break if number or continues else ""
            last_end = None
            for start, end in self._find_spans(text):
                if self._keeps_space:
                    yield before + text[start if last_end is None else last_end : end]
                else:
                    yield text[start:end]
                before, last_end = "", end

    def _find_spans(self, paragraph: str) -> Iterable[tuple[int, int]]:
        """Character spans of the sentences of a paragraph."""
        if self._settings.sentences == "split":
            return find_sentence_spans(paragraph)
        lines = paragraph.splitlines(keepends=True)
        ends = accumulate(map(len, lines))
        return [
            (end - len(line), end - len(line) + len(line.splitlines()[0]))
            for line, end in zip(lines, ends, strict=True)
            if line.strip()
        ]

    def _clear_cache(self) -> None:
        self._numbers = _FragmentNumbers()
        self._cached_chars = 0
        # the table: ids and word starts of all fragments, one after another
        self._ids = _GrowingArray(choose_id_dtype(self._settings.vocab_size))
        self._starts = _GrowingArray(np.bool_)
        # index of the first token and number of tokens of each fragment
        self._firsts, self._counts = _GrowingArray(np.int64), _GrowingArray(np.int64)

    def _encode_sentences(self, sentences: list[str]) -> tuple[Array, Array, Array]:
        """Ids, word starts and lengths of a batch of sentences."""
        fragments = [s.split(" ") if self._is_separable else [s] for s in sentences]
        numbers = np.fromiter(
            map(self._numbers.__getitem__, chain.from_iterable(fragments)), np.int64
        )
        self._tokenize_new()
        counts = self._counts.values[numbers]
        ends = counts.cumsum()
        # token k of a fragment is k rows after the fragment's first token in the table
        firsts = self._firsts.values[numbers] - (ends - counts)
        rows = np.arange(counts.sum()) + np.repeat(firsts, counts)
        borders = np.cumsum([0, *map(len, fragments)])
        lengths = np.diff(np.concatenate([[0], ends])[borders])
        encoded = self._ids.values[rows], self._starts.values[rows], lengths
        if self._cached_chars > MAX_CACHED_CHARS:
            self._clear_cache()
        return encoded

    def _tokenize_new(self) -> None:
        """Tokenize the fragments that are not in the table yet, and add them."""
        fragments, self._numbers.new = self._numbers.new, []
        self._cached_chars += sum(map(len, fragments)) + ENTRY_CHARS * len(fragments)
        encodings = self._backend.encode_batch(fragments, add_special_tokens=False)
        counts = np.array([len(encoding) for encoding in encodings], np.int64)
        self._firsts.extend(self._ids.used + counts.cumsum() - counts)
        self._counts.extend(counts)
        self._ids.extend(chain.from_iterable(encoding.ids for encoding in encodings))
        self._starts.extend(chain.from_iterable(map(self._find_word_starts, fragments, encodings)))

    def _find_word_starts(self, fragment: str, encoding: tokenizers.Encoding) -> list[bool]:
        """Whether each token starts a word."""
        words = encoding.word_ids
        starts = [True, *(before != word for before, word in pairwise(words))][: len(words)]
        if self._settings.segmenter is None:
            return starts
        boundaries = find_word_boundaries(fragment, self._settings.segmenter)
        return [
            is_start and (first in boundaries or not index)
            for index, (is_start, (first, _)) in enumerate(
                zip(starts, encoding.offsets, strict=True)
            )
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
    """Numbers fragments in the order of their first lookup; `new` are not in the table yet."""

    def __init__(self) -> None:
        self.new: list[str] = []

    def __missing__(self, fragment: str) -> int:
        self.new.append(fragment)
        return self.setdefault(fragment, len(self))


def choose_id_dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """The smallest dtype that can represent every id."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32


def is_separable_at_spaces(tokenizer: Mapping[str, Any]) -> bool:
    """Whether encoding a text gives the same ids as encoding each part between two spaces."""
    normalizers = _list_components(tokenizer["normalizer"], "normalizers")
    splitters = _list_components(tokenizer["pre_tokenizer"], "pretokenizers")
    return (
        all(name in _SEPARABLE_NORMALIZERS for name in normalizers)
        and splitters[:1] != []
        and splitters[0] in _SPACE_SPLITTERS
        and all(name in _SEPARABLE_SPLITTERS for name in splitters)
        and all(
            token["special"] or not (token["lstrip"] or token["rstrip"] or " " in token["content"])
            for token in tokenizer["added_tokens"]
        )
    )


def _list_components(component: Mapping[str, Any] | None, key: str) -> list[str]:
    """The names of a tokenizer's components; a sequence lists its own under `key`."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component["type"]]
    return [name for part in component[key] for name in _list_components(part, key)]


def find_word_boundaries(text: str, segmenter: Segmenter) -> set[int]:
    """The character positions where a word of the segmenter begins or ends."""
    boundaries: set[int] = set()
    position = 0
    for word in segmenter(text):
        first = text.find(word, position)
        if first < 0:
            raise InputError(
                f"the segmenter returned {word!r}, which does not occur in the rest of the text, "
                f"{text[position:][:40]!r}",
                fix="use a segmenter that splits the text without changing it",
            )
        position = first + len(word)
        boundaries.update((first, position))
    return boundaries


def segment_with_jieba(text: str) -> list[str]:
    """Segment Chinese text into words with jieba, for whole-word masking."""
    try:
        import jieba
    except ImportError as error:
        raise MissingExtraError("splitting Chinese text into words", extra="chinese") from error
    words: list[str] = jieba.lcut(text)
    return words


SEGMENTERS: Mapping[str, Segmenter] = {"jieba": segment_with_jieba}
