"""An encoder: embeddings, a stack of blocks, and the task heads that read the last layer.

b batch, t tokens (or one flat row of n), d width.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from cloze.config import one_of
from cloze.errors import InputError
from cloze.nn.block import Block, BlockList
from cloze.nn.context import AttentionContext
from cloze.nn.embeddings import Embeddings, WordEmbeddings
from cloze.nn.heads import Pooler, WordScores
from cloze.nn.layout import FLAT, AttentionLayout

MATRICES = (nn.Linear, nn.Embedding, WordScores)  # a tied head's weight is None


class Encoder(nn.Module):
    """BERT and its relatives differ only in the parts they pass here."""

    HEADS: ClassVar[tuple[str, ...]] = ()  # that a family knows
    is_causal = False  # whether no token attends to a later one

    def __init__(
        self,
        embeddings: Embeddings | WordEmbeddings,
        blocks: Iterable[Block],
        *,
        positions: int,
        norm: nn.Module | None = None,
        pooler: Pooler | None = None,
        heads: Mapping[str, nn.Module],
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.blocks = BlockList(blocks)
        self.positions = positions  # the most tokens of a sequence
        self.norm = norm or nn.Identity()  # of the last layer, where the blocks do not end with one
        self.pooler = pooler
        self.heads = nn.ModuleDict(heads)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: AttentionLayout = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """The last layer, b t d; of a flat row (`Packed`, `Varlen`) n d."""
        context = self.make_context(input_ids, attention_mask)
        x = self.embeddings(input_ids, token_type_ids, context.position_ids)
        for block in self.blocks:
            x = block(x, context)
        return self.norm(x)

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: AttentionLayout = None,
        token_type_ids: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """The embeddings, then the output of each block: layer 0, 1, … of the model, b t d."""
        context = self.make_context(input_ids, attention_mask)
        x = self.embeddings(input_ids, token_type_ids, context.position_ids)
        yield x
        *lower, last = self.blocks
        for block in lower:
            x = block(x, context)
            yield x
        yield self.norm(last(x, context))

    def make_context(self, input_ids: Tensor, attention_mask: AttentionLayout) -> AttentionContext:
        """What all blocks share; raises if a sequence is longer than the model has positions."""
        max_seqlen = (
            attention_mask.max_seqlen if isinstance(attention_mask, FLAT) else input_ids.shape[-1]
        )
        if max_seqlen > self.positions:
            raise InputError(
                f"a sequence has {max_seqlen} tokens, but the model has {self.positions} positions",
                fix="truncate it with a length policy: head, tail, head+tail or window",
            )
        context = AttentionContext(
            attention_mask,
            max_seqlen=max_seqlen,
            device=input_ids.device,
            is_causal=self.is_causal,
        )
        self.blocks.prepare(context)
        return context

    def gathered(
        self,
        head: str,  # noqa: ARG002 (for those that override it)
        hidden: Tensor,
        places: Tensor,
        allowed: AttentionLayout,  # noqa: ARG002
    ) -> Tensor:
        """The vectors that a head reads, m d: those at `places`, counted through all rows.

        `allowed` is the mask that `hidden` was computed with: (batch, keys), `Packed` or None.
        """
        return hidden.flatten(0, -2).index_select(0, places)

    def logits(self, head: str, vectors: Tensor) -> Tensor:
        """Scores of one head, before any softmax.

        `vectors` are rows of the last layer: every token's for token and span, the masked ones for
        mlm, the first one's of each sequence ([CLS]) for nsp, sequence and choice.
        """
        one_of("head", head, self.heads)
        module = self.heads[head]
        if isinstance(module, WordScores):
            return module(vectors, self.embeddings.word.weight)
        if module.pooled and self.pooler is not None:
            vectors = self.pooler(vectors)
        return module(vectors)

    def word_factors(self, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the masked-LM head multiplies and adds: vectors, table and bias."""
        head = self.heads["mlm"]
        assert isinstance(head, WordScores)
        return head.factors(vectors, self.embeddings.word.weight)

    @torch.no_grad()
    def initialise(self, deviation: float, rng: torch.Generator) -> None:
        """Weights from N(0, deviation²), biases 0, norms 1.

        The original cuts the normal at two deviations; like the common libraries we do not.
        """
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
            elif isinstance(module, MATRICES) and module.weight is not None:
                module.weight.normal_(0.0, deviation, generator=rng)
            if isinstance(bias := getattr(module, "bias", None), nn.Parameter):
                bias.zero_()
