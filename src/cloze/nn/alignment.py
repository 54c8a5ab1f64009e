"""Attention of a recurrent decoder to the encoder's states.

context = Σ softmax(score(query, keyᵢ))·stateᵢ.  b batch, s source tokens, d width.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INITIAL_SCALE = 10.0  # of cosines, so that one token can have nearly all of the weight


class AttentionScore(nn.Module):
    """Compares a query with every source token."""

    def project_keys(self, states: Tensor) -> Tensor:
        """The part that does not depend on the query, computed once: b s d."""
        return states

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """The score of each source token: b s."""
        raise NotImplementedError


class DotScore(AttentionScore):
    """sᵀh, without parameters.  Luong et al. 2015, eq. 8."""

    def __init__(self, hidden_size: int) -> None:  # noqa: ARG002
        super().__init__()

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return torch.einsum("bd,bsd->bs", query, keys)


class GeneralScore(DotScore):
    """sᵀWh.  Luong et al. 2015, eq. 8."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size, bias=False)

    def project_keys(self, states: Tensor) -> Tensor:
        return self.dense(states)


class AdditiveScore(AttentionScore):
    """vᵀ·tanh(Ws + Uh).  Bahdanau et al. 2014, appendix A.1.2.

    Luong's "concat", vᵀ·tanh(W[s;h]), is the same function with W and U side by side.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.state = nn.Linear(hidden_size, hidden_size, bias=False)
        self.source = nn.Linear(hidden_size, hidden_size, bias=False)
        self.score = nn.Linear(hidden_size, 1, bias=False)

    def project_keys(self, states: Tensor) -> Tensor:
        return self.source(states)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.score(torch.tanh(self.state(query)[:, None] + keys)).squeeze(-1)


class CosineScore(AttentionScore):
    """g·cos(s, h).

    Without the learned scale g the weight of a token could be at most e² times that of another.
    """

    def __init__(self, hidden_size: int) -> None:  # noqa: ARG002
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(INITIAL_SCALE))

    def project_keys(self, states: Tensor) -> Tensor:
        return F.normalize(states, dim=-1)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.scale * torch.einsum("bd,bsd->bs", F.normalize(query, dim=-1), keys)


SCORES: dict[str, Callable[[int], AttentionScore]] = {
    "dot": DotScore,
    "general": GeneralScore,
    "concat": AdditiveScore,
    "cosine": CosineScore,
}


def compute_alignment(scores: Tensor, source_mask: Tensor) -> Tensor:
    """Softmax of the scores over the real source tokens: b s."""
    return scores.masked_fill(~source_mask, -torch.inf).softmax(-1)


def compute_context(weights: Tensor, states: Tensor) -> Tensor:
    """The weighted sum of the encoder's states, Σ aⱼhⱼ: b d."""
    return torch.einsum("bs,bsd->bd", weights, states)
