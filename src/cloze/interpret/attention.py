"""The attention of one text: weights, queries and keys of every layer and head.

l layers, h heads, q queries, k keys, d head size; s source tokens, t target tokens.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cloze.checkpoint.model import Model
from cloze.errors import InputError
from cloze.interpret.capture import Captured, QueryKeyValue, capture, select_numbers
from cloze.models.seq2seq import Seq2Seq
from cloze.models.transformer import Transformer
from cloze.nn.relative_attention import RelativeAttention
from cloze.nn.utils import eval_mode
from cloze.plot.attention_data import Floats, HeadVectors

ENCODER, DECODER, CROSS = "encoder", "decoder", "cross-attention"
SELF, ALIGNMENT = "self-attention", "alignment"


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionWeights:
    """The weights of one kind of attention; each row of keys sums to 1."""

    name: str  # self-attention; encoder, decoder and cross-attention of a translator; alignment
    weights: Floats  # l h q k
    layers: tuple[int, ...]  # numbers of the layers, from 1
    heads: tuple[int, ...]
    vectors: HeadVectors | None = None  # None: the scores are no products of queries and keys

    def explain_score(self, layer: int, head: int, query: int, key: int) -> "ScoreProducts":
        """The terms of the score of one query and one key; layers and heads count from 1."""
        if self.vectors is None:
            raise InputError(
                f"the scores of this attention ({self.name}) are not products of queries and keys",
                fix="use a Transformer",
            )
        at = self.layers.index(layer), self.heads.index(head)
        vector, other = self.vectors.queries[at][query], self.vectors.keys[at][key]
        if self.vectors.distances is not None:
            table = self.vectors.distances[at]
            other = other + table[min(max(query - key, 0), len(table) - 1)]
        return ScoreProducts(query=vector, key=other, weight=float(self.weights[at][query, key]))


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreProducts:
    """The score of a query and a key, q·k/√d, as a sum over the dimensions of a head.

    With relative positions, the vector of the distance is added to the key.
    """

    query: Floats  # d
    key: Floats  # d
    weight: float  # after the softmax over all keys

    @property
    def products(self) -> Floats:
        """The terms qᵢ·kᵢ/√d, whose sum is the score."""
        return self.query * self.key / np.float32(len(self.query) ** 0.5)

    @property
    def score(self) -> float:
        """q·k/√d, before the softmax."""
        return float(self.products.sum(dtype=np.float64))


@torch.inference_mode()
def compute_attention(
    model: Model,
    ids: Sequence[int],
    type_ids: Sequence[int] | None = None,
    target_ids: Sequence[int] = (),
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> list[AttentionWeights]:
    """Compute the attention of one text, given as ids.

    `layers` and `heads` are numbers from 1; −1 is the last.
    An encoder and a language model have self-attention. A translator also needs the ids of the
    target with its end: the rows of the decoder are its inputs (the begin token and all but the
    last), those of cross-attention and of alignments the tokens that it predicts.
    """
    module = model.module
    source = torch.tensor([list(ids)], device=model.device)
    with eval_mode(module):
        if isinstance(module, Seq2Seq | Transformer):
            real = torch.ones_like(source, dtype=torch.bool)
            inputs = torch.tensor([[model.config.bos_id, *target_ids[:-1]]], device=model.device)
            if isinstance(module, Seq2Seq):
                return [_compute_alignment(module, source, real, inputs)]
            parts: dict[str, tuple[str, str, str | None]] = {
                ENCODER: ("attention", "qkv", "encoder"),
                DECODER: ("attention", "qkv", "decoder"),
                CROSS: ("cross_attention", "cross_qkv", "decoder"),
            }
            arguments: tuple[Any, ...] = (source, real, inputs)
        else:
            parts = {SELF: ("attention", "qkv", None)}
            types = None if type_ids is None else torch.tensor([list(type_ids)]).to(source)
            arguments = (source, None, types)
        return _capture_parts(module, parts, arguments, layers, heads)


def merge_tokens(
    weights: NDArray[np.float32],
    rows: Sequence[tuple[int, int]],
    columns: Sequence[tuple[int, int]],
) -> Floats:
    """The attention of words, from that of tokens: … q k -> … rows columns.

    The weights of the tokens of an attended word are added, those of an attending word averaged,
    so that rows still sum to 1. Words are (first token, the one after its last).
    """
    added = [weights[..., first:last].sum(-1) for first, last in columns]
    joined = np.stack(added, -1) if added else weights[..., :0]
    means = [joined[..., first:last, :].mean(-2) for first, last in rows]
    merged: Floats = np.stack(means, -2) if means else joined[..., :0, :]
    return merged


def attend_between(
    weights: NDArray[np.float32],
    queries: Sequence[int | None],
    keys: Sequence[int | None],
) -> dict[tuple[int, int], NDArray[np.float64]]:
    """How much of the attention of one text goes to each text, on average: l h for each pair.

    `queries` and `keys` say which text a token belongs to: 0, 1, or None for special tokens, which
    get the rest.
    """
    found = {}
    for one in (0, 1):
        for other in (0, 1):
            rows = [n for n, text in enumerate(queries) if text == one]
            columns = [n for n, text in enumerate(keys) if text == other]
            block = weights[..., rows, :][..., columns].astype(np.float64)
            found[one, other] = block.sum(-1).mean(-1) if rows else block.sum((-2, -1))
    return found


def _compute_alignment(
    module: Seq2Seq, source: Tensor, real: Tensor, inputs: Tensor
) -> AttentionWeights:
    if module.score is None:
        raise InputError(
            "this model has no attention: it was trained with attention = none",
            fix="use a model with attention",
        )
    weights = module.compute_alignment(source, real, inputs)  # 1 t s
    return AttentionWeights(
        name=ALIGNMENT,
        weights=weights[None].float().cpu().numpy(),
        layers=(1,),
        heads=(1,),
    )


def _capture_parts(
    module: nn.Module,
    parts: dict[str, tuple[str, str, str | None]],
    arguments: tuple[Any, ...],
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
) -> list[AttentionWeights]:
    """Run the module once, and record the kinds of parts (weights, vectors) of each stack."""

    def select_heads(weights: Tensor) -> Floats:
        return _to_numpy(weights[0], _select_heads(heads, weights.shape[1]))

    def select_vectors(qkv: QueryKeyValue) -> tuple[Floats, Floats]:
        some = _select_heads(heads, qkv.query.shape[2])
        query, key = (_to_numpy(one[0].transpose(0, 1), some) for one in qkv[:2])  # h t d
        return query, key

    found = {}
    with ExitStack() as stack:
        for name, (kind, vectors, where) in parts.items():
            chosen: dict[str, Any] = {"layers": layers, "stack": where}
            found[name] = (
                stack.enter_context(capture(module, kind, reduce=select_heads, **chosen)),
                stack.enter_context(capture(module, vectors, reduce=select_vectors, **chosen)),
            )
        module(*arguments)
    return [_join_layers(name, *both, heads) for name, both in found.items()]


def _join_layers(
    name: str, captured: Captured, vectors: Captured, heads: Sequence[int] | None
) -> AttentionWeights:
    if not captured:
        raise InputError(f"this model has no {name}", fix="use a Transformer")
    queries, keys = (np.stack(part) for part in zip(*vectors, strict=True))
    modules = [source.module for source in captured.sources]
    some = _select_heads(heads, modules[0].num_heads)  # type: ignore[arg-type]
    distances = [
        _to_numpy(one.distance_vectors(queries.shape[2]), some)
        for one in modules
        if isinstance(one, RelativeAttention)
    ]
    return AttentionWeights(
        name=name,
        weights=np.stack(captured),
        layers=tuple(source.layer for source in captured.sources),
        heads=tuple(number + 1 for number in some),
        vectors=HeadVectors(
            queries=queries, keys=keys, distances=np.stack(distances) if distances else None
        ),
    )


def _select_heads(heads: Sequence[int] | None, count: int) -> list[int]:
    """The indices of heads that are given by their numbers from 1; None: all."""
    if heads is None:
        return list(range(count))
    return [number - 1 for number in sorted(select_numbers("head", heads, count))]


def _to_numpy(tensor: Tensor, heads: Sequence[int]) -> Floats:
    found: Floats = tensor[heads].float().cpu().numpy()
    return found
