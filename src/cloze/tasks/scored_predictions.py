"""Predictions and gold labels: scores, errors and confidences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from cloze.data.labelled.examples import TaggedExample, TextExample
from cloze.data.labelled.formats import EXPECTED
from cloze.data.labelled.tag_schemes import tags_to_spans
from cloze.errors import InputError
from cloze.metrics.baselines import compute_baseline
from cloze.metrics.regression import compute_ranks
from cloze.metrics.scorer import PLAIN, Scorer
from cloze.metrics.squad import score_answer

NO_ANSWER = "(no answer)"
NO_LABEL = "(none)"
OnBadRow: TypeAlias = Callable[[InputError], object]
_Error: TypeAlias = tuple[str, str, float]  # the gold label, the prediction, the severity
LabelPairs: TypeAlias = tuple[list[str], list[str]]  # gold labels, predicted labels


@dataclass(frozen=True, kw_only=True)
class ScoredPredictions:
    """The predictions of a model, the gold labels and the scorer."""

    kind: str  # classify, multi_label, regression, similarity, tag, answer or choose
    examples: Sequence[Any] = field(repr=False)
    predictions: Sequence[Any] = field(repr=False)  # one for each example, in their order
    gold: Sequence[Any] = field(repr=False)
    predicted: Sequence[Any] = field(repr=False)  # predicted labels, to compare with the gold ones
    scorer: Scorer
    scheme: str | None = None  # of tags
    chinese: bool = False  # answers are scored by CMRC's rules
    thresholds: Mapping[str, float] = field(default_factory=dict)  # of several labels per text

    @property
    def scores(self) -> dict[str, float]:
        """By name, the main score first."""
        return self.scorer.scores

    @cached_property
    def baseline(self) -> dict[str, float]:
        """The score of a prediction that ignores the text, by its name; empty if there is none."""
        options = [len(one.options) for one in self.examples] if self.kind == "choose" else ()
        return compute_baseline(self.kind, self.gold, options)

    @property
    def score(self) -> float:
        """The main score of the task."""
        return self.scores[self.scorer.main]


@dataclass(frozen=True, kw_only=True)
class PredictionError:
    """An example that a model got wrong."""

    number: int  # of the example, from 0
    where: str  # file and line
    text: str
    gold: str
    predicted: str
    severity: float  # value of the quantity in `SEVERITIES`


# The quantity that the errors of each kind are ranked by.
SEVERITIES = {
    "classify": "probability",
    "multi_label": "wrong labels",
    "regression": "difference",
    "similarity": "difference of ranks",
    "tag": "wrong spans",
    "tag, plain": "wrong words",
    "answer": "probability",
    "choose": "probability",
}


def gold_label(kind: str, example: Any) -> Any:  # noqa: ANN401
    """The gold label of an example; one without a label is an error that names its origin."""
    known = getattr(example, {"tag": "tags", "answer": "answers"}.get(kind, "label"))
    if known is None:
        raise InputError(
            f"{example.origin}: the example has no label",
            fix="add its label, or remove it"
            + (f"; `{kind}` needs {EXPECTED[kind]}" if kind in EXPECTED else ""),
        )
    if kind == "answer":
        return [one.text for one in known]
    if kind == "multi_label":
        return known if isinstance(known, tuple) else (str(known),)
    if kind == "classify" and isinstance(known, tuple):
        raise InputError(
            f"{example.origin}: the model predicts one label, but there are {len(known)}: "
            f"{', '.join(known)}",
            fix="use data with one label per text, or a model that was trained with several",
        )
    if kind == "classify" and isinstance(example, TextExample) and not isinstance(known, str):
        return f"{known:g}"
    return known


def find_errors(result: ScoredPredictions) -> list[PredictionError]:
    """All errors, the worst first, ranked as in `SEVERITIES`.

    An answer is an error if it has no word in common with any gold answer (F1 = 0).
    """
    errors = _ERRORS[result.kind](result)
    found = [
        PredictionError(
            number=number,
            where=str(example.origin),
            text=_example_text(result.kind, example),
            gold=error[0],
            predicted=error[1],
            severity=error[2],
        )
        for number, (example, error) in enumerate(zip(result.examples, errors, strict=True))
        if error is not None
    ]
    return sorted(found, key=lambda one: -one.severity)


def prediction_confidences(result: ScoredPredictions) -> tuple[list[float], list[bool]] | None:
    """The confidence of each prediction (for tags, of each word), and whether it is correct.

    None for regression, similarity and several labels per text.
    """
    pairs = list(zip(result.predictions, result.gold, result.predicted, strict=True))
    if result.kind in ("regression", "similarity", "multi_label"):
        return None
    if result.kind == "tag":
        words = [
            (confidence, a == b)
            for one, gold, predicted in pairs
            for confidence, a, b in zip(one.scores, gold, predicted, strict=True)
            if confidence > 0  # else it was truncated
        ]
        return [confidence for confidence, _ in words], [right for _, right in words]
    if result.kind == "answer":
        right = [
            score_answer(gold, predicted, chinese=result.chinese).exact_match == 1
            for _, gold, predicted in pairs
        ]
        return [one.probability for one, _, _ in pairs], right
    return [one.score for one, _, _ in pairs], [gold == predicted for _, gold, predicted in pairs]


def label_pairs(result: ScoredPredictions) -> LabelPairs | None:
    """Gold and predicted labels (of tags: those of words, without B-, I-); None for other tasks."""
    if result.kind == "classify":
        return list(result.gold), list(result.predicted)
    if result.kind != "tag":
        return None
    gold, predicted = (
        [_span_label(t, result.scheme) for tags in side for t in tags]
        for side in _gold_and_predicted(result)
    )
    return gold, predicted


def _span_label(tag: str, scheme: str | None) -> str:
    return tag if scheme == PLAIN or tag[1:2] != "-" else tag[2:]


def _gold_and_predicted(result: ScoredPredictions) -> tuple[Sequence[Any], Sequence[Any]]:
    return result.gold, result.predicted


def _label_errors(result: ScoredPredictions) -> list[_Error | None]:
    triples = zip(*_gold_and_predicted(result), result.predictions, strict=True)
    return [
        None if gold == predicted else (gold, predicted, one.score)
        for gold, predicted, one in triples
    ]


def _multi_label_errors(result: ScoredPredictions) -> list[_Error | None]:
    """Labels that are missing or wrong."""
    return [
        (", ".join(gold) or NO_LABEL, ", ".join(predicted) or NO_LABEL, float(count))
        if (count := len({*gold} ^ {*predicted}))
        else None
        for gold, predicted in zip(*_gold_and_predicted(result), strict=True)
    ]


def _number_errors(result: ScoredPredictions) -> list[_Error | None]:
    return [
        None
        if gold == predicted
        else (f"{float(gold):.4g}", f"{predicted:.4g}", abs(float(gold) - predicted))
        for gold, predicted in zip(*_gold_and_predicted(result), strict=True)
    ]


def _similarity_errors(result: ScoredPredictions) -> list[_Error | None]:
    """Rank errors by the difference of ranks, as the scales of ratings and cosines differ."""
    gold, predicted = (np.asarray(side, np.float64) for side in _gold_and_predicted(result))
    apart = (np.abs(compute_ranks(gold) - compute_ranks(predicted)) / len(gold)).tolist()
    return [
        (f"{right:.4g}", f"{guess:.4g}", gap) if gap else None
        for right, guess, gap in zip(gold.tolist(), predicted.tolist(), apart, strict=True)
    ]


def _tag_errors(result: ScoredPredictions) -> list[_Error | None]:
    """Missing and spurious spans."""
    found: list[_Error | None] = []
    for example, gold, predicted in zip(result.examples, *_gold_and_predicted(result), strict=True):
        if result.scheme == PLAIN:  # one tag per word
            gold_spans, found_spans = (
                {(n, n + 1, t) for n, t in enumerate(tags)} for tags in (gold, predicted)
            )
        else:
            gold_spans, found_spans = (
                set(tags_to_spans(tags, result.scheme)) for tags in (gold, predicted)
            )
        missing, spurious = (
            _describe_spans(example, one)
            for one in (gold_spans - found_spans, found_spans - gold_spans)
        )
        # a wrong tag is missing and spurious, but is one error
        count = (
            len(found_spans - gold_spans)
            if result.scheme == PLAIN
            else len(gold_spans ^ found_spans)
        )
        found.append((missing, spurious, float(count)) if count else None)
    return found


def _describe_spans(example: TaggedExample, spans: set[tuple[int, int, str]]) -> str:
    words = example.words
    return " · ".join(
        f"{example.text[words[first][0] : words[last - 1][1]]} {label}"
        for first, last, label in sorted(spans)
    )


def _answer_errors(result: ScoredPredictions) -> list[_Error | None]:
    return [
        (" / ".join(dict.fromkeys(gold)) or NO_ANSWER, predicted or NO_ANSWER, one.probability)
        if score_answer(gold, predicted, chinese=result.chinese).f1 == 0
        else None
        for gold, predicted, one in zip(
            *_gold_and_predicted(result), result.predictions, strict=True
        )
    ]


def _choice_errors(result: ScoredPredictions) -> list[_Error | None]:
    return [
        None
        if gold == predicted
        else (example.options[gold], example.options[predicted], one.score)
        for example, gold, predicted, one in zip(
            result.examples, *_gold_and_predicted(result), result.predictions, strict=True
        )
    ]


def _example_text(kind: str, example: Any) -> str:  # noqa: ANN401
    if kind == "answer":
        return str(example.question)
    second = example.question if kind == "choose" else getattr(example, "pair", None)
    return example.text if second is None else f"{example.text} | {second}"


_ERRORS: dict[str, Callable[[ScoredPredictions], list[_Error | None]]] = {
    "classify": _label_errors,
    "multi_label": _multi_label_errors,
    "regression": _number_errors,
    "similarity": _similarity_errors,
    "tag": _tag_errors,
    "answer": _answer_errors,
    "choose": _choice_errors,
}
