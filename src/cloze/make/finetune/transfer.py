"""Which layers of a pre-trained model are trained, and with which learning rate.

The parts of an encoder have depths: 0 the embeddings, k block k, and above the last block the
pooler and the head.
"""

from collections.abc import Callable, Iterable, Iterator

from torch import nn

from cloze.make.recipe.finetune import TransferConfig
from cloze.nn.encoder import Encoder
from cloze.objectives.core import Learner
from cloze.train.step import Step


def depth_of(name: str, layers: int) -> int:
    """The depth of the parameter with this name."""
    part, _, rest = name.partition(".")
    if part == "embeddings":
        return 0
    return int(rest.partition(".")[0]) + 1 if part == "blocks" else layers + 1


def layer_lr_factors(table: TransferConfig, layers: int) -> Callable[[str], float]:
    """Layer-wise learning-rate decay: each layer has `layer_decay` times the rate of the next.

    Discriminative fine-tuning, Howard & Ruder 2018, §3.2 (their factor 2.6 is 1/0.38 here).
    """
    return lambda name: table.layer_decay ** (layers + 1 - depth_of(name, layers))


def lowest_trained_depth(table: TransferConfig, layers: int) -> int:
    """The lowest depth that is trained at all."""
    return 0 if table.kind == "full" else layers + 1 - table.count_trained_layers(layers)


def unfreeze(module: Encoder, lowest: int) -> None:
    """Train what is at this depth and above, and freeze the rest."""
    layers = len(module.blocks)
    for name, weight in module.named_parameters():
        weight.requires_grad_(depth_of(name, layers) >= lowest)


def unfreeze_gradually(
    steps: Iterable[Step], module: Encoder, table: TransferConfig, *, per_epoch: int, after: int
) -> Iterator[Step]:
    """Unfreeze one layer after another from the top, which protects the lower layers at first.

    Gradual unfreezing, Howard & Ruder 2018, §3.3: one layer per epoch there; here
    `table.unfreeze_every` epochs per layer. `after` is the step at which the run starts or resumes.
    """
    layers = len(module.blocks)
    final, interval = lowest_trained_depth(table, layers), table.unfreeze_every * per_epoch

    def lowest(step: int) -> int:
        return max(final, layers + 1 - int(step / interval)) if interval else final

    unfreeze(module, lowest(after))
    for step in steps:
        yield step
        if lowest(step.number) != lowest(step.number - 1):
            unfreeze(module, lowest(step.number))


class PartlyFrozen(Learner):
    """A learner whose frozen parts stay in evaluation mode: without dropout."""

    def train(self, mode: bool = True) -> "PartlyFrozen":
        super().train(mode)
        assert isinstance(self.model, Encoder)
        for part in (self.model.embeddings, *self.model.blocks):
            if mode and not _is_trained(part):
                part.eval()
        return self


def _is_trained(part: nn.Module) -> bool:
    return any(weight.requires_grad for weight in part.parameters())
