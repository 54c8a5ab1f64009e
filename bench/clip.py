"""CLIP on drawings and emoji: recall of held-out images and captions, and zero-shot accuracy.

    PYTHONPATH=src python bench/clip.py --minutes 2 --device cuda --out OUT
    PYTHONPATH=src python bench/clip.py --tiny --out OUT                # a rehearsal on a CPU

Trains a model for each set, image encoder (ViT, ResNet) and text encoder (cloze-en, or the same
network with random weights). On drawings (`cloze.data.images.drawings`) it is tested on others with
another seed, also without training for it (zero-shot) on their color, shape and count. Of emoji
(--openmoji, a folder with color_72x72.tar.xz and openmoji.json.xz) a tenth is held out, by the base
emoji; the best of the evaluations during the training is reported. Prints a table, and writes
clip.json and a chart of the recalls (recall.svg) into the folder --out.
"""

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

import cloze
from cloze.checkpoint.model import Model
from cloze.data.images.drawings import COLORS, COUNTS, POSITIONS, SHAPES, Drawing, make_drawing
from cloze.data.images.read import ImageExample, read_images
from cloze.files import write_text
from cloze.plot.format import format_percent
from cloze.plot.line_chart import LineChart, Series
from cloze.tasks.image_text import compute_image_vectors, compute_text_vectors
from common import pretrain_images, print_result, read_speed, versions

TRAIN_SEED, TEST_SEED = 0, 2
ATTRIBUTES: dict[str, list[Any]] = {
    "color": list(COLORS),
    "shape": list(SHAPES),
    "count": list(range(1, len(COUNTS))),
}
KINDS = [*((1, position) for position in POSITIONS), *((n, "") for n in range(2, len(COUNTS)))]
DRAWINGS = [Drawing(c, s, n, p) for c, s, (n, p) in product(COLORS, SHAPES, KINDS)]
SCORES = ("recall_at_1", "recall_at_5", "chance_recall_at_1")
FOLDERS = ("../shared/data/openmoji", "shared/data/openmoji")


def make_drawings(seed: int, count: int, size: int) -> list[tuple[Drawing, np.ndarray]]:
    with ProcessPoolExecutor() as pool:
        return list(pool.map(partial(make_drawing, seed, size=size), range(count), chunksize=64))


def read_emoji(folder: Path, size: int, limit: int | None) -> list[ImageExample]:
    """Decoded once for all runs."""
    found = []
    source, captions = folder / "color_72x72.tar.xz", folder / "openmoji.json.xz"
    for example in read_images([source], captions=captions, on_error=lambda _: None):
        found.append(replace(example, content=example.load(size)))
        if len(found) == limit:
            break
    return found


def train(
    out: Path, examples: Sequence[ImageExample], vision: str, text: str, given: argparse.Namespace
) -> Any:
    settings: dict[str, Any] = {
        "model.image_size": given.size,
        "model.vision": vision,
        "text_encoder.from_scratch": text == "fresh",
        "run.batch_size": given.batch_size,
        "run.eval_every": 2 if given.tiny else given.eval_every,
        "run.save_minutes": 1000.0,
    }
    return pretrain_images(examples, out, "clip", settings, given, tiny_steps=3)


def train_or_retry(
    out: Path, examples: Sequence[ImageExample], vision: str, text: str, given: argparse.Namespace
) -> tuple[Any, bool]:
    """The result, and whether the model may have been compiled: if that fails, it is not."""
    try:
        return train(out, examples, vision, text, given), given.device != "cpu"
    except Exception as error:
        if given.device == "cpu":
            raise
        print(f"{out.name}: {error}; again without compilation", flush=True)
        plain = argparse.Namespace(**vars(given))
        plain.settings = [*given.settings, "run.fast=false"]
        return train(out, examples, vision, text, plain), False


def classify_drawings(model: Model, tests: list[tuple[Drawing, np.ndarray]]) -> dict[str, float]:
    """Zero-shot accuracy; a class is the mean vector of all captions that mention it."""
    images = compute_image_vectors(model, np.stack([pixels for _, pixels in tests]))
    captions = compute_text_vectors(model, [one.caption for one in DRAWINGS])
    found = {}
    for name, values in ATTRIBUTES.items():
        means = [
            captions[[getattr(one, name) == value for one in DRAWINGS]].mean(0) for value in values
        ]
        chosen = (images @ torch.stack(means).T).argmax(1).tolist()
        right = [values[n] == getattr(one, name) for n, (one, _) in zip(chosen, tests, strict=True)]
        found[name] = float(np.mean(right))
    return found


def as_examples(drawings: list[tuple[Drawing, np.ndarray]]) -> list[ImageExample]:
    return [
        ImageExample(f"drawing {n}", pixels, one.caption, str(n))
        for n, (one, pixels) in enumerate(drawings)
    ]


def measure(
    data: str, examples: list[ImageExample], given: argparse.Namespace, tests: Any
) -> list[dict[str, Any]]:
    rows = []
    for vision, text in product(given.vision, ("cloze-en", "fresh")):
        out = given.out / f"{data}-{vision}-{text}"
        begin = time.monotonic()
        row: dict[str, Any] = {"data": data, "vision": vision, "text": text}
        try:
            result, row["is_compiled"] = train_or_retry(out, examples, vision, text, given)
        except Exception as error:  # the other runs are still worth their time
            print(f"{out.name}: {error}", flush=True)
            continue
        row |= {
            "images": len(examples),
            "steps": result.steps,
            "images_per_second": read_speed(out),
            "seconds_in_all": time.monotonic() - begin,
            "held_out": {name: float(value) for name, value in result.scores.items()},
        }
        model = cloze.load(out, device=given.device, quiet=True)
        row["parameters"] = model.num_parameters
        if tests is not None:
            row["test"] = dict(cloze.evaluate(model, as_examples(tests)).scores)
            row["zero_shot"] = classify_drawings(model, tests)
        rows.append(row)
        print(json.dumps(row), flush=True)
        write_text(given.out / "clip.json", json.dumps({"rows": given.rows + rows}, indent=2))
    return rows


def show(rows: list[dict[str, Any]], given: argparse.Namespace) -> None:
    names = ["recall@1", "recall@5", "by chance", *ATTRIBUTES, "images/s", "steps"]
    table = Table("data", "image encoder", "text encoder", *names)
    for row in rows:
        scores = row.get("test", row["held_out"])
        zero_shot = row.get("zero_shot", {})
        table.add_row(
            *(row[name] for name in ("data", "vision", "text")),
            *(format_percent(scores[name]) for name in SCORES),
            *(format_percent(zero_shot[one]) if one in zero_shot else "–" for one in ATTRIBUTES),
            *(f"{row[name]:,.0f}" for name in ("images_per_second", "steps")),
        )
    print_result(table, versions("torch"))
    lines = [read_recalls(given.out / f"{r['data']}-{r['vision']}-{r['text']}") for r in rows]
    series = [
        Series(name=f"{row['data']}, {row['vision']}, {row['text']}", x=x, y=y)
        for row, (x, y) in zip(rows, lines, strict=True)
        if x
    ]
    if series:
        chart = LineChart(
            title="Recall@1 of held-out images and captions",
            x_label="step",
            y_label="recall@1, mean of both directions",
            include=(0.0,),
            series=series,
        )
        chart.save(given.out / "recall.svg")


def read_recalls(run: Path) -> tuple[list[float], list[float]]:
    """Step and recall@1 of each evaluation of a run."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [(row["step"], row["recall_at_1"]) for row in rows if "recall_at_1" in row]
    return [x for x, _ in found], [y for _, y in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0, help="of each of the runs")
    parser.add_argument("--drawings", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--eval-every", type=int, default=100)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--vision", nargs="*", default=["vit", "resnet"])
    parser.add_argument("--openmoji", type=Path, help="default: ../shared/data/openmoji")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--settings", nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    if given.tiny:
        given.drawings, given.size, given.batch_size, given.dtype = 60, 32, 16, "float32"
    given.out.mkdir(parents=True, exist_ok=True)
    given.rows = []
    drawings = as_examples(make_drawings(TRAIN_SEED, given.drawings, given.size))
    tests = make_drawings(TEST_SEED, 40 if given.tiny else 2000, given.size)
    given.rows += measure("drawings", drawings, given, tests)
    folders = [given.openmoji] if given.openmoji else [Path(one) for one in FOLDERS]
    found = next((one for one in folders if (one / "color_72x72.tar.xz").is_file()), None)
    if found is None:
        print(f"no emoji: {', '.join(map(str, folders))} has no color_72x72.tar.xz", flush=True)
    else:
        emoji = read_emoji(found, given.size, 60 if given.tiny else None)
        print(f"{len(emoji):,} emoji", flush=True)
        given.rows += measure("emoji", emoji, given, None)
    show(given.rows, given)


if __name__ == "__main__":
    main()
