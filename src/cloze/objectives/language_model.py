"""The objective of neural language models: −Σ log p of every token, given those before it.

b rows, t tokens, l layers, d width, v vocabulary.
"""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from cloze.data.language_model_batches import LOSS_NAME, LanguageModelBatch
from cloze.models.lstm import LSTM
from cloze.objectives.core import (
    DeviceBatch,
    Terms,
    count_correct,
    cross_entropy,
    upcast_to_float32,
)
from cloze.objectives.fused_cross_entropy import fused_linear_cross_entropy

State = tuple[Tensor, ...]


@runtime_checkable
class RecurrentModel(Protocol):
    """A language model with a state, such as an LSTM."""

    def __call__(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The vectors at every token (b t d), and the state after the last one."""

    def init_state(self, batch_size: int) -> State:
        """The state before the first token: tensors of the shape l b d."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits over the vocabulary: … d -> … v."""


class StatefulLSTM(nn.Module):
    """A recurrent model that continues from the state after the last batch.

    The states are buffers: they are saved with the weights, so that a resumed run continues
    exactly, and stay in place, so that the step can be captured in a CUDA graph.
    """

    def __init__(self, model: Any, rows: int) -> None:  # noqa: ANN401 - an LSTM, or an ELMo
        super().__init__()
        self.model = model
        state = model.init_state(rows)
        others = (f"state_{number}" for number in range(2, len(state)))
        self.names = ("hidden", "cell", *others)[: len(state)]
        for name, part in zip(self.names, state, strict=True):
            self.register_buffer(name, part)  # l b d

    def forward(self, inputs: Any, rows: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """The top layer at every token, after dropout and before it: b t d."""
        parts = [self.get_buffer(name) for name in self.names]
        before = tuple(part[:, rows] * keep[:, None] for part in parts)
        if isinstance(self.model, LSTM):
            raw, after = self.model.read(inputs, before)
            hidden = self.model.rnn.output_dropout(raw)
        else:
            read = getattr(self.model, "read", self.model)  # of a model that is more than an LM
            raw, after = read(inputs, before)
            hidden = raw
        with torch.no_grad():  # no gradient flows into the previous batch
            for part, new in zip(parts, after, strict=True):
                part.index_copy_(1, rows, new.to(part.dtype))
        return hidden, raw


def language_model_objective(
    model: nn.Module,
    batch: LanguageModelBatch | DeviceBatch,
    rng: torch.Generator | None = None,
    *,
    activation_penalty: float = 0.0,
    temporal_penalty: float = 0.0,
) -> Terms:
    """The loss of a batch, and how many tokens have the top logit.

    The penalties of a recurrent model (`regularize_activations`) change the gradient only, not the
    loss that is reported.
    """
    del rng  # dropout uses the global generator
    on_device = (
        batch
        if isinstance(batch, DeviceBatch)
        else DeviceBatch.from_batch(_get_device(model), batch)
    )
    tensors = on_device.tensors
    targets = tensors["targets"].flatten()
    if isinstance(model, StatefulLSTM):
        hidden, raw = model(tensors["inputs"], tensors["rows"], tensors["keep_state"])
        loss, hits = _compute_loss(model.model, hidden.flatten(0, 1), targets)
        penalty = regularize_activations(hidden, raw, activation_penalty, temporal_penalty)
        loss = loss + (penalty - penalty.detach())
    else:
        loss, hits = _score_logits(model(tensors["inputs"]), targets)
    return {LOSS_NAME: loss, f"{LOSS_NAME}.accuracy": hits}


def _compute_loss(model: RecurrentModel, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of vectors (n d), and how many targets (n) have the top logit."""
    if hidden.is_cpu and isinstance(model, LSTM):  # a GPU has the memory for all logits
        return fused_linear_cross_entropy(*model.lm_head_operands(hidden), targets)
    return _score_logits(model.logits(hidden), targets)


def _score_logits(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    logits = upcast_to_float32(logits)
    return cross_entropy(logits, targets), count_correct(logits, targets)


def regularize_activations(
    dropped: Tensor, raw: Tensor, activation: float, temporal: float
) -> Tensor:
    """Σ over tokens of α·mean(m ⊙ hₜ)² + β·mean(hₜ − hₜ₊₁)²: AR and TAR.

    Merity et al. 2018, §4.5; as in their code, α and β multiply means over the elements of the
    last layer (b t d), after dropout and before it.
    """
    rows, length = raw.shape[:2]
    penalty = upcast_to_float32(raw).new_zeros(())
    if activation:
        penalty = penalty + activation * upcast_to_float32(dropped).square().mean()
    if temporal and length > 1:
        steps = upcast_to_float32(raw).diff(dim=1)
        penalty = penalty + temporal * steps.square().mean()
    return penalty * (rows * length)


def _get_device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
