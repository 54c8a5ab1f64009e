"""A classifier of drawings, which says what a sample shows, and whose features compare images.

    PYTHONPATH=src python bench/draw_classifier.py CACHE --counts 20000 10000 1000 1000

makes the drawings of the seeds 0, 1, … and the classifier in advance, for several runs of
bench/draw.py --cache CACHE.
"""

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.data.images.drawings import (
    COLORS,
    COUNTS,
    POSITIONS,
    SHAPES,
    Drawing,
    describe_drawing,
    make_drawing,
)
from cloze.nn.image_layers import Downsample, ResBlock
from cloze.objectives.diffusion import scale_pixels

ATTRIBUTES = {
    "color": list(COLORS),
    "shape": list(SHAPES),
    "count": list(range(1, len(COUNTS))),
    "position": list(POSITIONS),
}
CLASSIFIER_SEED = 1  # of its drawings
BATCH = 256
Images = NDArray[np.uint8]  # n y x 3


def make_drawings(
    seed: int, count: int, size: int, cache: Path | None = None
) -> tuple[list[Drawing], Images]:
    """Drawings and their pixels; a folder may have the pixels from an earlier run."""
    file = None if cache is None else cache / f"drawings-{seed}-{count}-{size}.npy"
    if file is not None and file.is_file():
        return [describe_drawing(seed, n) for n in range(count)], np.load(file)
    with ProcessPoolExecutor() as pool:
        made = list(pool.map(partial(make_drawing, seed, size=size), range(count), chunksize=64))
    pixels = np.stack([one for _, one in made])
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        work = file.with_name(f"{os.getpid()}-{file.name}")
        np.save(work, pixels)
        work.rename(file)
    return [one for one, _ in made], pixels


def list_prompts(limit: int | None) -> list[Drawing]:
    kinds = [*((1, position) for position in POSITIONS), *((n, "") for n in range(2, len(COUNTS)))]
    found = [Drawing(c, s, n, p) for c, s, (n, p) in product(COLORS, SHAPES, kinds)]
    return found[:: max(1, len(found) // limit)] if limit else found


def encode(drawings: list[Drawing]) -> Tensor:
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

    def forward(self, x: Tensor) -> list[Tensor]:
        pooled = F.adaptive_avg_pool2d(F.silu(self.body(x)), 4).flatten(1)
        return [head(pooled) for head in self.heads]

    @torch.inference_mode()
    def embed(self, images: Images) -> NDArray[np.float32]:
        """The mean over all positions of the last features: n d."""
        device = next(self.parameters()).device
        found = [
            F.silu(self.body(scale_pixels(torch.from_numpy(images[n : n + BATCH]).to(device))))
            for n in range(0, len(images), BATCH)
        ]
        return torch.cat([one.mean((2, 3)) for one in found]).float().cpu().numpy()

    @torch.inference_mode()
    def score(self, images: Images, drawings: list[Drawing]) -> dict[str, float]:
        """The fraction of images with the color, shape, count and position asked for."""
        device = next(self.parameters()).device
        labels = encode(drawings).to(device)
        found = torch.cat(
            [
                torch.stack([o.argmax(1) for o in self(scale_pixels(part.to(device)))], 1)
                for part in torch.from_numpy(images).split(BATCH)
            ]
        )
        right = found == labels
        scores = dict(zip(ATTRIBUTES, right.float().mean(0).tolist(), strict=True))
        return {**scores, "color and shape": float((right[:, 0] & right[:, 1]).float().mean())}


def train_classifier(
    count: int, size: int, device: str, steps: int, cache: Path | None = None
) -> Classifier:
    """A classifier of drawings; a folder may have its weights from an earlier run."""
    drawings, pixels = make_drawings(CLASSIFIER_SEED, count, size, cache)
    images, labels = torch.from_numpy(pixels).to(device), encode(drawings).to(device)
    torch.manual_seed(0)
    model = Classifier(32 if steps > BATCH else 8).to(device)
    model(scale_pixels(images[:2]))
    file = None if cache is None else cache / f"classifier-{count}-{size}-{steps}.safetensors"
    if file is not None and file.is_file():
        load_model(model, file, device=device)
        return model.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(steps):
        chosen = torch.randint(len(images), (128,), device=device)
        noisy = scale_pixels(images[chosen])
        noisy = noisy + 0.05 * torch.randn_like(noisy)
        losses = [F.cross_entropy(o, labels[chosen, n]) for n, o in enumerate(model(noisy))]
        torch.stack(losses).sum().backward()
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps)
        optimizer.step()
        optimizer.zero_grad()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_model(model, file)
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cache", type=Path, help="folder to write")
    parser.add_argument("--counts", type=int, nargs="+", default=[20_000, 10_000, 1000, 1000])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=600, help="of the classifier")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    begin = time.monotonic()
    for seed, count in enumerate(given.counts):
        make_drawings(seed, count, given.size, given.cache)
        print(f"{count:,} drawings with seed {seed}: {time.monotonic() - begin:.1f} s", flush=True)
    count = given.counts[CLASSIFIER_SEED]
    model = train_classifier(count, given.size, given.device, given.steps, given.cache)
    drawings, pixels = make_drawings(0, given.counts[0], given.size, given.cache)
    scores = model.score(pixels[:2000], drawings[:2000])
    print(f"classifier: {time.monotonic() - begin:.1f} s, {scores}", flush=True)


if __name__ == "__main__":
    main()
