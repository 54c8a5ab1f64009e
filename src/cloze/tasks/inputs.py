"""What every function does first: open the model, check the texts, and split them into batches.

Nothing here imports torch at the top: `tokenize` and `similar` start without it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from cloze.checkpoint.abilities import can, cannot, no_model, verbs_of
from cloze.checkpoint.own import Saved
from cloze.errors import InputError
from cloze.models.word2vec import WordVectors

OnError = Callable[[int, InputError], object]  # the number of the text, and what is wrong with it
CHUNK = 4096  # inputs of a stream that are sorted by length and computed together

M = TypeVar("M")
T = TypeVar("T")
R = TypeVar("R")


def resolve_model(model: object) -> Any:  # noqa: ANN401 (as of `load`)
    """The model itself, or the one in the folder that is named."""
    if isinstance(model, str | os.PathLike):
        from cloze.checkpoint.families import load

        return load(model)
    if isinstance(model, Saved | WordVectors) or is_language_model(model):
        return model
    raise no_model(model)


def open_model(model: object, function: str, kind: type[M]) -> M:
    """The same, for a function that works with one kind of model."""
    found = resolve_model(model)
    if not isinstance(found, kind):
        raise reject_model(found, function)
    return found


def is_language_model(model: object) -> bool:
    """Whether it has the methods of `LanguageModel`; the user's own classes may."""
    return hasattr(model, "begin") and hasattr(model, "next_log_probs")


def reject_model(model: object, function: str) -> InputError:
    """The error for a model that does not support a function."""
    can(model, function)

    from cloze.checkpoint.model import Model

    if isinstance(model, Model):
        able = verbs_of(model.heads, causal=model.module.is_causal)
        return cannot("an encoder", function, able)
    return no_model(model)


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


def batch_by_tokens(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Indices of sequences, longest first, in batches of at most `batch_tokens` (one at least).

    Neighbours have nearly the same length, so that a packed batch has few runs of equal lengths;
    the longest come first, so that a batch that does not fit into memory fails at once.
    """
    batch: list[int] = []
    room = batch_tokens
    for index in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        if batch and lengths[index] > room:
            yield batch
            batch, room = [], batch_tokens
        batch.append(index)
        room -= lengths[index]
    if batch:
        yield batch


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
