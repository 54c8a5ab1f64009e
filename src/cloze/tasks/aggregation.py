"""Convert label probabilities of tokens to tags of words and labelled spans of text.

The strategies are those of the token-classification pipeline of transformers, with two differences.
Words are those of the tokenizer; the pipeline guesses them from the lengths of tokens. And if every
word has a label, such as its part of speech, adjacent words are not joined; the pipeline joins two
adjacent nouns.

m tokens, w words, c labels.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.data.labelled.tag_schemes import OUTSIDE, detect_tag_scheme

AGGREGATIONS = {
    "none": "single tokens",
    "simple": "tokens, joined to spans",
    "first": "words, tagged by their first token",
    "average": "words, tagged by the mean of their tokens",
    "max": "words, tagged by their most confident token",
}


@dataclass(frozen=True, kw_only=True)
class Span:
    """A part of a text and its label."""

    text: str
    label: str
    start: int
    end: int
    score: float  # the mean probability of its tags


@dataclass(frozen=True, slots=True)
class TaggedUnit:
    """A word or a token with its tag."""

    word: int
    tag: str
    score: float
    start: int
    end: int


def aggregate_tokens(
    probabilities: NDArray[Any], starts: Sequence[int], strategy: str
) -> tuple[list[int], list[float]]:
    """The label of each word and its probability, from the probabilities of its tokens (m c).

    Words begin at the rows `starts`. With `none`, `simple` and `first` a word has the label of its
    first token.
    """
    if not len(starts):
        return [], []
    if strategy == "average":
        counts = np.diff([*starts, len(probabilities)])
        chosen = np.add.reduceat(probabilities, starts, axis=0) / counts[:, None]  # w c
    elif strategy == "max":
        top = probabilities.max(-1)
        ends = [*starts[1:], len(top)]
        pairs = zip(starts, ends, strict=True)
        chosen = probabilities[[first + int(top[first:end].argmax()) for first, end in pairs]]
    else:
        chosen = probabilities[list(starts)]
    labels = chosen.argmax(-1)
    return labels.tolist(), np.take_along_axis(chosen, labels[:, None], -1)[:, 0].tolist()


def labels_single_words(labels: Collection[str]) -> bool:
    """Whether every word has a label of its own: there are no span labels (B-PER) and no O.

    With O, PER and LOC, adjacent words with the same label are one span.
    """
    return OUTSIDE not in labels and detect_tag_scheme(labels) == "plain"


def join_spans(
    text: str, units: Iterable[TaggedUnit], *, join: bool, single_words: bool = False
) -> tuple[Span, ...]:
    """The spans of all tags except "O"; without `join` every unit is a span.

    With `single_words` every word is a span and its tag is the label; otherwise B- and I- are
    removed from tags.
    """
    groups = _group_units(units, single_words) if join else ([unit] for unit in units)
    whole = single_words or not join
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


def _group_units(units: Iterable[TaggedUnit], single_words: bool) -> Iterator[list[TaggedUnit]]:
    """Group adjacent units of one label; B- and untagged words start a new group."""
    max_gap = 0 if single_words else 1  # maximum difference of the word numbers of two units
    group: list[TaggedUnit] = []
    for unit in units:
        if group:
            begins, kind = _parse_tag(unit.tag)
            last = group[-1]
            if begins or kind != _parse_tag(last.tag)[1] or unit.word > last.word + max_gap:
                yield group
                group = []
            elif unit.tag == last.tag == OUTSIDE:
                group = []  # not a span, and a long text has many of these
        group.append(unit)
    if group:
        yield group


def _parse_tag(tag: str) -> tuple[bool, str]:
    """Whether a tag begins a span, and the label of the span."""
    return tag.startswith("B-"), tag[2:] if tag.startswith(("B-", "I-")) else tag
