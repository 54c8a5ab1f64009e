"""`evaluate` for models of vectors: their cosines beside how alike people found two texts."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.data.labelled.examples import TextExample
from cloze.data.labelled.tables import read_text_examples
from cloze.data.sources import Source, as_list
from cloze.errors import InputError
from cloze.metrics.measures import make_scorer
from cloze.progress import ProgressCallback
from cloze.tasks.embed import BATCH_TOKENS, embed
from cloze.tasks.evaluation import Evaluation
from cloze.tasks.judge import ScoredPredictions, gold_label

Report: TypeAlias = Callable[[InputError], object]


@dataclass(frozen=True, kw_only=True)
class PairSimilarity:
    """How alike a model finds two texts."""

    score: float  # the cosine of their vectors
    truncated: int = 0  # pieces that a length policy left out


def evaluate_similarity(
    model: Model,
    data: Source | Sequence[Any],
    *,
    text: str | int | None = None,
    pair: str | int | None = None,
    label: str | int | None = None,
    policy: str | None = None,
    stride: int | None = None,
    skip_bad: bool = False,
    batch_tokens: int = BATCH_TOKENS,
    progress: ProgressCallback | None = None,
) -> Evaluation:
    """Hold the cosines of a model's own vectors against how alike people found the texts."""
    skipped: list[InputError] = []
    report = skipped.append if skip_bad else None
    examples = read_scored_pairs(data, report, text=text, pair=pair, label=label)
    since = time.perf_counter()
    found = _cosines(
        model,
        examples,
        report,
        policy=policy,
        stride=stride,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    kept = [example for example, one in zip(examples, found, strict=True) if one is not None]
    told = [one for one in found if one is not None]
    if not told:
        raise InputError("there are no scored pairs to judge by", fix="check what the data hold")
    gold, said = [float(one.label) for one in kept], [one.score for one in told]
    return Evaluation(
        kind="similarity",
        result=ScoredPredictions(
            examples=kept,
            predictions=told,
            gold=gold,
            predicted=said,
            scorer=make_scorer("similarity", gold, said),
        ),
        labels=(),
        skipped=tuple(skipped),
        seconds=time.perf_counter() - since,
    )


def read_scored_pairs(
    data: Source | Sequence[Any],
    report: Report | None,
    *,
    text: str | int | None = None,
    pair: str | int | None = None,
    label: str | int | None = None,
) -> list[Any]:
    """Two texts and a number each; they may be examples already. What is none is reported."""
    given = isinstance(data, list | tuple) and bool(data) and isinstance(data[0], TextExample)
    read: Any = data
    if not given:
        asked = {"text": text, "pair": pair, "label": label}
        read = read_text_examples(
            as_list(data), **asked, number=True, on_error=report or _explained
        )
    kept = []
    for example in read:
        try:
            _check_scored(example)
        except InputError as error:
            if report is None:
                raise
            report(error)
        else:
            kept.append(example)
    return kept


def _explained(error: InputError) -> None:
    raise InputError(
        error.problem,
        fix=f"{error.fix}; a model that was trained for no task is judged by two texts and a "
        "number, and by labels once it is fine-tuned",
    )


def _check_scored(example: TextExample) -> None:
    if example.pair is None:
        raise InputError(
            f"{example.origin}: one text, and vectors are judged by pairs of texts with a score",
            fix="give a table of two texts and a number, or a model with a masked-LM head",
        )
    score = gold_label("number", example)
    if isinstance(score, str):
        raise InputError(
            f"{example.origin}: the score is {score!r}",
            fix="give a number: the more, the more alike",
        )


def _cosines(
    model: Model,
    examples: Sequence[TextExample],
    report: Report | None,
    *,
    policy: str | None,
    stride: int | None,
    batch_tokens: int,
    progress: ProgressCallback | None,
) -> list[PairSimilarity | None]:
    """None for a pair that cannot be read."""
    sides = [(one.text, one.pair or "") for one in examples]
    places: dict[str, int] = {}
    first: list[TextExample] = []  # that has a text: who reads an error wants to find it
    for example, both in zip(examples, sides, strict=True):
        for one in both:
            if one not in places:
                places[one] = len(places)
                first.append(example)
    cut: dict[int, int] = {}
    failed: set[int] = set()

    def on_error(number: int, error: InputError) -> None:
        failed.add(number)
        found = InputError(f"{first[number].origin}: {error.problem}", fix=error.fix)
        if report is None:
            raise found
        report(found)

    vectors: NDArray[np.float64] = embed(
        model,
        list(places),
        policy=policy,
        stride=stride,
        batch_tokens=batch_tokens,
        progress=progress,
        on_error=on_error,
        on_cut=cut.__setitem__,
    ).astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found: list[PairSimilarity | None] = []
    for one, other in sides:
        a, b = places[one], places[other]
        left_out = cut.get(a, 0) + cut.get(b, 0)
        cosine = float(vectors[a] @ vectors[b])
        found.append(None if failed & {a, b} else PairSimilarity(score=cosine, truncated=left_out))
    return found
