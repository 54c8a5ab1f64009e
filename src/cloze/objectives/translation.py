"""What a translator learns from: each word of the translation, given the source and those before.

b sentences, t target tokens, n of them real, v vocabulary.
"""

import torch
from torch.nn import functional as F

from cloze.data.parallel import NAME, PairBatch
from cloze.errors import ConfigError
from cloze.models.seq2seq import Seq2Seq
from cloze.models.transformer import Transformer
from cloze.objectives.core import Objective, Terms, correct, exact, on_device


def translation(*, smoothing: float = 0.0) -> Objective[PairBatch]:
    """−Σ log p(yᵢ | y₁…yᵢ₋₁, x).

    With `smoothing` ε the target is 1−ε for the right word and ε/v for all (Szegedy et al. 2016;
    Vaswani et al. 2017, §5.4); `translate.nats` is then still the plain sum, without gradient.
    """

    def objective(
        model: Transformer | Seq2Seq, batch: PairBatch, rng: torch.Generator | None = None
    ) -> Terms:
        device = model.target.weight.device
        rows = batch.padded(bos=model.config.bos_id)
        source, real, inputs, told = (on_device(array, device) for array in rows)
        if isinstance(model, Seq2Seq):
            own = batch.own if model.training else 0.0
            vectors = model(source, real, inputs, own=own, rng=rng)
        elif batch.own:
            raise ConfigError(
                "a Transformer sees all target words at once, and none of its own",
                fix="set loss.own_words to 0, or train a seq2seq",
            )
        else:
            vectors = model(source, real, inputs)  # b t d
        targets = on_device(batch.target, device)
        scores = exact(model.logits(vectors[told]))  # n v: padding costs no product
        loss = F.cross_entropy(scores, targets, label_smoothing=smoothing, reduction="sum")
        plain = F.cross_entropy(scores.detach(), targets, reduction="sum") if smoothing else loss
        return {
            NAME: loss,
            f"{NAME}.nats": plain.detach(),
            f"{NAME}.accuracy": correct(scores, targets),
        }

    return objective
