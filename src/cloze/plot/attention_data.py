"""A compact form of attention weights for pages: the large weights of each query, as bytes.

l layers, h heads, q queries, k keys, d head size.

512 tokens, 12 layers and 12 heads have 38 million weights, nearly all of them tiny. A page contains
the largest ones, as many as fit, and says how much of the attention they are. A weight w is stored
as round(√w · 255) or round(√w · 65535), so that small weights are as precise as large ones.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import InputError

Floats = NDArray[np.float32]

MAX_WEIGHTS = 2_500_000  # of a page; each needs about two bytes
MAX_PRECISE = 400_000  # up to this number, weights have two bytes, else one
MAX_VECTORS = 700_000  # numbers in the queries and keys of a page; each needs two bytes
_CODES = 65_535
_STEP = 255  # the largest distance between two keys in one byte; 0 means 255 without a key


@dataclass(frozen=True, kw_only=True)
class WeightSelection:
    """The large weights of all heads; what `decode_weights` reads, as JSON."""

    code: int  # the smallest that is included
    counts: NDArray[np.uint16]  # (l h q): number of weights of each query
    steps: NDArray[np.uint8]  # distances from one key to the next
    codes: NDArray[np.uint8] | NDArray[np.uint16]
    retained: NDArray[np.float64]  # l h: fraction of the attention that is included

    @property
    def total_retained(self) -> float:
        """The fraction of the attention of all heads that is included."""
        return float(self.retained.mean()) if self.retained.size else 1.0

    @property
    def threshold(self) -> float:
        """Smaller weights are left out."""
        return 0.0 if self.code <= 1 else (self.code / _CODES) ** 2

    def to_dict(self) -> dict[str, Any]:
        """The JSON object for the script."""
        return {
            "bytes": self.codes.itemsize,
            "counts": encode_bytes(self.counts),
            "steps": encode_bytes(self.steps),
            "codes": encode_bytes(self.codes),
            "retained": [[round(float(x), 5) for x in row] for row in self.retained],
            "threshold": self.threshold,
        }


def select_weights(weights: Floats, max_weights: int = MAX_WEIGHTS) -> WeightSelection:
    """The largest of the weights (l h q k), at most `max_weights` of them, or one of each query.

    The largest weight of each query is always included.
    """
    if weights.size > max_weights:
        max_weights -= weights[..., 0].size
    frequencies = np.zeros(_CODES + 1, np.int64)
    for layer in weights:  # one at a time: the codes of all would need as much memory as they do
        frequencies += np.bincount(_encode(layer).ravel(), minlength=_CODES + 1)
    above = frequencies[::-1].cumsum()[::-1]  # how many weights have at least this code
    code = int(np.searchsorted(-above, -max(max_weights, 0)))  # the first with few enough
    code = max(code, 1)
    precise = (above[code] if code <= _CODES else 0) <= MAX_PRECISE
    counts, steps, codes, retained = [], [], [], []
    for layer in weights:
        chosen = _encode(layer)
        mask = chosen >= code
        if code > 1:
            best = chosen.argmax(-1)[..., None]
            np.put_along_axis(mask, best, np.take_along_axis(chosen, best, -1) > 0, -1)
        counts.append(mask.sum(-1, dtype=np.int64).ravel())
        steps.append(_encode_steps(mask))
        codes.append(chosen[mask])
        totals = layer.sum((-2, -1), dtype=np.float64)
        sums = np.where(mask, layer, 0).sum((-2, -1), dtype=np.float64)
        retained.append(np.divide(sums, totals, out=np.ones_like(sums), where=totals > 0))
    joined = np.concatenate(codes) if codes else np.zeros(0, np.uint16)
    if not precise:
        joined = np.maximum((joined.astype(np.float32) / 257).round(), 1).astype(np.uint8)
    return WeightSelection(
        code=code,
        counts=np.concatenate(counts).astype(np.uint16) if counts else np.zeros(0, np.uint16),
        steps=np.concatenate(steps) if steps else np.zeros(0, np.uint8),
        codes=joined,
        retained=np.array(retained),
    )


def decode_weights(selection: WeightSelection, shape: Sequence[int]) -> Floats:
    """The weights (l h q k) as the script of a page reads them; those left out are 0."""
    *_, queries, keys = shape
    found = np.zeros(tuple(shape), np.float32)
    rows = found.reshape(-1, keys)
    if len(selection.counts) != len(rows) or not queries:
        raise InputError(
            f"{len(selection.counts)} rows of weights do not have the shape {tuple(shape)}",
            fix="pass the shape of the weights that were selected",
        )
    scale = _STEP if selection.codes.itemsize == 1 else _CODES
    step = number = 0
    for row, count in zip(rows, selection.counts.tolist(), strict=True):
        key = -1
        for _ in range(count):
            while not selection.steps[step]:
                key, step = key + _STEP, step + 1
            key, step = key + int(selection.steps[step]), step + 1
            row[key] = (int(selection.codes[number]) / scale) ** 2
            number += 1
    return found


def encode_pictures(weights: Floats, size: int = 32) -> dict[str, Any]:
    """The matrix of each head in at most `size` × `size` cells: the largest weight in each."""
    edges = [
        np.linspace(0, length, min(length, size), endpoint=False).astype(int)
        for length in weights.shape[2:]
    ]
    pooled = [
        np.maximum.reduceat(np.maximum.reduceat(layer, edges[1], -1), edges[0], -2)
        for layer in weights
    ]
    codes = (np.sqrt(np.clip(np.stack(pooled), 0, 1)) * _STEP + 0.5).astype(np.uint8)
    return {"rows": len(edges[0]), "columns": len(edges[1]), "codes": encode_bytes(codes)}


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadVectors:
    """Queries and keys of all heads; q·k/√d is the score of a pair before the softmax."""

    queries: Floats  # l h q d
    keys: Floats  # l h k d
    distances: Floats | None = None  # l h m d: added to the keys that are 0, 1 … m − 1 tokens back

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return sum(part.size for part in self._parts().values())

    def to_dict(self, max_size: int, layer: int) -> dict[str, Any] | None:
        """The JSON object for the script: integers, and their unit for each head.

        If there are more than `max_size` numbers, those of one layer; None if these are too many.
        """
        alone = None if self.size <= max_size else layer
        if alone is not None and self.size > max_size * len(self.queries):
            return None
        chosen = slice(None) if alone is None else slice(alone, alone + 1)
        return {
            "size": self.queries.shape[-1],
            "layer": alone,
            **{name: _encode_vectors(part[chosen]) for name, part in self._parts().items()},
        }

    def _parts(self) -> dict[str, Floats]:
        parts = {"queries": self.queries, "keys": self.keys}
        return parts if self.distances is None else parts | {"distances": self.distances}


def encode_bytes(numbers: NDArray[Any]) -> str:
    """The numbers as base64 of their bytes, little-endian."""
    little = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(little.tobytes()).decode("ascii")


def _encode(weights: Floats) -> NDArray[np.uint16]:
    return (np.sqrt(np.clip(weights, 0, 1)) * _CODES + 0.5).astype(np.uint16)


def _encode_steps(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The distances between the keys of each row (… k), in bytes."""
    rows, keys = np.nonzero(mask.reshape(-1, mask.shape[-1]))
    first = np.ones(len(rows), bool)
    first[1:] = rows[1:] != rows[:-1]
    before = np.where(first, -1, np.concatenate([[0], keys[:-1]])) if len(rows) else keys
    distances = keys - before  # at least 1
    jumps = (distances - 1) // _STEP
    ends = np.cumsum(jumps + 1) - 1  # the index of each distance, after its jumps
    steps = np.zeros(int(ends[-1]) + 1 if len(ends) else 0, np.uint8)
    steps[ends] = distances - jumps * _STEP
    return steps


def _encode_vectors(vectors: Floats) -> dict[str, Any]:
    """16-bit integers, and for each head the number that one of them means."""
    largest = np.abs(vectors).max((-2, -1), initial=0.0)  # l h
    units = np.where(largest > 0, largest, 1) / 32_767
    integers = np.round(vectors / units[..., None, None]).astype(np.int16)
    return {"units": units.astype(float).tolist(), "values": encode_bytes(integers)}
