"""The repeating unit of an encoder.  t stands for any leading axes, d width, f inner width."""

from torch import Tensor, nn, ops
from torch.nn import functional as F

from cloze.nn import kernels
from cloze.nn.activations import Activation
from cloze.nn.attention import Attention
from cloze.nn.dropout import Dropout, seed
from cloze.nn.masks import Allowed
from cloze.nn.norm import LayerNorm
from cloze.nn.rotary import Turn


class FeedForward(nn.Module):
    """outer(activation(inner(x))), the same at every position.  Vaswani et al. 2017, eq. 2."""

    def __init__(
        self, width: int, hidden: int, activation: Activation, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden, bias=bias)
        self.activation = activation
        self.outer = nn.Linear(hidden, width, bias=bias)

    def forward(self, x: Tensor, *, projected: bool = True) -> Tensor:
        """From t d to t f and back; without `projected` t f, as it is before `outer`."""
        inner = self.activated(x)
        return self.outer(inner) if projected else inner

    def activated(self, x: Tensor) -> Tensor:
        """activation(inner(x)); a kernel adds inner's bias itself, and finds its gradient."""
        if self.activation is F.gelu and kernels.usable(x):
            return ops.cloze.gelu(F.linear(x, self.inner.weight), self.inner.bias, gated=False)
        return self.activation(self.inner(x))


class GatedFeedForward(FeedForward):
    """outer(activation(Ax) · Bx), with A above B in one matrix.  Shazeer 2020, eq. 6 (GEGLU)."""

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation,
        *,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, hidden, activation, bias=bias)
        self.inner = nn.Linear(width, 2 * hidden, bias=bias)
        self.dropout = Dropout(dropout)

    def activated(self, x: Tensor) -> Tensor:
        """The gated unit, t d -> t f."""
        if self.activation is F.gelu and kernels.usable(x):
            inner = F.linear(x, self.inner.weight)
            return self.dropout(ops.cloze.gelu(inner, self.inner.bias, gated=True))
        value, gate = self.inner(x).chunk(2, -1)
        return self.dropout(self.activation(value) * gate)


def normed_sum(
    x: Tensor, y: Tensor, norm: LayerNorm, dropout: Dropout, last: nn.Linear | None = None
) -> Tensor:
    """LayerNorm(x + dropout(y)): how a sub-layer's answer joins what it was given.

    With `last`, of last(y), its last product: a kernel finds the gradient of that bias by the way,
    which by itself would read all of y's gradient once more.
    """
    if not kernels.usable(x, y):
        return norm(x + dropout(y if last is None else last(y)))
    bias: Tensor | None = None if last is None else last.bias
    if last is not None:
        y = F.linear(y, last.weight, None if bias is None else bias.detach())
    share = dropout.share if dropout.training else 0.0
    return ops.cloze.add_norm(x, y, norm.weight, norm.bias, seed(x), bias, norm.eps, share)[0]


class PostNormBlock(nn.Module):
    """LayerNorm(x + Sublayer(x)), for attention and then for the feed-forward net."""

    def __init__(
        self, attention: Attention, feed_forward: FeedForward, *, dropout: float, norm_eps: float
    ) -> None:
        super().__init__()
        width = attention.out.out_features
        self.attention = attention
        self.attention_norm = LayerNorm(width, eps=norm_eps)
        self.feed_forward = feed_forward
        self.feed_forward_norm = LayerNorm(width, eps=norm_eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, allowed: Allowed = None) -> Tensor:
        x = self._joined(x, self.attention, self.attention.out, self.attention_norm, allowed)
        return self._joined(x, self.feed_forward, self.feed_forward.outer, self.feed_forward_norm)

    def _joined(
        self, x: Tensor, part: nn.Module, last: nn.Linear, norm: LayerNorm, *more: Allowed
    ) -> Tensor:
        if self.training and kernels.usable(x):
            return normed_sum(x, part(x, *more, projected=False), norm, self.dropout, last)
        return normed_sum(x, part(x, *more), norm, self.dropout)


class PreNormBlock(nn.Module):
    """x + Sublayer(norm(x)), for attention and then for the feed-forward net.

    Xiong et al. 2020, fig. 1b: what is added up goes through no norm, so that gradients reach the
    lowest layer as they are and the rate needs little warm-up.
    """

    def __init__(
        self,
        attention: Attention,
        feed_forward: FeedForward,
        *,
        attention_norm: nn.Module,
        feed_forward_norm: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        self.feed_forward_norm = feed_forward_norm
        self.feed_forward = feed_forward
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, allowed: Allowed = None, turn: Turn | None = None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), allowed, turn))
        return x + self.feed_forward(self.feed_forward_norm(x))
