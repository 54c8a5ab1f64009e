"""`draw`: images from texts, by a diffusion model."""

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.config import in_range, number
from cloze.data.images.decode import convert_image, decode_image, encode_png
from cloze.data.images.image_set import encode_captions
from cloze.decode.image_generation import DEFAULT_STEPS, Prompts, SamplingConfig, sample_images
from cloze.errors import InputError
from cloze.files import PathLike, expand_user, write_bytes
from cloze.nn.noise_schedule import NUM_TIMES
from cloze.nn.utils import eval_mode
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result, Results
from cloze.tasks.inputs import Texts, check_texts, open_model

MAX_STRIP = 8  # pictures of the steps that are kept
_BATCH, _GPU_BATCH = 16, 128  # images at a time
_MAX_SEED = 2**63 - 1
Pixels = NDArray[np.uint8]  # y x 3
OnStep = Callable[[int, int, list[Pixels]], object]
"""Called after a step with its number, the number of steps, and the images as predicted so far."""


@dataclass(frozen=True, eq=False)
class Picture:
    """An image, and the seed that it was made from."""

    seed: int
    pixels: Pixels = field(repr=False)  # y x 3
    steps: list[Pixels] = field(default_factory=list, repr=False)  # as predicted, with keep_steps

    def to_png(self) -> bytes:
        """The image as a PNG file."""
        return encode_png(self.pixels)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object; the PNG file is in base64."""
        height, width = self.pixels.shape[:2]
        image = base64.b64encode(self.to_png()).decode()
        return {"seed": self.seed, "width": width, "height": height, "png": image}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class DrawResult(Result):
    """The images of a text."""

    text: str
    pictures: list[Picture]

    record_columns = ("text", "seed", "width", "height")

    @property
    def pixels(self) -> Pixels:
        """The first image: y x 3."""
        return self.pictures[0].pixels

    def save(self, path: PathLike, *, columns: int | None = None) -> Path:
        """Write the image as a PNG file; several images side by side."""
        return save_grid(path, [one.pixels for one in self.pictures], columns)

    def save_steps(self, path: PathLike) -> Path:
        """Write the images after the steps as a PNG file, a row for each picture (`keep_steps`)."""
        steps = [step for one in self.pictures for step in one.steps]
        if not steps:
            raise InputError("the steps were not kept", fix="draw with keep_steps=True")
        return save_grid(path, steps, len(self.pictures[0].steps))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object; PNG files are in base64."""
        return {"text": self.text, "pictures": [one.to_dict() for one in self.pictures]}

    def to_records(self) -> list[dict[str, Any]]:
        """A row for each image."""
        found = ({"text": self.text, **one.to_dict()} for one in self.pictures)
        return [{name: one[name] for name in self.record_columns} for one in found]

    def _repr_html_(self) -> str:
        from html import escape

        text = escape(self.text, quote=True)
        images = "".join(
            f'<img src="data:image/png;base64,{base64.b64encode(one.to_png()).decode()}" '
            f'alt="{text}" title="seed {one.seed}" style="width: 8em; margin: 0 .4em .4em 0">'
            for one in self.pictures
        )
        return f'<figure style="margin: 0">{images}<figcaption>{text}</figcaption></figure>'


class DrawOptions(TypedDict, total=False):
    """The options of `draw`."""

    samples: int
    steps: int
    guidance: float
    seed: int
    sampler: str | None
    image: PathLike | Pixels | None
    strength: float
    mask: PathLike | Pixels | None
    keep_steps: bool
    text_column: str | int | None
    on_step: OnStep | None
    progress: ProgressOption


@overload
def draw(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike, texts: str, **options: Unpack[DrawOptions]
) -> DrawResult: ...
@overload
def draw(
    model: Model | PathLike, texts: Texts, **options: Unpack[DrawOptions]
) -> Results[DrawResult]: ...
@torch.inference_mode()
@with_progress
def draw(
    model: Model | PathLike,
    texts: str | Texts,
    *,
    samples: int = 1,
    steps: int = DEFAULT_STEPS,
    guidance: float = 3.0,
    seed: int = 0,
    sampler: str | None = None,
    image: PathLike | Pixels | None = None,
    strength: float = 0.7,
    mask: PathLike | Pixels | None = None,
    keep_steps: bool = False,
    text_column: str | int | None = None,
    on_step: OnStep | None = None,
    progress: ProgressCallback | None = None,
) -> DrawResult | Results[DrawResult]:
    """Draw images of texts with a diffusion model.

    An image depends on text, seed and options only, not on others in the same call. An empty text
    draws what the model has seen, without guidance.

    Args:
        model: a diffusion model, or its folder.
        texts: a text, or several: a list, a column, or a table (data frame, `datasets`, mappings).
        samples: number of images of each text, with the seeds `seed`, `seed` + 1, …
        steps: number of steps from noise to an image; more are slower and often better.
        guidance: how strongly the image follows the text; 1 is without guidance.
        seed: seed of the random noise.
        sampler: ddpm, ddim, dpm-solver++ or euler (default: the model's).
        image: an image to start from: a file, or pixels (y x 3).
        strength: how much of `image` is replaced: close to 0 nothing, 1 everything.
        mask: with `image`, what is drawn anew: white pixels; black ones are kept (inpainting).
        keep_steps: keep the images as predicted after some of the steps, in `Picture.steps`.
        text_column: column of the text, if the texts are in a table.
        on_step: called after each step of a batch with its number, the number of steps, and the
            images as predicted so far.
        progress: show a progress bar, or not; a function is called with stage, done and total.
    """
    opened = open_model(model, "draw", "image_generator")
    in_range("samples", samples, 1, 1 << 16)
    in_range("steps", steps, 1, NUM_TIMES)
    in_range("seed", seed, 0, _MAX_SEED - samples)
    config = SamplingConfig(
        sampler=sampler,
        steps=steps,
        guidance=number("guidance", guidance, 0, 100),
        strength=number("strength", strength, 0, 1),
    )
    if mask is not None and image is None:
        raise InputError("mask is given without image", fix="give the image to change")
    listed = check_texts(texts, "text", text_column)
    wanted = [(text, seed + n) for text in listed for n in range(samples)]
    start = _Start.open(opened, image, mask)
    found: list[Picture] = []
    with eval_mode(opened.module):
        size = _BATCH if opened.device.type == "cpu" else _GPU_BATCH
        for first in range(0, len(wanted), size):
            batch = wanted[first : first + size]
            found += _draw_batch(opened, batch, config, start, keep_steps, on_step)
            if progress is not None:
                progress("images", len(found), len(wanted))
    results = Results(
        DrawResult(text=text, pictures=found[n * samples : (n + 1) * samples])
        for n, text in enumerate(listed)
    )
    return results[0] if isinstance(texts, str) else results


@dataclass(frozen=True)
class _Start:
    """The latents of a given image (1 c y x), and where they are kept (1 1 y x)."""

    image: Tensor | None = None
    keep: Tensor | None = None

    @classmethod
    def open(cls, model: Model, image: Any, mask: Any) -> "_Start":  # noqa: ANN401
        if image is None:
            return cls()
        size = model.config.image_size
        pixels = torch.from_numpy(_read_pixels(image, size)).to(model.device)
        scaled = pixels.permute(2, 0, 1)[None].to(model.dtype) / 127.5 - 1
        latents = model.module.encode_images(scaled)
        if mask is None:
            return cls(latents)
        shape = latents.shape[-2:]
        drawn = torch.from_numpy(_read_pixels(mask, size)).float().mean(-1)[None, None]
        smaller = torch.nn.functional.adaptive_max_pool2d(drawn, shape)
        return cls(latents, (smaller < 128).to(model.device))  # noqa: PLR2004 - dark: kept

    def repeat(self, count: int) -> tuple[Tensor | None, Tensor | None]:
        image = None if self.image is None else self.image.expand(count, -1, -1, -1)
        return image, self.keep


def _draw_batch(
    model: Model,
    wanted: Sequence[tuple[str, int]],
    config: SamplingConfig,
    start: _Start,
    keep_steps: bool,
    on_step: OnStep | None,
) -> list[Picture]:
    module = model.module
    prompts = _encode_prompts(model, [text for text, _ in wanted])
    image, keep = start.repeat(len(wanted))
    seeds = [seed for _, seed in wanted]
    every = max(1, config.steps // MAX_STRIP)
    kept: list[list[Pixels]] = []
    sample = None
    steps = sample_images(module, prompts, seeds, config, image=image, keep=keep)
    for number_, found in enumerate(steps, 1):
        sample = found.sample
        is_kept = keep_steps and (number_ % every == 0 or number_ == config.steps)
        if is_kept or on_step is not None:
            now = _to_pixels(module.decode_images(found.original))
            kept += [now] if is_kept else []
            if on_step is not None:
                on_step(number_, config.steps, now)
    assert sample is not None
    pixels = _to_pixels(module.decode_images(sample))
    return [
        Picture(seed, pixels[n], [one[n] for one in kept]) for n, (_, seed) in enumerate(wanted)
    ]


def _encode_prompts(model: Model, texts: Sequence[str]) -> Prompts:
    if model.module.text_encoder is None:
        return Prompts(None, None)
    encoded = []
    for some in (texts, [""]):
        ids, mask = encode_captions(model.tokenizer, some, model.config.max_text_length)
        on_device = torch.from_numpy(mask).to(model.device)
        states = model.module.encode_text(torch.from_numpy(ids).to(model.device), on_device)
        encoded += [states, on_device]
    return Prompts(*encoded)


def _to_pixels(images: Tensor) -> list[Pixels]:
    """From [−1, 1], b 3 y x."""
    values = ((images.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    return list(values.permute(0, 2, 3, 1).cpu().numpy())


def _read_pixels(image: PathLike | Pixels, size: int) -> Pixels:
    if isinstance(image, np.ndarray):
        return convert_image(image, size=size)
    path = expand_user(image)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{image}: {error.strerror}", fix="check the path") from None
    return decode_image(content, str(image), size=size)


def save_grid(path: PathLike, pictures: Sequence[Pixels], columns: int | None = None) -> Path:
    """Write images side by side as a PNG file, in rows of `columns` (default: about a square)."""
    target = expand_user(path)
    if target.suffix.lower() != ".png":
        raise InputError(f"{path} does not end in .png", fix="images are written as PNG files")
    width = columns or math.ceil(len(pictures) ** 0.5)
    return write_bytes(target, encode_png(make_grid(pictures, width)))


def make_grid(pictures: Sequence[Pixels], columns: int) -> Pixels:
    """Images side by side, in rows of `columns`, on white."""
    height, width = pictures[0].shape[:2]
    rows = -(-len(pictures) // columns)
    grid = np.full((rows * height, min(columns, len(pictures)) * width, 3), 255, np.uint8)
    for n, one in enumerate(pictures):
        y, x = divmod(n, columns)
        grid[y * height : (y + 1) * height, x * width : (x + 1) * width] = one
    return grid
