"""Where a model went wrong, how sure it was, and what it took for what."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from cloze.data.labelled.examples import TaggedExample
from cloze.data.labelled.tag_schemes import tags_to_spans
from cloze.metrics.measures import PLAIN
from cloze.metrics.numbers import compute_ranks
from cloze.metrics.squad import score_answer
from cloze.tasks.judge import ScoredPredictions

NO_ANSWER = "(no answer)"
Sides: TypeAlias = tuple[str, str, float]  # what is right, what was said, how bad that is
Labels: TypeAlias = tuple[list[str], list[str]]  # what was, what was said


@dataclass(frozen=True, kw_only=True)
class PredictionError:
    """An example that a model got wrong."""

    number: int  # of the example, from 0
    where: str  # file and line
    text: str
    gold: str
    predicted: str
    severity: float  # how bad: see `WEIGHTS`


# What makes an error worse than another.
SEVERITIES = {
    "classify": "probability",
    "number": "difference",
    "similarity": "difference of ranks",
    "tag": "wrong spans",
    "tag, plain": "wrong words",
    "answer": "probability",
    "choose": "probability",
}


def find_errors(
    kind: str, judged: ScoredPredictions, *, scheme: str | None, chinese: bool
) -> list[PredictionError]:
    """All errors, the worst first: the surest, of numbers the farthest off, of tags the most.

    An answer is one if it shares nothing with any right one (F1 = 0).
    """
    sides = _SIDES[kind](judged, scheme, chinese)
    found = [
        PredictionError(
            number=number,
            where=str(example.origin),
            text=_text(kind, example),
            gold=side[0],
            predicted=side[1],
            severity=side[2],
        )
        for number, (example, side) in enumerate(zip(judged.examples, sides, strict=True))
        if side is not None
    ]
    return sorted(found, key=lambda one: -one.severity)


def confidences(
    kind: str, judged: ScoredPredictions, *, chinese: bool
) -> tuple[list[float], list[bool]] | None:
    """How sure each prediction is and whether it is right: of tags each word; None of numbers."""
    pairs = list(zip(judged.predictions, judged.gold, judged.predicted, strict=True))
    if kind in ("number", "similarity"):
        return None
    if kind == "tag":
        words = [
            (sure, a == b)
            for one, gold, said in pairs
            for sure, a, b in zip(one.scores, gold, said, strict=True)
            if sure > 0  # else it was not read
        ]
        return [sure for sure, _ in words], [right for _, right in words]
    if kind == "answer":
        right = [score_answer(gold, said, chinese=chinese).exact == 1 for _, gold, said in pairs]
        return [one.probability for one, _, _ in pairs], right
    return [one.score for one, _, _ in pairs], [gold == said for _, gold, said in pairs]


def label_pairs(kind: str, judged: ScoredPredictions, *, scheme: str | None) -> Labels | None:
    """Label by label what was and what was said: of tags the kinds of words, without B- and I-."""
    if kind == "classify":
        return list(judged.gold), list(judged.predicted)
    if kind != "tag":
        return None
    gold, said = ([_kind(t, scheme) for tags in side for t in tags] for side in _both(judged))
    return gold, said


def _kind(tag: str, scheme: str | None) -> str:
    return tag if scheme == PLAIN or tag[1:2] != "-" else tag[2:]


def _both(judged: ScoredPredictions) -> tuple[Sequence[Any], Sequence[Any]]:
    return judged.gold, judged.predicted


def _classes(judged: ScoredPredictions, _scheme: str | None, _chinese: bool) -> list[Sides | None]:
    triples = zip(*_both(judged), judged.predictions, strict=True)
    return [None if gold == said else (gold, said, one.score) for gold, said, one in triples]


def _numbers(judged: ScoredPredictions, _scheme: str | None, _chinese: bool) -> list[Sides | None]:
    return [
        None if gold == said else (f"{float(gold):.4g}", f"{said:.4g}", abs(float(gold) - said))
        for gold, said in zip(*_both(judged), strict=True)
    ]


def _likeness(judged: ScoredPredictions, _scheme: str | None, _chinese: bool) -> list[Sides | None]:
    """By how far apart the two ranks are, as a share of all examples: the scales differ."""
    gold, said = (np.asarray(side, np.float64) for side in _both(judged))
    apart = (np.abs(compute_ranks(gold) - compute_ranks(said)) / len(gold)).tolist()
    return [
        (f"{right:.4g}", f"{told:.4g}", gap) if gap else None
        for right, told, gap in zip(gold.tolist(), said.tolist(), apart, strict=True)
    ]


def _tags(judged: ScoredPredictions, scheme: str | None, _chinese: bool) -> list[Sides | None]:
    """The spans that were not found, and those that are none."""
    found: list[Sides | None] = []
    for example, gold, said in zip(judged.examples, *_both(judged), strict=True):
        if scheme == PLAIN:  # each word by itself
            wanted, given = ({(n, n + 1, t) for n, t in enumerate(tags)} for tags in (gold, said))
        else:
            wanted, given = (set(tags_to_spans(tags, scheme)) for tags in (gold, said))
        missing, wrong = (_spelled(example, one) for one in (wanted - given, given - wanted))
        # a word has one tag too many and one too few: that is one error
        count = len(given - wanted) if scheme == PLAIN else len(wanted ^ given)
        found.append((missing, wrong, float(count)) if count else None)
    return found


def _spelled(example: TaggedExample, spans: set[tuple[int, int, str]]) -> str:
    words = example.words
    return " · ".join(
        f"{example.text[words[first][0] : words[last - 1][1]]} {label}"
        for first, last, label in sorted(spans)
    )


def _answers(judged: ScoredPredictions, _scheme: str | None, chinese: bool) -> list[Sides | None]:
    return [
        (" / ".join(dict.fromkeys(gold)) or NO_ANSWER, said or NO_ANSWER, one.probability)
        if score_answer(gold, said, chinese=chinese).f1 == 0
        else None
        for gold, said, one in zip(*_both(judged), judged.predictions, strict=True)
    ]


def _choices(judged: ScoredPredictions, _scheme: str | None, _chinese: bool) -> list[Sides | None]:
    return [
        None if gold == said else (example.options[gold], example.options[said], one.score)
        for example, gold, said, one in zip(
            judged.examples, *_both(judged), judged.predictions, strict=True
        )
    ]


def _text(kind: str, example: Any) -> str:  # noqa: ANN401
    if kind == "answer":
        return str(example.question)
    second = example.question if kind == "choose" else getattr(example, "pair", None)
    return example.text if second is None else f"{example.text} | {second}"


_SIDES: dict[str, Callable[[ScoredPredictions, str | None, bool], list[Sides | None]]] = {
    "classify": _classes,
    "number": _numbers,
    "similarity": _likeness,
    "tag": _tags,
    "answer": _answers,
    "choose": _choices,
}
