"""Words of a text and where they stand: joined from columns, or marked off in running text.

Both follow BERT's own basic tokens: an ideograph and a punctuation mark are always parted from what
is beside them, so no piece of a tokenizer reaches from one word into the next.
"""

import re
import unicodedata
from collections.abc import Collection, Sequence
from functools import lru_cache

from cloze.text.ideographs import IDEOGRAPHS

# Ideographs and full-width punctuation, which are written without a blank between them.
_WIDE = re.compile(
    f"[{IDEOGRAPHS}"
    "\u3001-\u3003\u3008-\u3011\u3014-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]"
)
_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")

Words = tuple[tuple[int, int], ...]  # the characters of each word


def join(words: Sequence[str], glued: Collection[int] = ()) -> tuple[str, Words]:
    """A text of these words with a blank after each, but not between two wide characters.

    Nor after the words numbered in `glued`.
    """
    pieces: list[str] = []
    places: list[tuple[int, int]] = []
    at = 0
    for number, word in enumerate(words):
        if number and number - 1 not in glued and not _touch(words[number - 1], word):
            pieces.append(" ")
            at += 1
        pieces.append(word)
        places.append((at, at + len(word)))
        at += len(word)
    return "".join(pieces), tuple(places)


def mark_off(text: str, cuts: Collection[int] = ()) -> Words:
    """The words in a text, none of which reaches over a cut."""
    places: list[tuple[int, int]] = []
    first: int | None = None  # of the word we are in
    for at, character in enumerate(text):
        kind = _kind(character)
        if first is not None and (kind or at in cuts):
            places.append((first, at))
            first = None
        if kind == "alone":
            places.append((at, at + 1))
        elif not kind and first is None:
            first = at
    if first is not None:
        places.append((first, len(text)))
    return tuple(places)


def _touch(before: str, after: str) -> bool:
    return bool(_WIDE.match(before[-1]) and _WIDE.match(after[0]))


@lru_cache(maxsize=2**16)
def _kind(character: str) -> str:
    if character.isspace():
        return "blank"
    mark = character.isascii() and character.isprintable() and not character.isalnum()
    if mark or _IDEOGRAPH.match(character) or unicodedata.category(character).startswith("P"):
        return "alone"
    return ""
