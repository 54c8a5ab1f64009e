"""What language models learn from: −Σ log p of every word, given those before it.

b rows, t tokens, l layers, d width, v vocabulary.
"""

import torch
from torch import Tensor, nn

from cloze.data.running import NAME, TextBatch
from cloze.models.lstm import LSTM
from cloze.models.nnlm import NNLM
from cloze.objectives.core import Placed, Terms, correct, cross_entropy, exact


class Carried(nn.Module):
    """A recurrent model that goes on where its last batch ended.

    What each row remembers lies in buffers: they are saved with the weights, so that a resumed run
    goes on exactly, and stay in place, so that a GPU can record the step.
    """

    def __init__(self, model: LSTM, rows: int) -> None:
        super().__init__()
        self.model = model
        self.names = ("hidden", "memory")[: model.stack.parts]
        for name, part in zip(self.names, model.start(rows), strict=True):
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
    model: NNLM | Carried, batch: TextBatch | Placed, rng: torch.Generator | None = None
) -> Terms:
    """The loss of a batch, and how many words had the highest score."""
    del rng  # dropout draws where torch has it draw
    placed = batch if isinstance(batch, Placed) else Placed.on(_device(model), batch)
    given = placed.tensors
    if isinstance(model, Carried):
        vectors = model(given["inputs"], given["rows"], given["keep"])
        scores = model.model.logits(vectors.flatten(0, 1))  # (b t) v
    else:
        scores = model(given["inputs"])  # b v
    scores, targets = exact(scores), given["targets"].flatten()
    return {NAME: cross_entropy(scores, targets), f"{NAME}.accuracy": correct(scores, targets)}


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
