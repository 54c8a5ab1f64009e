"""Embeddings of encoders: the sum of token, position and token type embeddings.

t any leading axes, d width.
"""

import torch
from torch import Tensor, nn

from cloze.nn.layers import Dropout, LayerNorm, NoNorm

_TWO_TYPES = 2


class WordEmbeddings(nn.Module):
    """Token embeddings, norm and dropout, for blocks with rotary positions."""

    def __init__(self, *, vocab_size: int, norm: LayerNorm, dropout: float) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, norm.normalized_shape[0])
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,  # noqa: ARG002 (there are no token types)
        position_ids: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        return self.dropout(self.norm(self.word(input_ids)))  # t d


class Embeddings(nn.Module):
    """Token, learned position and token type embeddings, added, then norm and dropout.

    Devlin et al. 2018, fig. 2. With `type_vocab_size=0` there are no token types (DistilBERT);
    with 1 all tokens have the same type. `position_offset` is the row of the position matrix for
    the first token (RoBERTa). Without `norm_eps` there is no norm (GPT).
    """

    def __init__(  # noqa: PLR0913 (all by keyword)
        self,
        *,
        vocab_size: int,
        hidden_size: int,
        max_positions: int,
        type_vocab_size: int,
        dropout: float,
        norm_eps: float | None,
        position_offset: int = 0,
    ) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, hidden_size)
        self.position = nn.Embedding(position_offset + max_positions, hidden_size)
        self.position_offset = position_offset
        self.token_type = nn.Embedding(type_vocab_size, hidden_size) if type_vocab_size else None
        self.norm = NoNorm() if norm_eps is None else LayerNorm(hidden_size, eps=norm_eps)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[-1], device=input_ids.device)
        if self.position_offset:
            position_ids = position_ids + self.position_offset
        x = self.word(input_ids) + self.position(position_ids)  # t d
        if self.token_type is not None:
            x = x + self._token_types(token_type_ids)
        return self.dropout(self.norm(x))

    def _token_types(self, token_type_ids: Tensor | None) -> Tensor:
        assert self.token_type is not None
        table = self.token_type.weight
        if token_type_ids is None or len(table) == 1:  # the default is type 0, as in transformers
            return table[0]
        if len(table) == _TWO_TYPES and table.is_cuda:
            # the gradient of `where` is a sum; that of an embedding would serialize on two rows
            return torch.where((token_type_ids == 0).unsqueeze(-1), table[0], table[1])
        return self.token_type(token_type_ids)
