"""The pictures of docs/diffusion.md.

    python docs/img/diffusion.py                                    # those without a trained model
    python docs/img/diffusion.py --latents RUN --pixels RUN         # all: runs of bench/draw.py

writes docs/img/diffusion-*.png, with 256 colors each, as small files. The runs are trained on the
project's own drawings: pictures of other sets must not be shown beside samples.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import cloze
from cloze.checkpoint.model import Model
from cloze.data.images.drawings import list_captions, make_drawing
from cloze.data.images.image_set import ImageSet
from cloze.metrics.memorization import find_nearest
from cloze.nn.noise_schedule import DiffusionSchedule, add_noise
from cloze.objectives.diffusion import scale_pixels
from cloze.tasks.image_batches import to_pixels
from cloze.tasks.pictures import Pixels, save_grid

HERE = Path(__file__).parent
NUMBERS = (7, 8, 20)
TIMES = torch.tensor([0, 100, 200, 300, 400, 500, 650, 800, 999])
PROMPTS = ("a red heart", "two blue stars", "three green squares", "a yellow circle on the left")
GUIDANCE = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0)
WAYS = (("a red circle", "a blue circle"), ("a green square", "a green star"))
COLUMNS = 8
PALETTE = 256


def save_small_grid(path: Path, images: Sequence[Pixels], columns: int) -> None:
    """A grid with a palette, which takes a third of the bytes."""
    save_grid(path, list(images), columns)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(
            PALETTE, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
        )
    small.save(path, optimize=True)
    print(f"{path.stat().st_size:>8,} bytes  {path.name}", flush=True)


def draw_forward(out: Path) -> None:
    """Drawings with more and more noise."""
    rows: list[Pixels] = []
    for number in NUMBERS:
        pixels = torch.from_numpy(make_drawing(0, number)[1])[None]
        x = scale_pixels(pixels).expand(len(TIMES), -1, -1, -1)
        noise = torch.randn(x[:1].shape, generator=torch.Generator().manual_seed(0))
        noisy = add_noise(x, noise.expand_as(x), DiffusionSchedule.make("cosine").level(TIMES))
        rows += to_pixels(noisy.clamp(-1, 1))
    save_small_grid(out / "diffusion-forward.png", rows, len(TIMES))


def draw_samples(model: Model, out: Path, steps: int) -> None:
    """Samples of captions from the whole set, all with the same seed."""
    captions = list_captions()[:: len(list_captions()) // 48][:48]
    found = cloze.draw(model, captions, steps=steps)
    save_small_grid(out / "diffusion-samples.png", [one.pixels for one in found], COLUMNS)


def draw_steps(model: Model, out: Path, steps: int) -> None:
    """How samples form: a row for each text."""
    found = cloze.draw(model, PROMPTS, steps=steps, keep_steps=True)
    frames = [step for one in found for step in one.pictures[0].steps]
    save_small_grid(out / "diffusion-steps.png", frames, len(found[0].pictures[0].steps))


def draw_guidance(model: Model, out: Path, steps: int) -> None:
    """A row for each text, a column for each guidance."""
    columns = [cloze.draw(model, PROMPTS, guidance=value, steps=steps) for value in GUIDANCE]
    cells = [one.pixels for row in zip(*columns, strict=True) for one in row]
    save_small_grid(out / "diffusion-guidance.png", cells, len(GUIDANCE))


def draw_ways(model: Model, out: Path, steps: int) -> None:
    """From one text to another, then from one seed to another."""
    rows: list[Pixels] = []
    for first, second in WAYS:
        found = cloze.interpolate_images(model, first, second, count=COLUMNS, steps=steps)
        rows += [one.pixels for one in found.pictures]
    found = cloze.interpolate_images(model, PROMPTS[0], other_seed=5, count=COLUMNS, steps=steps)
    rows += [one.pixels for one in found.pictures]
    save_small_grid(out / "diffusion-interpolation.png", rows, COLUMNS)


def draw_spaces(models: list[Model], out: Path, steps: int) -> None:
    """The same texts, in latents (first row) and in pixels (second row)."""
    captions = list_captions()[:: len(list_captions()) // COLUMNS][:COLUMNS]
    rows = [one.pixels for model in models for one in cloze.draw(model, captions, steps=steps)]
    save_small_grid(out / "diffusion-spaces.png", rows, COLUMNS)


def draw_nearest(model: Model, images: ImageSet, out: Path, steps: int) -> None:
    """Samples (first row), and the nearest training image of each (second row)."""
    captions = list_captions()[:: len(list_captions()) // COLUMNS][:COLUMNS]
    samples = np.stack([one.pixels for one in cloze.draw(model, captions, steps=steps)])
    nearest = find_nearest(samples, images.pixels).indices
    rows = [*samples, *(np.asarray(images.pixels[n]) for n in nearest)]
    save_small_grid(out / "diffusion-nearest.png", rows, COLUMNS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--latents", type=Path, help="run of a model in latents, on drawings")
    parser.add_argument("--pixels", type=Path, help="run of a model in pixels, on drawings")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    draw_forward(given.out)
    if given.latents is None:
        return
    model = cloze.load(given.latents)
    for function in (draw_samples, draw_steps, draw_guidance, draw_ways):
        function(model, given.out, given.steps)
    draw_nearest(model, ImageSet.open(given.latents / "images"), given.out, given.steps)
    if given.pixels is not None:
        draw_spaces([model, cloze.load(given.pixels)], given.out, given.steps)


if __name__ == "__main__":
    main()
