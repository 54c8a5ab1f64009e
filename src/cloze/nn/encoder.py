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
from cloze.nn.heads import LMHead, Pooler
from cloze.nn.layout import FLAT, AttentionLayout

MATRICES = (nn.Linear, nn.Embedding, LMHead)  # the weight of a tied head is None


class Encoder(nn.Module):
    """Base class of BERT, DistilBERT, ModernBERT and RoBERTa, which pass different parts."""

    TASK_HEADS: ClassVar[tuple[str, ...]] = ()  # that the family supports
    is_causal = False  # True: no token attends to a later one

    def __init__(
        self,
        embeddings: Embeddings | WordEmbeddings,
        blocks: Iterable[Block],
        *,
        max_positions: int,
        norm: nn.Module | None = None,
        pooler: Pooler | None = None,
        task_heads: Mapping[str, nn.Module],
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.blocks = BlockList(blocks)
        self.max_positions = max_positions
        self.norm = norm or nn.Identity()  # after the last block, if blocks do not end with a norm
        self.pooler = pooler
        self.task_heads = nn.ModuleDict(task_heads)

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
        """The context of all blocks; raises if a sequence is longer than `max_positions`."""
        max_seqlen = (
            attention_mask.max_seqlen if isinstance(attention_mask, FLAT) else input_ids.shape[-1]
        )
        if max_seqlen > self.max_positions:
            raise InputError(
                f"a sequence has {max_seqlen} tokens, "
                f"but the model has {self.max_positions} positions",
                fix="truncate it: head, tail, head+tail or window",
            )
        context = AttentionContext(
            attention_mask,
            max_seqlen=max_seqlen,
            device=input_ids.device,
            is_causal=self.is_causal,
        )
        self.blocks.prepare(context)
        return context

    def uses_pooler(self, head: str) -> bool:
        """Whether a head reads one pooled vector per sequence, instead of every token."""
        return bool(self.task_heads[head].uses_pooler)

    def head_inputs(
        self,
        head: str,  # noqa: ARG002 (for subclasses)
        hidden: Tensor,
        indices: Tensor,
        attention_mask: AttentionLayout,  # noqa: ARG002
    ) -> Tensor:
        """The vectors that a head reads, m d: those at `indices`, counted through all rows.

        `attention_mask` is the one that `hidden` was computed with: (batch, keys), `Packed` or
        None.
        """
        return hidden.flatten(0, -2).index_select(0, indices)

    def logits(self, head: str, vectors: Tensor) -> Tensor:
        """Logits of one head.

        `vectors` are rows of the last layer: of every token for token and span, of the masked
        positions for mlm, of the first token of each sequence ([CLS]) for nsp, sequence and choice.
        """
        one_of("head", head, self.task_heads)
        module = self.task_heads[head]
        if isinstance(module, LMHead):
            return module(vectors, self.embeddings.word.weight)
        if self.uses_pooler(head) and self.pooler is not None:
            vectors = self.pooler(vectors)
        return module(vectors)

    def lm_head_operands(self, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Hidden vectors, weight and bias of the LM head, for losses that fuse the product."""
        head = self.task_heads["mlm"]
        assert isinstance(head, LMHead)
        return head.operands(vectors, self.embeddings.word.weight)

    @torch.no_grad()
    def init_weights(self, init_std: float, rng: torch.Generator) -> None:
        """Weights from N(0, init_std²), biases 0, norms 1.

        The original truncates the normal distribution at two standard deviations; we do not, like
        other libraries.
        """
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
            elif isinstance(module, MATRICES) and module.weight is not None:
                module.weight.normal_(0.0, init_std, generator=rng)
            if isinstance(bias := getattr(module, "bias", None), nn.Parameter):
                bias.zero_()
