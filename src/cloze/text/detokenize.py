"""Write words and punctuation marks, which a WordPiece tokenizer separates, as usual."""

import re

# Patterns and what replaces them, applied in this order.
_RULES = (
    (r" n ' t\b", "n't"),
    (r" ' (s|t|re|ve|ll|d|m)\b", r"'\1"),
    (r"(?<=\w) ?([-/–]) ?(?=\w)", r"\1"),
    (r"(?<=\d) ?([.,:]) (?=\d)", r"\1"),
    (r" ([.,;:!?%)\]}»”…](?!\w))", r"\1"),
    (r"([(\[{«“$£€#]) (?=\S)", r"\1"),
    (r"(?<!\S)([\"']) ([^\"']*?) \1(?!\w)", r"\1\2\1"),
)


def detokenize(text: str) -> str:
    """Remove the spaces around punctuation: "it ' s 4 - 2 ( so far )" becomes "it's 4-2 (so far)".

    The text has the same tokens as before.
    """
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    return text
