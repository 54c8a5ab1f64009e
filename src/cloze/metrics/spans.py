"""How well spans of words were told, as conlleval counts them.  Tjong Kim Sang, Buchholz 2000.

A span is right if its first word, its last word and its label are; there is nothing in between.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cloze.data.labelled.tag_schemes import detect_tag_scheme, tags_to_spans
from cloze.errors import InputError
from cloze.metrics.labels import LabelScores, check_paired, sum_scores

Tags: TypeAlias = Sequence[str]  # of one sentence, a tag to a word


@dataclass(frozen=True, kw_only=True)
class SpanScores:
    """Spans by their label, and words."""

    by_label: Mapping[str, LabelScores]
    words: int
    correct_words: int

    @property
    def overall(self) -> LabelScores:
        """All spans; the F1 of this is *the* F1 of CoNLL."""
        return sum_scores(self.by_label.values())

    @property
    def accuracy(self) -> float:
        """The share of words with the right tag, O included."""
        return self.correct_words / self.words if self.words else 0.0


def score_spans(
    gold: Sequence[Tags], predicted: Sequence[Tags], scheme: str | None = None
) -> SpanScores:
    """Scores over sentences; without a `scheme` it is found from the tags of both sides."""
    known = detect_scheme(gold, predicted) if scheme is None else scheme
    return sum_span_scores(score_sentences(gold, predicted, known))


def detect_scheme(gold: Sequence[Tags], predicted: Sequence[Tags]) -> str:
    """The scheme that all tags are written in."""
    return detect_tag_scheme([*gold, *predicted])


def score_sentences(
    gold: Sequence[Tags], predicted: Sequence[Tags], scheme: str
) -> list[SpanScores]:
    """The scores of each sentence by itself."""
    check_tags(gold, predicted)
    pairs = zip(gold, predicted, strict=True)
    return [_scores(wanted, found, scheme) for wanted, found in pairs]


def check_tags(gold: Sequence[Tags], predicted: Sequence[Tags]) -> None:
    """Refuse predictions that do not go word by word with what is right."""
    check_paired(gold, predicted)
    for number, (wanted, found) in enumerate(zip(gold, predicted, strict=True), 1):
        if len(wanted) != len(found):
            raise InputError(
                f"sentence {number:,} has {len(wanted):,} words and {len(found):,} predicted tags",
                fix="give one tag for each word",
            )


def sum_span_scores(scores: Sequence[SpanScores]) -> SpanScores:
    """Several as one: everything in them is a count."""
    counts: dict[str, list[LabelScores]] = {}
    for one in scores:
        for label, rates in one.by_label.items():
            counts.setdefault(label, []).append(rates)
    return SpanScores(
        by_label={label: sum_scores(counts[label]) for label in sorted(counts)},
        words=sum(one.words for one in scores),
        correct_words=sum(one.correct_words for one in scores),
    )


def _scores(gold: Tags, predicted: Tags, scheme: str) -> SpanScores:
    wanted, found = set(tags_to_spans(gold, scheme)), set(tags_to_spans(predicted, scheme))
    counts = [Counter(label for _, _, label in spans) for spans in (wanted & found, found, wanted)]
    return SpanScores(
        by_label={
            label: LabelScores(
                true_positives=counts[0][label],
                predicted=counts[1][label],
                support=counts[2][label],
            )
            for label in sorted(counts[1] | counts[2])
        },
        words=len(gold),
        correct_words=sum(a == b for a, b in zip(gold, predicted, strict=True)),
    )
