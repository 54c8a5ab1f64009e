"""What each task is scored by.

A judge has read the predictions once and scores any part of them quickly, so that a bootstrap can
ask a thousand times.  n examples, m words, k labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.config import one_of
from cloze.data.labelled.tag_schemes import parse_scheme
from cloze.metrics import numbers, squad
from cloze.metrics.labels import (
    Counts,
    Label,
    check_paired,
    label_indices,
    matthews_correlation,
    scores_of_matrix,
    unique_labels,
)
from cloze.metrics.rates import LabelScores, macro_f1
from cloze.metrics.spans import Tags, check_tags, detect_scheme, score_sentences

PLAIN = "plain"  # tags that mark no spans, such as parts of speech

# The first of each is *the* score: what early stopping watches and a comparison sorts by.
METRICS = {
    "classify": ("accuracy", "f1_macro", "f1", "matthews"),  # the last two where labels are two
    "number": ("pearson", "spearman", "squared_error"),
    "similarity": ("spearman", "pearson"),  # of cosines, which are on no scale of the data's
    "tag": ("f1", "precision", "recall", "accuracy"),  # of spans; accuracy of words
    "tag, plain": ("accuracy", "f1_macro"),
    # of all questions; of those with and without an answer where there are both kinds
    "answer": ("f1", "exact", "has_answer_f1", "has_answer_exact", "no_answer"),
    "choose": ("accuracy",),
}

Chosen: TypeAlias = NDArray[np.int64]  # numbers of examples, some of them perhaps twice
Values: TypeAlias = NDArray[np.float64]
# A partial of a function of this file, no closure: what is kept of a comparison may be pickled.
Part: TypeAlias = Callable[[Chosen], dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """The scores of predictions, or of a part of them."""

    main: str
    count: int
    score_subset: Part = field(repr=False)

    @property
    def scores(self) -> dict[str, float]:
        """By name, *the* score first."""
        return self.score_subset(np.arange(self.count))

    def metric(self, name: str | None = None) -> Callable[[Chosen], float]:
        """One score of any part, *the* one unless another is named: what a bootstrap asks for."""
        asked = one_of("score", name or self.main, self.scores)
        return lambda chosen: self.score_subset(chosen)[asked]


def make_scorer(
    kind: str,
    gold: Sequence[Any],
    predicted: Sequence[Any],
    *,
    labels: Sequence[Label] | None = None,
    scheme: str | None = None,
    chinese: bool = False,
) -> Scorer:
    """Predictions of a task against what is right.

    Args:
        kind: classify (labels), number, similarity (a number on a scale of its own), tag (a
            sequence of tags to a sentence), answer (gold: the texts of all right answers, none
            where the context does not say; predicted: a text, "" for none) or choose (the number of
            the option).
        gold: what is right, an entry to an example.
        predicted: what was said, in the same order.
        labels: of classify, in their order; of two the second is the positive one.
        scheme: of tags; found from them if it is not given.
        chinese: answers are scored by CMRC's rules.
    """
    one_of("task", kind, _KINDS)
    count = check_paired(gold, predicted)
    if kind == "tag":
        scheme = parse_scheme(scheme) if scheme else detect_scheme(gold, predicted)
    makers: dict[str, Callable[[], Part]] = {
        "classify": lambda: _classes(gold, predicted, labels),
        "number": lambda: _numbers(gold, predicted),
        "similarity": lambda: _likeness(gold, predicted),
        "tag": lambda: (
            _words(gold, predicted) if scheme == PLAIN else _spans(gold, predicted, scheme or "")
        ),
        "answer": lambda: _answers(gold, predicted, chinese=chinese),
        "choose": lambda: _choices(gold, predicted),
    }
    return Scorer(main=main_metric(kind, scheme=scheme), count=count, score_subset=makers[kind]())


def compute_scores(
    kind: str,
    gold: Sequence[Any],
    predicted: Sequence[Any],
    *,
    labels: Sequence[Label] | None = None,
    scheme: str | None = None,
    chinese: bool = False,
) -> dict[str, float]:
    """All that a task is scored by, *the* score first; see `judge`."""
    made = make_scorer(kind, gold, predicted, labels=labels, scheme=scheme, chinese=chinese)
    return made.scores


def main_metric(kind: str, *, scheme: str | None = None) -> str:
    """The name of *the* score of a task."""
    one_of("task", kind, _KINDS)
    return METRICS["tag, plain" if kind == "tag" and scheme == PLAIN else kind][0]


_KINDS = ("classify", "number", "similarity", "tag", "answer", "choose")


def _classes(
    gold: Sequence[Label], predicted: Sequence[Label], labels: Sequence[Label] | None
) -> Part:
    known = unique_labels(gold, predicted) if labels is None else labels
    cells = label_indices(gold, known) * len(known) + label_indices(
        predicted, known
    )  # n, places in the matrix
    return partial(_part_of_classes, cells, len(known))


def _part_of_classes(cells: Chosen, count: int, chosen: Chosen) -> dict[str, float]:
    matrix = np.bincount(cells[chosen], minlength=count**2).reshape(count, count)
    found = _by_matrix(matrix)
    if count == 2:  # noqa: PLR2004
        found |= {"f1": scores_of_matrix(matrix)[1].f1, "matthews": matthews_correlation(matrix)}
    return found


def _words(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Part:
    check_tags(gold, predicted)
    sentence = np.repeat(np.arange(len(gold)), [len(tags) for tags in gold])  # m
    flat = [[tag for tags in side for tag in tags] for side in (gold, predicted)]
    known = unique_labels(*flat)
    cells = label_indices(flat[0], known) * len(known) + label_indices(flat[1], known)  # m
    return partial(_part_of_words, cells, len(known), sentence, len(gold))


def _part_of_words(
    cells: Chosen, count: int, sentence: Chosen, sentences: int, chosen: Chosen
) -> dict[str, float]:
    times = np.bincount(chosen, minlength=sentences)[sentence]  # m
    weighed = np.bincount(cells, times, minlength=count**2).astype(np.int64)
    return _by_matrix(weighed.reshape(count, count))


def _by_matrix(matrix: Counts) -> dict[str, float]:
    occurring = [rates for rates in scores_of_matrix(matrix) if rates.predicted or rates.support]
    return {
        "accuracy": float(matrix.trace() / max(matrix.sum(), 1)),
        "f1_macro": macro_f1(occurring),
    }


def _numbers(gold: numbers.Numbers, predicted: numbers.Numbers) -> Part:
    return partial(
        _part_of_numbers, np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    )


def _part_of_numbers(x: Values, y: Values, chosen: Chosen) -> dict[str, float]:
    pair = x[chosen], y[chosen]
    return {
        "pearson": numbers.pearson(*pair),
        "spearman": numbers.spearman(*pair),
        "squared_error": numbers.mean_squared_error(*pair),
    }


def _likeness(gold: numbers.Numbers, predicted: numbers.Numbers) -> Part:
    return partial(_part_of_likeness, _numbers(gold, predicted))


def _part_of_likeness(told: Part, chosen: Chosen) -> dict[str, float]:
    found = told(chosen)
    return {name: found[name] for name in METRICS["similarity"]}


def _spans(gold: Sequence[Tags], predicted: Sequence[Tags], scheme: str) -> Part:
    sentences = score_sentences(gold, predicted, scheme)
    counts = np.array(
        [
            (all_.true_positives, all_.predicted, all_.support, one.correct_words, one.words)
            for one in sentences
            for all_ in [one.overall]
        ]
    )  # n 5
    return partial(_part_of_spans, counts)


def _part_of_spans(counts: Chosen, chosen: Chosen) -> dict[str, float]:
    right, found, wanted, right_words, words = counts[chosen].sum(0).tolist()
    rates = LabelScores(true_positives=right, predicted=found, support=wanted)
    return {
        "f1": rates.f1,
        "precision": rates.precision,
        "recall": rates.recall,
        "accuracy": right_words / max(words, 1),
    }


def _answers(gold: Sequence[Sequence[str]], predicted: Sequence[str], *, chinese: bool) -> Part:
    judged = squad.score_answers(gold, predicted, chinese=chinese)
    table = np.array([(one.f1, one.exact) for one in judged])  # n 2
    known = np.array([bool(answers) for answers in gold])  # n, whether there is an answer
    return partial(_part_of_answers, table, known)


def _part_of_answers(table: Values, known: NDArray[np.bool_], chosen: Chosen) -> dict[str, float]:
    f1, exact = table[chosen].mean(0).tolist()
    found = {"f1": f1, "exact": exact}
    if known.any() and not known.all():
        has = known[chosen]
        with_answer, without = (_mean(table[chosen][which]) for which in (has, ~has))
        found |= {"has_answer_f1": with_answer[0], "has_answer_exact": with_answer[1]}
        found |= {"no_answer": without[0]}  # F1 is either 0 or 1 here, and the same as exact
    return found


def _mean(rows: Values) -> list[float]:
    """NaN where a bootstrap drew none of that kind."""
    return rows.mean(0).tolist() if len(rows) else [np.nan, np.nan]


def _choices(gold: Sequence[int], predicted: Sequence[int]) -> Part:
    right = np.array([a == b for a, b in zip(gold, predicted, strict=True)])
    return partial(_part_of_choices, right)


def _part_of_choices(right: NDArray[np.bool_], chosen: Chosen) -> dict[str, float]:
    return {"accuracy": float(right[chosen].mean())}
