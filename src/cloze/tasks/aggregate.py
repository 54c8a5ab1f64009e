"""From the scores of pieces to tags of words and spans of text.

The five ways of the token-classification pipeline of transformers, with words that are really
words: it guesses them from the lengths of pieces. And where every word has a label, parts of speech
say, words stay apart: it joins two nouns that are neighbours.

m pieces, w words, c labels.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.data.labelled.tag_schemes import OUTSIDE, detect_tag_scheme

AGGREGATIONS = {
    "none": "every piece for itself",
    "simple": "pieces, joined to spans",
    "first": "words, tagged by their first piece",
    "average": "words, tagged by the mean of their pieces",
    "max": "words, tagged by their surest piece",
}


@dataclass(frozen=True, kw_only=True)
class Span:
    """A stretch of a text and what it is."""

    text: str
    label: str
    start: int
    end: int
    score: float  # the mean probability of its tags


@dataclass(frozen=True, slots=True)
class TaggedUnit:
    """A word or a piece with its tag."""

    word: int
    tag: str
    score: float
    start: int
    end: int


def aggregate_tokens(
    probabilities: NDArray[Any], starts: Sequence[int], how: str
) -> tuple[list[int], list[float]]:
    """For each word the label and its probability, from those of its pieces (m c).

    Words begin at `starts` and fill the rows. Of `none`, `simple` and `first` the first piece
    speaks for the word.
    """
    if not len(starts):
        return [], []
    if how == "average":
        counts = np.diff([*starts, len(probabilities)])
        chosen = np.add.reduceat(probabilities, starts, axis=0) / counts[:, None]  # w c
    elif how == "max":
        top = probabilities.max(-1)
        ends = [*starts[1:], len(top)]
        pairs = zip(starts, ends, strict=True)
        chosen = probabilities[[first + int(top[first:end].argmax()) for first, end in pairs]]
    else:
        chosen = probabilities[list(starts)]
    labels = chosen.argmax(-1)
    return labels.tolist(), np.take_along_axis(chosen, labels[:, None], -1)[:, 0].tolist()


def labels_single_words(labels: Collection[str]) -> bool:
    """Whether labels are of single words: none spells a span (B-PER), and no word is outside.

    With an O there are spans: of O, PER and LOC the neighbours of one label are one.
    """
    return OUTSIDE not in labels and detect_tag_scheme(labels) == "plain"


def join_spans(
    text: str, units: Iterable[TaggedUnit], *, join: bool, apart: bool = False
) -> tuple[Span, ...]:
    """The spans that tags make, those of "O" left out; without `join` every unit is one.

    With `apart` none has more than one word, and tags are whole labels.
    """
    groups = _groups(units, apart) if join else ([unit] for unit in units)
    whole = apart or not join
    return tuple(
        Span(
            text=text[group[0].start : group[-1].end],
            label=group[0].tag if whole else group[0].tag.split("-", 1)[-1],
            start=group[0].start,
            end=group[-1].end,
            score=sum(unit.score for unit in group) / len(group),
        )
        for group in groups
        if group[0].tag != OUTSIDE
    )


def _groups(units: Iterable[TaggedUnit], apart: bool) -> Iterator[list[TaggedUnit]]:
    """Neighbours of one kind, until a B- begins another; a word that was not read parts them."""
    reach = 0 if apart else 1  # words from one unit to the next
    group: list[TaggedUnit] = []
    for unit in units:
        if group:
            begins, kind = _kind(unit.tag)
            if begins or kind != _kind(group[-1].tag)[1] or unit.word > group[-1].word + reach:
                yield group
                group = []
        group.append(unit)
    if group:
        yield group


def _kind(tag: str) -> tuple[bool, str]:
    """Whether a tag says that a span begins, and of what kind it is."""
    return tag.startswith("B-"), tag[2:] if tag.startswith(("B-", "I-")) else tag
