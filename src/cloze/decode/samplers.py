"""Samplers of diffusion models: from noise to a sample in a few steps.

A sampler lists the times at which the model is called, and computes the next sample from the
output of the model. `denoise` runs one. b batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from cloze.config import one_of
from cloze.errors import ConfigError
from cloze.nn.noise_schedule import (
    NUM_TIMES,
    DiffusionSchedule,
    FlowSchedule,
    NoiseLevel,
    NoiseSchedule,
    predict_original,
)

SAMPLERS = ("ddpm", "ddim", "dpm-solver++", "euler")
Model = Callable[[Tensor, Tensor], Tensor]
"""From a noisy batch and the time of each row to the output of the model."""
DrawNoise = Callable[[], Tensor]


class Denoised(NamedTuple):
    """A step of sampling: the next sample, and x_0 as predicted before it."""

    sample: Tensor
    original: Tensor


class Sampler(Protocol):
    """The steps from noise to a sample."""

    times: Tensor  # n, in the order of the steps

    def step(self, index: int, x: Tensor, output: Tensor, draw_noise: DrawNoise) -> Denoised:
        """The sample after step `index`, from the output of the model for x at its time."""
        ...


def make_sampler(name: str, schedule: NoiseSchedule, steps: int, *, clip: bool) -> Sampler:
    """The sampler with this name; predictions of x_0 are limited to [−1, 1] with `clip`."""
    one_of("sampler", name, SAMPLERS)
    if isinstance(schedule, FlowSchedule) != (name == "euler"):
        able = "euler" if isinstance(schedule, FlowSchedule) else "ddpm, ddim or dpm-solver++"
        raise ConfigError(
            f"the sampler {name} does not fit a model with the prediction {schedule.prediction}",
            fix=f"use {able}",
        )
    if isinstance(schedule, FlowSchedule):
        return EulerSampler(schedule, steps, clip=clip)
    assert isinstance(schedule, DiffusionSchedule)
    if name == "dpm-solver++":
        return DPMSolver(schedule, steps, clip=clip)
    return DDIMSampler(schedule, steps, clip=clip, eta=1.0 if name == "ddpm" else 0.0)


def denoise(model: Model, x: Tensor, sampler: Sampler, draw_noise: DrawNoise) -> Iterator[Denoised]:
    """Run all steps; yields the state after each, whose last sample is the result."""
    for index, time in enumerate(sampler.times):
        output = model(x, time.to(x.device).expand(len(x)))
        found = sampler.step(index, x, output, draw_noise)
        x = found.sample
        yield found


@dataclass(eq=False)
class DDIMSampler:
    """x' = α'·x_0 + √(σ'² − s²)·ε + s·z with s = η·(σ'/σ)·√(1 − α²/α'²).  Song et al. 2021, eq. 12.

    η = 0 is deterministic (DDIM); η = 1 is the ancestral sampling of DDPM (Ho et al. 2020), also
    with fewer steps than the schedule has times.
    """

    schedule: DiffusionSchedule
    steps: int
    clip: bool = False
    eta: float = 0.0
    times: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._stride = NUM_TIMES // check_steps(self.steps)
        self.times = (torch.arange(self.steps) * self._stride).flip(0)

    def step(self, index: int, x: Tensor, output: Tensor, draw_noise: DrawNoise) -> Denoised:
        """One step to the next lower noise level."""
        time = self.times[index : index + 1]
        level, after = self.schedule.level(time), self.schedule.level(time - self._stride)
        original = _predict(x, output, level, self.schedule, clip=self.clip)
        alpha, sigma = level.broadcast_to(x)
        next_alpha, next_sigma = after.broadcast_to(x)
        noise = (x - alpha * original) / sigma
        ratio = (1 - (level.alpha / after.alpha).square()).clamp(min=0).sqrt()
        std = (self.eta * after.sigma / level.sigma * ratio).to(x)
        sample = next_alpha * original + (next_sigma**2 - std**2).clamp(min=0).sqrt() * noise
        if self.eta and index + 1 < len(self.times):
            sample = sample + std * draw_noise()
        return Denoised(sample, original)


@dataclass(eq=False)
class DPMSolver:
    """DPM-Solver++(2M), which extrapolates x_0 from two steps.  Lu et al. 2022, algorithm 2.

    The first step and the last one are of first order.
    """

    schedule: DiffusionSchedule
    steps: int
    clip: bool = False
    times: Tensor = field(init=False)
    _previous: Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        grid = torch.linspace(0, NUM_TIMES - 1, check_steps(self.steps) + 1, dtype=torch.float64)
        self.times = grid.round().long().flip(0)[:-1]
        self._levels = self.schedule.level(torch.cat([self.times, torch.tensor([-1])]))

    def step(self, index: int, x: Tensor, output: Tensor, draw_noise: DrawNoise) -> Denoised:  # noqa: ARG002
        """One step in the log of the signal-to-noise ratio."""
        level = self._level(index)
        original = _predict(x, output, level, self.schedule, clip=self.clip)
        previous, self._previous = self._previous if index else None, original
        alphas, sigmas = self._levels
        if index + 1 == len(self.times):  # no noise is left
            return Denoised(original, original)
        log_ratio = alphas.log() - sigmas.log()
        width = log_ratio[index + 1] - log_ratio[index]
        mixed = original
        if previous is not None:
            ratio = float((log_ratio[index] - log_ratio[index - 1]) / width)
            mixed = original + (original - previous) / (2 * ratio)
        scale = (sigmas[index + 1] / sigmas[index]).to(x)
        factor = (alphas[index + 1] * torch.expm1(-width)).to(x)
        return Denoised(scale * x - factor * mixed, original)

    def _level(self, index: int) -> NoiseLevel:
        return NoiseLevel(*(part[index : index + 1] for part in self._levels))


@dataclass(eq=False)
class EulerSampler:
    """x' = x + (σ' − σ)·(ε − x_0), along the straight lines of flow matching."""

    schedule: FlowSchedule
    steps: int
    clip: bool = False
    times: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.times = torch.linspace(NUM_TIMES, 1, check_steps(self.steps), dtype=torch.float64)

    def step(self, index: int, x: Tensor, output: Tensor, draw_noise: DrawNoise) -> Denoised:  # noqa: ARG002
        """One step to the next lower noise level; the last ends without noise."""
        level = self.schedule.level(self.times[index : index + 1])
        original = _predict(x, output, level, self.schedule, clip=self.clip)
        sigma = level.sigma.to(x)
        is_last = index + 1 == len(self.times)
        after = 0.0 if is_last else (self.times[index + 1] / NUM_TIMES).to(x)
        flow = (x - original) / sigma if self.clip else output
        return Denoised(x + (after - sigma) * flow, original)


def check_steps(steps: int) -> int:
    """The number of steps, if there are enough times for it."""
    if not 1 <= steps <= NUM_TIMES:
        raise ConfigError(
            f"a sample cannot be made in {steps} steps", fix=f"use 1 to {NUM_TIMES} steps"
        )
    return steps


def _predict(
    x: Tensor, output: Tensor, level: NoiseLevel, schedule: NoiseSchedule, *, clip: bool
) -> Tensor:
    original = predict_original(x, output, level, schedule.prediction)
    return original.clamp(-1, 1) if clip else original
