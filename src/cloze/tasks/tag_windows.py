"""The tags of a long text, window by window.  w words, q tokens, c labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice
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
from cloze.text.truncation import iterate_max_context_tokens
from cloze.text.windows import Windows

WORDS = 4096  # tagged together


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedWord:
    """A word and the units that spans are made of: the word itself, or its tokens."""

    unit: TaggedUnit
    parts: Sequence[TaggedUnit]
    is_untagged: bool = False  # it has no characters


@dataclass(frozen=True, slots=True, kw_only=True)
class _WindowItem(EncodedExample):
    """A window, and the tokens that have the most context in it: word, start, end."""

    tokens: Sequence[tuple[int | None, int, int]]
    is_tagged: Sequence[bool]  # whether the head reads the token


@dataclass(frozen=True, slots=True)
class _Token:
    word: int | None
    start: int
    end: int
    probabilities: NDArray[Any] | None  # c; None: the head does not read the token


def iterate_tagged_words(
    model: Model,
    example: TaggedExample,
    task: Task,
    aggregation: str,
    *,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> Iterator[TaggedWord]:
    """Tag the words of a text, which are those of the tokenizer, in order.

    A token is tagged in the window with the most context around it.
    """
    windows = iterate_windows(model, example.text, task=task, name=example.origin)
    items = _iterate_items(windows, every_token=aggregation != "first")
    found = iterate_window_logits(
        model, items, len(windows), head="token", batch_tokens=batch_tokens, progress=progress
    )
    tokens = (
        token
        for item, logits in found
        for token in _iterate_tokens(item, logits.softmax(-1).numpy())
    )
    groups = (list(group) for _, group in groupby(tokens, key=lambda token: token.word))
    first = 0
    while some := list(islice(groups, WORDS)):
        yield from _tag_words(model.labels, some, first, aggregation)
        first += len(some)


def _iterate_items(windows: Windows, *, every_token: bool) -> Iterator[_WindowItem]:
    last: int | None = -1  # the word of the token before
    for window, owned in zip(windows, iterate_max_context_tokens(windows.spans), strict=True):
        own = [n for n, is_own in zip(window.token_range(), owned, strict=True) if is_own]
        words = [window.words[n] for n in own]
        before = [last, *words[:-1]]
        tagged = [every_token or word != other for word, other in zip(words, before, strict=True)]
        last = words[-1] if words else last
        yield _WindowItem(
            ids=window.ids,
            type_ids=window.type_ids,
            positions=[n for n, is_tagged in zip(own, tagged, strict=True) if is_tagged],
            tokens=[(window.words[n], *window.offsets[n]) for n in own],
            is_tagged=tagged,
        )


def _iterate_tokens(item: _WindowItem, probabilities: NDArray[Any]) -> Iterator[_Token]:
    rows = iter(probabilities)
    for token, is_tagged in zip(item.tokens, item.is_tagged, strict=True):
        yield _Token(*token, next(rows) if is_tagged else None)


def _tag_words(
    labels: Sequence[str], groups: Sequence[Sequence[_Token]], first: int, aggregation: str
) -> Iterator[TaggedWord]:
    """Tag words from the probabilities of their tokens; `first` is the number of the first word."""
    rows = [
        [token.probabilities for token in group if token.probabilities is not None]
        for group in groups
    ]
    probabilities = np.stack([row for group in rows for row in group])  # q c
    starts = [0, *accumulate(map(len, rows))]
    word_tags = zip(*aggregate_tokens(probabilities, starts[:-1], aggregation), strict=True)
    every = range(len(probabilities))
    token_tags = zip(*aggregate_tokens(probabilities, every, aggregation), strict=True)
    for number, (group, (label, score)) in enumerate(zip(groups, word_tags, strict=True), first):
        start, end = group[0].start, group[-1].end
        parts = (
            [
                TaggedUnit(number, labels[tag], value, token.start, token.end)
                for token, (tag, value) in zip(group, islice(token_tags, len(group)), strict=True)
            ]
            if aggregation in ("none", "simple")
            else []
        )
        if start >= end:
            unit = TaggedUnit(number, OUTSIDE, 0.0, start, end)
            yield TaggedWord(unit=unit, parts=(), is_untagged=True)
            continue
        unit = TaggedUnit(number, labels[label], score, start, end)
        yield TaggedWord(unit=unit, parts=parts or [unit])
