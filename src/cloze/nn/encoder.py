"""An encoder: embeddings, a stack of blocks, and the task heads that read the last layer.

b batch, t tokens (or one flat row of n), d width.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from cloze.config import one_of
from cloze.errors import InputError
from cloze.nn.block import Block, BlockList
from cloze.nn.context import AttentionContext
from cloze.nn.embeddings import Embeddings, WordEmbeddings
from cloze.nn.heads import LMHead, Pooler
from cloze.nn.layout import FLAT, AttentionLayout, Packed, Varlen

MATRICES = (nn.Linear, nn.Embedding, LMHead)  # the weight of a tied head is None


class Encoder(nn.Module):
    """Base class of BERT, DistilBERT, ModernBERT, RoBERTa and GPT, which pass different parts."""

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

    @property
    def num_layers(self) -> int:
        """The number of layers above the embeddings."""
        return len(self.blocks)

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

    def select_heads(self, names: Iterable[str]) -> Self:
        """This module with some of its heads only; both have the same parameters."""
        heads = nn.ModuleDict({name: self.task_heads[name] for name in names})
        selected = copy(self)
        selected.__dict__["_modules"] = {**self._modules, "task_heads": heads}
        return selected

    @property
    def supports_varlen(self) -> bool:
        """Whether all blocks can read rows whose lengths only the device knows (`Varlen`)."""
        return all(block.attention.supports_varlen for block in self.blocks)

    def uses_pooler(self, head: str) -> bool:
        """Whether a head reads one pooled vector per sequence, instead of every token."""
        return bool(self.task_heads[head].uses_pooler)

    def head_inputs(
        self,
        head: str,
        hidden: Tensor,
        indices: Tensor,
        attention_mask: AttentionLayout,
    ) -> Tensor:
        """The vectors that a head reads, m d: those at `indices`, counted through all rows.

        `attention_mask` is the one that `hidden` was computed with: (batch, keys), `Packed` or
        None. If the model is causal, pooled heads read the last token of each sequence, which has
        attended to all of it, and not the first, which attends to itself only.
        """
        if self.is_causal and self.uses_pooler(head):
            indices = last_token_indices(hidden, attention_mask)
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

    @property
    def lm_head(self) -> str | None:
        """The name of the head that predicts tokens: `mlm`, or `lm` of a GPT; None without one."""
        return next((name for name in ("mlm", "lm") if name in self.task_heads), None)

    def lm_head_operands(self, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Hidden vectors, weight and bias of the LM head, for losses that fuse the product."""
        assert self.lm_head is not None
        head = self.task_heads[self.lm_head]
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

    @torch.no_grad()
    def scale_residual_weights(self) -> None:
        """Scale what is added to the residual by 1/√(2·layers).

        Radford et al. 2019, §2.3: so the sum over all layers starts no larger than its terms.
        """
        for name, weight in self.named_parameters():
            if name.endswith(("attention.out.weight", "ffn.down.weight")):
                weight.mul_((2 * len(self.blocks)) ** -0.5)


def last_token_indices(hidden: Tensor, attention_mask: AttentionLayout) -> Tensor:
    """The index of the last token of each sequence, counted through all rows: b."""
    if isinstance(attention_mask, Packed):
        lengths = torch.tensor(attention_mask.lengths, device=attention_mask.device)
        return attention_mask.starts + lengths - 1
    assert not isinstance(attention_mask, Varlen), "heads do not support Varlen rows"
    rows, length = hidden.shape[:2]
    starts = torch.arange(0, rows * length, length, device=hidden.device)
    if attention_mask is None:
        return starts + length - 1
    position = torch.arange(length, device=hidden.device)
    return starts + (position * attention_mask).amax(1)  # attention_mask: b t
