"""What language models learn from: −Σ log p of every word, given those before it.

b rows, t tokens, l layers, d width, v vocabulary.
"""

import torch
from torch import Tensor, nn

from cloze.data.language_model_batches import LOSS_NAME, LanguageModelBatch
from cloze.models.lstm import LSTM
from cloze.models.nnlm import NNLM
from cloze.objectives.core import DeviceBatch, Terms, correct, cross_entropy, exact


class Carried(nn.Module):
    """A recurrent model that goes on where its last batch ended.

    What each row remembers lies in buffers: they are saved with the weights, so that a resumed run
    goes on exactly, and stay in place, so that a GPU can record the step.
    """

    def __init__(self, model: LSTM, rows: int) -> None:
        super().__init__()
        self.model = model
        self.names = ("hidden", "memory")[: model.rnn.state_parts]
        for name, part in zip(self.names, model.init_state(rows), strict=True):
            self.register_buffer(name, part)  # l b d

    def forward(self, inputs: Tensor, rows: Tensor, keep: Tensor) -> Tensor:
        """What the output reads at every token, b t d."""
        parts = [self.get_buffer(name) for name in self.names]
        before = tuple(part[:, rows] * keep[:, None] for part in parts)
        vectors, after = self.model(inputs, before)
        with torch.no_grad():  # gradients end with the batch
            for part, new in zip(parts, after, strict=True):
                part.index_copy_(1, rows, new.to(part.dtype))
        return vectors


def language(
    model: NNLM | Carried,
    batch: LanguageModelBatch | DeviceBatch,
    rng: torch.Generator | None = None,
) -> Terms:
    """The loss of a batch, and how many words had the highest score."""
    del rng  # dropout draws where torch has it draw
    placed = batch if isinstance(batch, DeviceBatch) else DeviceBatch.on(_device(model), batch)
    given = placed.tensors
    if isinstance(model, Carried):
        vectors = model(given["inputs"], given["rows"], given["keep_state"])
        scores = model.model.logits(vectors.flatten(0, 1))  # (b t) v
    else:
        scores = model(given["inputs"])  # b v
    scores, targets = exact(scores), given["targets"].flatten()
    return {
        LOSS_NAME: cross_entropy(scores, targets),
        f"{LOSS_NAME}.accuracy": correct(scores, targets),
    }


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
