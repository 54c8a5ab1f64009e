"""Groups of neurons: k-means clusters and non-negative factors of their activations.

n neurons, t tokens, k factors or clusters. Activations are those after the activation function,
without their negative part.
"""

import warnings
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.errors import InputError, MissingExtraError

Floats: TypeAlias = NDArray[np.floating[Any]]
MIN_GROUPS = 2
_ITERATIONS = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class Factors:
    """A ≈ W·H with W, H ≥ 0: each factor is a set of neurons that are active together."""

    tokens: Floats  # k t: the activation of each factor at each token
    neurons: Floats  # n k: the weight of each neuron in each factor
    explained: float  # 1 − ‖A − WH‖² / ‖A‖²

    @property
    def strongest(self) -> list[int | None]:
        """The factor with the largest activation at each token; None where all are zero."""
        return find_strongest(self.tokens)


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusters:
    """Neurons with similar activation patterns."""

    labels: NDArray[np.int64]  # n: the cluster of each neuron; −1 if it is never active
    tokens: Floats  # k t: the mean activation of the neurons of each cluster
    sizes: tuple[int, ...]  # number of neurons of each cluster


def factorize_activations(activations: Floats, num_factors: int, *, seed: int = 0) -> Factors:
    """Non-negative matrix factorization of activations (n t) into factors.

    Lee and Seung 1999; scikit-learn's NMF with `init="nndsvda"`. Each factor is scaled so that its
    neurons have a weight of 1 in the root mean square, which makes factors comparable, and factors
    are ordered by their share of the activations.
    """
    decomposition = _import_sklearn("decomposition")
    check_activations(activations)
    rows = np.maximum(activations, 0).astype(np.float64).T  # t n: tokens are the samples
    _check_count("factors", num_factors, min(rows.shape))
    model = decomposition.NMF(
        n_components=num_factors, init="nndsvda", random_state=seed, max_iter=_ITERATIONS
    )
    with warnings.catch_warnings():  # that it has not converged: `explained` says how good it is
        warnings.simplefilter("ignore")
        tokens, neurons = model.fit_transform(rows), model.components_  # t k, k n
    total = float(np.square(rows).sum())
    error = float(np.square(rows - tokens @ neurons).sum())
    scale = np.sqrt(np.square(neurons).mean(1))  # k
    scale = np.where(scale == 0, 1, scale)
    tokens, neurons = tokens * scale, neurons / scale[:, None]
    order = np.argsort(-tokens.sum(0), kind="stable")
    return Factors(
        tokens=tokens[:, order].T,
        neurons=neurons[order].T,
        explained=1 - error / total if total else 0.0,
    )


def cluster_neurons(activations: Floats, num_clusters: int, *, seed: int = 0) -> Clusters:
    """k-means clusters of neurons by their pattern over the tokens (n t).

    Patterns are scaled to length 1, so that weak and strong neurons of the same pattern are in one
    cluster. Neurons that are active at no token are in none. The largest cluster is the first.
    """
    cluster = _import_sklearn("cluster")
    check_activations(activations)
    positive = np.maximum(activations, 0).astype(np.float64)
    lengths = np.linalg.norm(positive, axis=1)  # n
    active = np.flatnonzero(lengths)
    _check_count("clusters", num_clusters, len(active))
    patterns = positive[active] / lengths[active, None]
    model = cluster.KMeans(n_clusters=num_clusters, n_init=10, random_state=seed)
    found = model.fit_predict(patterns)
    counts = np.bincount(found, minlength=num_clusters)
    order = np.argsort(-counts, kind="stable")
    ranks = np.argsort(order)
    labels = np.full(len(positive), -1, np.int64)
    labels[active] = ranks[found]
    means = np.stack(
        [
            positive[labels == number].mean(0)
            if (labels == number).any()
            else np.zeros(positive.shape[1])
            for number in range(num_clusters)
        ]
    )
    return Clusters(labels=labels, tokens=means, sizes=tuple(counts[order].tolist()))


def find_strongest(tokens: Floats) -> list[int | None]:
    """The row with the largest value in each column (k t); None where no value is positive."""
    best, largest = tokens.argmax(0), tokens.max(0)
    return [int(n) if top > 0 else None for n, top in zip(best, largest, strict=True)]


def select_active_neurons(activations: Floats, count: int) -> NDArray[np.int64]:
    """The rows of the neurons with the largest activations, in order of their number."""
    peaks = activations.max(1)
    best = np.argsort(-peaks, kind="stable")[:count]
    return np.sort(best[peaks[best] > 0]).astype(np.int64)


def check_activations(activations: Floats) -> None:
    """Raise if there are no tokens, or a number is not finite."""
    if not activations.shape[1]:
        raise InputError("the text has no tokens to explain", fix="give a text of some words")
    if not np.isfinite(activations).all():
        raise InputError(
            "the activations contain NaN or infinity", fix="check the weights of the model"
        )


def _check_count(what: str, count: int, largest: int) -> None:
    if not MIN_GROUPS <= count <= largest:
        raise InputError(
            f"{count} {what} are not possible: this text and these layers allow "
            f"{MIN_GROUPS} to {largest}",
            fix=f"use at most {largest}, or a longer text"
            if largest >= MIN_GROUPS
            else "use a longer text",
        )


def _import_sklearn(name: str) -> Any:  # noqa: ANN401
    try:
        from importlib import import_module

        return import_module(f"sklearn.{name}")
    except ImportError:
        raise MissingExtraError("grouping neurons", extra="explain") from None
