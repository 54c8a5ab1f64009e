"""Sampling: the next token is drawn, from all of the vocabulary or from the likeliest of it.

b rows, t steps, v vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from cloze.config import in_range, number
from cloze.decode.core import Hypothesis, S, Stepper
from cloze.nn.utils import float64_device


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to draw; filters work in this order: temperature, top-k, top-p."""

    temperature: float = 1.0  # below 1 sharper, above flatter; 0 is greedy
    top_k: int | None = None  # only among the k likeliest (Fan et al. 2018)
    top_p: float = 1.0  # only among the likeliest that together have p (Holtzman et al. 2020)

    def __post_init__(self) -> None:
        number("temperature", self.temperature, 0.0, 1e3)
        number("top_p", self.top_p, 1e-9, 1.0)
        if self.top_k is not None:
            in_range("top_k", self.top_k, 1, 1 << 30)


def filter_probabilities(scores: Tensor, how: Sampling) -> tuple[Tensor, Tensor]:
    """Probabilities in falling order, and whose they are, from log-probabilities: b v each.

    They sum to one; what a filter takes out has none.
    """
    ranked = torch.sort(scores, dim=-1, descending=True, stable=True)
    values, ids = ranked.values.double(), ranked.indices
    if how.temperature == 0 or how.top_k == 1:
        first = torch.zeros_like(values)
        first[:, 0] = 1.0
        return first, ids
    found = ((values - values[:, :1]) / how.temperature).softmax(-1)  # 0 first: none overflows
    if how.top_k is not None:
        found[:, how.top_k :] = 0.0
        found = found / found.sum(-1, keepdim=True)
    if how.top_p < 1:
        before = found.cumsum(-1) - found  # the first that reaches p is in
        found = found.masked_fill(before >= how.top_p, 0.0)
        found = found / found.sum(-1, keepdim=True)
    return found, ids


@torch.no_grad()
def sample(  # noqa: PLR0913 - the choices are keyword-only arguments
    stepper: Stepper[S],
    state: S,
    first: Tensor,
    how: Sampling,
    *,
    eos: int | None,
    limit: int,
    rng: torch.Generator,
    never: Iterable[int] = (),
) -> list[Hypothesis]:
    """Draw a continuation for each row of the state; rows do not depend on how many there are.

    Args:
        stepper: the model.
        state: what it remembers.
        first: the last token of each row so far, which it has not read yet.
        how: to draw.
        eos: the token that ends a row.
        limit: the most tokens of a row, the end among them.
        rng: where numbers come from, the same on every device.
        never: tokens that are not drawn, whatever their probability.
    """
    in_range("limit", limit, 1, 1 << 30)
    place = float64_device(first.device)  # of all but the model
    draws = torch.rand(len(first), limit, generator=rng, dtype=torch.float64).T.contiguous()
    draws = draws.to(place)  # t b
    banned = torch.tensor(sorted(set(never)), dtype=torch.long, device=place)
    tokens, alive = first, torch.ones(len(first), dtype=torch.bool, device=place)
    said: list[Tensor] = []
    logs = torch.zeros(len(first), dtype=torch.float64, device=place)
    for at in range(limit):
        scores, state = stepper.step(tokens.to(first.device), state)  # b v
        scores = scores.to(place)
        found, ids = filter_probabilities(scores.index_fill(-1, banned, -torch.inf), how)
        # the first place where the sum passes the draw; rounding must not lead past what may be
        most = (found > 0).sum(-1) - 1
        places = torch.searchsorted(found.cumsum(-1), draws[at][:, None], right=True)[:, 0]
        tokens = ids.gather(-1, torch.minimum(places, most)[:, None])[:, 0]
        logs += torch.where(alive, scores.gather(-1, tokens[:, None])[:, 0].double(), 0.0)
        said.append(torch.where(alive, tokens, -1))
        if eos is not None:
            alive &= tokens != eos
            if not alive.any():
                break
    rows = torch.stack(said, 1).tolist()
    return [
        _hypothesis([token for token in row if token >= 0], log, eos)
        for row, log in zip(rows, logs.tolist(), strict=True)
    ]


def _hypothesis(tokens: list[int], log: float, eos: int | None) -> Hypothesis:
    ended = bool(tokens) and tokens[-1] == eos
    return Hypothesis(
        tokens=tuple(tokens[:-1] if ended else tokens),
        score=log,
        log_probability=log,
        finished=ended,
    )
