"""Parts of a long text whose tokens are those of the whole text, found before it is tokenized.

The tokenizers library needs some 300 bytes for each character of a text. A text may be cut between
a letter or digit and a single space before a letter (`the| cat`): for the tokenizers listed here
the tokens of both parts, one after the other, are then those of the whole. Everything that these
pipelines do looks at a word and the space before it, never at the next word:

- normalizers work on characters, graphemes or runs of white space, and none crosses `e| c`;
- pre-tokenizers split at the cut, and the space stays with the word after it;
- models see one word at a time; added tokens that contain or swallow a space are excluded.

Other tokenizers, and texts without such a place, are tokenized as a whole, up to a million
characters; for the head of a text, words are cut too (`long_words.py`).
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import tokenizers

from cloze.errors import InputError
from cloze.text.alignment import TokenAlignment, TokenRanges
from cloze.text.backends import CUT_SAFE_PATTERNS
from cloze.text.checks import convert_errors
from cloze.text.long_words import (
    FAILED,
    MAX_PART,
    check_part,
    find_head_of_word,
    measure_longest_token,
)

LONG = 1 << 15  # characters; shorter texts are always tokenized as a whole
PIECE = 1 << 14  # characters that are tokenized together when tokens are counted
PIECES = 8  # tokenized at a time, on all cores
COUNTED = (
    1 << 20
)  # characters; of longer parts that are left out, the number of tokens is estimated
SAMPLES = 16  # parts that the estimate is based on
_CUT = re.compile(r"(?<=[A-Za-z0-9]) (?=[A-Za-z])")
_LONG_WORD = re.compile(r"[A-Za-z0-9]{4000,}")
_WORD = "a"
_KEPT = 1000  # letters that are kept of both ends of a long word
_SPLITTING = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
_LOCAL = {"Punctuation", "Digits"}
_NORMALIZERS = {
    *("BertNormalizer", "Lowercase", "StripAccents", "Nmt", "Precompiled"),
    *("NFC", "NFD", "NFKC", "NFKD"),
}


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Characters that were left out of a text."""

    position: int  # in the shortened text
    chars: int
    tokens: int = 0  # of these characters alone; more than a million are estimated by a sample
    words: int = 0


@dataclass(frozen=True, kw_only=True)
class ShortText:
    """A text and what was left out of it, from left to right."""

    text: str
    gaps: tuple[Gap, ...] = ()

    @property
    def is_estimated(self) -> bool:
        """Whether so much was left out that its tokens were not counted."""
        return any(gap.tokens and gap.chars > COUNTED for gap in self.gaps)

    @property
    def removed_tokens(self) -> int:
        """Tokens that were left out."""
        return sum(gap.tokens for gap in self.gaps)


@dataclass(frozen=True, kw_only=True)
class EncodedPart:
    """The encoding of a part of a text, and what precedes it in the encoding."""

    start: int  # character of the text
    encoding: tokenizers.Encoding
    num_chars_before: int = 0
    num_tokens_before: int = 0
    num_words_before: int = 0


class LongTextRules:
    """Whether and where the texts of one tokenizer may be cut."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        pipeline = json.loads(backend.to_str())
        self._is_safe = _is_safe(pipeline)
        self._has_unknown_words = _has_unknown_words(pipeline)
        # in WordPiece and word vocabularies a text that cannot be split has many words (Chinese)
        has_words = pipeline["model"]["type"] in ("WordPiece", "WordLevel")
        self._has_short_words = self._is_safe and has_words
        self._longest_token = (
            measure_longest_token(pipeline) if _has_local_parts(pipeline) else None
        )

    def take_head(self, text: str, min_tokens: int) -> ShortText:
        """The beginning of a text with at least `min_tokens` tokens, or the whole text."""
        found = self.collapse(text)
        size = self._find_head(found.text, min_tokens)
        gaps = tuple(gap for gap in found.gaps if gap.position < size)
        return ShortText(text=found.text[:size], gaps=gaps)

    def shorten(self, text: str, min_tokens: int, *, needs_end: bool = True) -> ShortText:
        """The text without its middle: at least `min_tokens` tokens of each end are left.

        Counting the words of the middle takes longer; only what comes after it needs their number.
        If the end is not needed and has no place to cut, it is left out, too.
        """
        found = self.collapse(text)
        start = self._find_head(found.text, min_tokens)
        stop = self._find_tail(found.text, min_tokens)
        if start >= stop and not needs_end and len(found.text) - start > COUNTED:
            stop = len(found.text)
        if start >= stop:
            return found
        tokens, words = self._measure(found.text, start, stop, count_words=needs_end)
        inside = sum(gap.chars for gap in found.gaps if start <= gap.position < stop)
        middle = Gap(position=start, chars=stop - start + inside, tokens=tokens, words=words)
        before = [gap for gap in found.gaps if gap.position < start]
        after = [
            replace(gap, position=gap.position - (stop - start))
            for gap in found.gaps
            if gap.position >= stop
        ]
        return ShortText(
            text=found.text[:start] + found.text[stop:], gaps=(*before, middle, *after)
        )

    def find_context(self, text: str, start: int, stop: int, min_tokens: int) -> tuple[int, int]:
        """The part with so many tokens before `start` and after `stop`."""
        first = self._find_tail(text[:start], min_tokens)
        return first, stop + self._find_head(text[stop:], min_tokens)

    def count_tokens(self, text: str) -> int:
        """The number of tokens of a text, without special tokens."""
        if not self._is_safe:
            check_part(text)
            return len(self._encode_batch([text])[0])
        return self._count_range(text, 0, len(text))[0]

    def iterate_parts(self, text: str) -> Iterator[EncodedPart]:
        """The encodings of the parts of a text, in order.

        A part follows the word "a", so that its first token is not the first of a text, whose
        offsets some tokenizers treat differently.
        """
        (word,) = self._encode_batch([_WORD])
        num_words = 1 + max((n for n in word.word_ids if n is not None), default=-1)
        start = 0
        parts = self._split(text)
        while batch := list(islice(parts, PIECES)):
            for part in batch:
                self.check_parts(part)
            given = [f"{_WORD}{part}" if start or n else part for n, part in enumerate(batch)]
            for part, encoding in zip(batch, self._encode_batch(given), strict=True):
                if start:
                    yield EncodedPart(
                        start=start,
                        encoding=encoding,
                        num_chars_before=len(_WORD),
                        num_tokens_before=len(word),
                        num_words_before=num_words,
                    )
                else:
                    yield EncodedPart(start=0, encoding=encoding)
                start += len(part)

    def check_parts(self, text: str) -> None:
        """Raise if a part of the text that is tokenized as a whole is too long."""
        if len(text) > MAX_PART and not self._has_short_words:
            for part in self._split(text):
                check_part(part)

    def _split(self, text: str) -> Iterator[str]:
        return _split(text, 0, len(text)) if self._is_safe else iter([text])

    def _encode_batch(self, texts: list[str]) -> list[tokenizers.Encoding]:
        with convert_errors(InputError, "the tokenizer failed", fix=FAILED):
            return self._backend.encode_batch(texts, add_special_tokens=False)

    def collapse(self, text: str) -> ShortText:
        """The text without the middle of words that are unknown because they are so long."""
        if len(text) <= LONG or not self._has_unknown_words:
            return ShortText(text=text)
        parts, gaps, done, size = [], [], 0, 0
        for word in _LONG_WORD.finditer(text):
            start, stop = word.start() + _KEPT, word.end() - _KEPT
            parts.append(text[done:start])
            size += start - done
            gaps.append(Gap(position=size, chars=stop - start))
            done = stop
        return ShortText(text="".join([*parts, text[done:]]) if gaps else text, gaps=tuple(gaps))

    def _find_head(self, text: str, min_tokens: int) -> int:
        """The end of a beginning of the text with so many tokens; the end of the text if none."""
        size = max(8 * min_tokens, LONG // 2)
        while size < len(text) and len(text) > LONG:
            cut = self._find_cut_after(text, size)
            if cut is None:
                break
            if self._count_range(text, 0, cut, enough=min_tokens)[0] >= min_tokens:
                return cut
            size = 2 * max(size, cut)
        return len(text)

    def _find_cut_after(self, text: str, position: int) -> int | None:
        """Where the text may be cut; in a word of megabytes, only for its first tokens."""
        space = text.find(" ", position) if self._is_safe else -1  # faster than the expression
        found = _CUT.search(text, max(position, space - 1)) if space >= 0 else None
        if found and found.start() - position <= COUNTED:
            return found.start()
        if self._longest_token is not None and len(text) - position > COUNTED:
            return find_head_of_word(self._backend, text, position, self._longest_token)
        return found.start() if found else None

    def _find_tail(self, text: str, min_tokens: int) -> int:
        """The start of an end of the text with so many tokens; 0 if there is none."""
        size = max(8 * min_tokens, LONG // 2)
        while self._is_safe and size < len(text) and len(text) > LONG:
            cut = _find_cut_before(text, len(text) - size)
            if cut is None:
                break
            if self._count_range(text, cut, len(text), enough=min_tokens)[0] >= min_tokens:
                return cut
            size = 2 * (len(text) - cut)
        return 0

    def _measure(
        self, text: str, start: int, stop: int, *, count_words: bool = False
    ) -> tuple[int, int]:
        """The numbers of tokens and words between two cuts, estimated if there are too many."""
        if stop - start <= COUNTED:
            return self._count_range(text, start, stop, count_words=count_words)
        tokens = words = chars = 0
        for n in range(SAMPLES):
            first = start + (stop - start - PIECE) * n // SAMPLES
            more = self._count_range(text, first, first + PIECE, count_words=count_words)
            tokens, words, chars = tokens + more[0], words + more[1], chars + PIECE
        factor = (stop - start) / chars
        return round(tokens * factor), round(words * factor)

    def _count_range(
        self,
        text: str,
        start: int,
        stop: int,
        *,
        enough: float = math.inf,
        count_words: bool = False,
    ) -> tuple[int, int]:
        """The numbers of tokens and words between two cuts; of tokens, `enough` suffice."""
        tokens = words = 0
        pieces = _split(text, start, stop) if self._is_safe else iter([text[start:stop]])
        backend = self._backend  # the fast method does not number the words
        encode = backend.encode_batch if count_words else backend.encode_batch_fast
        while tokens < enough and (batch := list(islice(pieces, PIECES))):
            with convert_errors(InputError, "the tokenizer failed", fix=FAILED):
                encodings = encode(batch, add_special_tokens=False)
            for found in encodings:
                tokens += len(found)
                if count_words:
                    words += 1 + max((n for n in found.word_ids if n is not None), default=-1)
        return tokens, words


def is_long(text: str) -> bool:
    """Whether a text is so long that it is worth cutting."""
    return len(text) > LONG


def restore_alignment(
    found: TokenAlignment,
    gaps: Sequence[Sequence[Gap]],
    kept: TokenRanges,
    removed: tuple[int, int],
    truncated_chars: int = 0,
) -> TokenAlignment:
    """The alignment of shortened texts, with the offsets and words of the whole texts."""
    if not any(gaps):
        return found
    offsets, words = list(found.offsets), list(found.words)
    for n, sequence in enumerate(found.sequence_ids):
        if sequence is not None and gaps[sequence]:
            start, end = offsets[n]
            before = [gap for gap in gaps[sequence] if gap.position <= start]
            within = [gap for gap in gaps[sequence] if gap.position < end]
            offsets[n] = (
                start + sum(gap.chars for gap in before),
                end + sum(gap.chars for gap in within),
            )
            word = words[n]
            words[n] = None if word is None else word + sum(gap.words for gap in before)
    return replace(
        found,
        offsets=offsets,
        words=words,
        kept_ranges=kept,
        num_truncated=removed,
        truncated_chars=truncated_chars,
    )


def find_kept_tokens(
    ranges: tuple[range, ...], offsets: Sequence[tuple[int, int]], gaps: Sequence[Gap]
) -> tuple[range, ...]:
    """Ranges of tokens of a whole text as ranges of its shortened text, with these offsets."""
    found = []
    for span in ranges:
        shift = 0
        for gap in gaps:
            first = sum(start < gap.position for start, _ in offsets) + shift  # after the gap
            if gap.tokens and span.start >= first:
                assert span.start >= first + gap.tokens, "a token that was left out is needed"
                shift += gap.tokens
        found.append(range(span.start - shift, span.stop - shift))
    return tuple(found)


def _split(text: str, start: int, stop: int) -> Iterator[str]:
    while start < stop:
        space = text.find(" ", start + PIECE, stop)
        cut = _CUT.search(text, max(start + PIECE, space - 1), stop) if space >= 0 else None
        end = stop if cut is None else cut.start()
        yield text[start:end]
        start = end


def _find_cut_before(text: str, position: int) -> int | None:
    """The last place before a position where the text may be cut."""
    stop = position
    while stop > 0:
        space = text.rfind(" ", 0, stop + 2)  # faster than the expression
        if space < 0:
            return None
        stop = min(stop, space + 1)
        start = max(0, stop - PIECE)
        cuts = [found.start() for found in _CUT.finditer(text, start, stop + 2)]
        if cuts:
            return cuts[-1]
        stop = start
    return None


def _has_unknown_words(pipeline: dict[str, Any]) -> bool:
    """Whether a word of thousands of letters is one unknown token."""
    model = pipeline["model"]
    kinds = [one["type"] for one in _flatten(pipeline["pre_tokenizer"], "pretokenizers")]
    before = [one["type"] for one in _flatten(pipeline["normalizer"], "normalizers")]
    if kinds != ["BertPreTokenizer"] or before not in ([], ["BertNormalizer"]):
        return False
    if any(token["content"].isalnum() for token in pipeline["added_tokens"]):
        return False
    if model["type"] == "WordPiece":
        return bool(model["max_input_chars_per_word"] < _KEPT)
    return model["type"] == "WordLevel" and max(map(len, model["vocab"]), default=0) < _KEPT


def _is_safe(pipeline: dict[str, Any]) -> bool:
    kinds = _flatten(pipeline["pre_tokenizer"], "pretokenizers")
    return (
        _has_local_parts(pipeline)
        and any(map(_splits, kinds))
        and _is_safe_model(pipeline["model"], kinds)
    )


def _has_local_parts(pipeline: dict[str, Any]) -> bool:
    """Whether nothing before the model looks beyond a word and the space before it."""
    kinds = _flatten(pipeline["pre_tokenizer"], "pretokenizers")
    before = _flatten(pipeline["normalizer"], "normalizers")
    return (
        all(_is_safe_token(token) for token in pipeline["added_tokens"])
        and all(_is_safe_normalizer(one, kinds) for one in before)
        and all(_is_local(one) or _splits(one) for one in kinds)
    )


def _flatten(part: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [inner for one in part[name] for inner in _flatten(one, name)]
    return [part]


def _is_safe_token(token: dict[str, Any]) -> bool:
    content = token["content"]
    swallows = token["rstrip"] and content[-1:].isalnum()
    return bool(content) and not swallows and not any(map(str.isspace, content))


def _is_safe_normalizer(one: dict[str, Any], kinds: list[dict[str, Any]]) -> bool:
    if one["type"] == "Strip":  # at the left it removes the space that a part begins with
        return not one["strip_left"] or all(
            kind["type"] in _SPLITTING or kind.get("prepend_scheme") == "always" for kind in kinds
        )
    if one["type"] == "Replace":
        match one["pattern"]:
            case {"Regex": " {2,}"}:
                return True
            case {"String": str(found)}:
                return not any(c.isspace() or c.isalnum() for c in found)
        return False
    return one["type"] in _NORMALIZERS


def _is_local(one: dict[str, Any]) -> bool:
    return (
        one["type"] in _LOCAL
        or (one["type"] == "ByteLevel" and not one["use_regex"])
        or (one["type"] == "Split" and one["pattern"].get("Regex") in CUT_SAFE_PATTERNS)
    )


def _splits(one: dict[str, Any]) -> bool:
    """Whether it splits before the space of a cut."""
    kind = one["type"]
    return (
        kind in _SPLITTING
        or (kind == "ByteLevel" and one["use_regex"])
        or (kind == "Metaspace" and one.get("split", True))
        or (kind == "Split" and one["pattern"].get("Regex") in CUT_SAFE_PATTERNS[:2])
    )


def _is_safe_model(model: dict[str, Any], kinds: list[dict[str, Any]]) -> bool:
    """Each word has a token, so that words can be counted by their tokens."""
    if model["type"] == "BPE":
        has_bytes = any(kind["type"] == "ByteLevel" for kind in kinds)
        return not model["dropout"] and (has_bytes or model["unk_token"] is not None)
    return model["type"] in ("WordPiece", "WordLevel", "Unigram")
