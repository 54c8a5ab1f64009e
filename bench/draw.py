"""Diffusion models in latents and in pixels: quality, speed, memorization.

    PYTHONPATH=src python bench/draw.py --minutes 5 --device cuda --out OUT --json OUT/draw.json
    PYTHONPATH=src python bench/draw.py --tiny --out OUT                # a tiny run on a CPU

Trains models on drawings with exact captions (`cloze.data.images.drawings`) and, with --openmoji
FOLDER, on its pictures: in latents, and in pixels with the same budget. To train them at the same
time, start a process with `--stage train --sets drawings --spaces latents` and one for each other
model; `--stage evaluate` then measures all of them. A classifier that was trained on other drawings
says which color, shape, count and position a sample has. Prints

- accuracies with and without guidance beside those of real drawings,
- the Fréchet distance of samples to held-out images, in the features of that classifier and of a
  model of images (--encoder FOLDER, a CLIP; --emoji-encoder FOLDER for emoji), beside that of other
  real images,
- of emoji, how often that CLIP finds the name of a sample among the names of all samples; for names
  of held-out pictures and of training pictures,
- memorization: the distance of samples to their nearest training images, divided by that of
  held-out images (`cloze.metrics.memorization`), in pixels,
- images per second in training (median of the rows of metrics.jsonl) and in sampling, and the
  fraction of the peak: FLOPs of a training step per image (forward and backward, counted by
  torch.utils.flop_counter, without what is computed once before the training) × images per second /
  FLOP/s of a large matrix product in the same precision on the same device.

Grids of samples are written for drawings only; of OpenMoji only distances are reported.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from draw_classifier import (
    ATTRIBUTES,
    Images,
    list_prompts,
    make_drawings,
    train_classifier,
)
from rich.table import Table
from torch.backends import cudnn
from torch.utils.flop_counter import FlopCounterMode

import cloze
from cloze.checkpoint.model import Model
from cloze.data.images.image_set import ImageBatches, ImageSet
from cloze.data.images.read import CaptionColumns, ImageExample, read_images
from cloze.make.stored_images import store_texts
from cloze.metrics.frechet import frechet_distance
from cloze.metrics.memorization import measure_memorization
from cloze.objectives.diffusion import DIFFUSION_LOSS, diffusion_objective
from cloze.plot.format import format_percent
from cloze.tasks.image_text import compute_image_vectors, compute_text_vectors
from cloze.tasks.pictures import save_grid
from common import pretrain_images, print_result, read_speed, versions

TRAIN_SEED, TEST_SEED, OTHER_SEED = 0, 2, 3
HOLD_OUT = 0.05
GUIDANCES = (1.0, 3.0)
MAX_HELD_OUT = 500  # images whose distance to the training images is measured
SPEED_FILE = "speed.json"
Embed = Callable[[Images], Any]


def train(
    name: str, read_examples: Callable[[], list[ImageExample]], given: argparse.Namespace
) -> dict[str, Any]:
    """Train a model in latents or in pixels, or read what was noted then: steps, time, speed."""
    out = given.out / name.replace(", ", "-")
    if given.stage == "evaluate":
        noted: dict[str, Any] = json.loads((out / SPEED_FILE).read_text("utf-8"))
        return noted | {"folder": out}
    settings: dict[str, Any] = {
        "model.image_size": given.size,
        "run.eval_every": 2 if given.tiny else 500,
        "run.log_every": 1 if given.tiny else 20,
        "run.save_minutes": 1000.0,
        "data.hold_out": HOLD_OUT,
        "run.batch_size": given.batch_size,
    }
    if name.startswith("openmoji"):
        settings["data.keyword_prob"] = 0.0  # so that each name is encoded once
    if name.endswith("pixels"):
        settings["model.latent_channels"] = 0
    examples = read_examples()
    begin = time.monotonic()
    result = pretrain_images(examples, out, "diffusion", settings, given, tiny_steps=6)
    found = {
        "seconds": time.monotonic() - begin,
        "steps": result.steps,
        "images_per_second": read_speed(out),
    }
    (out / SPEED_FILE).write_text(json.dumps(found), "utf-8")
    print(name, result, f"{found['seconds']:.1f} s in all", flush=True)
    return found | {"folder": out}


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
    texts = None
    if module.text_encoder is not None and batches.distinct_captions is not None:
        texts = store_texts(
            batches.distinct_captions,
            model,
            max_length=batches.max_length,
            batch_size=batches.batch_size,
            dtype="float32",
        )
    batch = replace(batches, texts=texts).batch(0)
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
    # what is slow only once
    cloze.draw(model, texts, guidance=guidance, steps=1, progress=False)
    begin = time.monotonic()
    found = cloze.draw(model, texts, guidance=guidance, steps=given.steps, progress=False)
    return np.stack([one.pixels for one in found]), len(texts) / (time.monotonic() - begin)


def recall_names(
    pixels: Images, texts: Sequence[str], encoder: Model, all_names: Sequence[str]
) -> dict[str, float]:
    """How often the name of an image is the first, or one of the first five, of all names."""
    names = list(dict.fromkeys(all_names))
    found = compute_image_vectors(encoder, pixels) @ compute_text_vectors(encoder, names).T
    own = torch.tensor([names.index(text) for text in texts], device=found.device)
    ranks = (found > found.gather(1, own[:, None])).sum(1)
    return {f"name in {k}": float((ranks < k).float().mean()) for k in (1, 5)}


def evaluate(
    name: str,
    trained: Mapping[str, Any],
    texts: list[str],
    embedders: Mapping[str, Embed],
    given: argparse.Namespace,
    score: Callable[[Images], dict[str, float]],
) -> list[dict[str, Any]]:
    """The rows of a model: without and with guidance."""
    model = cloze.load(trained["folder"], device=given.device, quiet=True)
    images = ImageSet.open(trained["folder"] / "images")
    train_rows, held_out = (np.asarray(images.pixels[rows]) for rows in images.split(HOLD_OUT))
    flops = count_flops(model, images, given.batch_size)
    rows = []
    for guidance in GUIDANCES:
        pixels, speed = sample(model, texts, guidance, given)
        copies = measure_memorization(pixels, held_out[:MAX_HELD_OUT], train_rows)
        count = min(len(pixels), len(held_out))
        rows.append(
            {
                "images": f"{name}, guidance {guidance:g}",
                **score(pixels),
                **{
                    f"Fréchet, {kind}": frechet_distance(
                        embed(pixels[:count]), embed(held_out[:count])
                    )
                    for kind, embed in embedders.items()
                },
                "distance ratio": copies.ratio,
                "copies": copies.copies,
                "held-out copies": copies.held_out_copies,
                "training images/s": trained["images_per_second"],
                "of the peak": flops * trained["images_per_second"] / given.peak,
                "sampling images/s": speed,
                "GFLOP/image": flops / 1e9,
                "steps": trained["steps"],
                "seconds": trained["seconds"],
            }
        )
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
        if name.startswith("drawings"):
            shown = pixels[:: max(1, len(pixels) // 64)][:64]
            save_grid(given.out / f"{name.replace(', ', '-')}-{guidance:g}.png", list(shown), 8)
    return rows


def load_encoder(folder: Path | None, given: argparse.Namespace) -> dict[str, Model]:
    return {"CLIP": cloze.load(folder, device=given.device, quiet=True)} if folder else {}


def make_embedders(encoders: Mapping[str, Model]) -> dict[str, Embed]:
    """The vectors of models of images, as they are before they are compared."""

    def embed(model: Model, images: Images) -> Any:
        return compute_image_vectors(model, images, normalize=False).cpu().numpy()

    return {name: partial(embed, model) for name, model in encoders.items()}


def run_drawings(given: argparse.Namespace) -> list[dict[str, Any]]:
    drawings, pixels = make_drawings(TRAIN_SEED, given.drawings, given.size, given.cache)

    def read_examples() -> list[ImageExample]:
        return [
            ImageExample(f"drawing {n}", image, drawing.caption, str(n))
            for n, (drawing, image) in enumerate(zip(drawings, pixels, strict=True))
        ]

    names = [f"drawings, {space}" for space in given.spaces]
    trained = {name: train(name, read_examples, given) for name in names}
    if given.stage == "train":
        return []
    steps = 5 if given.tiny else 600
    classifier = train_classifier(given.drawings // 2, given.size, given.device, steps, given.cache)
    embedders = {"classifier": classifier.embed} | make_embedders(
        load_encoder(given.encoder, given)
    )
    count = 30 if given.tiny else 1000
    tests, real = make_drawings(TEST_SEED, count, given.size, given.cache)
    _, others = make_drawings(OTHER_SEED, count, given.size, given.cache)
    prompts = list_prompts(6 if given.tiny else None)
    same = len(prompts)  # as many as samples: the distance depends on it
    memorization = measure_memorization(real[:MAX_HELD_OUT], others[:MAX_HELD_OUT], pixels)
    rows: list[dict[str, Any]] = [
        {
            "images": "real drawings",
            **classifier.score(real, tests),
            **{
                f"Fréchet, {kind}": frechet_distance(embed(real[:same]), embed(others[:same]))
                for kind, embed in embedders.items()
            },
            "distance ratio": memorization.ratio,
        }
    ]
    texts = [one.caption for one in prompts]
    for space, name in zip(given.spaces, names, strict=True):
        rows += evaluate(
            name,
            trained[name],
            texts,
            embedders,
            given,
            lambda images: classifier.score(images, prompts),
        )
        model = cloze.load(trained[name]["folder"], device=given.device, quiet=True)
        strip = cloze.draw(model, texts[0], steps=given.steps, keep_steps=True, progress=False)
        strip.save_steps(given.out / f"drawings-{space}-steps.png")
    return rows


def run_openmoji(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The same on emoji, asking for names of held-out pictures and of training pictures."""
    rows: list[dict[str, Any]] = []
    columns = CaptionColumns(image="hexcode", caption="annotation", group="skintone_base_hexcode")
    archive, table = given.openmoji / "color_72x72.tar.xz", given.openmoji / "openmoji.json.xz"

    def read_examples() -> list[ImageExample]:
        found = list(read_images(str(archive), captions=table, columns=columns))
        return found[::20] if given.tiny else found

    trained = {space: train(f"openmoji, {space}", read_examples, given) for space in given.spaces}
    if given.stage == "train":
        return rows
    encoders = load_encoder(given.emoji_encoder or given.encoder, given)
    embedders = make_embedders(encoders)
    for space, found in trained.items():
        images = ImageSet.open(found["folder"] / "images")
        for kind, indices in zip(("training", "held-out"), images.split(HOLD_OUT), strict=True):
            chosen = indices[:: max(1, len(indices) // given.emoji_samples)][: given.emoji_samples]
            texts = [images.captions[n] for n in chosen]

            def score(pixels: Images, texts: list[str] = texts) -> dict[str, float]:
                return recall_names(pixels, texts, encoders["CLIP"], texts) if encoders else {}

            pixels = np.stack([images.pixels[n] for n in chosen])
            rows.append({"images": f"real emoji, {kind} names", **score(pixels)})
            name = f"openmoji, {space}, {kind} names"
            rows += evaluate(name, found, texts, embedders, given, score)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="of each training")
    parser.add_argument("--stage", choices=("all", "train", "evaluate"), default="all")
    parser.add_argument("--sets", nargs="*", default=["drawings", "openmoji"])
    parser.add_argument("--drawings", type=int, default=20_000)
    parser.add_argument("--openmoji", type=Path, help="folder of OpenMoji's archive and table")
    parser.add_argument("--encoder", type=Path, help="a CLIP for the Fréchet distance")
    parser.add_argument("--emoji-encoder", type=Path, help="a CLIP for emoji")
    parser.add_argument("--spaces", nargs="*", default=["latents", "pixels"])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--steps", type=int, default=25, help="of sampling")
    parser.add_argument("--settings", nargs="*", default=[], help="of the recipe: run.fast=false")
    parser.add_argument("--tune", action="store_true", help="let cuDNN try its algorithms")
    parser.add_argument("--cache", type=Path, help="folder that keeps drawings and the classifier")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tiny", action="store_true", help="everything once, on a CPU")
    given = parser.parse_args()
    cudnn.benchmark = given.tune
    given.emoji_samples = 384
    if given.tiny:
        given.drawings, given.size, given.batch_size, given.dtype = 60, 32, 8, "float32"
        given.steps, given.emoji_samples = 3, 4
    given.out.mkdir(parents=True, exist_ok=True)
    if given.stage != "train":
        given.peak = measure_peak(given.device, given.dtype)
    rows = run_drawings(given) if "drawings" in given.sets else []
    if given.openmoji is not None and "openmoji" in given.sets:
        rows += run_openmoji(given)
    if given.stage != "train":
        show(rows, given)


SPEED = (
    *("training images/s", "of the peak", "sampling images/s", "GFLOP/image", "steps", "seconds"),
)
PERCENTS = (
    *(*ATTRIBUTES, "color and shape", "name in 1", "name in 5"),
    *("copies", "held-out copies", "of the peak"),
)


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
    print_result(
        make_table([row for row in rows if "steps" in row], list(SPEED)),
        versions("torch"),
        f"{given.device}, {given.dtype}, peak {given.peak / 1e12:.3g} TFLOP/s, "
        f"{given.minutes:g} minutes each, {given.steps} sampling steps",
        results={"rows": rows, "peak": given.peak},
        file=given.json,
    )


if __name__ == "__main__":
    main()
