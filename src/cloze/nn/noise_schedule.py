"""Noise schedules of diffusion and flow matching.

A noisy sample is x_t = α_t·x_0 + σ_t·ε. A schedule says what α and σ are at a time t, which times a
model is trained at, and what it predicts there. b batch.
"""

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

Prediction: TypeAlias = Literal["noise", "velocity", "flow"]
Betas: TypeAlias = Literal["linear", "scaled_linear", "cosine"]

NUM_TIMES = 1000  # noise levels of a discrete schedule; the scale of the times that a model reads
_MAX_BETA = 0.999


class NoiseLevel(NamedTuple):
    """α and σ of x_t = α·x_0 + σ·ε."""

    alpha: Tensor
    sigma: Tensor

    def broadcast_to(self, x: Tensor) -> "NoiseLevel":
        """Both with axes to multiply with b c h w, in the dtype of x."""
        shape = (-1, *([1] * (x.dim() - 1)))
        return NoiseLevel(*(part.to(x).reshape(shape) for part in self))


class NoiseSchedule(Protocol):
    """α and σ by time, and what the model predicts."""

    @property
    def prediction(self) -> Prediction: ...

    def draw_times(
        self, count: int, device: torch.device, generator: torch.Generator | None = None
    ) -> Tensor:
        """Random times to train at, as the model reads them."""
        ...

    def level(self, times: Tensor) -> NoiseLevel:
        """α and σ at these times."""
        ...


@dataclass(frozen=True, eq=False)
class DiffusionSchedule:
    """√ᾱ_t and √(1 − ᾱ_t) with ᾱ_t = Π (1 − β_s), for t = 0 … 999.  Ho et al. 2020, eq. 4."""

    betas: Tensor  # in float64
    prediction: Prediction = "noise"
    _products: dict[torch.device, Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def make(
        cls,
        kind: Betas = "linear",
        prediction: Prediction = "noise",
        *,
        first: float = 1e-4,
        last: float = 2e-2,
    ) -> "DiffusionSchedule":
        """β from `first` to `last` (linear, or linear in √β), or by the cosine of ᾱ."""
        if kind == "cosine":  # Nichol & Dhariwal 2021, eq. 17
            grid = torch.arange(NUM_TIMES + 1, dtype=torch.float64) / NUM_TIMES
            product = torch.cos((grid + 0.008) / 1.008 * math.pi / 2).square()
            betas = (1 - product[1:] / product[:-1]).clamp(max=_MAX_BETA)
        elif kind == "scaled_linear":  # Rombach et al. 2022
            betas = torch.linspace(first**0.5, last**0.5, NUM_TIMES, dtype=torch.float64).square()
        else:
            betas = torch.linspace(first, last, NUM_TIMES, dtype=torch.float64)
        return cls(betas, prediction)

    @property
    def alphas_cumprod(self) -> Tensor:
        """ᾱ_t."""
        return (1 - self.betas).cumprod(0)

    def draw_times(
        self, count: int, device: torch.device, generator: torch.Generator | None = None
    ) -> Tensor:
        """Times of the uniform distribution."""
        return torch.randint(len(self.betas), (count,), generator=generator, device=device)

    def level(self, times: Tensor) -> NoiseLevel:
        """α and σ at whole times; before time 0 there is no noise."""
        product = self._products.get(times.device)
        if product is None:  # once for each device: a CUDA graph must not copy from the CPU
            product = self._products[times.device] = self.alphas_cumprod.to(times.device)
        found = torch.where(times < 0, 1.0, product[times.clamp(min=0).long()])
        return NoiseLevel(found.sqrt(), (1 - found).sqrt())


@dataclass(frozen=True)
class FlowSchedule:
    """x_t = (1 − σ)·x_0 + σ·ε on a straight line, σ = t/1000.  Lipman et al. 2023, Liu et al. 2023.

    Times are drawn with a normal distribution of logit(σ), as in Esser et al. 2024, §3.1.
    """

    prediction: Prediction = "flow"
    logit_std: float = 1.0

    def draw_times(
        self, count: int, device: torch.device, generator: torch.Generator | None = None
    ) -> Tensor:
        """Times with a logit-normal distribution, densest in the middle."""
        normal = torch.randn(count, generator=generator, device=device)
        return NUM_TIMES * torch.sigmoid(self.logit_std * normal)

    def level(self, times: Tensor) -> NoiseLevel:
        """α = 1 − σ and σ = t/1000."""
        sigma = times.double() / NUM_TIMES
        return NoiseLevel(1 - sigma, sigma)


def add_noise(x: Tensor, noise: Tensor, level: NoiseLevel) -> Tensor:
    """α·x + σ·ε, each row of the batch at its own level."""
    alpha, sigma = level.broadcast_to(x)
    return alpha * x + sigma * noise


def make_target(x: Tensor, noise: Tensor, level: NoiseLevel, prediction: Prediction) -> Tensor:
    """What the model should predict: ε, v = α·ε − σ·x (Salimans & Ho 2022), or ε − x."""
    if prediction == "noise":
        return noise
    if prediction == "flow":
        return noise - x
    alpha, sigma = level.broadcast_to(x)
    return alpha * noise - sigma * x


def predict_original(
    noisy: Tensor, output: Tensor, level: NoiseLevel, prediction: Prediction
) -> Tensor:
    """x_0 according to the output of the model."""
    alpha, sigma = level.broadcast_to(noisy)
    if prediction == "noise":
        return (noisy - sigma * output) / alpha
    if prediction == "flow":
        return noisy - sigma * output
    return alpha * noisy - sigma * output
