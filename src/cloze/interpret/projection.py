"""Maps of vectors in two dimensions, and how well labels are separated among vectors.

n vectors, d dimensions. This file does not import torch, so that `similar` starts quickly.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.config import one_of
from cloze.errors import InputError, MissingExtraError

Floats: TypeAlias = NDArray[np.floating[Any]]
METHODS = ("pca", "umap")
_MIN_UMAP = 4  # vectors: fewer have no neighborhoods
_NEIGHBORS = 15  # of UMAP, its own default
_SAME = 1e-9  # cosines that differ by less are equal


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """The positions of vectors in two dimensions."""

    positions: NDArray[np.float64]  # n 2
    method: str
    explained: float | None = None  # the variance that two principal components explain


@dataclass(frozen=True, kw_only=True)
class Separation:
    """How well labels are separated among vectors, by cosine distance."""

    silhouette: float | None  # from −1 to 1; None if each vector has a label of its own
    neighbor_accuracy: float  # how often the nearest other vector has the same label
    majority: float  # the fraction of the most frequent label


def project_vectors(vectors: Floats, method: str = "pca", *, seed: int = 0) -> Projection:
    """Project vectors (n d) on their first two principal components, or with UMAP.

    UMAP (McInnes et al. 2018) keeps neighborhoods by cosine distance; distances between groups mean
    little there. It needs the extra `umap`.
    """
    one_of("map", method, METHODS)
    if method == "pca":
        positions, explained = principal_components(vectors)
        return Projection(positions=positions, method=method, explained=explained)
    if len(vectors) < _MIN_UMAP:
        raise InputError(
            f"UMAP needs {_MIN_UMAP} or more vectors, not {len(vectors)}",
            fix="use the map pca, or more texts",
        )
    with warnings.catch_warnings():  # about libraries that it does not need here
        warnings.simplefilter("ignore")
        try:
            from umap import UMAP
        except ImportError:
            raise MissingExtraError("a map by UMAP", extra="umap") from None
        model = UMAP(
            n_components=2,
            n_neighbors=min(_NEIGHBORS, len(vectors) - 1),
            metric="cosine",
            random_state=seed,
            n_jobs=1,
            init="random" if len(vectors) <= _NEIGHBORS else "spectral",
        )
        found = model.fit_transform(np.asarray(vectors, np.float32))
    return Projection(positions=np.asarray(found, np.float64), method=method)


def principal_components(vectors: Floats) -> tuple[NDArray[np.float64], float]:
    """The first two principal components of each vector, and the explained variance ratio."""
    centred = vectors.astype(np.float64) - vectors.mean(0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] if len(axes) > 1 else np.vstack([axes, np.zeros_like(axes)])
    # the sign of an axis is arbitrary: make its largest coefficient positive
    signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(1)])
    variance = np.square(sizes)
    explained = float(variance[:2].sum() / variance.sum()) if variance.sum() else 0.0
    return centred @ (axes * signs[:, None]).T, explained


def measure_separation(vectors: Floats, labels: Sequence[str]) -> Separation | None:
    """The separation of two or more labels; None if there is only one.

    The silhouette (Rousseeuw 1987) compares the mean distance to vectors of the same label with
    that to the nearest other label. Where several vectors are equally near, as those of a static
    word vector are, the accuracy is the fraction of them that has the same label.
    """
    counts = Counter(labels)
    if len(counts) < 2:  # noqa: PLR2004
        return None
    cosines = compute_cosines(vectors)
    majority = max(counts.values()) / len(labels)
    others = cosines.copy()
    np.fill_diagonal(others, -np.inf)
    is_nearest = others >= others.max(1, keepdims=True) - _SAME  # n n
    names = np.array(labels)
    hits = [(names[near] == label).mean() for near, label in zip(is_nearest, labels, strict=True)]
    return Separation(
        silhouette=_compute_silhouette(cosines, labels) if len(counts) < len(labels) else None,
        neighbor_accuracy=float(np.mean(hits)),
        majority=majority,
    )


def compute_cosines(vectors: Floats) -> NDArray[np.float64]:
    """The cosine of every two vectors (n n); that of a zero vector is 0."""
    rows = vectors.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(lengths == 0, 1, lengths)
    return np.clip(unit @ unit.T, -1.0, 1.0)


def _compute_silhouette(cosines: NDArray[np.float64], labels: Sequence[str]) -> float:
    """The mean of (b − a)/max(a, b) over all vectors; 0 for the only one of its label."""
    distances = 1 - cosines
    distances[distances < _SAME] = 0.0  # rounding errors of equal vectors
    names = np.array(labels)
    masks = {name: names == name for name in dict.fromkeys(labels)}
    scores = []
    for number, label in enumerate(labels):
        own = masks[label].sum() - 1
        if not own:
            scores.append(0.0)
            continue
        a = distances[number, masks[label]].sum() / own
        b = min(distances[number, mask].mean() for name, mask in masks.items() if name != label)
        scores.append((b - a) / max(a, b) if max(a, b) else 0.0)
    return float(np.mean(scores))
