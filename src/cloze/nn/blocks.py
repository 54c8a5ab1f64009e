"""The repeating unit of an encoder.  t stands for any leading axes, d width, f inner width."""

from torch import Tensor, nn

from cloze.nn.activations import Activation
from cloze.nn.attention import Attention
from cloze.nn.dropout import Dropout
from cloze.nn.masks import Allowed


class FeedForward(nn.Module):
    """outer(activation(inner(x))), the same at every position.  Vaswani et al. 2017, eq. 2."""

    def __init__(self, width: int, hidden: int, activation: Activation) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.activation = activation
        self.outer = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x)))  # t d -> t f -> t d


class PostNormBlock(nn.Module):
    """LayerNorm(x + Sublayer(x)), for attention and then for the feed-forward net."""

    def __init__(
        self, attention: Attention, feed_forward: FeedForward, *, dropout: float, norm_eps: float
    ) -> None:
        super().__init__()
        width = attention.out.out_features
        self.attention = attention
        self.attention_norm = nn.LayerNorm(width, eps=norm_eps)
        self.feed_forward = feed_forward
        self.feed_forward_norm = nn.LayerNorm(width, eps=norm_eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, allowed: Allowed = None) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, allowed)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
