"""Text that others wrote, such as labels, names and texts, made safe to print."""

import unicodedata

LINES = "\n\t"  # control characters that messages may have

# Characters that reverse the direction of text, and invisible ones that join nothing.
_INVISIBLE = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u2060\ufeff")


def escape_control_characters(text: str, keep: str = "") -> str:
    """The text with escapes for characters that move the cursor or reverse the direction.

    Joiners, which letters and emoji need, spaces of any width, and the characters in `keep` are
    kept.
    """
    if text.isprintable():
        return text
    return "".join(c if c in keep or not _is_harmful(c) else _escape(c) for c in text)


def escape_json(text: str) -> str:
    r"""JSON with \u escapes for the control characters that JSON allows: its value is the same."""
    if text.isprintable():
        return text
    return "".join(f"\\u{ord(c):04x}" if _is_harmful(c) else c for c in text)


def shorten_message(text: str, most: int) -> str:
    """The text, or its beginning and its end if it is longer than `most` characters."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    return f"{text[:head]} … ({len(text) - head - tail:,} characters left out) … {text[-tail:]}"


def _is_harmful(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in _INVISIBLE


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
