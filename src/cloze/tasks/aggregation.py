"""From the probabilities of tokens to tags of words and labelled spans of text.

The five strategies of the token-classification pipeline of transformers, with two differences:
words are those of the tokenizer, where the pipeline guesses them from the lengths of tokens; and
where every word has a label, such as its part of speech, words are not joined, where the pipeline
joins two neighbouring nouns.

m tokens, w words, c labels.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.data.labelled.tag_schemes import OUTSIDE, detect_tag_scheme

AGGREGATIONS = {
    "none": "every token by itself",
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
    """For each word the label and its probability, from those of its tokens (m c).

    Words begin at `starts` and fill the rows. With `none`, `simple` and `first` the first token of
    a word decides.
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
    """Whether labels are of single words: no label is of a span (B-PER), and there is no O.

    With an O there are spans: with O, PER and LOC, neighbours of one label are one span.
    """
    return OUTSIDE not in labels and detect_tag_scheme(labels) == "plain"


def join_spans(
    text: str, units: Iterable[TaggedUnit], *, join: bool, single_words: bool = False
) -> tuple[Span, ...]:
    """The spans of the tags other than "O"; without `join` every unit is a span.

    With `single_words` no span has more than one word, and tags are whole labels.
    """
    groups = _groups(units, single_words) if join else ([unit] for unit in units)
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


def _groups(units: Iterable[TaggedUnit], single_words: bool) -> Iterator[list[TaggedUnit]]:
    """Neighbours of one kind, until a B- begins another; an untagged word separates them."""
    reach = 0 if single_words else 1  # words from one unit to the next
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
    """Whether a tag begins a span, and the label of the span."""
    return tag.startswith("B-"), tag[2:] if tag.startswith(("B-", "I-")) else tag
