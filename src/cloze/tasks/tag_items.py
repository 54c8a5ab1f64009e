"""Sentences as sequences whose words are tagged, for `tag`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.data.labelled.batch import EncodedExample, make_compact
from cloze.data.labelled.examples import TaggedExample, label_index
from cloze.errors import InputError
from cloze.tasks.inference import encode_long, iterate_windows, needs_streaming
from cloze.text.alignment import TokenAlignment
from cloze.text.long_texts import is_long
from cloze.text.windows import Windows

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
        short = [_shorten_example(model, example, task) for example in chunk]
        whole = model.tokenizer.encode_batch([one.text for one in short])
        for number, (example, part, encoding) in enumerate(
            zip(chunk, short, whole, strict=True), first
        ):
            words = _Words.read(model, part, every_token=every_token)
            if needs_streaming(task, example.text):
                windows = iterate_windows(model, example.text, task=task, name=example.origin)
                groups.append(list(_iterate_window_items(windows, words, number, make_compact)))
            elif len(encoding) > model.max_length and task.truncation_strategy == "window":
                windows = iterate_windows(model, part.text, task=task, name=example.origin)
                groups.append(list(_iterate_window_items(windows, words, number, list)))
            else:
                kept = _truncate(model, part, encoding, task)
                item = _make_item(kept, encoding, words, number)
                groups.append([_restore_item(item, part, kept, is_new=part is not example)])
    spec = task.features or (model.task and model.task.features)
    if spec and spec.embedding_size:  # of words
        groups = [
            [replace(item, spellings=_spell_words(examples[n], item)) for item in group]
            for n, group in enumerate(groups)
        ]
    return _add_context(model, examples, groups) if task.context else groups


def _spell_words(example: TaggedExample, item: TagItem) -> list[str]:
    return [example.text[slice(*example.words[word])] for word in item.words]


def _truncate(
    model: Model, example: TaggedExample, encoding: TokenAlignment, task: Task
) -> TokenAlignment:
    if len(encoding) <= model.max_length:
        return encoding
    text = example.text
    if example.whole is not None and task.truncation_strategy == "error":
        text = example.whole[0]  # an error, which says how long the text is
    (found,) = encode_long(model, text, task=task, name=example.origin)
    return found


def _shorten_example(model: Model, example: TaggedExample, task: Task) -> TaggedExample:
    """A long text without what is truncated; of one that is read in windows, the words only."""
    if needs_streaming(task, example.text):
        return replace(example, text="")
    if example.whole is not None or not is_long(example.text):
        return example
    short = model.tokenizer.shorten(example.text, model.max_length)
    marks = np.array(example.words, np.int64).reshape(-1, 2)
    for gap in reversed(short.gaps):  # positions are those without the gaps before
        before = sum(other.chars for other in short.gaps if other.position < gap.position)
        start = gap.position + before
        marks = np.where(marks > start, np.maximum(marks - gap.chars, start), marks)
    words = tuple((start, end) for start, end in marks.tolist())
    return replace(example, text=short.text, words=words, whole=(example.text, short.gaps))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Words:
    """The words of a sentence and their targets."""

    marks: NDArray[np.int64]  # w 2: character offsets
    targets: list[int]
    every_token: bool
    is_sorted: bool

    @classmethod
    def read(cls, model: Model, example: TaggedExample, *, every_token: bool) -> "_Words":
        marks = np.array(example.words, np.int64).reshape(-1, 2)
        return cls(
            marks=marks,
            targets=_find_targets(model, example),
            every_token=every_token,
            is_sorted=bool((np.diff(marks, axis=0) >= 0).all()),
        )

    def find_tokens(
        self, offsets: Sequence[tuple[int, int]], among: slice = slice(None)
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The indices of word and token at each position.

        The first token of each word, or all tokens: `TokenAlignment.tokens_in_span` for all words
        at once.
        """
        chars, marks = np.array(offsets, np.int64).reshape(-1, 2), self.marks[among]
        firsts = np.searchsorted(chars[:, 1], marks[:, 0], side="right")
        stops = np.searchsorted(chars[:, 0], marks[:, 1], side="left")
        stops = np.where(marks[:, 0] < marks[:, 1], stops, firsts)
        if not self.every_token:
            stops = np.minimum(stops, firsts + 1)
        counts = np.maximum(stops - firsts, 0)
        words = np.repeat(np.arange(len(marks)), counts)
        steps = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        return words + (among.start or 0), np.repeat(firsts, counts) + steps

    def find_near(self, offsets: Sequence[tuple[int, int]]) -> slice:
        """The words that may have one of these tokens."""
        if not (offsets and self.is_sorted):
            return slice(0, len(self.marks))
        first = np.searchsorted(self.marks[:, 1], min(offsets)[0], side="right")
        stop = np.searchsorted(self.marks[:, 0], max(end for _, end in offsets), side="left")
        return slice(int(first), max(int(first), int(stop)))


def _iterate_window_items(
    windows: Windows, words: _Words, number: int, store: Callable[[Sequence[int]], Sequence[int]]
) -> Iterator[TagItem]:
    """The items of all windows; a word is tagged in the window with the most context around it."""
    is_done = np.zeros(len(words.marks), np.bool_)
    for window, own in windows.iterate_own():
        offsets = window.offsets[own.start : own.stop]
        found, tokens = words.find_tokens(offsets, words.find_near(offsets))
        if not words.every_token:  # of a word that began in another window there is nothing to do
            is_new = ~is_done[found]
            found, tokens = found[is_new], tokens[is_new]
            is_done[found] = True
        yield TagItem(
            ids=store(window.ids),
            type_ids=store(window.type_ids),
            positions=store((own.start + tokens).tolist()),
            targets=store([words.targets[word] for word in found]) if words.targets else (),
            example=number,
            words=store(found.tolist()),
            chars=[offsets[token] for token in tokens] if words.every_token else (),
        )


def _make_item(part: TokenAlignment, whole: TokenAlignment, words: _Words, number: int) -> TagItem:
    """The item of a sentence or of what truncation leaves of it."""
    inside = whole.token_range()
    position_of = np.full(len(inside), -1)  # of each token of the sentence, in the sequence
    position = part.token_range().start
    for span in part.kept_ranges[0]:
        position_of[span.start : span.stop] = range(position, position + len(span))
        position += len(span)
    offsets = whole.offsets[inside.start : inside.stop]
    found, tokens = words.find_tokens(offsets)
    is_kept = position_of[tokens] >= 0
    found, tokens = found[is_kept], tokens[is_kept]
    return TagItem(
        ids=part.ids,
        type_ids=part.type_ids,
        positions=position_of[tokens].tolist(),
        targets=[words.targets[word] for word in found] if words.targets else (),
        example=number,
        words=found.tolist(),
        chars=[offsets[token] for token in tokens] if words.every_token else (),
        truncated_chars=part.truncated_chars,
    )


def _restore_item(
    item: TagItem, example: TaggedExample, kept: TokenAlignment, *, is_new: bool
) -> TagItem:
    """The item of a shortened text, which counts the characters of long words that are truncated.

    If the text was shortened for it, all characters are those of the whole text.
    """
    if example.whole is None:
        return item
    gaps = example.whole[1]
    lost = sum(
        gap.chars
        for gap in gaps
        if (is_new if gap.tokens else not _is_inside(gap.position, kept.offsets))
    )

    def shift(position: int) -> int:
        return position + sum(gap.chars for gap in gaps if gap.position <= position)

    chars = [(shift(start), shift(end - 1) + 1) for start, end in item.chars]
    return replace(
        item,
        chars=chars if is_new else item.chars,
        truncated_chars=item.truncated_chars + lost,
    )


def _is_inside(position: int, offsets: Sequence[tuple[int, int]]) -> bool:
    return any(start < position < end for start, end in offsets)


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
    shorten = model.tokenizer.shorten  # both ends of a long text suffice
    tokens = model.tokenizer.encode_ids(
        [shorten(example.text, model.max_length).text for example in examples],
        add_special_tokens=False,
    )
    # special tokens before a text
    lead = model.tokenizer.encode(model.tokenizer.sample_word).token_range().start
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
