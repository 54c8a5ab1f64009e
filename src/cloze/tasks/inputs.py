"""What every function does first: open the model, check the texts, and split them into batches.

Nothing here imports torch at the top: `tokenize` and `similar` start without it.
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

OnError = Callable[[int, InputError], object]  # the number of the text, and what is wrong with it
CHUNK = 4096  # inputs of a stream that are sorted by length and computed together

T = TypeVar("T")
R = TypeVar("R")


def resolve_model(model: object) -> Any:  # noqa: ANN401 (a Model, or a user's LanguageModel)
    """The model itself, or the one in the folder that is named."""
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
    """The same, for a function that works with one kind of model."""
    found = resolve_model(model)
    if not isinstance(found, Model):
        raise not_a_model_error(model)
    if found.family.kind != kind:
        raise unsupported_function_error(found, function)
    return found


def open_language_model(model: object, function: str) -> "LanguageModel":
    """The language model that is given or in the folder that is named; it may be the user's own."""
    from cloze.decode.language import language_model

    found = resolve_model(model)
    if isinstance(found, Model) and found.family.language_model is None:
        raise unsupported_function_error(found, function)
    return language_model(found)


def check_texts(given: object, name: str = "text") -> list[str]:
    """One text, or each of several, as a list."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, bytes | bytearray | Mapping):
        return [check_text(given, f"the {name}", "give a str, or a list of them")]
    return [check_text(one, f"{name} {number:,}") for number, one in enumerate(given, 1)]


def check_text(given: object, name: str, fix: str = "give it as a str") -> str:
    """A single text."""
    if not isinstance(given, str):
        raise InputError(f"{name} is of type {type(given).__name__}", fix=fix)
    return given


def check_pairs(text: object, pair: object) -> tuple[list[str], list[str] | None]:
    """Texts, and the second text of each where there are pairs."""
    texts = check_texts(text)
    if pair is None:
        return texts, None
    pairs = check_texts(pair, "pair")
    if len(pairs) != len(texts) or isinstance(text, str) != isinstance(pair, str):
        raise InputError(
            f"there are {len(texts):,} texts and {len(pairs):,} pairs",
            fix="give each text one pair",
        )
    return texts, pairs


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An input that has an error instead of a result."""

    inputs: Mapping[str, Any]
    error: InputError

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the input."""
        return {**self.inputs, "error": self.error.problem}


def predict_each(
    predict: Callable[[Sequence[T]], Sequence[R]], inputs: Iterable[T], *, chunk: int = CHUNK
) -> Iterator[tuple[T, R | InputError]]:
    """Each input with its prediction, or with its error: a bad one does not stop the others."""
    waiting = iter(inputs)
    while batch := list(islice(waiting, chunk)):
        yield from zip(batch, _isolate_errors(predict, batch), strict=True)


def _isolate_errors(
    predict: Callable[[Sequence[T]], Sequence[R]], inputs: Sequence[T]
) -> list[R | InputError]:
    """Halve until the bad inputs are alone: cheap, as all are encoded before any is computed."""
    try:
        return list(predict(inputs))
    except InputError as error:
        if len(inputs) == 1:
            return [error]
        half = len(inputs) // 2
        return _isolate_errors(predict, inputs[:half]) + _isolate_errors(predict, inputs[half:])
