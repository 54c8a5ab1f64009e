"""`tag`: token classification: a tag for every word, and the spans of the tags.

w words of a sentence, q tokens of it, p positions of an item, c labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task, override_truncation
from cloze.config import one_of
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.examples import Origin, TaggedExample, label_index
from cloze.data.labelled.tag_schemes import OUTSIDE
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result, Results
from cloze.tasks.aggregation import (
    AGGREGATIONS,
    Span,
    TaggedUnit,
    aggregate_tokens,
    join_spans,
    labels_single_words,
)
from cloze.tasks.inference import compute_logits, encode_long, resolve_task
from cloze.tasks.inputs import Texts, check_texts, open_model, warn_truncated
from cloze.text.alignment import TokenAlignment
from cloze.text.long_texts import Gap, ShortText
from cloze.text.truncation import find_max_context_windows

CHUNK = 1024  # sentences that are encoded at a time, to bound memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TagItem(EncodedExample):
    """The sequence of a sentence or of a window; each word is tagged in one window only."""

    words: Sequence[int]  # index of the word at each position
    chars: Sequence[tuple[int, int]] = ()  # character offsets of the tokens, if all are used
    truncated_chars: int = 0  # characters left out by truncation


@dataclass(frozen=True, kw_only=True, repr=False)
class TagResult(Result):
    """The tags and spans of a text."""

    text: str
    words: tuple[tuple[int, int], ...]  # character offsets
    tags: tuple[str, ...]  # of each word
    scores: tuple[float, ...]  # the probability of each word's tag
    spans: tuple[Span, ...]
    # words that were truncated or have no token; their tag is O, their score 0. Of a text of more
    # than 32,768 characters, those far from what was read are counted, but not listed.
    untagged: int = 0
    truncated_chars: int = 0  # characters left out by truncation

    record_columns = ("text", "span", "label", "start", "end", "score")

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the text."""
        return {
            "text": self.text,
            "spans": [asdict(span) for span in self.spans],
            "untagged": self.untagged,
            "truncated_chars": self.truncated_chars,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """A row per span."""
        return [
            {"text": self.text, "span": span.pop("text"), **span}
            for span in map(asdict, self.spans)
        ]

    def _repr_html_(self) -> str:
        from cloze.plot.marked_text import Mark
        from cloze.plot.notebook import render_result, render_text

        marks = [
            Mark(start=one.start, end=one.end, label=one.label, tooltip=f"{one.score:.4f}")
            for one in self.spans
        ]
        text = render_text(self.text, marks, max_context=len(self.text))
        return render_result(text, truncated_chars=self.truncated_chars)


class TagOptions(TypedDict, total=False):
    """The options of `tag`."""

    aggregation: str
    truncation: str | None
    overlap: int | None
    text_column: str | int | None
    batch_tokens: int | None
    progress: ProgressOption


@overload
def tag(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike, text: str, **options: Unpack[TagOptions]
) -> TagResult: ...
@overload
def tag(
    model: Model | PathLike, text: Texts, **options: Unpack[TagOptions]
) -> Results[TagResult]: ...
@with_progress
def tag(
    model: Model | PathLike,
    text: str | Texts,
    *,
    aggregation: str = "first",
    truncation: str | None = None,
    overlap: int | None = None,
    text_column: str | int | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> TagResult | Results[TagResult]:
    """Find the tagged spans of a text, with character offsets and scores, and the tag of each word.

    Words are those of the tokenizer, which splits at white space and punctuation. If every word has
    a label, such as its part of speech, each word is a span.

    Args:
        model: a model for token classification, or its folder.
        text: a text, or several: a list, a column, or a table (data frame, `datasets`, mappings).
        aggregation: how the tag of a word follows from its tokens: first (the first token, as in
            training), average or max (the most confident token). simple joins tokens instead of
            words to spans; with none every token is a span.
        truncation: for texts that are too long: head, tail, head+tail, window (all of the text, in
            overlapping windows) or error. Default: the setting of the folder, else head; then a
            warning says how much was not read.
        overlap: number of tokens that two windows share. Default: a quarter of the window.
        text_column: column of the text, if the texts are in a table: name or 1-based number
            (default: auto-detected).
        batch_tokens: maximum number of tokens in a batch; the default depends on the device.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
    """
    model = open_model(model, "tag")
    task = override_truncation(resolve_task("tag", model), truncation, overlap)
    found = predict(
        model,
        make_examples(model, check_texts(text, text_column=text_column), task=task),
        task=task,
        aggregation=aggregation,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    if truncation is None:
        warn_truncated([one.truncated_chars for one in found], model.max_length)
    return found[0] if isinstance(text, str) else Results(found)


def make_examples(
    model: Model,
    texts: Sequence[str],
    origins: Sequence[Origin] | None = None,
    *,
    task: Task | None = None,
) -> list[TaggedExample]:
    """Make examples without tags; words are those of the tokenizer, each text is a document.

    Of a very long text that `task` truncates, only both ends are in the example.
    """
    where = origins or [Origin(line=number) for number in range(1, len(texts) + 1)]
    short = [ShortText(text=text) for text in texts]
    if task is not None and task.truncation_strategy != "window":
        short = [model.tokenizer.shorten(text, model.max_length) for text in texts]
    encodings = model.tokenizer.encode_batch([one.text for one in short])
    return [
        TaggedExample(
            text=one.text,
            words=tuple(encoding.word_spans()),
            document=number,
            origin=origin,
            whole=(text, one.gaps) if one.gaps else None,
        )
        for number, (text, one, encoding, origin) in enumerate(
            zip(texts, short, encodings, where, strict=True)
        )
    ]


def encode_examples(
    model: Model, examples: Sequence[TaggedExample], task: Task
) -> list[list[TagItem]]:
    """Encode each example as sequences that are tagged at the first token of every word.

    A sentence that is too long is truncated as the task says; with windows a word is tagged in the
    window with the most context around it. A word that is truncated, or has only control
    characters, has no position. With `task.context` the adjacent sentences of the document fill the
    rest of the sequence on both sides ("the maximal document context", Devlin et al. 2018, section
    5.3); they are not tagged there.
    """
    return encode_words(model, examples, task)


def encode_words(
    model: Model, examples: Sequence[TaggedExample], task: Task, *, every_token: bool = False
) -> list[list[TagItem]]:
    """Like `encode_examples`, optionally with all tokens of every word."""
    groups: list[list[TagItem]] = []
    for first in range(0, len(examples), CHUNK):
        chunk = examples[first : first + CHUNK]
        whole = model.tokenizer.encode_batch([example.text for example in chunk])
        for number, (example, encoding) in enumerate(zip(chunk, whole, strict=True), first):
            parts = [encoding]
            if len(encoding) > model.max_length:
                text = example.text
                if example.whole is not None and task.truncation_strategy == "error":
                    text = example.whole[0]  # an error, which says how long the text is
                parts = encode_long(model, text, task=task, name=example.origin)
            groups.append(list(_window_items(model, example, number, encoding, parts, every_token)))
    return _add_context(model, examples, groups) if task.context else groups


def predict(
    model: Model,
    examples: Sequence[TaggedExample],
    *,
    task: Task | None = None,
    aggregation: str = "first",
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[TagResult]:
    """Tag each example; results are in the order of the examples. `aggregation` as in `tag`."""
    one_of("aggregation", aggregation, AGGREGATIONS)
    task = resolve_task("tag", model, task)
    if model.feature_head is not None and aggregation != "first":
        raise InputError(
            "this model is feature-based and predicts from the first token of a word only",
            fix="use aggregation='first' (command line: --aggregation first)",
        )
    groups = encode_words(model, examples, task, every_token=aggregation != "first")
    flat = [item for group in groups for item in group]
    logits = compute_logits(model, flat, head="token", batch_tokens=batch_tokens, progress=progress)
    return postprocess(model, examples, groups, logits, aggregation=aggregation)


def postprocess(
    model: Model,
    examples: Sequence[TaggedExample],
    groups: Sequence[Sequence[TagItem]],
    logits: Sequence[Tensor],
    *,
    aggregation: str = "first",
) -> list[TagResult]:
    """Compute the tags of each example from the logits of its items (p c each)."""
    if not groups:
        return []
    sizes = [sum(len(item.positions) for item in group) for group in groups]
    parts = torch.cat(list(logits)).softmax(-1).split(sizes)
    single_words = labels_single_words(model.labels)
    return [
        _tag_example(model, example, group, part.numpy(), aggregation, single_words)
        for example, group, part in zip(examples, groups, parts, strict=True)
    ]


def _tag_example(
    model: Model,
    example: TaggedExample,
    group: Sequence[TagItem],
    probabilities: NDArray[Any],
    aggregation: str,
    single_words: bool,
) -> TagResult:
    labels = model.labels
    words = [word for item in group for word in item.words]
    starts = [n for n, word in enumerate(words) if n == 0 or words[n - 1] != word]
    numbers, scores = aggregate_tokens(probabilities, starts, aggregation)
    units = [
        TaggedUnit(words[start], labels[number], score, *example.words[words[start]])
        for start, number, score in zip(starts, numbers, scores, strict=True)
    ]
    tags = [OUTSIDE] * len(example.words)
    tag_scores = [0.0] * len(example.words)
    for unit in units:
        tags[unit.word], tag_scores[unit.word] = unit.tag, unit.score
    if aggregation in ("none", "simple"):
        chars = [pair for item in group for pair in item.chars]
        numbers, scores = aggregate_tokens(probabilities, range(len(words)), aggregation)
        rows = zip(words, numbers, scores, chars, strict=True)
        units = [
            TaggedUnit(word, labels[number], score, *pair) for word, number, score, pair in rows
        ]
    result = TagResult(
        text=example.text,
        words=example.words,
        tags=tuple(tags),
        scores=tuple(tag_scores),
        spans=join_spans(
            example.text, units, join=aggregation != "none", single_words=single_words
        ),
        untagged=len(example.words) - len(starts),
        truncated_chars=sum(item.truncated_chars for item in group),
    )
    return result if example.whole is None else _restore_result(result, *example.whole)


def _restore_result(result: TagResult, text: str, gaps: Sequence[Gap]) -> TagResult:
    """The result of both ends of a text, with character offsets in the whole text."""

    def shift(position: int) -> int:
        return position + sum(gap.chars for gap in gaps if gap.position <= position)

    words = [(shift(start), shift(end - 1) + 1) for start, end in result.words]
    spans = [
        replace(span, start=shift(span.start), end=shift(span.end - 1) + 1) for span in result.spans
    ]
    removed = sum(gap.words for gap in gaps)
    return replace(
        result,
        text=text,
        words=tuple(words),
        spans=tuple(spans),
        untagged=result.untagged + removed,
        truncated_chars=result.truncated_chars + sum(gap.chars for gap in gaps if gap.tokens),
    )


def _window_items(
    model: Model,
    example: TaggedExample,
    number: int,
    whole: TokenAlignment,
    parts: Sequence[TokenAlignment],
    every_token: bool,
) -> Iterator[TagItem]:
    targets = _find_targets(model, example)
    words, tokens = _word_tokens(whole, example.words, every_token)
    # the position of every token of the sentence, in the sequence where it is tagged
    inside = whole.token_range()
    position_of = [-1] * len(inside)
    spans = [part.kept_ranges[0][0] if part.kept_ranges[0] else range(0) for part in parts]
    owner = find_max_context_windows(spans) if len(parts) > 1 else None
    for n, part in enumerate(parts):
        position = part.token_range().start
        for span in part.kept_ranges[0]:
            for token in span:
                if owner is None or owner[token] == n:
                    position_of[token] = position
                position += 1
        here = [
            (word, token)
            for word, token in zip(words, tokens, strict=True)
            if position_of[token] >= 0 and (owner is None or owner[token] == n)
        ]
        yield TagItem(
            ids=part.ids,
            type_ids=part.type_ids,
            positions=[position_of[token] for _, token in here],
            targets=[targets[word] for word, _ in here] if targets else (),
            example=number,
            words=[word for word, _ in here],
            chars=[whole.offsets[inside.start + token] for _, token in here] if every_token else (),
            truncated_chars=part.truncated_chars if owner is None else 0,
        )


def _word_tokens(
    encoding: TokenAlignment, words: Sequence[tuple[int, int]], every_token: bool
) -> tuple[list[int], list[int]]:
    """The indices of word and token at each position.

    The first token of each word, or all tokens: `TokenAlignment.tokens_in_span` for all words at
    once.
    """
    inside = encoding.token_range()
    offsets = np.array(encoding.offsets[inside.start : inside.stop], np.int64).reshape(-1, 2)
    marks = np.array(words, np.int64).reshape(-1, 2)
    firsts = np.searchsorted(offsets[:, 1], marks[:, 0], side="right")
    stops = np.searchsorted(offsets[:, 0], marks[:, 1], side="left")
    stops = np.where(marks[:, 0] < marks[:, 1], stops, firsts)
    if not every_token:
        stops = np.minimum(stops, firsts + 1)
    found = [
        (word, token)
        for word, (first, stop) in enumerate(zip(firsts.tolist(), stops.tolist(), strict=True))
        for token in range(first, stop)
    ]
    return [word for word, _ in found], [token for _, token in found]


def _find_targets(model: Model, example: TaggedExample) -> list[int]:
    if example.tags is None:
        return []
    if len(example.tags) != len(example.words):
        raise InputError(
            f"{example.origin}: there are {len(example.words)} words, but {len(example.tags)} tags",
            fix="give one tag per word",
        )
    return [label_index(model.labels, tag, example.origin) for tag in example.tags]


def _add_context(
    model: Model, examples: Sequence[TaggedExample], made: Sequence[list[TagItem]]
) -> list[list[TagItem]]:
    """Add the tokens of adjacent sentences before and after each sentence, up to the limit."""
    extended: list[list[TagItem]] = []
    tokens = model.tokenizer.encode_ids(
        [example.text for example in examples], add_special_tokens=False
    )
    lead = model.tokenizer.encode("a").token_range().start  # special tokens before a text
    sentences = zip(examples, made, tokens, strict=True)
    for _, document in groupby(sentences, lambda row: (row[0].origin.file, row[0].document)):
        rows = list(document)
        flat = [id_ for _, _, ids in rows for id_ in ids]
        start = 0
        for _, group, ids in rows:
            stop = start + len(ids)
            room = model.max_length - len(group[0].ids)
            if len(group) == 1 and room > 0:  # otherwise there is no space left
                left = min(start, max(room // 2, room - (len(flat) - stop)))
                around = flat[start - left : start], flat[stop : stop + room - left]
                extended.append([_extend_item(group[0], *around, lead, lead + len(ids))])
            else:
                extended.append(group)
            start = stop
    return extended


def _extend_item(
    item: TagItem, before: list[int], after: list[int], first: int, stop: int
) -> TagItem:
    """Insert context before and after a sentence, which has the tokens `first` to `stop`."""
    ids, types = item.ids, item.type_ids
    return replace(
        item,
        ids=[*ids[:first], *before, *ids[first:stop], *after, *ids[stop:]],
        type_ids=[
            *types[:first],
            *[types[0]] * len(before),
            *types[first:stop],
            *[types[0]] * len(after),
            *types[stop:],
        ],
        positions=[position + len(before) for position in item.positions],
    )
