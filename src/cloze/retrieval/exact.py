"""Exact nearest neighbors: inner products with all keys, in blocks, on a CPU or a GPU.

q queries, n keys, d size, k neighbors.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.errors import InputError

Matrix = Tensor | NDArray[np.floating[Any]]
QUERY_BLOCK = 1024  # queries that are compared at once
KEY_BLOCK = 1 << 16  # keys that are compared at once; a block of scores has up to 256 MB


def search_exact(  # noqa: PLR0913 - the blocks are for tests and small GPUs
    queries: Matrix,
    keys: Matrix,
    k: int,
    *,
    exclude: tuple[Tensor, Tensor] | None = None,
    allowed: Tensor | None = None,
    query_block: int = QUERY_BLOCK,
    key_block: int = KEY_BLOCK,
) -> tuple[Tensor, Tensor]:
    """Find the k keys with the largest inner product with each query, the largest first.

    Keys with equal scores are in the order of their indices. Normalize queries and keys for
    cosines. Scores are computed in float32. Keys may be in another place than the queries, such as
    in a memory-mapped array: each block is copied to the device of the queries.

    Args:
        queries: a matrix (q d): a tensor or an array.
        keys: a matrix (n d) with the same number of columns.
        k: number of neighbors; of fewer keys all are returned.
        exclude: a group for each query (q) and for each key (n): keys of the query's own group are
            left out, such as the chunks of its own document.
        allowed: whether each key may be found (n).
        query_block: number of queries that are compared at once.
        key_block: number of keys that are compared at once.

    Returns:
        Scores (q k) and indices (q k) on the device of the queries. Where fewer than k keys may be
        found, the last scores are -inf and their indices -1.
    """
    wanted = _to_tensor(queries)
    if wanted.ndim != 2 or keys.ndim != 2 or wanted.shape[1] != keys.shape[1]:  # noqa: PLR2004
        raise InputError(
            f"queries have the shape {tuple(wanted.shape)}, keys {tuple(keys.shape)}",
            fix="pass two matrices with the same number of columns",
        )
    if k < 1:
        raise InputError(f"k is {k}", fix="use 1 or more")
    k = min(k, len(keys))
    scores = wanted.new_full((len(wanted), k), -torch.inf, dtype=torch.float32)
    indices = torch.full((len(wanted), k), -1, device=wanted.device)
    if not k:
        return scores, indices
    for low in range(0, len(keys), key_block):
        block = _to_tensor(keys[low : low + key_block]).to(wanted.device, torch.float32)
        for first in range(0, len(wanted), query_block):
            rows = slice(first, first + query_block)
            found = wanted[rows].float() @ block.T  # q n
            hidden = _find_hidden(found, rows, low, exclude, allowed)
            if hidden is not None:
                found.masked_fill_(hidden, -torch.inf)
            best, places = _select_top(found, k)
            merged = torch.cat([scores[rows], best], dim=1)
            order = merged.sort(dim=1, descending=True, stable=True).indices[:, :k]
            scores[rows] = merged.gather(1, order)
            indices[rows] = torch.cat([indices[rows], places + low], dim=1).gather(1, order)
    indices[scores == -torch.inf] = -1
    return scores, indices


def _to_tensor(values: Tensor | NDArray[Any]) -> Tensor:
    if isinstance(values, Tensor):
        return values
    # torch shares the memory of arrays, and warns if it is read-only
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def _find_hidden(
    found: Tensor,
    rows: slice,
    low: int,
    exclude: tuple[Tensor, Tensor] | None,
    allowed: Tensor | None,
) -> Tensor | None:
    """The keys of a block that each query may not find (q n)."""
    columns = slice(low, low + found.shape[1])
    hidden: Tensor | None = None
    if exclude is not None:
        of_queries, of_keys = exclude
        of_block = of_keys[columns].to(found.device)
        hidden = of_queries[rows].to(found.device)[:, None] == of_block[None]
    if allowed is not None:
        refused = ~allowed[columns].to(found.device)[None]
        hidden = refused if hidden is None else hidden | refused
    return hidden


def _select_top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row and their columns; of equal ones the first columns."""
    k = min(k, scores.shape[1])
    best, places = scores.topk(k, dim=1)
    # topk takes any of the scores that equal the smallest one that it returns
    is_tied = (scores >= best[:, -1:]).sum(1) > k
    if is_tied.any():
        sorted_rows = scores[is_tied].sort(dim=1, descending=True, stable=True)
        best[is_tied], places[is_tied] = sorted_rows.values[:, :k], sorted_rows.indices[:, :k]
    by_place = places.sort(dim=1)
    best = best.gather(1, by_place.indices)
    order = best.sort(dim=1, descending=True, stable=True)
    return order.values, by_place.values.gather(1, order.indices)
