"""How well a decoder's state and each of the encoder's fit, and what is taken from them.

Attention(query, source) = Σ similarity(query, keyᵢ)·valueᵢ.  b batch, s source tokens, d width.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SHARP = 10.0  # a cosine is at most 1: times this, one word can take nearly all


class Score(nn.Module):
    """Compares a query with the source."""

    def keys(self, memory: Tensor) -> Tensor:
        """What of the source does not depend on the query, computed once: b s d."""
        return memory

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """The score of each source token: b s."""
        raise NotImplementedError


class Dot(Score):
    """sᵀh.  Luong et al. 2015, eq. 8; nothing to learn."""

    def __init__(self, width: int) -> None:  # noqa: ARG002
        super().__init__()

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return torch.einsum("bd,bsd->bs", query, keys)


class General(Dot):
    """sᵀWh.  Luong et al. 2015, eq. 8."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.dense = nn.Linear(width, width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.dense(memory)


class Additive(Score):
    """vᵀ·tanh(Ws + Uh).  Bahdanau et al. 2014, appendix A.1.2.

    Luong's "concat", vᵀ·tanh(W[s;h]), is the same function with W and U side by side.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.state = nn.Linear(width, width, bias=False)
        self.source = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.source(memory)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.score(torch.tanh(self.state(query)[:, None] + keys)).squeeze(-1)


class Cosine(Score):
    """g·cos(s, h).

    Without the learned factor g, e to a cosine is at most e² times another, and no word could
    ever stand out among many.
    """

    def __init__(self, width: int) -> None:  # noqa: ARG002
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(SHARP))

    def keys(self, memory: Tensor) -> Tensor:
        return F.normalize(memory, dim=-1)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.sharpness * torch.einsum("bd,bsd->bs", F.normalize(query, dim=-1), keys)


SCORES: dict[str, Callable[[int], Score]] = {
    "dot": Dot,
    "general": General,
    "concat": Additive,
    "cosine": Cosine,
}


def align(scores: Tensor, real: Tensor) -> Tensor:
    """Softmax of the scores over the real source tokens: b s."""
    return scores.masked_fill(~real, -torch.inf).softmax(-1)


def context(weights: Tensor, memory: Tensor) -> Tensor:
    """What is taken of the source, Σ aⱼhⱼ: b d."""
    return torch.einsum("bs,bsd->bd", weights, memory)
