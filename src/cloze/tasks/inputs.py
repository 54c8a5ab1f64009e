"""What all functions share: load the model, check the texts, isolate inputs that fail.

This file does not import torch, so that `tokenize` and `similar` start quickly.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model, not_a_model_error, unsupported_function_error
from cloze.errors import InputError
from cloze.models.registry import Kind

if TYPE_CHECKING:
    from cloze.models.language import LanguageModel

OnError = Callable[[int, InputError], object]  # index of the text, and its error
CHUNK = 4096  # number of inputs of a stream that are sorted by length and computed together

T = TypeVar("T")
R = TypeVar("R")


def resolve_model(model: object) -> Any:  # noqa: ANN401 (a Model, or a user's LanguageModel)
    """Return a model as it is; load it if a folder or a name is given."""
    if isinstance(model, str | os.PathLike):
        return load(model)
    if isinstance(model, Model):
        return model
    from cloze.checkpoint.word2vec import make_vector_model
    from cloze.decode.language import is_language_model
    from cloze.models.word2vec import WordVectors

    if isinstance(model, WordVectors):
        return make_vector_model(model)
    if is_language_model(model):
        return model
    raise not_a_model_error(model)


def open_model(model: object, function: str, kind: Kind = "encoder") -> Model:
    """Load a model, and check that `function` supports its kind."""
    found = resolve_model(model)
    if not isinstance(found, Model):
        raise not_a_model_error(model)
    if found.family.kind != kind:
        raise unsupported_function_error(found, function)
    return found


def open_language_model(model: object, function: str) -> "LanguageModel":
    """Load a language model; any object that implements `LanguageModel` is accepted."""
    from cloze.decode.language import language_model

    found = resolve_model(model)
    if isinstance(found, Model):
        if found.family.language_model is None:
            raise unsupported_function_error(found, function)
        if function not in found.capabilities:  # of an encoder: it is bidirectional, or has no head
            reason = f"its head is {found.head}" if found.head else "it has no lm head"
            if not found.is_causal:
                reason = "it is bidirectional and predicts no next token"
            raise unsupported_function_error(found, function, reason)
    return language_model(found)


def check_texts(given: object, name: str = "text") -> list[str]:
    """Check a text, or each of several, and return a list."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, bytes | bytearray | Mapping):
        return [check_text(given, f"the {name}", "pass a str, or a list of str")]
    return [check_text(one, f"{name} {number:,}") for number, one in enumerate(given, 1)]


def check_text(given: object, name: str, fix: str = "pass a str") -> str:
    """Check a single text."""
    if not isinstance(given, str):
        raise InputError(f"{name} has type {type(given).__name__}, not str", fix=fix)
    return given


def check_pairs(text: object, pair: object) -> tuple[list[str], list[str] | None]:
    """Check texts, and the second text of each if they are pairs."""
    texts = check_texts(text)
    if pair is None:
        return texts, None
    pairs = check_texts(pair, "pair")
    if len(pairs) != len(texts) or isinstance(text, str) != isinstance(pair, str):
        raise InputError(
            f"there are {len(texts):,} texts, but {len(pairs):,} second texts",
            fix="pass one second text (pair) for each text",
        )
    return texts, pairs


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An input with an error instead of a result."""

    inputs: Mapping[str, Any]
    error: InputError

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the input."""
        return {**self.inputs, "error": self.error.problem}


def predict_each(
    predict: Callable[[Sequence[T]], Sequence[R]], inputs: Iterable[T], *, chunk: int = CHUNK
) -> Iterator[tuple[T, R | InputError]]:
    """Yield each input with its prediction or its error; an error does not stop the others."""
    remaining = iter(inputs)
    while batch := list(islice(remaining, chunk)):
        yield from zip(batch, _isolate_errors(predict, batch), strict=True)


def _isolate_errors(
    predict: Callable[[Sequence[T]], Sequence[R]], inputs: Sequence[T]
) -> list[R | InputError]:
    """Split the inputs in halves until those that fail are alone.

    This is cheap: functions encode and check all inputs before they compute anything.
    """
    try:
        return list(predict(inputs))
    except InputError as error:
        if len(inputs) == 1:
            return [error]
        half = len(inputs) // 2
        return _isolate_errors(predict, inputs[:half]) + _isolate_errors(predict, inputs[half:])
