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

from cloze.data.batch import PackedBatch
from cloze.nn.encoder import Encoder
from cloze.nn.layout import Packed
from cloze.objectives.config import DistillationConfig
from cloze.objectives.core import (
    Terms,
    copy_to_device,
    count_correct,
    cross_entropy,
    scale_gradient,
    upcast_to_float32,
)


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
        ids = copy_to_device(batch.input_ids, device)
        packed = Packed.from_lengths(batch.lengths, device)
        hidden = model(ids, packed)  # n d
        with torch.no_grad():
            teacher_hidden = self.teacher(ids, packed)  # n d
        cosine = compute_cosine_loss(hidden, teacher_hidden)
        terms = {"cosine": scale_gradient(cosine, self.cosine_weight)}
        if "mlm" not in model.task_heads:
            return terms
        # The released script compares predictions at all tokens by default; here at the masked ones
        # only: logits over the vocabulary are the most expensive step of a small model.
        positions = copy_to_device(batch.masked_positions, device)
        targets = copy_to_device(batch.targets, device)
        logits = model.logits("mlm", hidden[positions])  # m v
        with torch.no_grad():
            teacher_logits = self.teacher.logits("mlm", teacher_hidden[positions])  # m v
        soft = compute_soft_target_loss(logits, teacher_logits, self.temperature)
        return terms | {
            "soft": scale_gradient(soft, self.soft_weight),
            "mlm": scale_gradient(cross_entropy(logits, targets), self.mlm_weight),
            "mlm.accuracy": count_correct(logits, targets),
            "mlm.teacher": count_correct(teacher_logits, targets),
        }


def compute_soft_target_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T²·Σ KL(softmax(teacher/T) ‖ softmax(student/T)), in float32 at least.

    With the factor T², the size of the gradient does not depend on the temperature (Hinton et al.
    2015, §2).
    """
    student_log_probs, teacher_log_probs = (
        F.log_softmax(upcast_to_float32(logits) / temperature, dim=-1)
        for logits in (student, teacher)
    )
    return temperature**2 * F.kl_div(
        student_log_probs, teacher_log_probs, reduction="sum", log_target=True
    )


def compute_cosine_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Σ 1 − cos(student, teacher) over the tokens, in float32 at least."""
    student, teacher = upcast_to_float32(student), upcast_to_float32(teacher)
    return (1 - F.cosine_similarity(student, teacher, dim=-1)).sum()
