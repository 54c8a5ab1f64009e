"""What all functions share: load the model, check the texts, isolate inputs that fail.

This file does not import torch, so that `tokenize` and `similar` start quickly.
"""

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from cloze.checkpoint.load import load
from cloze.checkpoint.model import (
    Model,
    check_capability,
    not_a_model_error,
    unsupported_function_error,
)
from cloze.config import one_of
from cloze.data.objects import Frame, is_table, open_rows
from cloze.errors import InputError, TruncationWarning
from cloze.files import ARGUMENT, is_data_file
from cloze.models.registry import Kind

if TYPE_CHECKING:
    from cloze.models.language import LanguageModel

OnError = Callable[[int, InputError], object]  # index of the text, and its error
# several texts: a list, an array, a column; or a table with a text column
Texts = Iterable[str] | Iterable[Mapping[str, Any]] | Frame
MAX_CHARS = 1_000_000  # of a text that has a result for each of its tokens
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


def open_model(model: object, function: str, kind: Kind | None = None) -> Model:
    """Load a model, and check that `function` supports it: its family, and its kind if given."""
    found = resolve_model(model)
    if not isinstance(found, Model):
        raise not_a_model_error(model)
    if kind is None:
        check_capability(found, function)
    elif found.family.kind != kind:
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


def check_texts(
    given: object, name: str = "text", text_column: str | int | None = None
) -> list[str]:
    """Check a text, or each of several, and return a list.

    Several are a list, an array or a column of texts; a data frame, a `datasets` object or mappings
    with a text column (`text_column`, or found by its name as in training).
    """
    if isinstance(given, str):
        _warn_of_file(given)
        return [given]
    if is_table(given):
        return _read_texts(given, text_column)
    if not isinstance(given, Iterable) or isinstance(given, bytes | bytearray | Mapping):
        return [check_text(given, f"the {name}", "pass a str, or a list of str")]
    several = list(given)
    if several and isinstance(several[0], Mapping):
        return _read_texts(several, text_column)
    if text_column is not None:
        raise InputError(
            "text_column is given, but the texts are not in a table", fix="leave text_column out"
        )
    if all(isinstance(one, str) for one in several):
        return several
    return [check_text(one, f"{name} {number:,}") for number, one in enumerate(several, 1)]


def _warn_of_file(text: str) -> None:
    if is_data_file(text):
        warnings.warn(
            f"{text} is processed as a text; to process the texts in the file, pass a list of "
            "them or a data frame",
            stacklevel=_find_stacklevel(),
        )


def _read_texts(table: Any, text_column: str | int | None) -> list[str]:  # noqa: ANN401
    from cloze.data.sources import read_rows

    return [row.text for row in read_rows(open_rows(table), text_column=text_column)]


def check_size(texts: Iterable[str], what: str, *, fix: str = "") -> None:
    """Reject texts so long that a result for each of their tokens would not fit into memory."""
    for number, text in enumerate(texts, 1):
        if len(text) > MAX_CHARS:
            raise InputError(
                f"text {number:,} has {len(text):,} characters, but {what} has a result for each "
                f"token and accepts {MAX_CHARS:,} characters",
                fix=f"split it, such as into paragraphs{fix}",
            )


def check_text(given: object, name: str, fix: str = "pass a str") -> str:
    """Check a single text."""
    if not isinstance(given, str):
        raise InputError(f"{name} has type {type(given).__name__}, not str", fix=fix)
    return given


def check_pairs(
    text: Any,  # noqa: ANN401
    pair: object,
    text_column: str | int | None = None,
    pair_column: str | int | None = None,
) -> tuple[list[str], list[str] | None]:
    """Check texts, and the second text of each if they are pairs.

    The columns of a table are found as in training.
    """
    if pair is None and (is_table(text) or pair_column is not None or _is_row_list(text)):
        from cloze.data.labelled.tables import read_text_examples

        read = read_text_examples(
            open_rows(text), text_column=text_column, pair_column=pair_column, label_column=False
        )
        examples = list(read)
        seconds = [one.pair for one in examples if one.pair is not None]
        return [one.text for one in examples], seconds or None
    texts = check_texts(text, text_column=text_column)
    if pair is None:
        return texts, None
    pairs = check_texts(pair, "pair")
    if len(pairs) != len(texts) or isinstance(text, str) != isinstance(pair, str):
        raise InputError(
            f"there are {len(texts):,} texts, but {len(pairs):,} second texts",
            fix="pass one second text (pair) for each text",
        )
    return texts, pairs


def check_contexts(question: object, context: object) -> list[tuple[str, str]]:
    """Check questions, and pair each with its context, or all with one."""
    questions, contexts = check_texts(question, "question"), check_texts(context, "context")
    empty = next((number for number, one in enumerate(contexts, 1) if not one.strip()), None)
    if empty is not None:
        raise InputError(
            "the context is empty" if isinstance(context, str) else f"context {empty:,} is empty",
            fix="pass the text that contains the answer",
        )
    if isinstance(context, str):
        contexts *= len(questions)
    elif len(questions) != len(contexts) or isinstance(question, str):
        raise InputError(
            f"there are {len(questions):,} questions, but {len(contexts):,} contexts",
            fix="pass one context for all questions, or one for each",
        )
    return list(zip(questions, contexts, strict=True))


def _is_row_list(given: object) -> bool:
    return isinstance(given, list | tuple) and bool(given) and isinstance(given[0], Mapping)


def warn_truncated(
    truncated_chars: Sequence[int],
    max_length: int,
    *,
    name: str = "texts",
    fix: str = "choose a truncation (head, tail, window or error)",
) -> None:
    """Warn once if any input was truncated; the numbers are of the characters left out of each.

    The warning is attributed to the caller of this package.
    """
    count = sum(map(bool, truncated_chars))
    if count:
        warnings.warn(
            f"{count:,} of {len(truncated_chars):,} {name} are longer than the model's maximum of "
            f"{max_length:,} tokens: {sum(truncated_chars):,} characters were not read; {fix}",
            TruncationWarning,
            stacklevel=_find_stacklevel(),
        )


def check_prompts(
    model: "LanguageModel", texts: Sequence[str], truncation: str | None
) -> list[int]:
    """The number of characters of each prompt that the model does not read; warns of them.

    A causal encoder and an LSTM read the last tokens of a prompt that is too long (`tail`). The
    probabilities of n-gram models and NNLMs depend on the last words only.
    """
    if truncation is not None:
        one_of("truncation", truncation, ("tail", "error"))
    count = getattr(model, "count_unread_chars", None)
    if count is None:
        return [0] * len(texts)
    limit: int = model.max_length  # type: ignore[attr-defined]
    found = [count(text) for text in texts]
    if truncation is None:
        warn_truncated(found, limit, fix="their last tokens were")
    elif truncation == "error" and any(found):
        number = next(n for n, chars in enumerate(found, 1) if chars)
        raise InputError(
            f"text {number:,} is longer than the model's maximum of {limit:,} tokens",
            fix="shorten it, or use truncation tail, to read its last tokens",
        )
    return found


def _find_stacklevel() -> int:
    """The level of the first caller that is neither in this package nor a decorator of torch."""
    level, frame = 0, inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in ("cloze", "torch"):
        level, frame = level + 1, frame.f_back
    return level


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An input with an error instead of a result."""

    inputs: Mapping[str, Any]
    error: InputError

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the input."""
        return {**self.inputs, "error": self.error.problem}

    def to_records(self) -> list[dict[str, Any]]:
        """One row."""
        return [self.to_dict()]


def add_location(error: InputError, row: Any) -> InputError:  # noqa: ANN401
    """The error with the file and line of a row, unless it names them."""
    file = getattr(row, "file", ARGUMENT)
    if file == ARGUMENT or error.problem.startswith(f"{file}:"):
        return error
    return InputError(f"{file}:{row.line}: {error.problem}", fix=error.fix)


def predict_each(
    predict: Callable[[Sequence[T]], Sequence[R]], inputs: Iterable[T], *, chunk: int = CHUNK
) -> Iterator[tuple[T, R | InputError]]:
    """Yield each input with its prediction or its error; an error does not stop the others."""
    remaining = iter(inputs)
    while batch := list(islice(remaining, chunk)):
        yield from zip(batch, isolate_errors(predict, batch), strict=True)


def isolate_errors(
    predict: Callable[[Sequence[T]], Sequence[R]], inputs: Sequence[T]
) -> list[R | InputError]:
    """The prediction or the error of each input; halves are split until those that fail are alone.

    This is cheap: functions encode and check all inputs before they compute anything.
    """
    try:
        return list(predict(inputs))
    except InputError as error:
        if len(inputs) == 1:
            return [error]
        half = len(inputs) // 2
        return isolate_errors(predict, inputs[:half]) + isolate_errors(predict, inputs[half:])
