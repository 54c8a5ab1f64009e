"""Measure limits of the encoders: copying with a Transformer, n < d, the depth of a CNN.

    python bench/limits.py --json limits.json
    python bench/limits.py --device cpu --steps 2 --strings 20     # dry run

copying   A Transformer learns to copy random strings of up to 20 letters and copies longer ones;
          with sinusoidal and with learned positions. A string counts if every letter is right.
n < d     Milliseconds of a forward and backward pass over 16,384 tokens, for one layer of
          self-attention and one LSTM of the same width d, by sequence length n; and how many
          operations each needs: 4·n·d for the scores and weighted sums of a token, 16·d² for an
          LSTM, 8·d² for the projections of attention.
depth     A CNN on random vectors of letters decides whether `b` stands exactly so many letters
          after `a`. With a receptive field that is shorter it can only guess.
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from rich.console import Group
from rich.table import Table
from torch import nn
from torch.nn import functional as F

import cloze
from cloze.make.recipe.complete import complete_finetuning
from cloze.make.translation import train_translator
from cloze.nn.attention import Attention
from cloze.nn.context import AttentionContext
from cloze.nn.feature_heads import CNNFeatureHead
from cloze.plot.format import format_percent
from cloze.tasks.translate import translate
from common import print_result, versions

LETTERS = [chr(97 + n) for n in range(26)]
TRAINED = 20  # letters of the longest string to learn from
LENGTHS = (5, 10, 15, 20, 21, 25, 30, 40)
POSITIONS = {
    "sinusoidal": ["model.position_encoding=interleaved"],
    "learned": ["model.position_encoding=learned", "model.max_positions=128"],
}
WIDTH, TOKENS = 512, 16_384
DEPTHS, DISTANCES, ALPHABET = (1, 2, 4, 8), (2, 4, 8, 16), 20


def draw_strings(count: int, low: int, high: int, rng: np.random.Generator) -> list[str]:
    sizes = rng.integers(low, high + 1, count)
    return [" ".join(rng.choice(LETTERS, size)) for size in sizes]


def measure_copying(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Fraction of strings, and of letters, that are copied, by length."""
    rng, found = np.random.default_rng(0), []
    train, dev = (draw_strings(count, 1, TRAINED, rng) for count in (args.examples, 200))
    tests = {length: draw_strings(args.strings, length, length, rng) for length in LENGTHS}
    for name, settings in POSITIONS.items():
        budget = f"run.steps={args.steps}" if args.steps else f"run.minutes={args.minutes}"
        recipe = complete_finetuning(
            "transformer",
            task="translate",
            settings=[
                *settings,
                "model.hidden_size=128",
                "model.num_layers=2",
                "model.intermediate_size=512",
                "model.dropout=0.1",
                "vocabulary.size=300",
                "optimizer.lr=1e-3",
                f"run.device={args.device}",
                "run.evals_per_epoch=0.2",
                budget,
            ],
        )
        with TemporaryDirectory() as folder:
            out = Path(folder) / "copy"
            ended = train_translator([train, train], out, recipe, dev=[dev, dev])  # type: ignore[arg-type]
            model = cloze.load(out, device=args.device)
            for length, texts in tests.items():
                said = [one.text.split() for one in translate(model, texts, beam=1)]
                right = [
                    sum(a == b for a, b in zip(text.split(), one, strict=False))
                    for text, one in zip(texts, said, strict=True)
                ]
                whole = [one == text.split() for text, one in zip(texts, said, strict=True)]
                found.append(
                    {
                        "positions": name,
                        "length": length,
                        "strings": float(np.mean(whole)),
                        "letters": float(np.mean(right)) / length,
                        "output_length": float(np.mean([len(one) for one in said])),
                        "steps": ended.steps,
                    }
                )
    return found


def measure_layers(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Time of one layer by sequence length."""
    device, found = torch.device(args.device), []
    tokens = TOKENS if args.device == "cuda" else 2048
    attention = Attention(WIDTH, 8).to(device)
    lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True).to(device)
    for length in (64, 128, 256, 512, 1024, 2048, 4096):
        if length > tokens:
            break
        x = torch.randn(tokens // length, length, WIDTH, device=device, requires_grad=True)
        context = AttentionContext(None, max_seqlen=length, device=device)
        attention.prepare(context)
        runs = {
            "attention": lambda x=x, context=context: attention(x, context),
            "lstm": lambda x=x: lstm(x)[0],
        }
        row: dict[str, Any] = {
            "length": length,
            "attention_operations": 4 * length * WIDTH,
            "projection_operations": 8 * WIDTH**2,
            "lstm_operations": 16 * WIDTH**2,
        }
        for name, run in runs.items():
            row[name] = min(time_once(run, device) for _ in range(2 if args.steps else 6)) * 1000
        found.append(row)
    return found


def time_once(run: Any, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    run().sum().backward()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def measure_depth(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Accuracy of CNNs of several depths, by the distance of the two letters."""
    found = []
    for distance in DISTANCES:
        for depth in DEPTHS:
            torch.manual_seed(0)
            rng = np.random.default_rng(distance)
            vectors = torch.randn(ALPHABET, 32, device=args.device)
            head = CNNFeatureHead(32, 2, hidden_size=64, num_layers=depth, kernel_size=3)
            head = head.to(args.device)
            optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
            for _ in range(args.steps or 1500):
                ids, labels = draw_pairs(128, distance, rng, args.device)
                scores = head(vectors[ids].flatten(0, 1), [ids.shape[1]] * len(ids))
                optimizer.zero_grad()
                F.cross_entropy(scores, labels).backward()
                optimizer.step()
            head.eval()
            with torch.inference_mode():
                ids, labels = draw_pairs(2000, distance, rng, args.device)
                scores = head(vectors[ids].flatten(0, 1), [ids.shape[1]] * len(ids))
            accuracy = (scores.argmax(-1) == labels).float().mean().item()
            found.append(
                {
                    "distance": distance,
                    "layers": depth,
                    "receptive_field": head.receptive_field,
                    "accuracy": accuracy,
                }
            )
    return found


def draw_pairs(
    count: int, distance: int, rng: np.random.Generator, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Letters 2 … and one 0 (`a`) with a 1 (`b`) after it: at the distance (label 1) or one off."""
    size = 24
    ids = rng.integers(2, ALPHABET, (count, size))
    labels = rng.integers(0, 2, count)
    offsets = np.where(labels == 1, distance, distance + rng.choice([-1, 1], count))
    starts = (rng.random(count) * (size - offsets)).astype(int)
    ids[np.arange(count), starts] = 0
    ids[np.arange(count), starts + offsets] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(labels).to(device)


def show_copying(found: list[dict[str, Any]]) -> Table:
    table = Table("positions", *map(str, LENGTHS), title="strings copied exactly, by length")
    for name in POSITIONS:
        rows = [one for one in found if one["positions"] == name]
        table.add_row(name, *(format_percent(one["strings"], 0) for one in rows))
        table.add_row("  letters", *(format_percent(one["letters"], 0) for one in rows))
    return table


def show_layers(found: list[dict[str, Any]]) -> Table:
    table = Table("n", "attention ms", "LSTM ms", "n·d scores / LSTM operations", title="one layer")
    for one in found:
        share = one["attention_operations"] / one["lstm_operations"]
        times = (f"{one['attention']:.2f}", f"{one['lstm']:.2f}")
        table.add_row(str(one["length"]), *times, f"{share:.3f}")
    return table


def show_depth(found: list[dict[str, Any]]) -> Table:
    table = Table("distance", *(f"{n} layers" for n in DEPTHS), title="CNN, accuracy")
    for distance in DISTANCES:
        rows = [one for one in found if one["distance"] == distance]
        table.add_row(str(distance), *(format_percent(one["accuracy"]) for one in rows))
    return table


PARTS = {
    "copying": (measure_copying, show_copying),
    "layers": (measure_layers, show_layers),
    "depth": (measure_depth, show_depth),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, default=1.0, help="training of each copying model")
    parser.add_argument("--examples", type=int, default=50_000, help="strings to learn from")
    parser.add_argument("--strings", type=int, default=500, help="strings of each length to copy")
    parser.add_argument("--steps", type=int, help="steps of each training, for a dry run")
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = {name: PARTS[name][0](args) for name in args.only}
    tables = Group(*(PARTS[name][1](found) for name, found in results.items()))
    print_result(tables, f"{args.device}, {versions('torch')}", results=results, file=args.json)


if __name__ == "__main__":
    main()
