"""What makes training steps of a diffusion model fast: CUDA graphs, stored texts, larger batches.

    PYTHONPATH=src python bench/draw_speed.py --device cuda --json speed.json

Times training steps of random weights on random images with captions of drawings, each variant for
some seconds, in latents and in pixels. `plain` runs one kernel after another and encodes the
captions in every step; each further variant changes one thing more. Prints milliseconds per step,
images per second, the first and the last loss (the same for all variants of a space up to
rounding), and with `--profile` the kernels that take longest.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch.backends import cudnn

import cloze
from cloze.checkpoint.model import Model
from cloze.data.images.drawings import list_captions
from cloze.data.images.image_set import ImageBatches, ImageSet
from cloze.make.stored_images import store_texts
from cloze.models.configs.diffusion import DiffusionConfig
from cloze.models.configs.nested import NestedConfig
from cloze.objectives.core import Learner
from cloze.objectives.diffusion import DIFFUSION_LOSS, diffusion_objective
from cloze.train.averaging import WeightEMA
from cloze.train.config import LoopConfig, OptimizerConfig
from cloze.train.cuda_graphs import CUDAGraphCache
from cloze.train.distributed import DistributedContext
from cloze.train.gradients import apply_gradients
from cloze.train.loop import training_steps
from cloze.train.optim import build_optimizer
from cloze.train.schedule import Budget, Schedule
from cloze.train.state import TrainState
from cloze.train.step import Step
from common import print_result, versions


@dataclass(frozen=True)
class Variant:
    """How steps are computed."""

    name: str
    has_graphs: bool = False
    has_stored_texts: bool = False
    tune: bool = False
    factor: int = 1  # of the batch size


PLAIN = Variant("plain")
GRAPHS = replace(PLAIN, name="CUDA graphs", has_graphs=True)
TEXTS = replace(GRAPHS, name="stored texts", has_stored_texts=True)
TUNED = replace(TEXTS, name="cuDNN benchmark", tune=True)
LARGE = replace(TEXTS, name="twice the batch", factor=2)
VARIANTS = (PLAIN, GRAPHS, TEXTS, LARGE, TUNED)


def make_model(space: str, given: argparse.Namespace) -> Model:
    text = cloze.load("cloze-en", device="cpu", quiet=True)
    config = DiffusionConfig(
        **DiffusionConfig.PRESETS[given.preset],
        image_size=given.size,
        **({"latent_channels": 0} if space == "pixels" else {}),
    )
    config = replace(config, vocab_size=text.config.vocab_size, text=NestedConfig(text.config))
    model = Model.from_config(config, text.tokenizer, rng=torch.Generator().manual_seed(0))
    model.module.text_encoder.load_state_dict(text.module.state_dict(), strict=False)
    model.module.to(given.device).requires_grad_(False)
    model.module.denoiser.requires_grad_(True)
    return model


def make_steps(
    model: Model, variant: Variant, given: argparse.Namespace
) -> tuple[Iterator[Step], CUDAGraphCache]:
    """Training steps without end, with the average of the weights as in a run."""
    module, device = model.module, torch.device(given.device)
    captions = list_captions()
    images = ImageSet(
        np.zeros((len(captions), 1, 1, 3), np.uint8), captions, captions, [[] for _ in captions]
    )
    rng = torch.Generator(device).manual_seed(0)
    shape = (len(captions), *model.config.sample_shape)
    batches = ImageBatches(
        data=images,
        indices=np.arange(len(captions)),
        tokenizer=model.tokenizer,
        batch_size=given.batch_size * variant.factor,
        max_length=model.config.longest_text,
        loss=DIFFUSION_LOSS,
        caption_dropout=0.1,
        stored=torch.randn(shape, generator=rng, device=device),
        text_width=16,
    )
    if variant.has_stored_texts:
        texts = store_texts(
            captions=["", *captions],
            model=model,
            max_length=batches.max_length,
            batch_size=batches.batch_size,
            dtype=given.dtype,
        )
        batches = replace(batches, texts=texts)
    state = TrainState(
        Learner(module, diffusion_objective),
        module,
        build_optimizer(module, OptimizerConfig(lr=5e-4)),
        config=LoopConfig(dtype=given.dtype),
        distributed=DistributedContext(device=device),
    )
    graphs = CUDAGraphCache(apply_gradients)
    if not variant.has_graphs:
        graphs.run_step = lambda *_: None  # type: ignore[method-assign]

    def read(first: int) -> Iterator[Any]:
        while True:
            yield [batches.batch(first)]
            first += 1

    steps = training_steps(
        state, read, budget=Budget(steps=10**6), schedule=Schedule(), graphs=graphs
    )
    return iter(WeightEMA(state, 0.999).average_steps(steps)), graphs


def measure(space: str, variant: Variant, given: argparse.Namespace) -> dict[str, Any]:
    cudnn.benchmark = variant.tune
    model = make_model(space, given)
    begin = time.perf_counter()
    steps, graphs = make_steps(model, variant, given)
    first = [next(steps) for _ in range(given.warmup)]
    synchronize(given)
    ready = time.perf_counter()
    taken = [next(steps)]
    while time.perf_counter() - ready < given.seconds:
        taken.append(next(steps))
    synchronize(given)
    seconds = (time.perf_counter() - ready) / len(taken)
    row = {
        "space": space,
        "variant": variant.name,
        "start_seconds": ready - begin,
        "milliseconds": 1e3 * seconds,
        "images_per_second": given.batch_size * variant.factor / seconds,
        "graphs": len(graphs),
        "steps": len(taken),
        "losses": [step.means[DIFFUSION_LOSS] for step in first],
    }
    if given.device.startswith("cuda"):
        row["gigabytes"] = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.reset_peak_memory_stats()
    if given.profile and variant in (PLAIN, TEXTS):
        try:
            row["kernels"] = profile_steps(steps)
        except RuntimeError as error:  # without the right to profile
            print(f"no profile: {error}", flush=True)
    print(json.dumps(row), flush=True)
    return row


def profile_steps(steps: Iterator[Step]) -> list[dict[str, Any]]:
    """The kernels that took longest in three steps."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as found:
        for _ in range(3):
            next(steps)
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda one: -one.self_device_time_total)
    total = sum(one.self_device_time_total for one in rows)
    print(f"{sum(one.count for one in rows) / 3:,.0f} kernels, {total / 3e3:.1f} ms in each step")
    return [
        {
            "kernel": one.key[:120],
            "count": one.count / 3,
            "milliseconds": one.self_device_time_total / 3e3,
        }
        for one in rows[:25]
    ]


def synchronize(given: argparse.Namespace) -> None:
    if given.device.startswith("cuda"):
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--spaces", nargs="*", default=["latents", "pixels"])
    parser.add_argument("--seconds", type=float, default=1.5, help="of each variant")
    parser.add_argument("--warmup", type=int, default=5, help="steps that are not timed")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    wanted = [
        (space, variant)
        for variant in VARIANTS
        for space in given.spaces
        if not (space == "pixels" and variant in (PLAIN, LARGE))
    ]
    rows: list[dict[str, Any]] = []
    for space, variant in wanted:
        try:
            rows.append(measure(space, variant, given))
        except RuntimeError as error:  # such as too little memory; the others are still measured
            print(f"{space}, {variant.name}: {error}", flush=True)
        if given.json:
            given.json.write_text(json.dumps({"rows": rows}, indent=1), "utf-8")
    table = Table("space", "variant", "ms per step", "images/s", "start, s", "first loss", "last")
    for row in sorted(rows, key=lambda row: row["space"]):
        table.add_row(
            *(row["space"], row["variant"], f"{row['milliseconds']:.1f}"),
            *(f"{row['images_per_second']:,.0f}", f"{row['start_seconds']:.1f}"),
            *(f"{row['losses'][n]:.4f}" for n in (0, -1)),
        )
    print_result(table, versions("torch"), results={"rows": rows}, file=given.json)


if __name__ == "__main__":
    main()
