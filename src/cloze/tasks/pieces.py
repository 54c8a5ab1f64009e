"""Pieces of a byte-level vocabulary joined to words again."""

from collections.abc import Iterator, Sequence
from unicodedata import east_asian_width

from cloze.text.tokenizer import Tokenizer


def join_words(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterator[tuple[str, int, int]]:
    """Each word with the first of its pieces and the one after its last.

    A word begins at a space, where letters and marks meet, and, in scripts without spaces, at each
    piece; one that ends within a character joins the next.
    """
    first, word = 0, ""
    for at in range(len(ids)):
        grown = tokenizer.decode(ids[first : at + 1])
        piece = grown[len(word) :]
        if word and _begins(word[-1], piece[:1]):
            yield word.strip(), first, at
            first, grown = at, tokenizer.decode(ids[at : at + 1])
        word = grown
    if len(ids) > first:
        yield word.strip(), first, len(ids)


def _begins(before: str, letter: str) -> bool:
    if letter.isspace():
        return True
    if not letter or before == "�":  # a character goes on
        return False
    wide = east_asian_width(before) in "WF" or east_asian_width(letter) in "WF"
    return wide or before.isalnum() != letter.isalnum()
