"""Lookup tables of the kernel for each word, computed from the counts.  v words."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.models.configs.word2vec import CharNGrams

Counts: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Thresholds: TypeAlias = NDArray[np.uint32]
Starts: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = NDArray[np.int32]

_ALL = (1 << 32) - 1


def compute_keep_thresholds(counts: Counts, threshold: float) -> Thresholds:
    """The probability of keeping a word, in units of 2⁻³²: (√(f/t) + 1) · t/f, as in word2vec.c.

    The paper (Mikolov et al. 2013, eq. 5) has √(t/f); t is `threshold`, f the relative frequency.
    """
    if threshold == 0:
        return np.full(len(counts), _ALL, np.uint32)
    ratio = counts / counts.sum() / threshold
    keep = np.minimum((np.sqrt(ratio) + 1) / ratio, 1)
    return (keep * _ALL).astype(np.uint32)


def compute_noise_distribution(counts: Counts, power: float) -> Floats:
    """The distribution of negatives: counts to a power, normalised."""
    weights = counts.astype(np.float64) ** power
    return weights / weights.sum()


def build_alias_table(probabilities: Floats) -> tuple[Thresholds, Rows]:
    """The alias table of Walker (1974), built as by Vose (1991): two words share each slot."""
    size = len(probabilities)
    weights_left = (probabilities * size).tolist()
    thresholds = np.ones(size)
    aliases = np.arange(size, dtype=np.int32)
    small = [slot for slot in range(size) if weights_left[slot] < 1]
    large = [slot for slot in range(size) if weights_left[slot] >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        thresholds[low], aliases[low] = weights_left[low], high
        weights_left[high] -= 1 - weights_left[low]
        if weights_left[high] < 1:
            small.append(large.pop())
    return (thresholds * _ALL).astype(np.uint32), aliases


def build_huffman_paths(counts: Counts) -> tuple[Starts, Rows, NDArray[np.float32]]:
    """The path of each word from the root: inner nodes, and labels 1 (left) or 0 as in word2vec.c.

    Returns the start of each path, the nodes and the labels. `counts` are in descending order.
    """
    size = len(counts)
    weights = [*counts.tolist(), *[0] * (size - 1)]
    parents, right = [0] * (2 * size - 1), [False] * (2 * size - 1)
    # the rarest word and the lightest inner node that have no parent yet
    leaf, inner = size - 1, size
    for node in range(size, 2 * size - 1):
        for is_right in (False, True):
            if leaf >= 0 and (inner >= node or weights[leaf] < weights[inner]):
                taken, leaf = leaf, leaf - 1
            else:
                taken, inner = inner, inner + 1
            weights[node] += weights[taken]
            parents[taken], right[taken] = node, is_right
    root = 2 * size - 2
    starts, nodes, labels = [0], [], []
    for word in range(size):
        path, turns = [], []
        at = word
        while at != root:
            path.append(parents[at] - size)
            turns.append(0.0 if right[at] else 1.0)
            at = parents[at]
        nodes += path[::-1]
        labels += turns[::-1]
        starts.append(len(nodes))
    return np.array(starts, np.int64), np.array(nodes, np.int32), np.array(labels, np.float32)


def compute_ngram_rows(words: Sequence[str], grams: CharNGrams | None) -> tuple[Starts, Rows]:
    """The rows of each word's character n-grams, which follow the rows of the words."""
    if grams is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    found = [grams.hash_ngrams(word) for word in words]
    starts = np.cumsum([0, *map(len, found)], dtype=np.int64)
    rows = np.fromiter((len(words) + row for each in found for row in each), np.int32)
    return starts, rows
