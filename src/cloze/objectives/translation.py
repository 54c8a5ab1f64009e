"""What a translator learns from: each word of the translation, given the source and those before.

b sentences, s source tokens, t target tokens, n words to say (b·t on a GPU), v vocabulary.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.batch import IGNORE_INDEX
from cloze.data.parallel_text import LOSS_NAME, TranslationBatch
from cloze.errors import ConfigError
from cloze.models.seq2seq import Seq2Seq
from cloze.models.transformer import Transformer
from cloze.objectives.core import DeviceBatch, Objective, Terms, correct, exact, on_device


def translation(*, smoothing: float = 0.0) -> Objective[TranslationBatch]:
    """−Σ log p(yᵢ | y₁…yᵢ₋₁, x).

    With `smoothing` ε the target is 1−ε for the right word and ε/v for all (Szegedy et al. 2016;
    Vaswani et al. 2017, §5.4); `translate.nats` is then still the plain sum, without gradient.
    """

    def objective(
        model: Transformer | Seq2Seq,
        batch: TranslationBatch | DeviceBatch,
        rng: torch.Generator | None = None,
    ) -> Terms:
        device = model.target_embeddings.weight.device
        packed = isinstance(batch, TranslationBatch) and device.type != "cuda"
        given = _given(batch, device)
        # rows may be padded beyond the last position of a model
        most = None if packed else model.max_positions
        source, real, targets = (
            given[name][:, :most] for name in ("source", "attention_mask", "targets")
        )
        first = targets.new_full((len(targets), 1), model.config.bos_id)
        inputs = torch.cat([first, targets[:, :-1].clamp(min=0)], 1)  # b t
        if isinstance(model, Seq2Seq):
            own = given.get("scheduled_sampling_prob", 0.0) if model.training else 0.0
            vectors = model(
                source, real, inputs, scheduled_sampling_prob=own, rng=rng if packed else None
            )
        elif "scheduled_sampling_prob" in given:
            raise ConfigError(
                "a Transformer sees all target words at once, and none of its own",
                fix="set loss.own_words to 0, or train a seq2seq",
            )
        else:
            vectors = model(source, real, inputs)  # b t d
        if packed:  # padding costs no product; a GPU must not wait to hear how much there is
            told = targets != IGNORE_INDEX
            vectors, targets = vectors[told], targets[told]
        else:
            vectors, targets = vectors.flatten(0, 1), targets.flatten()
        scores = exact(model.logits(vectors))  # n v
        loss = F.cross_entropy(scores, targets, label_smoothing=smoothing, reduction="sum")
        plain = F.cross_entropy(scores.detach(), targets, reduction="sum") if smoothing else loss
        return {
            LOSS_NAME: loss,
            f"{LOSS_NAME}.nats": plain.detach(),
            f"{LOSS_NAME}.accuracy": correct(scores, targets),
        }

    return objective


def _given(batch: TranslationBatch | DeviceBatch, device: torch.device) -> Mapping[str, Tensor]:
    if isinstance(batch, DeviceBatch):
        return batch.tensors
    if device.type == "cuda":
        return DeviceBatch.on(device, batch).tensors
    return {name: on_device(array, device) for name, array in batch.arrays(1).items()}
