"""Left to right: from every token, and those before it, the next one.

    L = −Σ log p(xₜ₊₁ | x₁ … xₜ)

What masked words are compared with in Devlin et al. 2018, §5.1 ("LTR"). The model must be causal,
or it would see what it is to say. n tokens in the row, d width.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cloze.data.batch import IGNORE_INDEX
from cloze.data.device_corpus import CorpusSliceBatch, TokenRow
from cloze.nn.encoder import Encoder
from cloze.nn.layout import Varlen
from cloze.objectives.core import Terms
from cloze.objectives.lean import lean_cross_entropy


@dataclass(frozen=True, kw_only=True, eq=False)
class NextBatch(CorpusSliceBatch):
    """A batch of whose tokens each says the next; the last of a sequence has none."""

    @property
    def counts(self) -> Mapping[str, int]:
        return {"lm": int((self.lengths - 1).sum())}


def left_to_right(model: Encoder, batch: NextBatch, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
    """Loss and hits of the next tokens, the [SEP] that ends a text among them.

    The masked-LM head says them: so the model has the same weights as one that fills masks.
    """
    row = batch.gather_tokens()
    hidden = model(
        row.ids, Varlen(row.cu_seqlens, row.positions, batch.max_seqlen), row.token_type_ids
    )  # n d
    loss, hits = lean_cross_entropy(*model.lm_head_operands(hidden), next_tokens(row))
    return {"lm": loss, "lm.accuracy": hits}


def next_tokens(row: TokenRow) -> Tensor:
    """For each place the token after it, n; NO_LABEL where its sequence ends, and in padding."""
    follows = row.positions.roll(-1) > 0  # the first of a sequence does not, nor does padding
    return torch.where(follows, row.ids.roll(-1), IGNORE_INDEX)
