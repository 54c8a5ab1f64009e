"""The tags of a long text, window by window.  q tokens, w words, c labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.examples import TaggedExample
from cloze.data.labelled.tag_schemes import OUTSIDE
from cloze.progress import ProgressCallback
from cloze.tasks.aggregation import TaggedUnit, aggregate_tokens
from cloze.tasks.inference import iterate_window_logits, iterate_windows
from cloze.text.alignment import TokenAlignment
from cloze.text.windows import Windows

TOKENS = 4096  # tagged together, at least


@dataclass(frozen=True, kw_only=True, eq=False)
class TaggedWords:
    """Consecutive words of a text, as columns, and the units that spans are made of.

    The units are words or tokens. Of those with tag O only the first after another tag is there,
    because it ends a span.
    """

    chars: list[tuple[int, int]]  # w
    tags: list[str]  # w
    scores: list[float]  # w
    num_untagged: int  # words without characters
    units: list[TaggedUnit]


@dataclass(frozen=True, slots=True, kw_only=True)
class _WindowItem(EncodedExample):
    """A window; the columns are those of the tokens that have the most context in it."""

    words: Sequence[int]  # -1: none
    chars: Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tokens:
    """Consecutive tokens of a text, as columns."""

    words: NDArray[np.int64]  # q
    chars: NDArray[np.int64]  # q 2
    probabilities: NDArray[Any]  # q c, or of the first token of each word: w c


def iterate_tagged_words(
    model: Model,
    example: TaggedExample,
    task: Task,
    aggregation: str,
    *,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> Iterator[TaggedWords]:
    """Tag the words of a text, which are those of the tokenizer, in order.

    A token is tagged in the window with the most context around it.
    """
    windows = iterate_windows(model, example.text, task=task, name=example.origin)
    every_token = aggregation != "first"
    items = _iterate_items(windows, example.text, every_token=every_token)
    found = iterate_window_logits(
        model, items, len(windows), head="token", batch_tokens=batch_tokens, progress=progress
    )
    tokens = (
        _Tokens(
            words=np.array(item.words, np.int64),
            chars=np.array(item.chars, np.int64).reshape(-1, 2),
            probabilities=logits.softmax(-1).numpy(),
        )
        for item, logits in found
    )
    first = 0
    for some in _join_words(tokens, every_token=every_token):
        words = _tag_words(model.labels, some, first, aggregation)
        first += len(words.tags)
        yield words


def _iterate_items(windows: Windows, text: str, *, every_token: bool) -> Iterator[_WindowItem]:
    last = -2  # the word of the token before
    for window, own in windows.iterate_own():
        words = [-1 if word is None else word for word in window.words[own.start : own.stop]]
        before = [last, *words[:-1]]
        last = words[-1] if words else last
        starts = [n for n, word, other in zip(own, words, before, strict=False) if word != other]
        yield _WindowItem(
            ids=window.ids,
            type_ids=window.type_ids,
            positions=own if every_token else starts,
            words=words,
            chars=window.offsets[own.start : own.stop],
            spellings=[_spell_word(window, text, n) for n in starts],
        )


def _spell_word(window: TokenAlignment, text: str, first: int) -> str:
    """The word that begins with a token, as far as it is in the window."""
    last, stop = first, window.token_range().stop
    while last + 1 < stop and window.words[last + 1] == window.words[first]:
        last += 1
    return text[window.offsets[first][0] : window.offsets[last][1]].strip()


def _join_words(tokens: Iterator[_Tokens], *, every_token: bool) -> Iterator[_Tokens]:
    """Whole words with at least `TOKENS` tokens, except at the end of the text."""
    waiting: list[_Tokens] = []
    for more in tokens:
        waiting.append(more)
        if sum(len(some.words) for some in waiting) > TOKENS:
            whole = _concatenate(waiting)
            same = whole.words[::-1] != whole.words[-1]
            stop = len(whole.words) - (int(same.argmax()) if same.any() else len(whole.words))
            row = stop if every_token else len(whole.probabilities) - 1
            if stop:
                yield _Tokens(
                    words=whole.words[:stop],
                    chars=whole.chars[:stop],
                    probabilities=whole.probabilities[:row],
                )
                whole = _Tokens(
                    words=whole.words[stop:],
                    chars=whole.chars[stop:],
                    probabilities=whole.probabilities[row:],
                )
            waiting = [whole]
    if waiting and len((whole := _concatenate(waiting)).words):
        yield whole


def _concatenate(some: Sequence[_Tokens]) -> _Tokens:
    return _Tokens(
        words=np.concatenate([one.words for one in some]),
        chars=np.concatenate([one.chars for one in some]),
        probabilities=np.concatenate([one.probabilities for one in some]),
    )


def _tag_words(labels: Sequence[str], tokens: _Tokens, first: int, aggregation: str) -> TaggedWords:
    """Tag words from the probabilities of their tokens; `first` is the number of the first word."""
    is_start = np.concatenate([[True], tokens.words[1:] != tokens.words[:-1]])
    starts = np.flatnonzero(is_start)
    last = np.append(starts[1:], len(is_start)) - 1  # the last token of each word
    chars = np.stack([tokens.chars[starts, 0], tokens.chars[last, 1]], -1)  # w 2
    has_chars = chars[:, 0] < chars[:, 1]
    rows = np.arange(len(starts)) if aggregation == "first" else starts
    tags, scores = _aggregate(tokens.probabilities, rows, aggregation)
    if aggregation in ("none", "simple"):
        words = is_start.cumsum() - 1  # of each token
        found = _aggregate(tokens.probabilities, np.arange(len(is_start)), aggregation)
        units = _list_units(labels, first + words, *found, tokens.chars, has_chars[words])
    else:
        numbers = np.arange(first, first + len(starts))
        units = _list_units(labels, numbers, tags, scores, chars, has_chars)
    names = [*labels, OUTSIDE]
    return TaggedWords(
        chars=list(zip(*chars.T.tolist(), strict=True)),
        tags=[names[tag] for tag in np.where(has_chars, tags, len(labels)).tolist()],
        scores=np.where(has_chars, scores, 0.0).tolist(),
        num_untagged=int((~has_chars).sum()),
        units=units,
    )


def _aggregate(
    probabilities: NDArray[Any], starts: NDArray[np.int64], aggregation: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    tags, scores = aggregate_tokens(probabilities, starts.tolist(), aggregation)
    return np.array(tags, np.int64), np.array(scores, np.float64)


def _list_units(
    labels: Sequence[str],
    words: NDArray[np.int64],
    tags: NDArray[np.int64],
    scores: NDArray[np.float64],
    chars: NDArray[np.int64],
    is_tagged: NDArray[np.bool_],
) -> list[TaggedUnit]:
    """The units with a tag, and the first with tag O after each of them."""
    tagged = np.flatnonzero(is_tagged)
    outside = labels.index(OUTSIDE) if OUTSIDE in labels else len(labels)
    in_span = tags[tagged] != outside
    chosen = tagged[in_span | np.concatenate([[True], in_span])[:-1]]
    columns = (words, tags, scores, chars[:, 0], chars[:, 1])
    return [
        TaggedUnit(word, labels[tag], score, start, end)
        for word, tag, score, start, end in zip(
            *(column[chosen].tolist() for column in columns), strict=True
        )
    ]
