"""Words of a text and their character positions: joined from a list, or found in running text.

Both follow BERT's basic tokenization: ideographs and punctuation marks are always separate words,
so no token of a tokenizer spans two words.
"""

import re
import string
import unicodedata
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TypeAlias

# Characters that are words of their own, for use inside a character class: re.compile(f"[{…}]").
# The blocks are those of the tokenizers library's `BertNormalizer`, so that a tokenizer never
# splits words found here differently.
IDEOGRAPHS = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
# Ideographs and full-width punctuation, which are written without spaces between them.
_WIDE = re.compile(
    f"[{IDEOGRAPHS}"
    "\u3001-\u3003\u3008-\u3011\u3014-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]"
)
_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")

# White space, and scripts without spaces between words: ideographs, kana, scripts of South-East
# Asia. There a sequence of letters may be a whole sentence.
_SPACELESS = "\u3040-\u30ff\uff66-\uff9f\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_SEPARATOR = re.compile(rf"[\s{IDEOGRAPHS}{_SPACELESS}]")

# A word of running text: letters and digits with apostrophes inside, or an ideograph
WORD = re.compile(rf"[{IDEOGRAPHS}]|(?:(?![{IDEOGRAPHS}])[^\W_])+(?:['’][^\W\d_]+)*")
PLAIN_WORD = re.compile(r"[a-zA-Z0-9]+(?:'[a-zA-Z]+)*")  # the same for ASCII text, and faster

WordSpans: TypeAlias = tuple[tuple[int, int], ...]  # (start, end) characters of each word


def join_words(words: Sequence[str], no_space_after: Collection[int] = ()) -> tuple[str, WordSpans]:
    """Join words into a text with spaces between them, and return the span of each word.

    There is no space between two wide characters, nor after the words whose indices are in
    `no_space_after`.
    """
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    position = 0
    for index, word in enumerate(words):
        if index and index - 1 not in no_space_after and not _are_wide(words[index - 1], word):
            parts.append(" ")
            position += 1
        parts.append(word)
        spans.append((position, position + len(word)))
        position += len(word)
    return "".join(parts), tuple(spans)


def find_words(text: str, boundaries: Collection[int] = ()) -> WordSpans:
    """The spans of the words in a text; words also end at the given character positions."""
    spans: list[tuple[int, int]] = []
    start: int | None = None  # of the current word
    for position, character in enumerate(text):
        kind = _classify_character(character)
        if start is not None and (kind or position in boundaries):
            spans.append((start, position))
            start = None
        if kind == "single":
            spans.append((position, position + 1))
        elif not kind and start is None:
            start = position
    if start is not None:
        spans.append((start, len(text)))
    return tuple(spans)


def _are_wide(before: str, after: str) -> bool:
    return bool(_WIDE.match(before[-1]) and _WIDE.match(after[0]))


@lru_cache(maxsize=2**16)
def _classify_character(character: str) -> str:
    if character.isspace():
        return "space"
    mark = character.isascii() and character.isprintable() and not character.isalnum()
    if mark or _IDEOGRAPH.match(character) or unicodedata.category(character).startswith("P"):
        return "single"
    return ""


def expand_to_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Extend a span to the whole words that it begins and ends in.

    Words are separated by white space and punctuation, and every ideograph is a word, as in BERT's
    pre-tokenizer. In other scripts without spaces the span is not extended.
    """
    while start > 0 and _in_word(text[start - 1]) and _in_word(text[start]):
        start -= 1
    while end < len(text) and _in_word(text[end - 1]) and _in_word(text[end]):
        end += 1
    return start, end


def _in_word(letter: str) -> bool:
    """Whether a character can be part of a longer word; all ASCII symbols are punctuation."""
    mark = letter in string.punctuation or unicodedata.category(letter).startswith("P")
    return not mark and not _SEPARATOR.match(letter)
