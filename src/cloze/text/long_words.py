"""The beginning of a word of megabytes, with the tokens of the whole word.

BPE and unigram models read a word from left to right in this sense: if a token of the whole word
ends at a character, the tokens up to there are those of the text that ends there. For BPE, merges
on both sides of a boundary that no merge crosses happen in the same order without the other side.
For unigram, the best path to a node of the lattice does not depend on what follows. The longest
token has L characters, so one of any L successive characters is the end of a token. If the texts
that end at these L positions all begin with the same tokens, so does the whole text.
"""

import re
from itertools import takewhile
from typing import Any

import tokenizers

from cloze.errors import InputError
from cloze.text.checks import convert_errors

MAX_PART = 1_000_000  # characters that are tokenized together
MAX_TOKEN_CHARS = 128
FAILED = "leave this text out; the tokenizer files are faulty"
_LETTERS = re.compile("[A-Za-z]+")


def measure_longest_token(pipeline: dict[str, Any]) -> int | None:
    """The characters of the longest token with letters, or None if words cannot be cut."""
    model = pipeline["model"]
    if any(token["content"].isalnum() for token in pipeline["added_tokens"]):
        return None
    if model["type"] == "BPE":
        if model["dropout"] or model["continuing_subword_prefix"] or model["end_of_word_suffix"]:
            return None
        tokens = list(model["vocab"])
    elif model["type"] == "Unigram":
        tokens = [token for token, _ in model["vocab"]]
    else:
        return None
    longest = max((len(token) for token in tokens if _LETTERS.search(token)), default=0)
    return longest if 0 < longest <= MAX_TOKEN_CHARS else None


def find_head_of_word(
    backend: tokenizers.Tokenizer, text: str, position: int, longest: int
) -> int | None:
    """A place in a word up to which the tokens are those of the whole text, near a position."""
    letters = re.compile(f"[A-Za-z]{{{4 * longest}}}")
    word = letters.search(text, position, position + MAX_PART)
    if word is None:
        return None
    position = word.start() + 3 * longest
    with convert_errors(InputError, "the tokenizer failed", fix=FAILED):
        found = backend.encode_batch(
            [text[: position + n] for n in range(longest)], add_special_tokens=False
        )
    columns = [list(zip(one.ids, one.offsets, strict=True)) for one in found]
    same = list(takewhile(lambda tokens: len(set(tokens)) == 1, zip(*columns, strict=False)))
    return same[-1][0][1][1] if same else None


def check_part(text: str) -> None:
    """Raise if a part of a text is so long that tokenizing it takes too much memory."""
    if len(text) > MAX_PART:
        raise InputError(
            f"{len(text):,} characters cannot be split between words for this tokenizer, and at "
            f"most {MAX_PART:,} are tokenized together",
            fix="split the text, such as into lines, or use truncation head",
        )
