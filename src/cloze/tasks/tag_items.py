"""Sentences as sequences whose words are tagged, for `tag`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.examples import TaggedExample, label_index
from cloze.errors import InputError
from cloze.tasks.inference import encode_long
from cloze.text.alignment import TokenAlignment
from cloze.text.truncation import find_max_context_windows

CHUNK = 1024  # sentences that are encoded at a time, to bound memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TagItem(EncodedExample):
    """The sequence of a sentence or of a window; each word is tagged in one window only."""

    words: Sequence[int]  # index of the word at each position
    chars: Sequence[tuple[int, int]] = ()  # character offsets of the tokens, if all are used
    truncated_chars: int = 0  # characters left out by truncation


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
