"""Texts to sequences of ids, many at a time; on a GPU ahead of what it computes."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from cloze.checkpoint.model import Model
from cloze.config import one_of
from cloze.errors import InputError
from cloze.tasks.inputs import MAX_CHARS, OnError, warn_truncated
from cloze.text.alignment import TokenAlignment
from cloze.text.truncation import STRATEGIES, TRUNCATIONS
from cloze.text.windows import Windows

R = TypeVar("R")
OnTruncated = Callable[[int, int], None]  # index of the text, number of characters left out

GPU_PART_CHARS = 1 << 18  # characters of texts that are encoded while a GPU computes others


class EncodedText(NamedTuple):  # of which there are many: a data class takes longer to make
    """The sequences of a text, and its alignment if needed."""

    sequences: tuple[list[int], ...]
    encoding: TokenAlignment | None = None  # of the text after truncation
    windows: tuple[TokenAlignment, ...] = ()  # of each sequence, if the text has windows
    stream: Windows | None = None  # of a long text, in place of sequences; iterated once

    @property
    def truncated_chars(self) -> int:
        """Characters left out by truncation."""
        return self.encoding.truncated_chars if self.encoding else 0


def encode_texts(
    model: Model,
    texts: Sequence[str],
    start: int = 0,
    *,
    truncation: str | None = None,
    overlap: int | None = None,
    aligned: bool = False,
    on_error: OnError | None = None,
) -> dict[int, EncodedText]:
    """Encode texts, and return them by index; texts that are too long are truncated.

    The default is `head`. With `error` a text that is too long is an error, which is raised or
    passed to `on_error`. `start` is the index of the first text.
    """
    truncation, max_length = _check_truncation(truncation, overlap), model.max_length
    found = model.tokenizer.encode_ids(texts, limit=max_length)
    if not aligned and max(map(len, found), default=0) <= max_length:  # the usual case
        return {n: EncodedText(sequences=(ids,)) for n, ids in enumerate(found, start)}
    encoded: dict[int, EncodedText] = {}
    cut = _encode_cut(model, texts, found, truncation)
    for number, (text, ids) in enumerate(zip(texts, found, strict=True), start):
        try:
            if number - start in cut:
                encoded[number] = cut[number - start]
            elif len(ids) > max_length:
                encoded[number] = _encode_truncated(
                    model, text, truncation, overlap, aligned=aligned
                )
            elif aligned:
                encoding = model.tokenizer.encode(text, max_length=max_length)
                encoded[number] = EncodedText(sequences=(encoding.ids,), encoding=encoding)
            else:
                encoded[number] = EncodedText(sequences=(ids,))
        except InputError as error:
            if on_error is None:
                raise InputError(f"text {number + 1}: {error.problem}", fix=error.fix) from None
            on_error(number, error)
    return encoded


def _encode_cut(
    model: Model, texts: Sequence[str], found: Sequence[Sequence[int]], truncation: str
) -> dict[int, EncodedText]:
    """The texts that are truncated to one sequence, encoded on all cores, by index."""
    max_length = model.max_length
    numbers = [n for n, ids in enumerate(found) if len(ids) > max_length]
    if len(numbers) < 2 or truncation not in STRATEGIES or truncation == "window":  # noqa: PLR2004
        return {}
    try:
        encodings = model.tokenizer.encode_batch(
            [texts[n] for n in numbers], max_length=max_length, truncation=truncation
        )
    except InputError:  # each is encoded by itself, so that the error knows its text
        return {}
    return {
        n: EncodedText(sequences=(one.ids,), encoding=one)
        for n, one in zip(numbers, encodings, strict=True)
    }


def encode_ahead(
    model: Model,
    texts: Sequence[str],
    encode: Callable[[Sequence[str], int], R],
) -> Iterator[R]:
    """Encode texts part by part; on a GPU the next part while the model computes the last.

    `encode` is called with some texts and the index of the first. On a CPU, where both need the
    same cores, there is one part, so that all texts can be sorted by length.
    """
    parts = _divide_texts(texts) if model.device.type != "cpu" else []
    if len(parts) < 2:  # noqa: PLR2004
        yield encode(texts, 0)
        return
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(
            thread.submit(encode, texts[part.start : part.stop], part.start) for part in parts[:2]
        )
        for part in [*parts[2:], None, None]:
            found = waiting.popleft().result()
            if part is not None:
                some = texts[part.start : part.stop]
                waiting.append(thread.submit(encode, some, part.start))
            yield found


def _divide_texts(texts: Sequence[str]) -> list[range]:
    """The parts that are encoded one after another; a small one first, which is soon there."""
    parts, start, chars, most = [], 0, 0, GPU_PART_CHARS // 4
    for number, text in enumerate(texts):
        chars += len(text)
        if chars >= most:
            parts.append(range(start, number + 1))
            start, chars, most = number + 1, 0, GPU_PART_CHARS
    return [*parts, range(start, len(texts))] if start < len(texts) else parts


def _check_truncation(truncation: str | None, overlap: int | None) -> str:
    if truncation is not None:
        one_of("truncation", truncation, TRUNCATIONS)
    if overlap is not None and truncation != "window":
        raise InputError(
            "overlap has no effect without truncation window",
            fix="use truncation window, or leave out overlap",
        )
    return truncation or "head"


def _encode_truncated(
    model: Model, text: str, truncation: str, overlap: int | None, *, aligned: bool
) -> EncodedText:
    tokenizer = model.tokenizer
    if truncation != "window":
        encoding = tokenizer.encode(text, max_length=model.max_length, truncation=truncation)
        return EncodedText(sequences=(encoding.ids,), encoding=encoding)
    # by default two windows share a quarter, so that every token has context
    shared = model.max_length // 4 if overlap is None else overlap
    if aligned and len(text) > MAX_CHARS:
        raise InputError(
            f"it has {len(text):,} characters; with a vector for each token, windows accept "
            f"{MAX_CHARS:,}",
            fix="split it, such as into paragraphs, or use pooling mean",
        )
    if tokenizer.is_long(text):
        stream = tokenizer.iterate_windows(text, max_length=model.max_length, overlap=shared)
        return EncodedText(sequences=(), stream=stream)
    windows = tuple(tokenizer.encode_windows(text, max_length=model.max_length, overlap=shared))
    return EncodedText(
        sequences=tuple(window.ids for window in windows),
        encoding=tokenizer.encode(text),
        windows=windows,
    )


def report_truncated(
    counts: dict[int, int], on_truncated: OnTruncated | None, max_length: int | None
) -> None:
    """Call `on_truncated`, or warn unless `max_length` is None."""
    if on_truncated is None and max_length is not None:
        warn_truncated([*counts.values()], max_length)
    for row, count in counts.items():
        if on_truncated is not None and count:
            on_truncated(row, count)
