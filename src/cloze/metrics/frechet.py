"""The Fréchet distance between two sets of images, in the features of any encoder.

n images, d features.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloze.errors import InputError

Floats = NDArray[np.float64]


def frechet_distance(features: ArrayLike, references: ArrayLike) -> float:
    """‖μ₁ − μ₂‖² + tr(Σ₁ + Σ₂ − 2·(Σ₁·Σ₂)^½) of two sets of vectors, n d each.

    The squared 2-Wasserstein distance of two normal distributions (Dowson & Landau 1982), of images
    with the features of an encoder (Heusel et al. 2017). The trace of the root is the sum of the
    roots of the eigenvalues of the symmetric matrix Σ₁^½·Σ₂·Σ₁^½, which has those of Σ₁·Σ₂.

    With fewer vectors than features, covariances are singular and the distance is biased upwards:
    compare only sets of equal sizes.
    """
    first, second = (_check(given) for given in (features, references))
    if first.shape[1] != second.shape[1]:
        raise InputError(
            f"the vectors have {first.shape[1]} and {second.shape[1]} features",
            fix="compute both with the same encoder",
        )
    means = first.mean(0) - second.mean(0)
    covariances = [np.atleast_2d(np.cov(one, rowvar=False)) for one in (first, second)]
    root = _take_root(covariances[0])
    product = np.linalg.eigvalsh(root @ covariances[1] @ root)
    overlap = np.sqrt(product.clip(min=0)).sum()
    total = means @ means + np.trace(covariances[0]) + np.trace(covariances[1]) - 2 * overlap
    return max(0.0, float(total))


def _take_root(matrix: Floats) -> Floats:
    """The root of a symmetric matrix without negative eigenvalues: d d."""
    values, vectors = np.linalg.eigh(matrix)
    root: Floats = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    return root


def _check(given: ArrayLike) -> Floats:
    found = np.asarray(given, np.float64)
    if found.ndim != 2 or len(found) < 2:  # noqa: PLR2004
        raise InputError(
            f"features have the shape {found.shape}", fix="pass two or more vectors, n × d"
        )
    if not np.isfinite(found).all():
        raise InputError("features are not finite", fix="check the encoder and the images")
    return found
