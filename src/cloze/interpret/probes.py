"""Linear probes: what a linear classifier can read from the vectors of a layer.

n examples, d width. Needs scikit-learn (the extra `explain`).
"""

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.errors import MissingExtraError

Floats: TypeAlias = NDArray[np.floating]
MAX_ITERATIONS = 1000
DEFAULT_C = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeData:
    """Vectors with a label each, and the word type that decides the label of the control task."""

    vectors: Floats  # n d
    labels: Sequence[str]
    types: Sequence[Hashable]  # one for each vector


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeResult:
    """For each test example whether the probe, and the probe of the control task, were right."""

    correct: NDArray[np.bool_]  # n
    control_correct: NDArray[np.bool_]  # n
    has_converged: bool

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def control_accuracy(self) -> float:
        return float(self.control_correct.mean())

    @property
    def selectivity(self) -> float:
        """Accuracy minus accuracy of the control task.  Hewitt & Liang 2019, §2.2."""
        return self.accuracy - self.control_accuracy


def fit_probe(
    train: ProbeData, test: ProbeData, *, c: float = DEFAULT_C, seed: int = 0
) -> ProbeResult:
    """Fit a logistic regression to standardized vectors, and one to the control task."""
    labels = assign_control_labels(train, test, seed)
    predict, converged = _fit(train.vectors, train.labels, c)
    control, control_converged = _fit(train.vectors, [labels[type_] for type_ in train.types], c)
    expected = np.array([labels[type_] for type_ in test.types])
    return ProbeResult(
        correct=predict(test.vectors) == np.array(test.labels),
        control_correct=control(test.vectors) == expected,
        has_converged=converged and control_converged,
    )


def assign_control_labels(train: ProbeData, test: ProbeData, seed: int) -> dict[Hashable, str]:
    """A random label for each word type, drawn by how often labels occur in the training data.

    Such labels have nothing to do with language: a probe can only memorize them by word type.
    Hewitt & Liang 2019, §2.1.
    """
    names, counts = np.unique(np.array(train.labels), return_counts=True)
    types = list(dict.fromkeys([*train.types, *test.types]))
    rng = np.random.default_rng(seed)
    drawn = rng.choice(len(names), size=len(types), p=counts / counts.sum())
    return {type_: str(names[index]) for type_, index in zip(types, drawn, strict=True)}


def _fit(
    vectors: Floats, labels: Sequence[str], c: float
) -> tuple[Callable[[Floats], NDArray[np.str_]], bool]:
    """A function that predicts labels, and whether its training converged."""
    if len(set(labels)) < 2:  # noqa: PLR2004 - scikit-learn needs two
        only = np.array(labels[:1])
        return lambda rows: np.repeat(only, len(rows)), True
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError:
        raise MissingExtraError("a probe", extra="explain") from None

    regression = LogisticRegression(C=c, max_iter=MAX_ITERATIONS)
    pipeline = make_pipeline(StandardScaler(), regression)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether it converged is part of the result
        pipeline.fit(vectors, np.array(labels))
    return pipeline.predict, bool((regression.n_iter_ < MAX_ITERATIONS).all())
