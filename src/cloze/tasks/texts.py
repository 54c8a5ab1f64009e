"""The texts that a verb was given, or an error that says what was given in their place."""

from collections.abc import Callable, Iterable, Mapping

from cloze.errors import InputError

OnError = Callable[[int, InputError], object]  # the number of the text, and what is wrong with it


def check_texts(given: object, name: str = "text") -> list[str]:
    """One text, or several, as a list."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, bytes | bytearray | Mapping):
        return [check_text(given, f"the {name}", "give a str, or a list of them")]
    return [check_text(one, f"{name} {number:,}") for number, one in enumerate(given, 1)]


def check_text(given: object, name: str, fix: str = "give it as a str") -> str:
    """One text alone."""
    if not isinstance(given, str):
        raise InputError(f"{name} is of type {type(given).__name__}", fix=fix)
    return given


def check_pairs(text: object, pair: object) -> tuple[list[str], list[str] | None]:
    """Texts, and the pair of each where there are pairs."""
    texts = check_texts(text)
    if pair is None:
        return texts, None
    pairs = check_texts(pair, "pair")
    if len(pairs) != len(texts) or isinstance(text, str) != isinstance(pair, str):
        raise InputError(
            f"{len(texts):,} texts have {len(pairs):,} pairs", fix="give each text one pair"
        )
    return texts, pairs
