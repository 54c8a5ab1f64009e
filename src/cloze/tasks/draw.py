"""`draw`: images from texts, by a diffusion model; `interpolate_images`: from one to another."""

from collections.abc import Callable
from itertools import chain
from typing import TypedDict, Unpack, overload

import numpy as np

from cloze.checkpoint.model import Model
from cloze.config import in_range, number
from cloze.decode.image_generation import DEFAULT_STEPS, SamplingConfig
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.nn.noise_schedule import NUM_TIMES
from cloze.progress import ProgressCallback, ProgressOption, open_progress, with_progress
from cloze.results import Results
from cloze.tasks.image_batches import DrawRequest, WantedImage
from cloze.tasks.image_inputs import ImageInput, load_image
from cloze.tasks.inputs import Texts, check_texts, open_model
from cloze.tasks.pictures import DrawResult, Picture, Pixels

_MAX_SEED = 2**63 - 1
_MAX_IMAGES = 1 << 16
OnStep = Callable[[int, int, list[Pixels]], object]
"""Called after a step with its number, the number of steps, and the images as predicted so far."""


class DrawOptions(TypedDict, total=False):
    """The options of `draw`."""

    samples: int
    steps: int
    guidance: float
    seed: int
    sampler: str | None
    image: ImageInput | None
    strength: float
    mask: ImageInput | None
    keep_steps: bool
    text_column: str | int | None
    on_step: OnStep | None
    preview_every: int
    progress: ProgressOption


@overload
def draw(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike, texts: str, **options: Unpack[DrawOptions]
) -> DrawResult: ...
@overload
def draw(
    model: Model | PathLike, texts: Texts, **options: Unpack[DrawOptions]
) -> Results[DrawResult]: ...
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
    image: ImageInput | None = None,
    strength: float = 0.7,
    mask: ImageInput | None = None,
    keep_steps: bool = False,
    text_column: str | int | None = None,
    on_step: OnStep | None = None,
    preview_every: int = 1,
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
        image: an image to start from: a path, bytes, a Pillow image, or pixels (y x 3, uint8).
        strength: how much of `image` is replaced: close to 0 nothing, 1 everything.
        mask: with `image`, what is drawn anew: white pixels; black ones are kept (inpainting).
        keep_steps: keep the images as predicted after some of the steps, in `Picture.steps`.
        text_column: column of the text, if the texts are in a table.
        on_step: called after steps of a batch with their number, the number of steps, and the
            images as predicted so far.
        preview_every: number of steps between two calls of `on_step`; the last step is one, too.
        progress: show a progress bar, or not; a function is called with stage, done and total.
    """
    opened = open_model(model, "draw", "image_generator")
    listed = check_texts(texts, "text", text_column)
    request = make_draw_request(
        opened,
        listed,
        samples=samples,
        steps=steps,
        guidance=guidance,
        seed=seed,
        sampler=sampler,
        image=image,
        strength=strength,
        mask=mask,
        keep_steps=keep_steps,
        preview_every=preview_every if on_step is not None else None,
    )
    found = _run(request, on_step, progress)
    results = collect_results(listed, found)
    return results[0] if isinstance(texts, str) else results


def make_draw_request(
    model: Model,
    texts: list[str],
    *,
    samples: int = 1,
    steps: int = DEFAULT_STEPS,
    guidance: float = 3.0,
    seed: int = 0,
    sampler: str | None = None,
    image: ImageInput | None = None,
    strength: float = 0.7,
    mask: ImageInput | None = None,
    keep_steps: bool = False,
    preview_every: int | None = None,
) -> DrawRequest:
    """Check the options of `draw`, and decode its images; nothing is drawn yet."""
    in_range("samples", samples, 1, _MAX_IMAGES)
    in_range("seed", seed, 0, _MAX_SEED - samples)
    if preview_every is not None:
        in_range("preview_every", preview_every, 1, NUM_TIMES)
    if mask is not None and image is None:
        raise InputError("mask is given without image", fix="give the image to change")
    size = model.config.image_size
    return DrawRequest(
        model=model,
        wanted=[WantedImage(text, seed + n) for text in texts for n in range(samples)],
        config=_make_config(model, steps, guidance, sampler, strength),
        image=None if image is None else load_image(image, size),
        mask=None if mask is None else load_image(mask, size),
        keep_steps=keep_steps,
        preview_every=preview_every,
    )


def _make_config(
    model: Model, steps: int, guidance: float, sampler: str | None, strength: float = 1.0
) -> SamplingConfig:
    in_range("steps", steps, 1, NUM_TIMES)
    config = SamplingConfig(
        sampler=sampler,
        steps=steps,
        guidance=number("guidance", guidance, 0, 100),
        strength=number("strength", strength, 0, 1),
    )
    config.make_sampler(model.module)  # an error if it does not fit
    return config


def collect_results(texts: list[str], pictures: list[Picture]) -> Results[DrawResult]:
    """The images of each text, equally many."""
    samples = len(pictures) // len(texts) if texts else 0
    return Results(
        DrawResult(text=text, pictures=pictures[n * samples : (n + 1) * samples])
        for n, text in enumerate(texts)
    )


def interpolate_images(
    model: Model | PathLike,
    text: str,
    other_text: str | None = None,
    *,
    count: int = 8,
    steps: int = DEFAULT_STEPS,
    guidance: float = 3.0,
    seed: int = 0,
    other_seed: int | None = None,
    sampler: str | None = None,
    progress: ProgressOption = None,
) -> DrawResult:
    """Draw images on the way from one text to another, from one seed to another, or both.

    The first and the last image are those that `draw` gives. Between them the outputs of the model
    for both texts are mixed in every step, and the noise of the seeds moves on the arc between
    them; choose a sampler without random steps (not ddpm).

    Args:
        model: a diffusion model, or its folder.
        text: the text of the first image.
        other_text: the text of the last image (default: the same).
        count: number of images, the first and the last included.
        steps: number of steps from noise to an image.
        guidance: how strongly images follow the texts; 1 is without guidance.
        seed: seed of the noise of the first image.
        other_seed: seed of the noise of the last image (default: the same).
        sampler: ddpm, ddim, dpm-solver++ or euler (default: the model's).
        progress: show a progress bar, or not; a function is called with stage, done and total.
    """
    opened = open_model(model, "draw", "image_generator")
    in_range("count", count, 2, _MAX_IMAGES)
    for given in (seed, other_seed or 0):
        in_range("seed", given, 0, _MAX_SEED)
    target = text if other_text is None else other_text
    check_texts([text, target], "text", None)
    last = seed if other_seed is None else other_seed
    wanted = [
        WantedImage(text, seed, target, last, float(weight)) for weight in np.linspace(0, 1, count)
    ]
    config = _make_config(opened, steps, guidance, sampler)
    with open_progress(progress) as show:
        found = _run(DrawRequest(model=opened, wanted=wanted, config=config), None, show)
    return DrawResult(text=text if target == text else f"{text} → {target}", pictures=found)


def _run(
    request: DrawRequest, on_step: OnStep | None, progress: ProgressCallback | None
) -> list[Picture]:
    found: list[list[Picture]] = []
    for step in request.run():
        if on_step is not None and step.images:
            on_step(step.number, step.total, step.images)
        if step.pictures:
            found.append(step.pictures)
        if progress is not None:
            progress("steps", step.number, step.total)
    return list(chain.from_iterable(found))
