"""What a diffusion model is asked to draw, and how it draws it: batches, prompts, noise, steps.

b batch, c channels, y x positions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.checkpoint.model import Model
from cloze.contention import MONITOR
from cloze.data.images.image_set import encode_captions
from cloze.decode.image_generation import (
    MixedNoise,
    NoiseSource,
    Prompts,
    SamplingConfig,
    count_steps,
    sample_images,
)
from cloze.decode.samplers import DrawNoise
from cloze.nn.utils import eval_mode
from cloze.tasks.pictures import Picture, Pixels

MAX_STRIP = 8  # pictures of the steps that are kept
_BATCH, _GPU_BATCH = 16, 128  # images at a time
_MIDDLE = 128  # darker pixels of a mask are kept


@dataclass(frozen=True)
class WantedImage:
    """An image to draw: of a text and a seed, or on the way to another text and seed."""

    text: str
    seed: int
    other_text: str = ""
    other_seed: int = 0
    weight: float = 0.0  # of the others


class DrawStep(NamedTuple):
    """A step of a batch of images."""

    number: int  # of all batches, from 1
    total: int
    images: list[Pixels]  # as predicted so far; none between two previews
    first: int  # the number of the first of them among all images
    pictures: list[Picture]  # of the batch, after its last step


@dataclass(frozen=True, kw_only=True)
class DrawRequest:
    """Images to draw with one model and the same options."""

    model: Model
    wanted: Sequence[WantedImage]
    config: SamplingConfig
    image: Pixels | None = None
    mask: Pixels | None = None
    keep_steps: bool = False
    preview_every: int | None = None  # None: no images of steps

    @torch.inference_mode()
    def run(self) -> Iterator[DrawStep]:
        """Draw all images, batch by batch."""
        model = self.model
        size = _BATCH if model.device.type == "cpu" else _GPU_BATCH
        batches = [self.wanted[n : n + size] for n in range(0, len(self.wanted), size)]
        each = count_steps(self.config, has_image=self.image is not None)
        with eval_mode(model.module):
            latents, keep = self._encode_image()
            for index, batch in enumerate(batches):
                for step in self._draw_batch(batch, latents, keep):
                    yield step._replace(
                        number=index * each + step.number,
                        total=len(batches) * each,
                        first=index * size,
                    )

    def _encode_image(self) -> tuple[Tensor | None, Tensor | None]:
        """The latents of the given image (1 c y x), and where they are kept (1 1 y x)."""
        model = self.model
        if self.image is None:
            return None, None
        pixels = torch.from_numpy(self.image).to(model.device)
        scaled = pixels.permute(2, 0, 1)[None].to(model.dtype) / 127.5 - 1
        latents = model.module.encode_images(scaled)
        if self.mask is None:
            return latents, None
        drawn = torch.from_numpy(self.mask).float().mean(-1)[None, None]
        smaller = F.adaptive_max_pool2d(drawn, latents.shape[-2:])
        return latents, (smaller < _MIDDLE).to(model.device)

    def _draw_batch(
        self, wanted: Sequence[WantedImage], latents: Tensor | None, keep: Tensor | None
    ) -> Iterator[DrawStep]:
        module, config = self.model.module, self.config
        MONITOR.check()
        prompts, noise = prepare_batch(self.model, wanted)
        MONITOR.check()
        image = None if latents is None else latents.expand(len(wanted), -1, -1, -1)
        count = count_steps(config, has_image=image is not None)
        every = max(1, count // MAX_STRIP)
        kept: list[list[Pixels]] = []
        steps = sample_images(module, prompts, noise, config, image=image, keep=keep)
        for number, found in enumerate(steps, 1):
            MONITOR.check()
            is_last = number == count
            is_kept = self.keep_steps and (number % every == 0 or is_last)
            is_shown = self.preview_every is not None and (
                number % self.preview_every == 0 or is_last
            )
            now = to_pixels(module.decode_images(found.original)) if is_kept or is_shown else []
            kept += [now] if is_kept else []
            pictures: list[Picture] = []
            if is_last:
                final = to_pixels(module.decode_images(found.sample))
                pictures = [
                    Picture(one.seed, final[n], [step[n] for step in kept])
                    for n, one in enumerate(wanted)
                ]
            yield DrawStep(number, count, now if is_shown else [], 0, pictures)


def prepare_batch(model: Model, wanted: Sequence[WantedImage]) -> tuple[Prompts, DrawNoise]:
    """The encoded texts of a batch, and its noise."""
    prompts = encode_prompts(model, [one.text for one in wanted])
    noise = NoiseSource([one.seed for one in wanted], model.module)
    weights = torch.tensor([one.weight for one in wanted])
    if not weights.any():
        return prompts, noise
    weights = weights.to(model.device)
    mixed: DrawNoise = noise
    if any(one.seed != one.other_seed for one in wanted):
        mixed = MixedNoise(
            noise, NoiseSource([one.other_seed for one in wanted], model.module), weights
        )
    if any(one.text != one.other_text for one in wanted):
        others = encode_prompts(model, [one.other_text for one in wanted])
        prompts = Prompts(
            prompts.text, prompts.mask, prompts.empty, prompts.empty_mask, others, weights
        )
    return prompts, mixed


def encode_prompts(model: Model, texts: Sequence[str]) -> Prompts:
    """The texts and the empty text, as the text encoder reads them; each different one once."""
    if model.module.text_encoder is None:
        return Prompts(None, None)
    different = list(dict.fromkeys(texts))
    rows = torch.tensor([different.index(text) for text in texts], device=model.device)
    encoded = []
    for some in (different, [""]):
        ids, mask = encode_captions(model.tokenizer, some, model.config.longest_text)
        on_device = torch.from_numpy(mask).to(model.device)
        states = model.module.encode_text(torch.from_numpy(ids).to(model.device), on_device)
        encoded += [states, on_device]
    text, mask, *empty = encoded
    return Prompts(text[rows], mask[rows], *empty)


def to_pixels(images: Tensor) -> list[Pixels]:
    """From [−1, 1], b 3 y x."""
    values = ((images.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    return list(values.permute(0, 2, 3, 1).cpu().numpy())
