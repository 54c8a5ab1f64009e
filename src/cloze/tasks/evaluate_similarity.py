"""`evaluate` for embedding models: correlation of cosine similarities with human ratings."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.data.labelled.examples import TextExample
from cloze.data.labelled.tables import read_text_examples
from cloze.data.sources import Source
from cloze.errors import InputError
from cloze.metrics.scorer import make_scorer
from cloze.progress import ProgressCallback
from cloze.tasks.embed import embed
from cloze.tasks.evaluation import Evaluation
from cloze.tasks.scored_predictions import OnBadRow, ScoredPredictions, gold_label


@dataclass(frozen=True, kw_only=True)
class PairSimilarity:
    """The similarity of two texts."""

    score: float  # the cosine of their embeddings
    truncated_chars: int = 0  # characters left out by truncation


def evaluate_similarity(
    model: Model,
    data: Source | Sequence[Any],
    *,
    text_column: str | int | None = None,
    pair_column: str | int | None = None,
    label_column: str | int | None = None,
    truncation: str | None = None,
    overlap: int | None = None,
    skip_bad: bool = False,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> Evaluation:
    """Correlate the cosine similarities of pairs of texts with their ratings."""
    skipped: list[InputError] = []
    report = skipped.append if skip_bad else None
    examples = read_scored_pairs(
        data,
        report,
        text_column=text_column,
        pair_column=pair_column,
        label_column=label_column,
    )
    since = time.perf_counter()
    found = _compute_cosines(
        model,
        examples,
        report,
        truncation=truncation,
        overlap=overlap,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    kept = [example for example, one in zip(examples, found, strict=True) if one is not None]
    predictions = [one for one in found if one is not None]
    if not predictions:
        raise InputError(
            "the data contain no pairs of texts with a rating",
            fix="check that the files are not empty"
            + (", and why all rows were skipped" if skipped else ""),
        )
    gold = [float(one.label) for one in kept]
    predicted = [one.score for one in predictions]
    return Evaluation(
        result=ScoredPredictions(
            kind="similarity",
            examples=kept,
            predictions=predictions,
            gold=gold,
            predicted=predicted,
            scorer=make_scorer("similarity", gold, predicted),
        ),
        labels=(),
        skipped=tuple(skipped),
        seconds=time.perf_counter() - since,
    )


def read_scored_pairs(
    data: Source | Sequence[Any],
    report: OnBadRow | None,
    *,
    text_column: str | int | None = None,
    pair_column: str | int | None = None,
    label_column: str | int | None = None,
) -> list[Any]:
    """Read pairs of texts with ratings; `data` may also be a list of examples."""
    given = isinstance(data, list | tuple) and bool(data) and isinstance(data[0], TextExample)
    read: Any = data
    if not given:
        read = read_text_examples(
            data,
            text_column=text_column,
            pair_column=pair_column,
            label_column=label_column,
            is_regression=True,
            on_error=report or _raise_with_hint,
        )
    kept = []
    for example in read:
        try:
            _check_scored_pair(example)
        except InputError as error:
            if report is None:
                raise
            report(error)
        else:
            kept.append(example)
    return kept


def _raise_with_hint(error: InputError) -> None:
    raise InputError(
        error.problem,
        fix=f"{error.fix}; a model that is not fine-tuned is evaluated on pairs of texts with "
        "ratings (to evaluate on labels, fine-tune it first)",
    )


def _check_scored_pair(example: TextExample) -> None:
    if example.pair is None:
        raise InputError(
            f"{example.origin}: there is only one text, but embeddings are evaluated on pairs",
            fix="use a table with two texts and a rating per row, or evaluate a model with a "
            "masked-LM head on text",
        )
    score = gold_label("regression", example)
    if isinstance(score, str):
        raise InputError(
            f"{example.origin}: the rating {score!r} is not a number",
            fix="use numbers; a higher number means more similar",
        )


def _compute_cosines(
    model: Model,
    examples: Sequence[TextExample],
    report: OnBadRow | None,
    *,
    truncation: str | None,
    overlap: int | None,
    batch_tokens: int | None,
    progress: ProgressCallback | None,
) -> list[PairSimilarity | None]:
    """The cosine similarity of each pair; None for a pair that cannot be encoded."""
    sides = [(one.text, one.pair or "") for one in examples]
    numbers: dict[str, int] = {}
    first: list[TextExample] = []  # the first example with each text, for error messages
    for example, both in zip(examples, sides, strict=True):
        for one in both:
            if one not in numbers:
                numbers[one] = len(numbers)
                first.append(example)
    truncated: dict[int, int] = {}
    failed: set[int] = set()

    def on_error(number: int, error: InputError) -> None:
        failed.add(number)
        found = InputError(f"{first[number].origin}: {error.problem}", fix=error.fix)
        if report is None:
            raise found
        report(found)

    vectors: NDArray[np.float64] = embed(
        model,
        list(numbers),
        truncation=truncation,
        overlap=overlap,
        batch_tokens=batch_tokens,
        progress=progress,
        on_error=on_error,
        on_truncated=truncated.__setitem__,
    ).astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found: list[PairSimilarity | None] = []
    for one, other in sides:
        a, b = numbers[one], numbers[other]
        lost = truncated.get(a, 0) + truncated.get(b, 0)
        cosine = float(vectors[a] @ vectors[b])
        found.append(
            None if failed & {a, b} else PairSimilarity(score=cosine, truncated_chars=lost)
        )
    return found
