"""Sampling: draw the next token from the whole vocabulary, or from its most probable tokens.

b rows, t steps, v vocabulary.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from cloze.config import in_range
from cloze.decode.config import SamplingOptions
from cloze.decode.core import Hypothesis, IncrementalDecoder, S
from cloze.nn.utils import float64_device

_TOP_TOKENS = 512  # among which most draws fall
_ROUNDING = 1e-12  # of sums of probabilities in float64


def filter_probabilities(log_probs: Tensor, sampling: SamplingOptions) -> tuple[Tensor, Tensor]:
    """Probabilities in descending order and their token ids, from log-probabilities: b v each.

    They sum to one; tokens that a filter excludes have probability 0.
    """
    ranked = torch.sort(log_probs, dim=-1, descending=True, stable=True)
    values, ids = ranked.values.double(), ranked.indices
    if sampling.temperature == 0 or sampling.top_k == 1:
        greedy = torch.zeros_like(values)
        greedy[:, 0] = 1.0
        return greedy, ids
    # the maximum becomes 0, so that a low temperature does not overflow
    probs = ((values - values[:, :1]) / sampling.temperature).softmax(-1)
    return apply_top_p(apply_top_k(probs, sampling.top_k), sampling.top_p), ids


def apply_top_k(probs: Tensor, top_k: int | None) -> Tensor:
    """Keep the first k of probabilities in descending order.  Fan et al. 2018."""
    if top_k is None:
        return probs
    probs = probs.clone()
    probs[:, top_k:] = 0.0
    return probs / probs.sum(-1, keepdim=True)


def apply_top_p(probs: Tensor, top_p: float) -> Tensor:
    """Keep the first of probabilities in descending order that sum to p.  Holtzman et al. 2020."""
    if top_p == 1:
        return probs
    before = probs.cumsum(-1) - probs  # the first token that reaches p is included
    probs = probs.masked_fill(before >= top_p, 0.0)
    return probs / probs.sum(-1, keepdim=True)


@torch.no_grad()
def sample(  # noqa: PLR0913 - the options are keyword-only arguments
    decoder: IncrementalDecoder[S],
    state: S,
    tokens: Tensor,
    sampling: SamplingOptions,
    *,
    draws: Tensor,
    eos_id: int | None,
    banned_ids: Iterable[int] = (),
) -> list[Hypothesis]:
    """Sample a continuation of each row of the state; rows do not depend on each other.

    A row that is finished leaves the batch.

    Args:
        decoder: the model.
        state: its state.
        tokens: the last token of each row so far, which the state does not include yet.
        sampling: options of sampling.
        draws: random numbers from [0, 1) in float64, one for each row and step (b t); t is the
            maximum number of tokens of a row, eos included.
        eos_id: the token that ends a row.
        banned_ids: tokens that are never sampled, whatever their probability.
    """
    model_device, device = tokens.device, float64_device(tokens.device)
    max_length = in_range("max_length", draws.shape[1], 1, 1 << 30)
    draws = draws.to(device)
    banned = torch.tensor(sorted(set(banned_ids)), dtype=torch.long, device=device)
    generated: list[list[int]] = [[] for _ in tokens]
    totals = [0.0] * len(generated)
    rows = list(range(len(generated)))  # those that are not finished
    for step in range(max_length):
        log_probs, state = decoder.step(tokens.to(model_device), state)  # b v
        log_probs = log_probs.to(device)
        allowed = log_probs.index_fill(-1, banned, -torch.inf)
        tokens = draw_tokens(allowed, sampling, draws[rows, step])
        chosen = log_probs.gather(-1, tokens[:, None])[:, 0].double().tolist()
        for row, token, log_prob in zip(rows, tokens.tolist(), chosen, strict=True):
            generated[row].append(token)
            totals[row] += log_prob
        alive = [n for n, row in enumerate(rows) if generated[row][-1] != eos_id]
        if not alive:
            break
        if len(alive) < len(rows):
            rows = [rows[n] for n in alive]
            kept = torch.tensor(alive, device=device)
            tokens, state = tokens[kept], decoder.reorder(state, kept.to(model_device))
    return [
        _make_hypothesis(ids, total, eos_id) for ids, total in zip(generated, totals, strict=True)
    ]


def draw_tokens(log_probs: Tensor, sampling: SamplingOptions, draws: Tensor) -> Tensor:
    """One token of each row: b v, b -> b.

    It is the token in whose interval of the cumulative probabilities the draw is; the most probable
    tokens come first, then those with the lower id. Most draws fall among the first few hundred
    tokens, so a row is sorted completely only if its draw does not.
    """
    if sampling.temperature == 0 or sampling.top_k == 1:
        return log_probs.argmax(-1)
    if log_probs.shape[-1] <= 2 * _TOP_TOKENS or (sampling.top_k or 0) >= _TOP_TOKENS:
        return _select(*filter_probabilities(log_probs, sampling), draws)
    tokens, is_certain = _draw_from_top(log_probs, sampling, draws)
    rest = (~is_certain).nonzero()[:, 0]
    if len(rest):
        tokens[rest] = _select(*filter_probabilities(log_probs[rest], sampling), draws[rest])
    return tokens


def _draw_from_top(
    log_probs: Tensor, sampling: SamplingOptions, draws: Tensor
) -> tuple[Tensor, Tensor]:
    """The token of each row (b) if it is among the most probable, and whether that is certain."""
    ids = log_probs.topk(_TOP_TOKENS).indices.sort(-1).values  # equal values by id
    ranked = log_probs.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    values, ids = ranked.values.double(), ids.gather(-1, ranked.indices)
    largest = values[:, :1]
    total = ((log_probs.double() - largest) / sampling.temperature).exp().sum(-1, keepdim=True)
    probs = ((values - largest) / sampling.temperature).exp() / total
    probs = apply_top_k(probs, sampling.top_k)
    # of the tokens that are as probable as the last one, some may be missing
    mass = probs.masked_fill(values == values[:, -1:], 0.0).sum(-1)
    is_certain = mass > (draws if sampling.top_p == 1 else sampling.top_p)
    # the whole vocabulary is summed in another order, which may round differently
    if sampling.top_p < 1:
        is_certain &= ~_is_near(probs.cumsum(-1) - probs, sampling.top_p)
        probs = apply_top_p(probs, sampling.top_p)
    is_certain &= ~_is_near(probs.cumsum(-1), draws[:, None])
    return _select(probs, ids, draws), is_certain


def _is_near(values: Tensor, other: Tensor | float) -> Tensor:
    """Whether any value of a row is within rounding of another number: b."""
    return ((values - other).abs() < _ROUNDING).any(-1)


def _select(probs: Tensor, ids: Tensor, draws: Tensor) -> Tensor:
    """The first token of each row whose cumulative probability exceeds the draw: b.

    Because of rounding the sum may stay below 1, so only tokens with a probability above 0 count.
    """
    last = (probs > 0).sum(-1) - 1
    indices = torch.searchsorted(probs.cumsum(-1), draws[:, None], right=True)[:, 0]
    return ids.gather(-1, torch.minimum(indices, last)[:, None])[:, 0]


def _make_hypothesis(tokens: list[int], total: float, eos_id: int | None) -> Hypothesis:
    finished = tokens[-1] == eos_id
    return Hypothesis(
        tokens=tuple(tokens[:-1] if finished else tokens),
        score=total,
        log_probability=total,
        finished=finished,
    )
