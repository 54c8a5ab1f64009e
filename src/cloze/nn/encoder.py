"""An encoder: embeddings, a stack of blocks, and the heads that read what comes out on top.

b batch, t tokens (or one flat row of n when packed), d width.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.config import one_of
from cloze.errors import InputError
from cloze.nn.embeddings import Embeddings, WordEmbeddings
from cloze.nn.heads import Pooler, WordScores
from cloze.nn.masks import FLAT, Allowed, allowed_by

MATRICES = (nn.Linear, nn.Embedding, WordScores)  # a tied head's weight is None


class Encoder(nn.Module):
    """BERT and its kin differ only in the parts they hand in here."""

    HEADS: ClassVar[tuple[str, ...]] = ()  # that a family knows
    causal = False  # whether no token sees a later one

    def __init__(
        self,
        embeddings: Embeddings | WordEmbeddings,
        blocks: Iterable[nn.Module],
        *,
        positions: int,
        norm: nn.Module | None = None,
        pooler: Pooler | None = None,
        heads: Mapping[str, nn.Module],
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.blocks = nn.ModuleList(blocks)
        self.positions = positions  # the most tokens of a sequence
        self.norm = norm  # of the last layer, where the blocks leave it without one
        self.pooler = pooler
        self.heads = nn.ModuleDict(heads)

    def layers(
        self,
        input_ids: Tensor,
        attention_mask: Allowed = None,
        token_type_ids: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """The embeddings, then the output of each block: layer 0, 1, … of the model, b t d."""
        flat = attention_mask if isinstance(attention_mask, FLAT) else None
        longest = input_ids.shape[-1] if flat is None else flat.longest
        if longest > self.positions:
            raise InputError(
                f"a sequence of {longest} tokens, but the model has {self.positions} positions",
                fix="cut it with a length policy: head, tail, head+tail or window",
            )
        allowed = allowed_by(attention_mask)
        positions = None if flat is None else flat.positions
        x = self.embeddings(input_ids, token_type_ids, positions)
        yield x
        last = self.blocks[-1]
        handed = self.handed(allowed, longest, input_ids.device)
        for block, given in zip(self.blocks, handed, strict=False):
            x = block(x, *given)
            yield x if self.norm is None or block is not last else self.norm(x)

    def handed(
        self,
        allowed: Allowed,
        longest: int,  # noqa: ARG002 (for those that override it)
        device: torch.device,  # noqa: ARG002
    ) -> Iterable[tuple[Any, ...]]:
        """What each block in turn takes besides the vectors."""
        return repeat((allowed,))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Allowed = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """The last layer, b t d; with `Packed` lengths for a mask, of one flat row, n d."""
        # a queue of one: a lower layer's memory is free as soon as the next one is there
        (last,) = deque(self.layers(input_ids, attention_mask, token_type_ids), maxlen=1)
        return last

    def gathered(
        self,
        head: str,  # noqa: ARG002 (for those that override it)
        hidden: Tensor,
        places: Tensor,
        allowed: Allowed,  # noqa: ARG002
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
