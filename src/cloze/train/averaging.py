"""Averages of the weights: since the model no longer improves (NT-ASGD), or exponential (EMA)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from cloze.train.state import TrainState
from cloze.train.step import Step

_NOTE, _PREFIX = "averaging", "average."


class AveragedWeights:
    """An average of the weights in `state.extra`, which is saved with the state."""

    def __init__(self, state: TrainState) -> None:
        self._state = state

    @contextmanager
    @torch.no_grad()
    def swap_in(self) -> Iterator[None]:
        """Within the context the model has the average of the weights."""
        means = self._means
        before = {name: weight.clone() for name, weight in self._weights.items() if name in means}
        self._copy_in(means)
        try:
            yield
        finally:
            self._copy_in(before)

    def _copy_in(self, values: Mapping[str, Tensor]) -> None:
        weights = self._weights
        for name, value in values.items():
            weights[name].copy_(value)

    @torch.no_grad()
    def _move(self, fraction: float) -> None:
        """Move the average towards the weights; the first time it becomes equal to them."""
        weights, means = self._weights, self._means
        if not means:
            extra = {_PREFIX + name: weight.clone() for name, weight in weights.items()}
            self._state.extra.update(extra)
            return
        torch._foreach_lerp_(list(means.values()), [weights[name] for name in means], fraction)

    @property
    def _weights(self) -> dict[str, Tensor]:
        weights = self._state.model.named_parameters()
        return {name: weight.detach() for name, weight in weights if weight.requires_grad}

    @property
    def _means(self) -> dict[str, Tensor]:
        extra = self._state.extra.items()
        return {
            name.removeprefix(_PREFIX): mean for name, mean in extra if name.startswith(_PREFIX)
        }


class WeightEMA(AveragedWeights):
    """w̄ ← d·w̄ + (1 − d)·w after each step, with d = min(decay, (1 + step)/(10 + step)).

    The decay grows during the first steps, so that the initial weights are soon forgotten.
    """

    def __init__(self, state: TrainState, decay: float) -> None:
        super().__init__(state)
        self._decay = decay

    def average_steps(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Update the average after each step."""
        for step in steps:
            self._move(1 - min(self._decay, (1 + step.number) / (10 + step.number)))
            yield step


class WeightAverage(AveragedWeights):
    """The mean of the weights after each step since it was triggered, used in evaluations.

    Averaging is triggered by the first evaluation that is worse than the best one of those at
    least `patience` evaluations ago: the non-monotonic criterion of NT-ASGD (Merity et al. 2018,
    algorithm 1, as in their code). Training itself continues from the weights of the last step. The
    mean is in `state.extra` and the scores are in `state.notes`, so they are saved with the state.
    """

    def __init__(self, state: TrainState, patience: int) -> None:
        super().__init__(state)
        self._patience = patience

    def average_steps(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Update the mean after each step."""
        for step in steps:
            if self._notes["start"] is not None:
                self._move(1 / (step.number - self._notes["start"]))
            yield step

    def evaluate(self, evaluate: Callable[[], Mapping[str, float]]) -> dict[str, float]:
        """Evaluate the mean of the weights, or the weights themselves before it is triggered."""
        with self.swap_in():
            scores = dict(evaluate())
        notes, score = self._notes, scores["score"]
        earlier = notes["scores"][: -self._patience]
        if notes["start"] is None and earlier and score < max(earlier):
            notes["start"] = self._state.progress.step
        notes["scores"].append(score)
        return {**scores, "is_averaged": float(bool(self._state.extra))}

    @property
    def _notes(self) -> dict[str, Any]:
        """The scores so far, and the step at which averaging was triggered."""
        found: dict[str, Any] = self._state.notes.setdefault(_NOTE, {"scores": [], "start": None})
        return found
