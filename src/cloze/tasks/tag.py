"""`tag`: a tag for every word, and the spans that tags make.

w words of a sentence, q pieces of it, c labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task, with_policy
from cloze.config import one_of
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.examples import Origin, TaggedExample
from cloze.data.labelled.tag_schemes import OUTSIDE
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback
from cloze.tasks.aggregate import (
    AGGREGATIONS,
    Span,
    TaggedUnit,
    aggregate_tokens,
    join_spans,
    labels_single_words,
)
from cloze.tasks.door import open_model
from cloze.tasks.reading import encode_long
from cloze.tasks.scoring import compute_logits, label_index, resolve_task
from cloze.tasks.texts import check_texts
from cloze.text.alignment import TokenAlignment
from cloze.text.truncation import max_context_windows

CHUNK = 1024  # sentences whose alignment is held at once


@dataclass(frozen=True, slots=True, kw_only=True)
class TagItem(EncodedExample):
    """A sentence, or a window of it; a word stands in it once, or in another window."""

    words: Sequence[int]  # the number of the word at each place
    chars: Sequence[tuple[int, int]] = ()  # of the piece at each place, where every piece is one


@dataclass(frozen=True, kw_only=True)
class TagResult:
    """A text with its words and the spans found in it."""

    text: str
    words: tuple[tuple[int, int], ...]  # characters of each
    tags: tuple[str, ...]  # of each word
    scores: tuple[float, ...]  # the probability of each word's tag
    spans: tuple[Span, ...]
    untagged: int = 0  # words that were cut away or have no piece; their tag is O, their score 0


def encode_examples(
    model: Model, examples: Sequence[TaggedExample], task: Task
) -> list[list[TagItem]]:
    """For each example its sequences, read at the first piece of every word.

    A sentence too long goes by the task's policy: in windows a word is read in the one that shows
    the most around it; a word that is cut away, or that is nothing but control characters, has no
    place. With `task.context` the sentences around it in its document fill the rest of the room, as
    much on either side as there is ("the maximal document context", Devlin et al. 2018, section
    5.3); nothing is read there.
    """
    return encode_words(model, examples, task)


def encode_words(
    model: Model, examples: Sequence[TaggedExample], task: Task, *, every_piece: bool = False
) -> list[list[TagItem]]:
    """`items`, read at all pieces of every word if so wanted."""
    made: list[list[TagItem]] = []
    for first in range(0, len(examples), CHUNK):
        chunk = examples[first : first + CHUNK]
        whole = model.tokenizer.encode_batch([example.text for example in chunk])
        for number, (example, encoding) in enumerate(zip(chunk, whole, strict=True), first):
            parts = [encoding]
            if len(encoding) > model.limit:
                parts = encode_long(model, example.text, task=task, name=example.origin)
            made.append(list(_parts(model, example, number, encoding, parts, every_piece)))
    return _with_context(model, examples, made) if task.context else made


def predict(
    model: Model,
    examples: Sequence[TaggedExample],
    *,
    task: Task | None = None,
    aggregation: str = "first",
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[TagResult]:
    """Tags and spans of each example, in their order, one tag for every word.

    `aggregation` says how the pieces of a word make its tag: `first` as it was learned, `average`,
    `max`. With `simple` spans are made of pieces, with `none` every piece is one, and the tag of a
    word is that of its first piece.
    """
    one_of("aggregation", aggregation, AGGREGATIONS)
    task = resolve_task("tag", model, task)
    if model.reader is not None and aggregation != "first":
        raise InputError(
            "this model reads words by their first piece alone", fix="use the aggregation first"
        )
    groups = encode_words(model, examples, task, every_piece=aggregation != "first")
    flat = [item for group in groups for item in group]
    scores = compute_logits(model, flat, head="token", batch_tokens=batch_tokens, progress=progress)
    return postprocess(model, examples, groups, scores, aggregation=aggregation)


def postprocess(
    model: Model,
    examples: Sequence[TaggedExample],
    groups: Sequence[Sequence[TagItem]],
    scores: Sequence[Tensor],
    *,
    aggregation: str = "first",
) -> list[TagResult]:
    """What the scores of the examples' items, p c each, say of the examples."""
    if not groups:
        return []
    sizes = [sum(len(item.positions) for item in group) for group in groups]
    parts = torch.cat(list(scores)).softmax(-1).split(sizes)
    apart = labels_single_words(model.labels)
    return [
        _tagged(model, example, group, part.numpy(), aggregation, apart)
        for example, group, part in zip(examples, groups, parts, strict=True)
    ]


@overload
def tag(
    model: Model | PathLike,
    text: str,
    *,
    aggregation: str = "first",
    policy: str | None = None,
    stride: int | None = None,
) -> TagResult: ...
@overload
def tag(
    model: Model | PathLike,
    text: list[str],
    *,
    aggregation: str = "first",
    policy: str | None = None,
    stride: int | None = None,
) -> list[TagResult]: ...
def tag(
    model: Model | PathLike,
    text: str | list[str],
    *,
    aggregation: str = "first",
    policy: str | None = None,
    stride: int | None = None,
) -> TagResult | list[TagResult]:
    """The spans of a text, with their characters and scores, and the tag of every word.

    Words are the tokenizer's: white space and punctuation part them. Where every word has a label,
    parts of speech say, each is a span of its own. `aggregation` is none, simple, first, average or
    max. `policy` is for texts longer than the model reads: head, tail, head+tail,
    or window (all of it, in windows that share `stride` tokens). Unsaid, it is the folder's; a
    folder that has none makes such a text an error.
    """
    model = open_model(model, "tag", Model)
    task = with_policy(resolve_task("tag", model), policy, stride)
    texts = check_texts(text)
    found = predict(model, make_examples(model, texts), task=task, aggregation=aggregation)
    return found[0] if isinstance(text, str) else found


def make_examples(
    model: Model, texts: Sequence[str], origins: Sequence[Origin] | None = None
) -> list[TaggedExample]:
    """Texts without marks: the tokenizer tells their words, and each is a document of its own."""
    places = origins or [Origin(line=number) for number in range(1, len(texts) + 1)]
    return [
        TaggedExample(text=text, words=tuple(encoding.word_spans()), document=number, origin=origin)
        for number, (text, encoding, origin) in enumerate(
            zip(texts, model.tokenizer.encode_batch(texts), places, strict=True)
        )
    ]


def _tagged(
    model: Model,
    example: TaggedExample,
    group: Sequence[TagItem],
    probabilities: NDArray[Any],
    aggregation: str,
    apart: bool,
) -> TagResult:
    labels = model.labels
    words = [word for item in group for word in item.words]
    starts = [n for n, word in enumerate(words) if n == 0 or words[n - 1] != word]
    numbers, scores = aggregate_tokens(probabilities, starts, aggregation)
    units = [
        TaggedUnit(words[place], labels[number], score, *example.words[words[place]])
        for place, number, score in zip(starts, numbers, scores, strict=True)
    ]
    tags = [OUTSIDE] * len(example.words)
    sure = [0.0] * len(example.words)
    for unit in units:
        tags[unit.word], sure[unit.word] = unit.tag, unit.score
    if aggregation in ("none", "simple"):
        chars = [pair for item in group for pair in item.chars]
        numbers, scores = aggregate_tokens(probabilities, range(len(words)), aggregation)
        rows = zip(words, numbers, scores, chars, strict=True)
        units = [
            TaggedUnit(word, labels[number], score, *pair) for word, number, score, pair in rows
        ]
    return TagResult(
        text=example.text,
        words=example.words,
        tags=tuple(tags),
        scores=tuple(sure),
        spans=join_spans(example.text, units, join=aggregation != "none", apart=apart),
        untagged=len(example.words) - len(starts),
    )


def _parts(
    model: Model,
    example: TaggedExample,
    number: int,
    whole: TokenAlignment,
    parts: Sequence[TokenAlignment],
    every_piece: bool,
) -> Iterator[TagItem]:
    targets = _targets(model, example)
    words, pieces = _pieces_of_words(whole, example.words, every_piece)
    # of the sentence's pieces, by number: the sequence each is read in, and its place there
    inside = whole.token_range()
    home = [-1] * len(inside)
    spans = [part.kept_ranges[0][0] if part.kept_ranges[0] else range(0) for part in parts]
    owner = max_context_windows(spans) if len(parts) > 1 else None
    for n, part in enumerate(parts):
        place = part.token_range().start
        for span in part.kept_ranges[0]:
            for piece in span:
                if owner is None or owner[piece] == n:
                    home[piece] = place
                place += 1
        here = [
            (word, piece)
            for word, piece in zip(words, pieces, strict=True)
            if home[piece] >= 0 and (owner is None or owner[piece] == n)
        ]
        yield TagItem(
            ids=part.ids,
            type_ids=part.type_ids,
            positions=[home[piece] for _, piece in here],
            targets=[targets[word] for word, _ in here] if targets else (),
            example=number,
            words=[word for word, _ in here],
            chars=[whole.offsets[inside.start + piece] for _, piece in here] if every_piece else (),
        )


def _pieces_of_words(
    encoding: TokenAlignment, words: Sequence[tuple[int, int]], every_piece: bool
) -> tuple[list[int], list[int]]:
    """Word and piece of every place: the first piece of each word, or all; by number in the text.

    As `TokenAlignment.tokens_in_span`, for all words at once.
    """
    inside = encoding.token_range()
    offsets = np.array(encoding.offsets[inside.start : inside.stop], np.int64).reshape(-1, 2)
    marks = np.array(words, np.int64).reshape(-1, 2)
    firsts = np.searchsorted(offsets[:, 1], marks[:, 0], side="right")
    stops = np.searchsorted(offsets[:, 0], marks[:, 1], side="left")
    stops = np.where(marks[:, 0] < marks[:, 1], stops, firsts)
    if not every_piece:
        stops = np.minimum(stops, firsts + 1)
    found = [
        (word, piece)
        for word, (first, stop) in enumerate(zip(firsts.tolist(), stops.tolist(), strict=True))
        for piece in range(first, stop)
    ]
    return [word for word, _ in found], [piece for _, piece in found]


def _targets(model: Model, example: TaggedExample) -> list[int]:
    if example.tags is None:
        return []
    if len(example.tags) != len(example.words):
        raise InputError(
            f"{example.origin}: {len(example.words)} words have {len(example.tags)} tags",
            fix="give every word one tag",
        )
    return [label_index(model.labels, tag, example.origin) for tag in example.tags]


def _with_context(
    model: Model, examples: Sequence[TaggedExample], made: Sequence[list[TagItem]]
) -> list[list[TagItem]]:
    """Each sentence between the pieces of its neighbours, as many as there is room for."""
    framed: list[list[TagItem]] = []
    pieces = model.tokenizer.encode_ids(
        [example.text for example in examples], add_special_tokens=False
    )
    lead = model.tokenizer.encode("a").token_range().start  # special tokens before a text
    sentences = zip(examples, made, pieces, strict=True)
    for _, document in groupby(sentences, lambda row: (row[0].origin.file, row[0].document)):
        rows = list(document)
        flat = [id_ for _, _, ids in rows for id_ in ids]
        start = 0
        for _, group, ids in rows:
            stop = start + len(ids)
            room = model.limit - len(group[0].ids)
            if len(group) == 1 and room > 0:  # else it fills the model by itself
                left = min(start, max(room // 2, room - (len(flat) - stop)))
                around = flat[start - left : start], flat[stop : stop + room - left]
                framed.append([_framed(group[0], *around, lead, lead + len(ids))])
            else:
                framed.append(group)
            start = stop
    return framed


def _framed(item: TagItem, before: list[int], after: list[int], first: int, stop: int) -> TagItem:
    """A sentence, which has tokens `first` to `stop`, with pieces before and after it."""
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
        positions=[place + len(before) for place in item.positions],
    )
