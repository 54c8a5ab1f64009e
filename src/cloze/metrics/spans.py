"""How well spans of words were told, as conlleval counts them.  Tjong Kim Sang, Buchholz 2000.

A span is right if its first word, its last word and its label are; there is nothing in between.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cloze.data.labelled.schemes import scheme_of, spans_of
from cloze.errors import InputError
from cloze.metrics.labels import paired
from cloze.metrics.rates import Rates, total

Tags: TypeAlias = Sequence[str]  # of one sentence, a tag to a word


@dataclass(frozen=True, kw_only=True)
class SpanScores:
    """Spans by their label, and words."""

    by_label: Mapping[str, Rates]
    words: int
    right_words: int

    @property
    def overall(self) -> Rates:
        """All spans; the F1 of this is *the* F1 of CoNLL."""
        return total(self.by_label.values())

    @property
    def accuracy(self) -> float:
        """The share of words with the right tag, O included."""
        return self.right_words / self.words if self.words else 0.0


def span_scores(
    gold: Sequence[Tags], predicted: Sequence[Tags], scheme: str | None = None
) -> SpanScores:
    """Scores over sentences; without a `scheme` it is found from the tags of both sides."""
    known = common_scheme(gold, predicted) if scheme is None else scheme
    return summed(sentence_scores(gold, predicted, known))


def common_scheme(gold: Sequence[Tags], predicted: Sequence[Tags]) -> str:
    """The scheme that all tags are written in."""
    return scheme_of([*gold, *predicted])


def sentence_scores(
    gold: Sequence[Tags], predicted: Sequence[Tags], scheme: str
) -> list[SpanScores]:
    """The scores of each sentence by itself."""
    check_tags(gold, predicted)
    pairs = zip(gold, predicted, strict=True)
    return [_scores(wanted, found, scheme) for wanted, found in pairs]


def check_tags(gold: Sequence[Tags], predicted: Sequence[Tags]) -> None:
    """Refuse predictions that do not go word by word with what is right."""
    paired(gold, predicted)
    for number, (wanted, found) in enumerate(zip(gold, predicted, strict=True), 1):
        if len(wanted) != len(found):
            raise InputError(
                f"sentence {number:,} has {len(wanted):,} words and {len(found):,} predicted tags",
                fix="give one tag for each word",
            )


def summed(scores: Sequence[SpanScores]) -> SpanScores:
    """Several as one: everything in them is a count."""
    counts: dict[str, list[Rates]] = {}
    for one in scores:
        for label, rates in one.by_label.items():
            counts.setdefault(label, []).append(rates)
    return SpanScores(
        by_label={label: total(counts[label]) for label in sorted(counts)},
        words=sum(one.words for one in scores),
        right_words=sum(one.right_words for one in scores),
    )


def _scores(gold: Tags, predicted: Tags, scheme: str) -> SpanScores:
    wanted, found = set(spans_of(gold, scheme)), set(spans_of(predicted, scheme))
    counts = [Counter(label for _, _, label in spans) for spans in (wanted & found, found, wanted)]
    return SpanScores(
        by_label={
            label: Rates(right=counts[0][label], found=counts[1][label], wanted=counts[2][label])
            for label in sorted(counts[1] | counts[2])
        },
        words=len(gold),
        right_words=sum(a == b for a, b in zip(gold, predicted, strict=True)),
    )
