"""Distillation: a student learns the teacher's predictions and hidden states, and masked tokens.

Sanh et al. 2019 (DistilBERT), §2–3. The weights and the temperature are the released script's:

    5·T²·KL(teacher ‖ student) + 2·(−log p(token)) + 1·(1 − cos(student, teacher))

n tokens in the packed row, m masked positions, d width, v vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.batch import IGNORE_INDEX, PackedBatch
from cloze.data.device_corpus import CorpusSliceBatch
from cloze.nn.encoder import Encoder
from cloze.nn.layout import Packed, Varlen
from cloze.objectives.config import DistillationConfig
from cloze.objectives.core import (
    Objective,
    Terms,
    copy_to_device,
    count_correct,
    cross_entropy,
    scale_gradient,
    upcast_to_float32,
)
from cloze.objectives.masking import Masking
from cloze.objectives.pretraining import DeviceMasking, make_layout


@dataclass(frozen=True, kw_only=True, eq=False)
class DistillationBatch(PackedBatch):
    """A batch in which the teacher gives a target for every token."""

    @classmethod
    def from_batch(cls, batch: PackedBatch) -> Self:
        return cls(**{each.name: getattr(batch, each.name) for each in fields(batch)})

    @property
    def counts(self) -> Mapping[str, int]:
        masked = len(self.masked_positions)
        return {"mlm": masked, "soft": masked, "cosine": len(self.input_ids)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Distillation(DistillationConfig):
    """The objective of a student.

    The teacher is not part of the trained module, so that the optimizer, distributed wrappers and
    the saved state do not include it, and it stays in evaluation mode.
    """

    teacher: Encoder  # frozen, in eval mode, on the student's device

    def __call__(
        self,
        model: Encoder,
        batch: PackedBatch,
        rng: torch.Generator | None = None,  # noqa: ARG002
    ) -> Terms:
        """The losses, and the correct predictions of student and teacher.

        Without a masked-LM head there is only the cosine loss. No token types are passed: a
        DistilBERT has none.
        """
        device = model.embeddings.word.weight.device
        has_lm_head = "mlm" in model.task_heads
        return self.compute_terms(
            model,
            copy_to_device(batch.input_ids, device),
            Packed.from_lengths(batch.lengths, device),
            copy_to_device(batch.masked_positions, device) if has_lm_head else None,
            copy_to_device(batch.targets, device) if has_lm_head else None,
        )

    def compute_terms(
        self,
        model: Encoder,
        ids: Tensor,
        layout: Packed | Varlen,
        positions: Tensor | None,
        targets: Tensor | None,
        is_token: Tensor | None = None,
    ) -> Terms:
        """The terms of a row of tokens (n).

        Targets (m) of −100 do not count, nor do tokens where `is_token` (n) is False.
        """
        hidden = model(ids, layout)  # n d
        with torch.no_grad():
            teacher_hidden = self.teacher(ids, layout)  # n d
        cosine = compute_cosine_loss(hidden, teacher_hidden, is_token)
        terms = {"cosine": scale_gradient(cosine, self.cosine_weight)}
        if positions is None or targets is None:
            return terms
        # The released script compares predictions at all tokens by default; here at the masked ones
        # only: logits over the vocabulary are the most expensive step of a small model.
        logits = model.logits("mlm", hidden.index_select(0, positions))  # m v
        with torch.no_grad():
            teacher_logits = self.teacher.logits("mlm", teacher_hidden.index_select(0, positions))
        soft = compute_soft_target_loss(logits, teacher_logits, self.temperature, targets)
        return terms | {
            "soft": scale_gradient(soft, self.soft_weight),
            "mlm": scale_gradient(cross_entropy(logits, targets), self.mlm_weight),
            "mlm.accuracy": count_correct(logits, targets),
            "mlm.teacher": count_correct(teacher_logits, targets),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class DistillationSliceBatch(CorpusSliceBatch):
    """A `DistillationBatch` that is assembled on the device."""

    @property
    def counts(self) -> Mapping[str, int]:
        return {"mlm": self.num_masked, "soft": self.num_masked, "cosine": self.size}


def make_device_distillation(
    distillation: Distillation, masking: Masking, device: torch.device
) -> Objective[DistillationSliceBatch]:
    """A distillation for batches of fixed shapes that are assembled on the device."""
    mask = DeviceMasking(masking, device)

    def objective(
        model: Encoder, batch: DistillationSliceBatch, rng: torch.Generator | None = None
    ) -> Terms:
        row, masked = mask(batch, rng)
        is_token = torch.arange(batch.capacity, device=device) < batch.size
        return distillation.compute_terms(
            model,
            masked.ids,
            make_layout(batch, row),
            masked.positions,
            masked.targets,
            is_token,
        )

    return objective


def compute_soft_target_loss(
    student: Tensor, teacher: Tensor, temperature: float, targets: Tensor | None = None
) -> Tensor:
    """T²·Σ KL(softmax(teacher/T) ‖ softmax(student/T)), in float32 at least.

    With the factor T², the size of the gradient does not depend on the temperature (Hinton et al.
    2015, §2). Rows whose target is −100 do not count.
    """
    student_log_probs, teacher_log_probs = (
        F.log_softmax(upcast_to_float32(logits) / temperature, dim=-1)
        for logits in (student, teacher)
    )
    losses = F.kl_div(student_log_probs, teacher_log_probs, reduction="none", log_target=True)
    if targets is not None:
        losses = losses * (targets != IGNORE_INDEX)[:, None]
    return temperature**2 * losses.sum()


def compute_cosine_loss(student: Tensor, teacher: Tensor, is_token: Tensor | None = None) -> Tensor:
    """Σ 1 − cos(student, teacher) over the tokens, in float32 at least."""
    student, teacher = upcast_to_float32(student), upcast_to_float32(teacher)
    losses = 1 - F.cosine_similarity(student, teacher, dim=-1)
    return (losses if is_token is None else losses * is_token).sum()
