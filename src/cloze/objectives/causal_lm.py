"""Causal language modelling: predict every token from those before it.

    L = −Σ log p(xₜ₊₁ | x₁ … xₜ)

The baseline of Devlin et al. 2018, §5.1 ("LTR"). The model must be causal, or it would attend to
what it predicts. n tokens of the row, d width.
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
from cloze.objectives.fused_cross_entropy import fused_linear_cross_entropy


@dataclass(frozen=True, kw_only=True, eq=False)
class CausalLMBatch(CorpusSliceBatch):
    """A batch in which every token but the last of a sequence has a target."""

    @property
    def counts(self) -> Mapping[str, int]:
        return {"lm": int((self.lengths - 1).sum())}


def causal_lm_objective(
    model: Encoder,
    batch: CausalLMBatch,
    rng: torch.Generator | None = None,  # noqa: ARG001
) -> Terms:
    """Loss and correct predictions of the next tokens, including the [SEP] that ends a text.

    The masked-LM head predicts them, so that the model has the weights of a masked LM.
    """
    row = batch.gather_tokens()
    layout = Varlen(row.cu_seqlens, row.positions, batch.max_seqlen)
    hidden = model(row.ids, layout, row.token_type_ids)  # n d
    operands = model.lm_head_operands(hidden)
    loss, hits = fused_linear_cross_entropy(*operands, make_next_token_targets(row))
    return {"lm": loss, "lm.accuracy": hits}


def make_next_token_targets(row: TokenRow) -> Tensor:
    """The token after each position, n; IGNORE_INDEX at the end of a sequence and in padding."""
    continues = row.positions.roll(-1) > 0  # the next token is not the first of a sequence
    return torch.where(continues, row.ids.roll(-1), IGNORE_INDEX)
