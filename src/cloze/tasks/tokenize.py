"""`tokenize`: the tokens of a text or pair, with ids, character offsets and words."""

from collections.abc import Iterable
from os import PathLike
from typing import overload

from cloze.checkpoint.contents import find_body, read_family, read_folder
from cloze.checkpoint.load import find_file_family, load
from cloze.checkpoint.model import (
    Model,
    check_capability,
    not_a_model_error,
    unsupported_function_error,
)
from cloze.checkpoint.source import find_folder, find_path
from cloze.errors import InputError
from cloze.results import Results
from cloze.tasks.inputs import Texts, check_pairs, check_size
from cloze.text.alignment import TokenAlignment
from cloze.text.tokenizer import Tokenizer
from cloze.text.word_characters import load_tokenizer


@overload
def tokenize(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | Tokenizer | str | PathLike[str], text: str, pair: str | None = None
) -> TokenAlignment: ...
@overload
def tokenize(
    model: Model | Tokenizer | str | PathLike[str],
    text: Texts,
    pair: Iterable[str] | None = None,
) -> Results[TokenAlignment]: ...
def tokenize(
    model: Model | Tokenizer | str | PathLike[str],
    text: str | Texts,
    pair: str | Iterable[str] | None = None,
) -> TokenAlignment | Results[TokenAlignment]:
    """Tokenize a text or a pair with the tokenizer of a model; nothing is truncated.

    Args:
        model: a model, its folder, a built-in name, a `Tokenizer`, or a tokenizer.json or vocab.txt
            file.
        text: a text, or several: a list, a column, or a table (data frame, `datasets`, mappings).
        pair: the second text, or several second texts.
    """
    texts, pairs = check_pairs(text, pair)
    check_size([*texts, *(pairs or ())], "tokenize")
    found = open_tokenizer(model).encode_batch(texts, pairs)
    return found[0] if isinstance(text, str) else Results(found)


def open_tokenizer(model: Model | Tokenizer | str | PathLike[str]) -> Tokenizer:
    """The tokenizer of a model, a model folder, a built-in model or a tokenizer file."""
    if isinstance(model, Tokenizer):
        return model
    if isinstance(model, str | PathLike):
        return _load_tokenizer(model)
    if isinstance(model, Model):
        check_capability(model, "tokenize")
    tokenizer = getattr(model, "tokenizer", None)
    if not isinstance(tokenizer, Tokenizer):
        raise not_a_model_error(model)
    return tokenizer


def _load_tokenizer(source: str | PathLike[str]) -> Tokenizer:
    family = find_file_family(source)
    if family is not None and family.open is None:  # a file with a network: a published ELMo
        tokenizer: Tokenizer = load(source, device="cpu").tokenizer
        return tokenizer
    path = find_path(source)
    if path is None or path.is_dir():
        folder = find_body(find_folder(source))
        family = read_family(folder)
        if family is not None and family.vocabulary == "none":
            raise unsupported_function_error(read_folder(source), "tokenize")
        return load_tokenizer(folder)
    if path.suffix not in (".json", ".txt"):
        raise InputError(
            f"{path} is not a tokenizer file",
            fix="use a model folder, or a tokenizer.json or vocab.txt file",
        )
    return Tokenizer.load(path)
