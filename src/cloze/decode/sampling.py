"""Sampling: draw the next token from the whole vocabulary, or from its most probable tokens.

b rows, t steps, v vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from cloze.config import in_range, number
from cloze.decode.core import Hypothesis, IncrementalDecoder, S
from cloze.nn.utils import float64_device


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Options of sampling; the filters are applied in this order: temperature, top-k, top-p."""

    temperature: float = 1.0  # below 1 sharper, above 1 flatter; 0 is greedy
    top_k: int | None = None  # only the k most probable tokens (Fan et al. 2018)
    top_p: float = 1.0  # only the most probable tokens with total mass p (Holtzman et al. 2020)

    def __post_init__(self) -> None:
        number("temperature", self.temperature, 0.0, 1e3)
        number("top_p", self.top_p, 1e-9, 1.0)
        if self.top_k is not None:
            in_range("top_k", self.top_k, 1, 1 << 30)


def filter_probabilities(log_probs: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
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
    if sampling.top_k is not None:
        probs[:, sampling.top_k :] = 0.0
        probs = probs / probs.sum(-1, keepdim=True)
    if sampling.top_p < 1:
        before = probs.cumsum(-1) - probs  # the first token that reaches p is included
        probs = probs.masked_fill(before >= sampling.top_p, 0.0)
        probs = probs / probs.sum(-1, keepdim=True)
    return probs, ids


@torch.no_grad()
def sample(  # noqa: PLR0913 - the options are keyword-only arguments
    decoder: IncrementalDecoder[S],
    state: S,
    tokens: Tensor,
    sampling: Sampling,
    *,
    eos_id: int | None,
    max_length: int,
    rng: torch.Generator,
    banned_ids: Iterable[int] = (),
) -> list[Hypothesis]:
    """Sample a continuation of each row of the state; a row does not depend on the number of rows.

    Args:
        decoder: the model.
        state: its state.
        tokens: the last token of each row so far, which the state does not include yet.
        sampling: options of sampling.
        eos_id: the token that ends a row.
        max_length: the maximum number of tokens of a row, eos included.
        rng: random numbers, the same on every device.
        banned_ids: tokens that are never sampled, whatever their probability.
    """
    in_range("limit", max_length, 1, 1 << 30)
    model_device, device = tokens.device, float64_device(tokens.device)
    draws = torch.rand(len(tokens), max_length, generator=rng, dtype=torch.float64).T.contiguous()
    draws = draws.to(device)  # t b
    banned = torch.tensor(sorted(set(banned_ids)), dtype=torch.long, device=device)
    alive = torch.ones(len(tokens), dtype=torch.bool, device=device)
    totals = torch.zeros(len(tokens), dtype=torch.float64, device=device)
    generated: list[Tensor] = []
    for step in range(max_length):
        log_probs, state = decoder.step(tokens.to(model_device), state)  # b v
        log_probs = log_probs.to(device)
        probs, ids = filter_probabilities(log_probs.index_fill(-1, banned, -torch.inf), sampling)
        # the first index whose cumulative sum exceeds the draw; because of rounding the sum may
        # stay below 1, so the index is limited to tokens with a probability above 0
        last = (probs > 0).sum(-1) - 1
        indices = torch.searchsorted(probs.cumsum(-1), draws[step][:, None], right=True)[:, 0]
        tokens = ids.gather(-1, torch.minimum(indices, last)[:, None])[:, 0]
        totals += torch.where(alive, log_probs.gather(-1, tokens[:, None])[:, 0].double(), 0.0)
        generated.append(torch.where(alive, tokens, -1))
        if eos_id is not None:
            alive &= tokens != eos_id
            if not alive.any():
                break
    rows = torch.stack(generated, 1).tolist()
    return [
        _make_hypothesis([token for token in row if token >= 0], total, eos_id)
        for row, total in zip(rows, totals.tolist(), strict=True)
    ]


def _make_hypothesis(tokens: list[int], total: float, eos_id: int | None) -> Hypothesis:
    finished = bool(tokens) and tokens[-1] == eos_id
    return Hypothesis(
        tokens=tuple(tokens[:-1] if finished else tokens),
        score=total,
        log_probability=total,
        finished=finished,
    )
