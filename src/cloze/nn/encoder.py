"""An encoder: embeddings, a stack of blocks, and the heads that read what comes out on top.

b batch, t tokens (or one flat row of n when packed), d width.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from cloze.config import one_of
from cloze.errors import InputError
from cloze.nn.embeddings import Embeddings
from cloze.nn.heads import MaskedLM, Pooler
from cloze.nn.masks import Allowed, allowed_by
from cloze.nn.packed import Packed


class Encoder(nn.Module):
    """BERT and its kin differ only in the parts they hand in here."""

    def __init__(
        self,
        embeddings: Embeddings,
        blocks: Iterable[nn.Module],
        *,
        pooler: Pooler | None,
        heads: Mapping[str, nn.Module],
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.blocks = nn.ModuleList(blocks)
        self.pooler = pooler
        self.heads = nn.ModuleDict(heads)

    def layers(
        self,
        input_ids: Tensor,
        attention_mask: Allowed = None,
        token_type_ids: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """The embeddings, then the output of each block: layer 0, 1, … of the model, b t d."""
        packed = attention_mask if isinstance(attention_mask, Packed) else None
        longest = max(packed.lengths, default=0) if packed else input_ids.shape[-1]
        limit = self.embeddings.position.num_embeddings
        if longest > limit:
            raise InputError(
                f"a sequence of {longest} tokens, but the model has {limit} positions",
                fix="cut it with a length policy: head, tail, head+tail or window",
            )
        allowed = allowed_by(attention_mask)
        positions = packed.positions if packed else None
        x = self.embeddings(input_ids, token_type_ids, positions)
        yield x
        for block in self.blocks:
            x = block(x, allowed)
            yield x

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

    def logits(self, head: str, vectors: Tensor) -> Tensor:
        """Scores of one head, before any softmax.

        `vectors` are rows of the last layer: every token's for token and span, the masked ones for
        mlm, the first one's of each sequence ([CLS]) for nsp, sequence and choice.
        """
        one_of("head", head, self.heads)
        module = self.heads[head]
        if isinstance(module, MaskedLM):
            return module(vectors, self.embeddings.word.weight)
        if module.pooled and self.pooler is not None:
            vectors = self.pooler(vectors)
        return module(vectors)

    @torch.no_grad()
    def initialise(self, deviation: float, rng: torch.Generator) -> None:
        """Weights from N(0, deviation²), biases 0, norms 1.

        The original cuts the normal at two deviations; like the common libraries we do not.
        """
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
                module.bias.zero_()
            elif isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(0.0, deviation, generator=rng)
                if isinstance(module, nn.Linear):
                    module.bias.zero_()
            elif isinstance(module, MaskedLM):
                module.bias.zero_()
                if module.weight is not None:
                    module.weight.normal_(0.0, deviation, generator=rng)
