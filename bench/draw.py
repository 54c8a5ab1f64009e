"""Diffusion models of drawings: how often a sample shows what the text asks for.

    PYTHONPATH=src python bench/draw.py --minutes 3 --device cuda --out OUT
    PYTHONPATH=src python bench/draw.py --rehearse --out OUT            # a tiny run on a CPU

Trains a model on drawings with exact captions (`cloze.data.images.drawings`) in latents and, with
--pixels, another one in pixels with the same budget. A classifier that was trained on other
drawings then says which color, shape, count and position a sample has. Prints accuracies with and
without guidance beside those of real drawings, the speed of training and sampling, and writes
grids of samples as PNG files.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import nn
from torch.nn import functional as F

import cloze
from cloze.data.images.drawings import COLORS, COUNTS, POSITIONS, SHAPES, Drawing, make_drawing
from cloze.data.images.read import ImageExample
from cloze.nn.image_layers import Downsample, ResBlock
from cloze.objectives.diffusion import scale_pixels
from cloze.plot.format import format_percent
from cloze.tasks.pictures import save_grid
from common import print_result, versions

ATTRIBUTES = {
    "color": list(COLORS),
    "shape": list(SHAPES),
    "count": list(range(1, len(COUNTS))),
    "position": list(POSITIONS),
}
TRAIN_SEED, CLASSIFIER_SEED, TEST_SEED = 0, 1, 2


def make_drawings(seed: int, count: int, size: int) -> list[tuple[Drawing, np.ndarray]]:
    with ProcessPoolExecutor() as pool:
        return list(pool.map(partial(make_drawing, seed, size=size), range(count), chunksize=64))


def encode(drawings: list[Drawing]) -> torch.Tensor:
    rows = [
        [values.index(getattr(one, name)) for name, values in ATTRIBUTES.items()]
        for one in drawings
    ]
    return torch.tensor(rows)


class Classifier(nn.Module):
    """Says the color, shape, count and position of a drawing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
        for factor in (1, 2, 4):
            parts += [ResBlock(width * max(1, factor // 2), width * factor, groups=8)]
            parts += [Downsample(width * factor)]
        self.body = nn.Sequential(*parts)
        self.heads = nn.ModuleList(nn.LazyLinear(len(values)) for values in ATTRIBUTES.values())

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        pooled = F.adaptive_avg_pool2d(F.silu(self.body(x)), 4).flatten(1)
        return [head(pooled) for head in self.heads]


def train_classifier(given: argparse.Namespace) -> Classifier:
    drawings = make_drawings(CLASSIFIER_SEED, given.drawings // 2, given.size)
    images = torch.from_numpy(np.stack([pixels for _, pixels in drawings])).to(given.device)
    labels = encode([one for one, _ in drawings]).to(given.device)
    torch.manual_seed(0)
    model = Classifier(8 if given.rehearse else 32).to(given.device)
    model(scale_pixels(images[:2]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    steps = 5 if given.rehearse else 600
    for step in range(steps):
        chosen = torch.randint(len(images), (128,), device=given.device)
        noisy = scale_pixels(images[chosen])
        noisy = noisy + 0.05 * torch.randn_like(noisy)
        losses = [F.cross_entropy(o, labels[chosen, n]) for n, o in enumerate(model(noisy))]
        torch.stack(losses).sum().backward()
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@torch.inference_mode()
def score(
    model: Classifier, pixels: list[np.ndarray], drawings: list[Drawing], device: str
) -> dict[str, float]:
    images = scale_pixels(torch.from_numpy(np.stack(pixels)).to(device))
    labels = encode(drawings).to(device)
    found = torch.stack([o.argmax(1) for o in model(images)], 1)
    right = found == labels
    scores = dict(zip(ATTRIBUTES, right.float().mean(0).tolist(), strict=True))
    return {**scores, "color and shape": float((right[:, 0] & right[:, 1]).float().mean())}


def list_prompts(limit: int | None) -> list[Drawing]:
    kinds = [*((1, position) for position in POSITIONS), *((n, "") for n in range(2, len(COUNTS)))]
    found = [Drawing(c, s, n, p) for c, s, (n, p) in product(COLORS, SHAPES, kinds)]
    return found[:: max(1, len(found) // limit)] if limit else found


def train(name: str, examples: list[ImageExample], given: argparse.Namespace) -> tuple[Any, float]:
    settings: dict[str, Any] = {
        "model.image_size": given.size,
        "run.eval_every": 500,
        "run.save_minutes": 1000.0,
        "data.hold_out": 0.02,
        "run.batch_size": given.batch_size,
    }
    if name == "pixels":
        settings["model.latent_channels"] = 0
    for setting in given.settings:
        key, _, value = setting.partition("=")
        settings[key] = value
    budget: dict[str, Any] = {"steps": 6} if given.rehearse else {"minutes": given.minutes}
    begin = time.monotonic()
    result = cloze.pretrain(
        examples,
        given.out / name,
        "diffusion",
        settings=settings,
        preset="tiny" if given.rehearse else given.preset,
        device=given.device,
        dtype=given.dtype,
        force=True,
        progress=False,
        **budget,
    )
    print(name, result, f"{time.monotonic() - begin:.1f} s in all", flush=True)
    return result, result.tokens / result.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--drawings", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--pixels", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--settings", nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rehearse", action="store_true")
    given = parser.parse_args()
    if given.rehearse:
        given.drawings, given.size, given.batch_size, given.dtype = 60, 32, 8, "float32"
    given.out.mkdir(parents=True, exist_ok=True)
    drawings = make_drawings(TRAIN_SEED, given.drawings, given.size)
    examples = [
        ImageExample(f"drawing {n}", p, d.caption, str(n)) for n, (d, p) in enumerate(drawings)
    ]
    classifier = train_classifier(given)
    real = make_drawings(TEST_SEED, 30 if given.rehearse else 1000, given.size)
    rows = {
        "real drawings": (
            score(classifier, [p for _, p in real], [d for d, _ in real], given.device),
            0.0,
        )
    }
    prompts = list_prompts(6 if given.rehearse else None)
    for name in ("latents", "pixels")[: 1 + given.pixels]:
        _, speed = train(name, examples, given)
        model = cloze.load(given.out / name, device=given.device)
        print(name, f"{speed:,.0f} images/s in training", flush=True)
        for guidance in (1.0, 3.0):
            begin = time.monotonic()
            found = cloze.draw(
                model, [one.caption for one in prompts], guidance=guidance, steps=given.steps
            )
            seconds = (time.monotonic() - begin) / len(prompts)
            pixels = [one.pixels for one in found]
            rows[f"{name}, guidance {guidance:g}"] = (
                score(classifier, pixels, prompts, given.device),
                seconds,
            )
            save_grid(
                given.out / f"{name}-{guidance:g}.png", pixels[:: max(1, len(pixels) // 64)][:64], 8
            )
        strip = cloze.draw(model, prompts[0].caption, steps=given.steps, keep_steps=True)
        strip.save_steps(given.out / f"{name}-steps.png")
    names = [*ATTRIBUTES, "color and shape"]
    table = Table("images", *names, "seconds each")
    for name, (scores, seconds) in rows.items():
        table.add_row(name, *(format_percent(scores[one]) for one in names), f"{seconds:.4f}")
    print_result(table, versions("torch"))


if __name__ == "__main__":
    main()
