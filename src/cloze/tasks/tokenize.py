"""`tokenize`: a text, or a pair, as ids with the characters and words they stand for."""

from os import PathLike
from typing import TYPE_CHECKING

from cloze.checkpoint.source import builtin, existing, model_in
from cloze.text.encoding import Encoding
from cloze.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from cloze.checkpoint.model import Model  # for its type only: this verb needs no torch


def tokenize(
    model: "Model | Tokenizer | str | PathLike[str]", text: str, pair: str | None = None
) -> Encoding:
    """What the tokenizer of a model, or of a folder or file, makes of a text. Nothing is cut."""
    return tokenizer_of(model).encode(text, pair)


def tokenizer_of(model: "Model | Tokenizer | str | PathLike[str]") -> Tokenizer:
    """The tokenizer itself, that of a model, built-in ones too, or of a folder or file."""
    if isinstance(model, Tokenizer):
        return model
    if isinstance(model, str | PathLike):
        place = existing(model)
        if place is not None:
            return Tokenizer.load(model_in(place))
        return Tokenizer.load(builtin().get(str(model), model))
    return model.tokenizer
