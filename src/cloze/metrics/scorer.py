"""The metrics of each task, for all predictions or any subset of them.

A scorer prepares the predictions once, so that a bootstrap can score a thousand resamples quickly.
n examples, m words, k labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.config import one_of
from cloze.data.labelled.tag_schemes import parse_scheme
from cloze.metrics.labels import (
    Counts,
    Label,
    LabelScores,
    check_paired,
    label_indices,
    macro_f1,
    matthews_correlation,
    score_confusion_matrix,
    unique_labels,
)
from cloze.metrics.multi_label import prepare_multi_label
from cloze.metrics.regression import Numbers, mean_squared_error, pearson, spearman
from cloze.metrics.spans import Tags, check_tags, detect_scheme, score_sentences
from cloze.metrics.squad import score_answers

PLAIN = "plain"  # tags that mark no spans, such as parts of speech

# The first is the main score: early stopping watches it, and a comparison tests its difference.
METRICS = {
    # the last two only with two labels
    "classify": ("accuracy", "f1_macro", "f1", "matthews_correlation"),
    "multi_label": (
        *("f1_micro", "f1_macro", "f1_samples"),
        *("subset_accuracy", "mean_average_precision"),
    ),
    "regression": ("pearson", "spearman", "mean_squared_error"),
    "similarity": ("spearman", "pearson"),  # of cosines, whose scale differs from the ratings'
    "tag": ("f1", "precision", "recall", "accuracy"),  # of spans; accuracy of words
    "tag, plain": ("accuracy", "f1_macro"),
    # of all questions; of those with and without an answer if there are both
    "answer": (
        *("f1", "exact_match"),
        *("has_answer_f1", "has_answer_exact_match", "no_answer_accuracy"),
    ),
    "choose": ("accuracy",),
}

Indices: TypeAlias = NDArray[np.int64]  # of examples, some of them perhaps repeated
Values: TypeAlias = NDArray[np.float64]
# Partials of functions of this module, not closures, so that results can be pickled.
SubsetScores: TypeAlias = Callable[[Indices], dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """The scores of predictions, or of a subset of them."""

    main: str  # the name of the main score
    count: int
    score_subset: SubsetScores = field(repr=False)

    @property
    def scores(self) -> dict[str, float]:
        """By name, the main score first."""
        return self.score_subset(np.arange(self.count))

    def metric(self, name: str | None = None) -> Callable[[Indices], float]:
        """One score of any subset, by default the main one: what a bootstrap needs."""
        chosen = one_of("score", name or self.main, self.scores)
        return partial(_score_one, self.score_subset, chosen)


def make_scorer(  # noqa: PLR0913 - those of all tasks
    kind: str,
    gold: Sequence[Any],
    predicted: Sequence[Any],
    *,
    labels: Sequence[Label] | None = None,
    scheme: str | None = None,
    chinese: bool = False,
    probabilities: Values | None = None,
) -> Scorer:
    """Prepare predictions of a task for scoring.

    Args:
        kind: classify (labels), multi_label (several labels each), regression (numbers), similarity
            (numbers on another scale), tag (a sequence of tags per sentence), answer (gold: the
            texts of all correct answers, none if the context has no answer; predicted: a text, ""
            for no answer) or choose (the index of the option).
        gold: the gold labels, one per example.
        predicted: the predictions, in the same order.
        labels: of classify and multi_label, in their order; of two the second is the positive one.
        scheme: of tags; detected from the tags by default.
        chinese: whether answers are scored by CMRC's rules.
        probabilities: of multi_label, of every label (n k), for the mean average precision.
    """
    one_of("task", kind, _KINDS)
    count = check_paired(gold, predicted)
    if kind == "tag":
        scheme = parse_scheme(scheme) if scheme else detect_scheme(gold, predicted)
    makers: dict[str, Callable[[], SubsetScores]] = {
        "classify": lambda: _prepare_labels(gold, predicted, labels),
        "multi_label": lambda: prepare_multi_label(
            gold, predicted, _list_labels(gold, predicted, labels), probabilities
        ),
        "regression": lambda: _prepare_numbers(gold, predicted),
        "similarity": lambda: _prepare_similarities(gold, predicted),
        "tag": lambda: (
            _prepare_words(gold, predicted)
            if scheme == PLAIN
            else _prepare_spans(gold, predicted, scheme or "")
        ),
        "answer": lambda: _prepare_answers(gold, predicted, chinese=chinese),
        "choose": lambda: _prepare_choices(gold, predicted),
    }
    return Scorer(main=main_metric(kind, scheme=scheme), count=count, score_subset=makers[kind]())


def _score_one(score_subset: SubsetScores, name: str, indices: Indices) -> float:
    return score_subset(indices)[name]


def compute_scores(
    kind: str,
    gold: Sequence[Any],
    predicted: Sequence[Any],
    *,
    labels: Sequence[Label] | None = None,
    scheme: str | None = None,
    chinese: bool = False,
) -> dict[str, float]:
    """All scores of a task, the main score first; arguments as of `make_scorer`."""
    scorer = make_scorer(kind, gold, predicted, labels=labels, scheme=scheme, chinese=chinese)
    return scorer.scores


def main_metric(kind: str, *, scheme: str | None = None) -> str:
    """The name of the main score of a task."""
    one_of("task", kind, _KINDS)
    return METRICS["tag, plain" if kind == "tag" and scheme == PLAIN else kind][0]


def _list_labels(
    gold: Sequence[Any], predicted: Sequence[Any], labels: Sequence[Label] | None
) -> list[str]:
    known = {label for rows in (gold, predicted) for row in rows for label in row}
    return [str(label) for label in (sorted(known) if labels is None else labels)]


_KINDS = ("classify", "multi_label", "regression", "similarity", "tag", "answer", "choose")


def _prepare_labels(
    gold: Sequence[Label], predicted: Sequence[Label], labels: Sequence[Label] | None
) -> SubsetScores:
    known = unique_labels(gold, predicted) if labels is None else labels
    cells = label_indices(gold, known) * len(known) + label_indices(predicted, known)  # n
    return partial(_score_labels, cells, len(known))


def _score_labels(cells: Indices, count: int, indices: Indices) -> dict[str, float]:
    matrix = np.bincount(cells[indices], minlength=count**2).reshape(count, count)
    found = _matrix_scores(matrix)
    if count == 2:  # noqa: PLR2004
        found |= {
            "f1": score_confusion_matrix(matrix)[1].f1,
            "matthews_correlation": matthews_correlation(matrix),
        }
    return found


def _prepare_words(gold: Sequence[Tags], predicted: Sequence[Tags]) -> SubsetScores:
    check_tags(gold, predicted)
    sentence = np.repeat(np.arange(len(gold)), [len(tags) for tags in gold])  # m
    flat = [[tag for tags in side for tag in tags] for side in (gold, predicted)]
    known = unique_labels(*flat)
    cells = label_indices(flat[0], known) * len(known) + label_indices(flat[1], known)  # m
    return partial(_score_words, cells, len(known), sentence, len(gold))


def _score_words(
    cells: Indices, count: int, sentence: Indices, sentences: int, indices: Indices
) -> dict[str, float]:
    times = np.bincount(indices, minlength=sentences)[sentence]  # m
    weighted = np.bincount(cells, times, minlength=count**2).astype(np.int64)
    return _matrix_scores(weighted.reshape(count, count))


def _matrix_scores(matrix: Counts) -> dict[str, float]:
    occurring = [one for one in score_confusion_matrix(matrix) if one.predicted or one.support]
    return {
        "accuracy": float(matrix.trace() / max(matrix.sum(), 1)),
        "f1_macro": macro_f1(occurring),
    }


def _prepare_numbers(gold: Numbers, predicted: Numbers) -> SubsetScores:
    return partial(_score_numbers, np.asarray(gold, np.float64), np.asarray(predicted, np.float64))


def _score_numbers(x: Values, y: Values, indices: Indices) -> dict[str, float]:
    pair = x[indices], y[indices]
    return {
        "pearson": pearson(*pair),
        "spearman": spearman(*pair),
        "mean_squared_error": mean_squared_error(*pair),
    }


def _prepare_similarities(gold: Numbers, predicted: Numbers) -> SubsetScores:
    return partial(_score_similarities, _prepare_numbers(gold, predicted))


def _score_similarities(numbers: SubsetScores, indices: Indices) -> dict[str, float]:
    found = numbers(indices)
    return {name: found[name] for name in METRICS["similarity"]}


def _prepare_spans(gold: Sequence[Tags], predicted: Sequence[Tags], scheme: str) -> SubsetScores:
    sentences = score_sentences(gold, predicted, scheme)
    counts = np.array(
        [
            (spans.true_positives, spans.predicted, spans.support, one.correct_words, one.words)
            for one in sentences
            for spans in [one.overall]
        ]
    )  # n 5
    return partial(_score_spans, counts)


def _score_spans(counts: Indices, indices: Indices) -> dict[str, float]:
    true_positives, predicted, support, correct_words, words = counts[indices].sum(0).tolist()
    spans = LabelScores(true_positives=true_positives, predicted=predicted, support=support)
    return {
        "f1": spans.f1,
        "precision": spans.precision,
        "recall": spans.recall,
        "accuracy": correct_words / max(words, 1),
    }


def _prepare_answers(
    gold: Sequence[Sequence[str]], predicted: Sequence[str], *, chinese: bool
) -> SubsetScores:
    answers = score_answers(gold, predicted, chinese=chinese)
    table = np.array([(one.f1, one.exact_match) for one in answers])  # n 2
    has_answer = np.array([bool(texts) for texts in gold])  # n
    return partial(_score_answers, table, has_answer)


def _score_answers(
    table: Values, has_answer: NDArray[np.bool_], indices: Indices
) -> dict[str, float]:
    f1, exact = table[indices].mean(0).tolist()
    found = {"f1": f1, "exact_match": exact}
    if has_answer.any() and not has_answer.all():
        has = has_answer[indices]
        with_answer, without = (_mean(table[indices][which]) for which in (has, ~has))
        found |= {"has_answer_f1": with_answer[0], "has_answer_exact_match": with_answer[1]}
        found |= {"no_answer_accuracy": without[0]}  # F1 is 0 or 1 here, and equals exact
    return found


def _mean(rows: Values) -> list[float]:
    """NaN if a resample has none of that kind."""
    return rows.mean(0).tolist() if len(rows) else [np.nan, np.nan]


def _prepare_choices(gold: Sequence[int], predicted: Sequence[int]) -> SubsetScores:
    correct = np.array([a == b for a, b in zip(gold, predicted, strict=True)])
    return partial(_score_choices, correct)


def _score_choices(correct: NDArray[np.bool_], indices: Indices) -> dict[str, float]:
    return {"accuracy": float(correct[indices].mean())}
