"""`tag`: token classification: a tag for every word, and the spans of the tags.

w words of a sentence, q tokens of it, p positions of an item, c labels.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress
from typing import Any, TypedDict, Unpack, overload

import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task, override_truncation
from cloze.config import one_of
from cloze.data.labelled.examples import Origin, TaggedExample
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
from cloze.tasks.inference import (
    compute_logits,
    needs_streaming,
    predict_in_order,
    resolve_task,
)
from cloze.tasks.inputs import MAX_CHARS, Texts, check_texts, open_model, warn_truncated
from cloze.tasks.tag_items import TagItem, encode_examples, encode_words
from cloze.tasks.tag_windows import TaggedWords, iterate_tagged_words
from cloze.text.long_texts import Gap, ShortText

__all__ = [
    "TagOptions",
    "TagResult",
    "encode_examples",
    "make_examples",
    "postprocess",
    "predict",
    "tag",
]

LISTED_CHARS = MAX_CHARS  # of longer texts in windows, words without a tag are not listed


@dataclass(frozen=True, kw_only=True, repr=False)
class TagResult(Result):
    """The tags and spans of a text."""

    text: str
    words: tuple[tuple[int, int], ...]  # character offsets
    tags: tuple[str, ...]  # of each word
    scores: tuple[float, ...]  # the probability of each word's tag
    spans: tuple[Span, ...]
    # words that were truncated or have no token; their tag is O, their score 0. Of a text of more
    # than 32,768 characters, those far from what was read are counted, but not listed. Of a text
    # of more than a million characters in windows, only words with a tag other than O are listed.
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

    Of a very long text that `task` truncates, only both ends are in the example; the words of one
    that is read in windows are found when it is tagged.
    """
    where = origins or [Origin(line=number) for number in range(1, len(texts) + 1)]
    short = [ShortText(text=text) for text in texts]
    if task is not None and task.truncation_strategy != "window":
        short = [model.tokenizer.shorten(text, model.max_length) for text in texts]
    streamed = [task is not None and needs_streaming(task, text) for text in texts]
    given = zip(short, streamed, strict=True)
    encodings = model.tokenizer.encode_batch(["" if alone else one.text for one, alone in given])
    return [
        TaggedExample(
            text=one.text,
            words=() if alone else tuple(encoding.word_spans()),
            document=number,
            origin=origin,
            whole=(text, one.gaps) if one.gaps else None,
            is_streamed=alone,
        )
        for number, (text, one, alone, encoding, origin) in enumerate(
            zip(texts, short, streamed, encodings, where, strict=True)
        )
    ]


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

    def predict_all(some: Sequence[TaggedExample]) -> list[TagResult]:
        groups = encode_words(model, some, task, every_token=aggregation != "first")
        flat = [item for group in groups for item in group]
        logits = compute_logits(
            model, flat, head="token", batch_tokens=batch_tokens, progress=progress
        )
        return postprocess(model, some, groups, logits, aggregation=aggregation)

    def predict_long(example: TaggedExample) -> TagResult:
        found = iterate_tagged_words(
            model, example, task, aggregation, batch_tokens=batch_tokens, progress=progress
        )
        return _tag_words(model, example.text, found, aggregation)

    return predict_in_order(
        examples, predict_all, predict_long, is_long=lambda one: one.is_streamed
    )


def _tag_words(
    model: Model, text: str, found: Iterable[TaggedWords], aggregation: str
) -> TagResult:
    """Collect the tags of a long text."""
    words: list[tuple[int, int]] = []
    tags: list[str] = []
    scores: list[float] = []
    untagged = 0
    lists_all = len(text) <= LISTED_CHARS

    def iterate_units() -> Iterator[TaggedUnit]:
        nonlocal untagged
        for some in found:
            untagged += some.num_untagged
            listed = [lists_all or tag != OUTSIDE for tag in some.tags]
            words.extend(compress(some.chars, listed))
            tags.extend(compress(some.tags, listed))
            scores.extend(compress(some.scores, listed))
            yield from some.units

    single_words = labels_single_words(model.labels)
    spans = join_spans(text, iterate_units(), join=aggregation != "none", single_words=single_words)
    return TagResult(
        text=text,
        words=tuple(words),
        tags=tuple(tags),
        scores=tuple(scores),
        spans=spans,
        untagged=untagged,
    )


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
    tags = [OUTSIDE] * len(example.words)
    tag_scores = [0.0] * len(example.words)
    for start, number, score in zip(starts, numbers, scores, strict=True):
        tags[words[start]], tag_scores[words[start]] = labels[number], score
    units: Iterable[TaggedUnit]
    if aggregation in ("none", "simple"):
        chars = [pair for item in group for pair in item.chars]
        numbers, scores = aggregate_tokens(probabilities, range(len(words)), aggregation)
        rows = zip(words, numbers, scores, chars, strict=True)
        units = (
            TaggedUnit(word, labels[number], score, *pair) for word, number, score, pair in rows
        )
    else:
        units = (
            TaggedUnit(word, tags[word], tag_scores[word], *example.words[word])
            for word in (words[start] for start in starts)
        )
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
