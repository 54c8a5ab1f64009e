"""The objective of sentence embeddings: a contrastive loss, and maybe the masked LM's on top.

L = L_contrastive + λ·L_MLM, where the masked LM reads the same texts with some tokens masked, so
that a masked language model does not forget it. Dropout is that of the contrastive loss only.

n tokens of a packed row, b sequences, v vectors of the whole batch, d width.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from cloze.data.device_corpus import TokenRow
from cloze.data.pair_batch import LOSS_NAME, PairBatch, PairLayout
from cloze.nn.encoder import Encoder
from cloze.nn.layout import Packed, Varlen
from cloze.nn.pooling import pool_packed, pool_segments
from cloze.objectives.contrastive import ContrastiveLoss
from cloze.objectives.core import JointOutput, Terms, copy_to_device, scale_gradient
from cloze.objectives.fused_cross_entropy import CHUNK_SIZE, fused_linear_cross_entropy
from cloze.objectives.masking import Masking, mask_row

MLM_CHUNK_SIZE = 2048  # positions whose logits over the vocabulary are in memory together


@dataclass(frozen=True, eq=False)
class EmbeddingObjective:
    """Vectors of the texts of a part, and its masked-LM loss; the loss of all vectors.

    It is a `JointObjective`: the loss of a batch is not a sum over its parts.
    """

    loss: ContrastiveLoss
    device: torch.device
    pooling: str = "mean"
    masking: Masking | None = None  # None: no masked-LM loss
    mlm_weight: float = 0.0
    special_ids: frozenset[int] = frozenset()  # tokens that are never masked

    def embed(self, model: Encoder, batch: PairBatch) -> Tensor:
        """The vectors of the texts of a part: b d."""
        return self._embed_row(model, PairRow.from_batch(batch, self.device))

    def __call__(
        self, model: Encoder, batch: PairBatch, rng: torch.Generator | None = None
    ) -> JointOutput:
        row = PairRow.from_batch(batch, self.device)
        # first, so that dropout draws the same numbers as in `embed`
        vectors = self._embed_row(model, row)
        return JointOutput(vectors, self._mlm_terms(model, batch, row, rng))

    def get_loss_weights(self, model: Encoder) -> tuple[Tensor, ...]:  # noqa: ARG002
        """None: the scale of the similarities is a setting."""
        return ()

    def compute_loss(
        self,
        vectors: Tensor,
        batch: PairBatch,
        loss_weights: tuple[Tensor, ...] = (),  # noqa: ARG002
    ) -> Terms:
        """The loss of all vectors of the batch (v d), times the number of its rows."""
        return self.compute_layout_loss(vectors, batch.layout)

    def compute_layout_loss(self, vectors: Tensor, layout: PairLayout) -> Terms:
        found = self.loss(vectors, layout)
        terms = {LOSS_NAME: found.loss * len(layout)}
        return terms if found.hits is None else {**terms, f"{LOSS_NAME}.accuracy": found.hits}

    def _embed_row(self, model: Encoder, row: "PairRow") -> Tensor:
        hidden = model(row.ids, row.layout)  # n d
        if isinstance(row.layout, Packed):
            return pool_packed(hidden, row.layout, (self.pooling,), False, skip_zeros=False)
        return pool_segments(hidden, row.starts, row.segments, self.pooling)

    def _mlm_terms(
        self, model: Encoder, batch: PairBatch, row: "PairRow", rng: torch.Generator | None
    ) -> Terms:
        if self.masking is None or not batch.num_masked:
            return {}
        empty = row.ids[:0]
        tokens = TokenRow(
            ids=row.ids,
            token_type_ids=empty,
            positions=empty,
            cu_seqlens=empty,
            sample_starts=empty,
            labels=empty,
            is_text=empty,
            maskable=row.is_token & ~self._is_special[row.ids],
            word_starts=empty,
        )
        is_static = batch.shape is not None
        room = round(batch.mlm_probability * batch.shape.tokens) if batch.shape else 0
        masked = mask_row(
            tokens,
            self.masking,
            self._replacement_ids,
            max_masked=max(room, batch.num_masked),
            num_masked=batch.num_masked,
            rng=rng,
        )
        with disable_dropout(model):
            hidden = model(masked.ids, row.layout)
            operands = model.lm_head_operands(hidden.index_select(0, masked.positions))  # m d
        chunk = CHUNK_SIZE if is_static else MLM_CHUNK_SIZE
        loss, hits = fused_linear_cross_entropy(
            *operands, masked.targets, chunk=chunk, is_static=is_static
        )
        return {"mlm": scale_gradient(loss, self.mlm_weight), "mlm.accuracy": hits}

    @cached_property
    def _replacement_ids(self) -> Tensor:
        assert self.masking is not None
        return torch.from_numpy(self.masking.replacement_ids).to(self.device)

    @cached_property
    def _is_special(self) -> Tensor:
        assert self.masking is not None
        size = int(max(*self.masking.replacement_ids, *self.special_ids, self.masking.mask_id)) + 1
        special = torch.zeros(size, dtype=torch.bool)
        special[list(self.special_ids)] = True
        return special.to(self.device)


@contextmanager
def disable_dropout(model: nn.Module) -> Iterator[None]:
    """Run a model that is being trained without dropout."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@dataclass(frozen=True, eq=False)
class PairRow:
    """The packed texts of a part on the device."""

    ids: Tensor  # n
    layout: Packed | Varlen
    starts: Tensor  # b: the first token of each text
    segments: Tensor  # n: the text of each token; b for padding
    is_token: Tensor  # n: False for padding

    @classmethod
    def from_batch(cls, batch: PairBatch, device: torch.device) -> "PairRow":
        """Without a shape as many tokens as there are, with one always equally many."""
        lengths, ends = batch.lengths, batch.lengths.cumsum()
        starts = copy_to_device(ends - lengths, device)
        if batch.shape is None:
            ids = copy_to_device(batch.input_ids, device)
            packed = Packed.from_lengths(lengths, device)
            return cls(ids, packed, starts, starts, torch.ones_like(ids, dtype=torch.bool))
        room, longest = batch.shape.tokens, batch.shape.max_seqlen
        # the padding at the end forms sequences of its own, none longer than the longest
        padding = np.arange(batch.size, room, longest)
        edges = np.full(batch.shape.sequences + room // longest + 2, room, np.int32)
        bounds = np.concatenate([[0], ends, padding[1:]])[: len(edges)]
        edges[: len(bounds)] = bounds
        table = np.zeros((3, room), np.int64)  # ids, positions, texts
        table[0, : batch.size] = batch.input_ids
        starts_of = edges[:-1].astype(np.int64)
        table[1] = np.arange(room) - np.repeat(starts_of, edges[1:].astype(np.int64) - starts_of)
        table[2] = len(lengths)
        table[2, : batch.size] = np.repeat(np.arange(len(lengths)), lengths)
        ids, positions, segments = copy_to_device(table, device)
        layout = Varlen(copy_to_device(edges, device), positions, longest)
        return cls(ids, layout, starts, segments, segments < len(lengths))
