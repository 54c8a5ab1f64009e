"""What goes in: token (+ position + segment) vectors, added.  t any leading axes, d width."""

import torch
from torch import Tensor, nn

from cloze.nn.layers import Dropout, LayerNorm

PAIR = 2


class WordEmbeddings(nn.Module):
    """The tokens' vectors alone, then norm and dropout: for blocks that know places themselves."""

    def __init__(self, *, vocab_size: int, norm: LayerNorm, dropout: float) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, norm.normalized_shape[0])
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,  # noqa: ARG002 (there are no segments)
        positions: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        return self.dropout(self.norm(self.word(input_ids)))  # t d


class Embeddings(nn.Module):
    """Learned positions and segments beside the tokens, then norm and dropout (Devlin et al. 2018).

    `segments=0` leaves the segment table out (DistilBERT).
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        width: int,
        positions: int,
        segments: int,
        dropout: float,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, width)
        self.position = nn.Embedding(positions, width)
        self.segment = nn.Embedding(segments, width) if segments else None
        self.norm = LayerNorm(width, eps=norm_eps)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        if positions is None:
            positions = torch.arange(input_ids.shape[-1], device=input_ids.device)
        x = self.word(input_ids) + self.position(positions)  # t d
        if self.segment is not None:
            x = x + self._segments(token_type_ids)
        return self.dropout(self.norm(x))

    def _segments(self, token_type_ids: Tensor | None) -> Tensor:
        assert self.segment is not None
        table = self.segment.weight
        if token_type_ids is None:  # all of segment 0, as in the published models
            return table[0]
        if len(table) == PAIR and table.is_cuda:
            # a choice of two, whose gradient is a sum; a table's would queue up at two rows
            return torch.where((token_type_ids == 0).unsqueeze(-1), table[0], table[1])
        return self.segment(token_type_ids)
