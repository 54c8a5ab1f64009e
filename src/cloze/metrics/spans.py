"""Metrics of spans of words, computed as conlleval does.  Tjong Kim Sang and Buchholz 2000.

A span is correct if its first word, its last word and its label are correct.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cloze.data.labelled.tag_schemes import detect_tag_scheme, tags_to_spans
from cloze.errors import InputError
from cloze.metrics.labels import LabelScores, check_paired, sum_scores

Tags: TypeAlias = Sequence[str]  # of one sentence, one tag per word


@dataclass(frozen=True, kw_only=True)
class SpanScores:
    """Scores of spans by label, and counts of words."""

    by_label: Mapping[str, LabelScores]
    words: int
    correct_words: int

    @property
    def overall(self) -> LabelScores:
        """The micro-average over all labels, whose F1 is the score of CoNLL."""
        return sum_scores(self.by_label.values())

    @property
    def accuracy(self) -> float:
        """The fraction of words with the correct tag, O included."""
        return self.correct_words / self.words if self.words else 0.0


def score_spans(
    gold: Sequence[Tags], predicted: Sequence[Tags], scheme: str | None = None
) -> SpanScores:
    """The scores of all sentences; `scheme=None` detects the tagging scheme."""
    known = detect_scheme(gold, predicted) if scheme is None else scheme
    return sum_span_scores(score_sentences(gold, predicted, known))


def detect_scheme(gold: Sequence[Tags], predicted: Sequence[Tags]) -> str:
    """The tagging scheme of gold and predicted tags."""
    return detect_tag_scheme([*gold, *predicted])


def score_sentences(
    gold: Sequence[Tags], predicted: Sequence[Tags], scheme: str
) -> list[SpanScores]:
    """The scores of each sentence."""
    check_tags(gold, predicted)
    pairs = zip(gold, predicted, strict=True)
    return [_score_sentence(expected, found, scheme) for expected, found in pairs]


def check_tags(gold: Sequence[Tags], predicted: Sequence[Tags]) -> None:
    """Raise unless each sentence has one predicted tag for each word."""
    check_paired(gold, predicted)
    for number, (expected, found) in enumerate(zip(gold, predicted, strict=True), 1):
        if len(expected) != len(found):
            raise InputError(
                f"sentence {number:,} has {len(expected):,} words, but {len(found):,} tags",
                fix="pass one tag for each word",
            )


def sum_span_scores(scores: Sequence[SpanScores]) -> SpanScores:
    """The scores of several sentences together: the sums of all counts."""
    counts: dict[str, list[LabelScores]] = {}
    for one in scores:
        for label, label_scores in one.by_label.items():
            counts.setdefault(label, []).append(label_scores)
    return SpanScores(
        by_label={label: sum_scores(counts[label]) for label in sorted(counts)},
        words=sum(one.words for one in scores),
        correct_words=sum(one.correct_words for one in scores),
    )


def _score_sentence(gold: Tags, predicted: Tags, scheme: str) -> SpanScores:
    expected, found = set(tags_to_spans(gold, scheme)), set(tags_to_spans(predicted, scheme))
    counts = [
        Counter(label for _, _, label in spans) for spans in (expected & found, found, expected)
    ]
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
