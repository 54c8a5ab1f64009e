"""Several outputs of one text as one score: all masks, both ends of an answer, a translation.

b rows.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from cloze.interpret.scores import Batch, Score

_SHOWN = 4  # names in the name of several


class JointScore(Score):
    """The sum of the scores of several outputs; log-probabilities add up to that of all of them."""

    def __init__(self, scores: Sequence[Score]) -> None:
        self.scores = scores
        self.position = scores[0].position
        names = [one.name for one in scores]
        self.name = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")

    def evaluate(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The sums of the logits and of the log-probabilities: b each."""
        once: Any = _ForwardOnce(module)
        found = [score.evaluate(once, batch) for score in self.scores]
        logits, log_probabilities = zip(*found, strict=True)
        return sum(logits[1:], logits[0]), sum(log_probabilities[1:], log_probabilities[0])

    def log_probabilities(self, module: nn.Module, batch: Batch) -> Tensor:
        """There is no distribution over all combinations of outputs."""
        raise NotImplementedError


def join(scores: Sequence[Score]) -> Score:
    """The only score, or the joint score of several."""
    return scores[0] if len(scores) == 1 else JointScore(scores)


class _ForwardOnce:
    """A module whose last layer is computed once for the same inputs."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._output: Tensor | None = None

    def __call__(self, *inputs: Tensor | None) -> Tensor:
        if self._output is None:
            self._output = self._module(*inputs)
        return self._output

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._module, name)
