"""The objectives of translators: each target token, given the source and the tokens before it.

b sentences, s source tokens, t target tokens, n predicted tokens (b·t on a GPU), v vocabulary.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.batch import IGNORE_INDEX
from cloze.data.parallel_text import LOSS_NAME, TranslationBatch
from cloze.data.sequence_pairs import SOURCE_LOSS, SequenceBatch
from cloze.errors import ConfigError
from cloze.models.seq2seq import Seq2Seq
from cloze.models.transformer import Transformer
from cloze.nn.encoder import Encoder
from cloze.objectives.core import (
    DeviceBatch,
    Objective,
    Terms,
    copy_to_device,
    count_correct,
    scale_gradient,
    upcast_to_float32,
)
from cloze.objectives.fused_cross_entropy import fused_linear_cross_entropy
from cloze.objectives.labelled import ModelOutput, run_model


def make_translation_objective(*, smoothing: float = 0.0) -> Objective[TranslationBatch]:
    """−Σ log p(yᵢ | y₁…yᵢ₋₁, x).

    With label smoothing ε the target is 1−ε for the true token plus ε/v for all (Szegedy et al.
    2016; Vaswani et al. 2017, §5.4); `translate.nats` is still the plain sum, without gradient.
    """

    def objective(
        model: Transformer | Seq2Seq,
        batch: TranslationBatch | DeviceBatch,
        rng: torch.Generator | None = None,
    ) -> Terms:
        device = model.target_embeddings.weight.device
        packed = isinstance(batch, TranslationBatch) and device.type != "cuda"
        tensors = _copy_arrays(batch, device)
        # rows may be padded beyond the last position of a model
        limit = None if packed else model.max_positions
        source, source_mask, targets = (
            tensors[name][:, :limit] for name in ("source", "attention_mask", "targets")
        )
        first = targets.new_full((len(targets), 1), model.config.bos_id)
        inputs = torch.cat([first, targets[:, :-1].clamp(min=0)], 1)  # b t
        if isinstance(model, Seq2Seq):
            prob = tensors.get("scheduled_sampling_prob", 0.0) if model.training else 0.0
            vectors = model(
                source,
                source_mask,
                inputs,
                scheduled_sampling_prob=prob,
                rng=rng if packed else None,
            )
        elif "scheduled_sampling_prob" in tensors:
            raise ConfigError(
                "scheduled sampling needs a recurrent decoder; a Transformer predicts all target "
                "tokens at once",
                fix="set loss.scheduled_sampling_prob to 0, or train a seq2seq",
            )
        else:
            vectors = model(source, source_mask, inputs)  # b t d
        if packed:  # skip padding; on a GPU that would synchronize
            is_target = targets != IGNORE_INDEX
            vectors, targets = vectors[is_target], targets[is_target]
        else:
            vectors, targets = vectors.flatten(0, 1), targets.flatten()
        return _make_terms(model.logits(vectors), targets, smoothing)

    return objective


def make_sequence_objective(
    *, smoothing: float = 0.0, source_weight: float = 0.0
) -> Objective[SequenceBatch]:
    """−Σ log p(yᵢ | x, separator, y₁…yᵢ₋₁) of a decoder-only model; for label smoothing see above.

    With a `source_weight` λ the source tokens are predicted, too: λ times their mean loss is added
    to that of the target tokens (as the auxiliary loss of Radford et al. 2018, eq. 5).
    """

    def objective(
        model: Encoder,
        batch: SequenceBatch | DeviceBatch,
        rng: torch.Generator | None = None,  # noqa: ARG001 (dropout uses the global generator)
    ) -> Terms:
        head = model.lm_head
        assert head is not None
        output = run_model(model, batch, head)
        positions, targets = output.tensors["positions"], output.tensors["targets"]
        terms = _make_terms(output.logits, targets, smoothing)
        if not source_weight:
            return terms
        following = _find_source_targets(output, positions, targets)  # n
        operands = model.lm_head_operands(output.hidden.flatten(0, -2))
        loss, _ = fused_linear_cross_entropy(*operands, following)
        return {**terms, SOURCE_LOSS: scale_gradient(loss, source_weight)}

    return objective


def _find_source_targets(output: ModelOutput, positions: Tensor, targets: Tensor) -> Tensor:
    """The token after each one of a source; IGNORE_INDEX after others and in padding: n."""
    ids, mask = output.input_ids.flatten(), output.attention_mask
    is_token = torch.ones_like(ids, dtype=torch.bool)
    if isinstance(mask, Tensor):
        is_token = mask.flatten().bool()
    # additional positions of a padded batch are 0, where the first source begins
    is_target = torch.zeros_like(is_token).index_put((positions,), targets != IGNORE_INDEX)
    return torch.where(is_token & ~is_target, ids.roll(-1), IGNORE_INDEX)


def _make_terms(logits: Tensor, targets: Tensor, smoothing: float) -> Terms:
    """The loss of the targets (n v and n), the same without smoothing, and the correct ones."""
    logits = upcast_to_float32(logits)
    loss = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    unsmoothed = F.cross_entropy(logits.detach(), targets, reduction="sum") if smoothing else loss
    return {
        LOSS_NAME: loss,
        f"{LOSS_NAME}.nats": unsmoothed.detach(),
        f"{LOSS_NAME}.accuracy": count_correct(logits, targets),
    }


def _copy_arrays(
    batch: TranslationBatch | DeviceBatch, device: torch.device
) -> Mapping[str, Tensor]:
    if isinstance(batch, DeviceBatch):
        return batch.tensors
    if device.type == "cuda":
        return DeviceBatch.from_batch(device, batch).tensors
    return {name: copy_to_device(array, device) for name, array in batch.arrays(1).items()}
