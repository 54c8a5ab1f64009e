"""Images from a diffusion model: guidance, a given image to start from, parts to keep.

b batch, c channels, y x positions, s text tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.decode.samplers import Denoised, DrawNoise, Model, Sampler, make_sampler
from cloze.errors import ConfigError
from cloze.models.diffusion import Diffusion
from cloze.nn.noise_schedule import FlowSchedule, add_noise

DEFAULT_STEPS = 25
_GUIDED = 1.0  # without guidance
_SAME_DIRECTION = 1e-4  # sine of the angle between two directions that are equal


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How images are sampled."""

    sampler: str | None = None  # None: euler for flow matching, else dpm-solver++
    steps: int = DEFAULT_STEPS
    guidance: float = 3.0  # 1: none
    strength: float = 0.7  # how much of a given image is replaced by noise

    def make_sampler(self, model: Diffusion) -> Sampler:
        """The sampler for a model; an error if it does not fit."""
        schedule = model.schedule
        default = "euler" if isinstance(schedule, FlowSchedule) else "dpm-solver++"
        clip = model.autoencoder is None
        return make_sampler(self.sampler or default, schedule, self.steps, clip=clip)


@dataclass(frozen=True)
class Prompts:
    """Encoded texts (b s d) with their mask, and the empty text, if there is a text encoder."""

    text: Tensor | None
    mask: Tensor | None
    empty: Tensor | None = None  # 1 s d
    empty_mask: Tensor | None = None
    other: "Prompts | None" = None  # texts that these are mixed with
    weights: Tensor | None = None  # of `other`: b

    def __len__(self) -> int:
        return 0 if self.text is None else len(self.text)


class NoiseSource:
    """Random numbers of each image by its seed, so that a batch gives the same as one at a time."""

    def __init__(self, seeds: Sequence[int], model: Diffusion) -> None:
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._shape, self._like = model.config.sample_shape, next(model.denoiser.parameters())

    def __call__(self) -> Tensor:
        """Normal noise for each image: b c y x."""
        rows = [torch.randn(self._shape, generator=one) for one in self._generators]
        return torch.stack(rows).to(self._like)


class MixedNoise:
    """Noise on the way from one source to another, on the arc between them.  Shoemake 1985.

    It has the length of normal noise, which a straight line would not keep.
    """

    def __init__(self, first: NoiseSource, second: NoiseSource, weights: Tensor) -> None:
        self._sources, self._weights = (first, second), weights

    def __call__(self) -> Tensor:
        """Noise for each image by its weight of the second source: b c y x."""
        first, second = (draw() for draw in self._sources)
        unit = [F.normalize(one.flatten(1), dim=1) for one in (first, second)]
        angle = (unit[0] * unit[1]).sum(1).clamp(-1, 1).acos()  # b
        weights = self._weights.to(angle)
        is_same = angle.sin() < _SAME_DIRECTION
        parts = (
            torch.where(is_same, straight, (straight * angle).sin() / angle.sin())
            for straight in (1 - weights, weights)
        )
        of_first, of_second = (part[:, None, None, None] for part in parts)
        return of_first * first + of_second * second


def sample_images(
    model: Diffusion,
    prompts: Prompts,
    draw_noise: DrawNoise,
    config: SamplingConfig,
    *,
    image: Tensor | None = None,
    keep: Tensor | None = None,
) -> Iterator[Denoised]:
    """Denoise from noise; yields the latents after each step, the last of which is the result.

    Args:
        model: the model.
        prompts: the text of each image.
        draw_noise: gives the noise of each image: b c y x.
        config: sampler, steps, guidance and strength.
        image: latents to start from (b c y x): noise is added as `strength` says.
        keep: with `image`, True where it is kept (inpainting): b 1 y x.
    """
    schedule = model.schedule
    sampler = config.make_sampler(model)
    x = first = draw_noise()
    start = 0
    if image is not None:
        start = _find_start(config)
        level = schedule.level(sampler.times[start : start + 1])
        x = add_noise(image, first, level)
    guided = _guide(model, prompts, config.guidance)
    for index in range(start, len(sampler.times)):
        time = sampler.times[index].to(x.device)
        found = sampler.step(index, x, guided(x, time.expand(len(x))), draw_noise)
        if keep is not None and image is not None:
            found = Denoised(_restore_kept(found, image, keep, first, sampler, index), found[1])
        x = found.sample
        yield found


def count_steps(config: SamplingConfig, *, has_image: bool) -> int:
    """The number of steps, fewer for a given image."""
    return config.steps - (_find_start(config) if has_image else 0)


def _find_start(config: SamplingConfig) -> int:
    """The first step for a given image: 0 for strength 1."""
    if not 0 < config.strength <= 1:
        raise ConfigError(f"strength is {config.strength}", fix="use a number above 0, up to 1")
    return min(config.steps - 1, round(config.steps * (1 - config.strength)))


def _restore_kept(
    found: Denoised, image: Tensor, keep: Tensor, noise: Tensor, sampler: Sampler, index: int
) -> Tensor:
    """Replace what is kept by the image, at the noise level after the step."""
    is_last = index + 1 == len(sampler.times)
    known = image
    if not is_last:
        schedule = sampler.schedule  # type: ignore[attr-defined]
        known = add_noise(image, noise, schedule.level(sampler.times[index + 1 : index + 2]))
    return torch.where(keep, known, found.sample)


def _guide(model: Diffusion, prompts: Prompts, guidance: float) -> Model:
    """o_empty + g·(o_text − o_empty), both in one batch.  Ho & Salimans 2022, eq. 6."""
    if prompts.other is not None and prompts.weights is not None:
        return _mix(model, prompts, guidance)
    if prompts.text is None:
        return lambda x, times: model(x, times)
    if guidance == _GUIDED or prompts.empty is None or prompts.empty_mask is None:
        return lambda x, times: model(x, times, prompts.text, prompts.mask)
    text, mask = _join_prompts(prompts)

    def predict(x: Tensor, times: Tensor) -> Tensor:
        both = model(torch.cat([x, x]), torch.cat([times, times]), text, mask)
        conditional, unconditional = both.chunk(2)
        return unconditional + guidance * (conditional - unconditional)

    return predict


def _mix(model: Diffusion, prompts: Prompts, guidance: float) -> Model:
    """(1 − w)·o_first + w·o_second: the outputs for two texts, with their weights."""
    assert prompts.other is not None
    assert prompts.weights is not None
    first = _guide(model, replace(prompts, other=None), guidance)
    second, weights = _guide(model, prompts.other, guidance), prompts.weights[:, None, None, None]

    def predict(x: Tensor, times: Tensor) -> Tensor:
        return torch.lerp(first(x, times), second(x, times), weights.to(x))

    return predict


def _join_prompts(prompts: Prompts) -> tuple[Tensor, Tensor]:
    """The texts, then as many empty ones, with the same number of tokens."""
    assert prompts.text is not None
    assert prompts.mask is not None
    assert prompts.empty is not None
    assert prompts.empty_mask is not None
    count, tokens, size = prompts.text.shape
    width = max(tokens, prompts.empty.shape[1])
    text = prompts.text.new_zeros(2 * count, width, size)
    mask = prompts.mask.new_zeros(2 * count, width)
    text[:count, :tokens], mask[:count, :tokens] = prompts.text, prompts.mask
    text[count:, : prompts.empty.shape[1]] = prompts.empty
    mask[count:, : prompts.empty.shape[1]] = prompts.empty_mask
    return text, mask
