"""Diffusion models in latents and in pixels: quality, speed, memorization.

    PYTHONPATH=src python bench/draw.py --minutes 5 --device cuda --out OUT --json OUT/draw.json
    PYTHONPATH=src python bench/draw.py --tiny --out OUT                # a tiny run on a CPU

Trains models on drawings with exact captions (`cloze.data.images.drawings`) and, with --openmoji
FOLDER, on its pictures: in latents, and in pixels with the same budget. A classifier that was
trained on other drawings says which color, shape, count and position a sample has. Prints

- accuracies with and without guidance beside those of real drawings,
- the Fréchet distance of samples to held-out images, in the features of that classifier or of a
  model of images (--encoder FOLDER, a CLIP model), beside that of other real images,
- memorization: the distance of samples to their nearest training images, divided by that of
  held-out images (`cloze.metrics.memorization`), in pixels,
- images per second in training (median of the rows of metrics.jsonl) and in sampling, and the
  fraction of the peak: FLOPs of a training step per image (forward and backward, counted by
  torch.utils.flop_counter, frozen parts included) × images per second / FLOP/s of a large matrix
  product in the same precision on the same device.

Grids of samples are written for drawings only; of OpenMoji only distances are reported.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from draw_classifier import (
    ATTRIBUTES,
    Classifier,
    Images,
    list_prompts,
    make_drawings,
    train_classifier,
)
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

import cloze
from cloze.checkpoint.model import Model
from cloze.data.images.image_set import ImageBatches, ImageSet
from cloze.data.images.read import CaptionColumns, ImageExample, read_images
from cloze.metrics.frechet import frechet_distance
from cloze.metrics.memorization import measure_memorization
from cloze.objectives.diffusion import DIFFUSION_LOSS, diffusion_objective
from cloze.plot.format import format_percent
from cloze.tasks.pictures import save_grid
from common import pretrain_images, print_result, read_speed, versions

TRAIN_SEED, CLASSIFIER_SEED, TEST_SEED, OTHER_SEED = 0, 1, 2, 3
HOLD_OUT = 0.05
Embed = Callable[[Images], Any]


def train(name: str, examples: list[ImageExample], given: argparse.Namespace) -> dict[str, Any]:
    """Train a model in latents or in pixels; its folder, time and speed."""
    settings: dict[str, Any] = {
        "model.image_size": given.size,
        "run.eval_every": 2 if given.tiny else 500,
        "run.log_every": 1 if given.tiny else 20,
        "run.save_minutes": 1000.0,
        "data.hold_out": HOLD_OUT,
        "run.batch_size": given.batch_size,
    }
    if name.endswith("pixels"):
        settings["model.latent_channels"] = 0
    begin = time.monotonic()
    out = given.out / name.replace(", ", "-")
    result = pretrain_images(examples, out, "diffusion", settings, given, tiny_steps=6)
    found = {
        "folder": out,
        "seconds": time.monotonic() - begin,
        "steps": result.steps,
        "images_per_second": read_speed(out),
    }
    print(name, result, f"{found['seconds']:.1f} s in all", flush=True)
    return found


def count_flops(model: Model, images: ImageSet, batch_size: int) -> float:
    """FLOPs of a training step for each image, forward and backward."""
    module = model.module
    batches = ImageBatches(
        data=images,
        indices=np.arange(len(images)),
        tokenizer=model.tokenizer,
        batch_size=min(batch_size, len(images)),
        max_length=model.config.max_text_length,
        loss=DIFFUSION_LOSS,
        # latents are computed once, before the training; their values do not matter here
        stored=None
        if module.autoencoder is None
        else torch.zeros(len(images), *model.config.sample_shape, device=model.device),
    )
    module.requires_grad_(False)
    module.denoiser.requires_grad_(True)
    module.train()
    batch = batches.batch(0)
    with FlopCounterMode(display=False) as counter:
        diffusion_objective(module, batch)[DIFFUSION_LOSS].backward()
    module.zero_grad()
    module.eval()
    return counter.get_total_flops() / batch.size


def measure_peak(device: str, dtype: str, *, rounds: int = 20) -> float:
    """FLOP/s of a large matrix product, the best of several."""
    size = 8192 if device.startswith("cuda") else 512
    a, b = torch.randn(2, size, size, device=device, dtype=getattr(torch, dtype))
    best = 0.0
    for _ in range(rounds):
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        begin = time.perf_counter()
        a @ b
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        best = max(best, 2 * size**3 / (time.perf_counter() - begin))
    return best


def sample(
    model: Model, texts: list[str], guidance: float, given: argparse.Namespace
) -> tuple[Images, float]:
    """An image of each text, and images per second."""
    cloze.draw(model, texts[:2], guidance=guidance, steps=2)  # what is slow only once
    begin = time.monotonic()
    found = cloze.draw(model, texts, guidance=guidance, steps=given.steps)
    return np.stack([one.pixels for one in found]), len(texts) / (time.monotonic() - begin)


def evaluate(
    name: str,
    trained: dict[str, Any],
    texts: list[str],
    embed: Embed,
    given: argparse.Namespace,
    score: Callable[[Images], dict[str, float]] | None = None,
) -> list[dict[str, Any]]:
    """The rows of a model: without and with guidance."""
    model = cloze.load(trained["folder"], device=given.device)
    images = ImageSet.open(trained["folder"] / "images")
    train_rows, held_out = (np.asarray(images.pixels[rows]) for rows in images.split(HOLD_OUT))
    flops = count_flops(model, images, given.batch_size)
    rows = []
    for guidance in (1.0, 3.0):
        pixels, speed = sample(model, texts, guidance, given)
        copies = measure_memorization(pixels, held_out, train_rows)
        count = min(len(pixels), len(held_out))
        rows.append(
            {
                "images": f"{name}, guidance {guidance:g}",
                **(score(pixels) if score else {}),
                "Fréchet": frechet_distance(embed(pixels[:count]), embed(held_out[:count])),
                "distance ratio": copies.ratio,
                "copies": copies.copies,
                "held-out copies": copies.held_out_copies,
                "training images/s": trained["images_per_second"],
                "of the peak": flops * trained["images_per_second"] / given.peak,
                "sampling images/s": speed,
                "GFLOP/image": flops / 1e9,
                "steps": trained["steps"],
            }
        )
        if score is not None:
            shown = pixels[:: max(1, len(pixels) // 64)][:64]
            save_grid(given.out / f"{name.replace(', ', '-')}-{guidance:g}.png", list(shown), 8)
    return rows


def make_embedder(classifier: Classifier, given: argparse.Namespace) -> Embed:
    """Features of the classifier, or vectors of a model of images."""
    if given.encoder is None:
        return classifier.embed
    model: Any = cloze.load(given.encoder, device=given.device)
    return lambda images: np.asarray(cloze.embed(model, images=list(images)))  # type: ignore[call-overload]


def run_drawings(given: argparse.Namespace) -> tuple[list[dict[str, Any]], Embed]:
    drawings, pixels = make_drawings(TRAIN_SEED, given.drawings, given.size)
    classifier = train_classifier(
        CLASSIFIER_SEED, given.drawings // 2, given.size, given.device, 5 if given.tiny else 600
    )
    embed = make_embedder(classifier, given)
    count = 30 if given.tiny else 1000
    tests, real = make_drawings(TEST_SEED, count, given.size)
    _, others = make_drawings(OTHER_SEED, count, given.size)
    rows: list[dict[str, Any]] = [
        {
            "images": "real drawings",
            **classifier.score(real, tests),
            "Fréchet": frechet_distance(embed(real), embed(others)),
            "distance ratio": measure_memorization(real, others, pixels).ratio,
        }
    ]
    prompts = list_prompts(6 if given.tiny else None)
    examples = [
        ImageExample(f"drawing {n}", image, drawing.caption, str(n))
        for n, (drawing, image) in enumerate(zip(drawings, pixels, strict=True))
    ]
    texts = [one.caption for one in prompts]
    for space in given.spaces:
        name = f"drawings, {space}"
        trained = train(name, examples, given)
        rows += evaluate(
            name, trained, texts, embed, given, lambda images: classifier.score(images, prompts)
        )
        model = cloze.load(trained["folder"], device=given.device)
        strip = cloze.draw(model, texts[0], steps=given.steps, keep_steps=True)
        strip.save_steps(given.out / f"drawings-{space}-steps.png")
    return rows, embed


def run_openmoji(embed: Embed, given: argparse.Namespace) -> list[dict[str, Any]]:
    """The same on emoji, asking for the captions of held-out pictures."""
    rows: list[dict[str, Any]] = []
    columns = CaptionColumns(image="hexcode", caption="annotation", group="skintone_base_hexcode")
    archive, table = given.openmoji / "color_72x72.tar.xz", given.openmoji / "openmoji.json.xz"
    examples = list(read_images(str(archive), captions=table, columns=columns))
    if given.tiny:
        examples = examples[::20]
    for space in given.spaces:
        name = f"openmoji, {space}"
        trained = train(name, examples, given)
        images = ImageSet.open(trained["folder"] / "images")
        texts = [images.captions[n] for n in images.split(HOLD_OUT)[1]][: given.emoji_samples]
        rows += evaluate(name, trained, texts, embed, given)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="of each training")
    parser.add_argument("--drawings", type=int, default=20_000)
    parser.add_argument("--openmoji", type=Path, help="folder of OpenMoji's archive and table")
    parser.add_argument("--encoder", type=Path, help="a model of images for the Fréchet distance")
    parser.add_argument("--spaces", nargs="*", default=["latents", "pixels"])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--steps", type=int, default=25, help="of sampling")
    parser.add_argument("--settings", nargs="*", default=[], help="of the recipe: run.fast=false")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tiny", action="store_true", help="everything once, on a CPU")
    given = parser.parse_args()
    given.emoji_samples = 384
    if given.tiny:
        given.drawings, given.size, given.batch_size, given.dtype = 60, 32, 8, "float32"
        given.steps, given.emoji_samples = 3, 4
    given.out.mkdir(parents=True, exist_ok=True)
    given.peak = measure_peak(given.device, given.dtype)
    rows, embed = run_drawings(given)
    if given.openmoji is not None:
        rows += run_openmoji(embed, given)
    show(rows, given)


SPEED = ("training images/s", "of the peak", "sampling images/s", "GFLOP/image", "steps")
PERCENTS = (*ATTRIBUTES, "color and shape", "copies", "held-out copies", "of the peak")


def make_table(rows: list[dict[str, Any]], names: list[str]) -> Table:
    table = Table("images", *names)
    for row in rows:
        cells = [row.get(name, "") for name in names]
        texts = [
            (format_percent(value) if name in PERCENTS else f"{value:.4g}")
            if isinstance(value, float)
            else str(value)
            for name, value in zip(names, cells, strict=True)
        ]
        table.add_row(row["images"], *texts)
    return table


def show(rows: list[dict[str, Any]], given: argparse.Namespace) -> None:
    names = [name for name in dict.fromkeys(key for row in rows for key in row) if name != "images"]
    print_result(make_table(rows, [name for name in names if name not in SPEED]))
    encoder = given.encoder.name if given.encoder else "the classifier"
    print_result(
        make_table(rows[1:], list(SPEED)),
        versions("torch"),
        f"{given.device}, {given.dtype}, peak {given.peak / 1e12:.3g} TFLOP/s, "
        f"{given.minutes:g} minutes each, {given.steps} sampling steps, features of {encoder}",
        results={"rows": rows, "peak": given.peak},
        file=given.json,
    )


if __name__ == "__main__":
    main()
