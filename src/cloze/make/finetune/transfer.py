"""How much of a pre-trained model learns, and how fast: frozen parts, rates by layer, thawing.

The parts of an encoder have depths: 0 the embeddings, k block k, and above the last block the
pooler and the head.
"""

from collections.abc import Callable, Iterable, Iterator

from torch import nn

from cloze.make.finetune.recipe import TransferTable
from cloze.nn.encoder import Encoder
from cloze.objectives.core import Learner
from cloze.train.step import Step


def depth_of(name: str, layers: int) -> int:
    """The depth of a weight, by its name."""
    part, _, rest = name.partition(".")
    if part == "embeddings":
        return 0
    return int(rest.partition(".")[0]) + 1 if part == "blocks" else layers + 1


def rates(table: TransferTable, layers: int) -> Callable[[str], float]:
    """Each layer learns at `layer_decay` of the rate above it, the head at the full rate.

    Discriminative rates, Howard & Ruder 2018, §3.2 (2.6 there is 1/0.38 here).
    """
    return lambda name: table.layer_decay ** (layers + 1 - depth_of(name, layers))


def lowest_trained(table: TransferTable, layers: int) -> int:
    """The lowest depth that learns at all."""
    return 0 if table.kind == "full" else layers + 1 - table.trained(layers)


def thaw(module: Encoder, lowest: int) -> None:
    """Let what lies at this depth and above learn, and nothing below."""
    layers = len(module.blocks)
    for name, weight in module.named_parameters():
        weight.requires_grad_(depth_of(name, layers) >= lowest)


def thawing(
    steps: Iterable[Step], module: Encoder, table: TransferTable, *, per_epoch: int, after: int
) -> Iterator[Step]:
    """Thaw one layer after another from the top, so that the head's first noise spares the body.

    Gradual unfreezing, Howard & Ruder 2018, §3.3: there one layer an epoch; `table.unfreeze` says
    how many epochs lie between. `after` is the step from which the run goes on.
    """
    layers = len(module.blocks)
    final, pause = lowest_trained(table, layers), table.unfreeze * per_epoch

    def lowest(step: int) -> int:
        return max(final, layers + 1 - int(step / pause)) if pause else final

    thaw(module, lowest(after))
    for step in steps:
        yield step
        if lowest(step.number) != lowest(step.number - 1):
            thaw(module, lowest(step.number))


class PartlyFrozen(Learner):
    """A learner whose frozen parts stay as they are in use: without dropout."""

    def train(self, mode: bool = True) -> "PartlyFrozen":
        super().train(mode)
        assert isinstance(self.model, Encoder)
        for part in (self.model.embeddings, *self.model.blocks):
            if mode and not _learns(part):
                part.eval()
        return self


def _learns(part: nn.Module) -> bool:
    return any(weight.requires_grad for weight in part.parameters())
