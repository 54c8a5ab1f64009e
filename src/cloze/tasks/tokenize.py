"""`tokenize`: a text, or a pair, as ids with the characters and words they stand for."""

from os import PathLike
from typing import overload

from cloze.checkpoint.contents import find_body
from cloze.checkpoint.model import Model, check_capability, not_a_model_error
from cloze.checkpoint.source import builtin, find_path, find_saved_model
from cloze.tasks.inputs import check_pairs
from cloze.text.alignment import TokenAlignment
from cloze.text.tokenizer import Tokenizer


@overload
def tokenize(
    model: Model | Tokenizer | str | PathLike[str], text: str, pair: str | None = None
) -> TokenAlignment: ...
@overload
def tokenize(
    model: Model | Tokenizer | str | PathLike[str],
    text: list[str],
    pair: list[str] | None = None,
) -> list[TokenAlignment]: ...
def tokenize(
    model: Model | Tokenizer | str | PathLike[str],
    text: str | list[str],
    pair: str | list[str] | None = None,
) -> TokenAlignment | list[TokenAlignment]:
    """What the tokenizer of a model, or of a folder or file, makes of a text. Nothing is cut.

    A list of texts (and one of pairs) gives a list.
    """
    texts, pairs = check_pairs(text, pair)
    found = open_tokenizer(model).encode_batch(texts, pairs)
    return found[0] if isinstance(text, str) else found


def open_tokenizer(model: Model | Tokenizer | str | PathLike[str]) -> Tokenizer:
    """The tokenizer itself, that of a model, built-in ones too, or of a folder or file."""
    if isinstance(model, Tokenizer):
        return model
    if isinstance(model, str | PathLike):
        place = find_path(model)
        if place is None:
            return Tokenizer.load(builtin().get(str(model), model))
        return Tokenizer.load(find_body(find_saved_model(place)) if place.is_dir() else place)
    if isinstance(model, Model):
        check_capability(model, "tokenize")
    tokenizer = getattr(model, "tokenizer", None)
    if not isinstance(tokenizer, Tokenizer):
        raise not_a_model_error(model)
    return tokenizer
