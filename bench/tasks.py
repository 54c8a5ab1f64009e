"""Models through the same tasks, side by side: dev scores, mean ± deviation of the seeds.

    python bench/tasks.py runs/fast runs/faithful MINILM --data DATA --jobs 6 --json out.json

Each task is one `cloze finetune` in a process of its own, `--jobs` of them at a time: on a GPU
small models leave room for each other. Every model has the same settings for a task; dev chooses
the epoch, and dev is what is reported, as the published tables do.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PAIR = 'run.measures=["accuracy","f1"]'
TASKS: dict[str, tuple[str, str, tuple[str, str], list[str]]] = {
    # task, folder, train and dev files, settings of its own
    "SST-2": ("classify", "glue/SST-2", ("train.tsv", "dev.tsv"), ["--epochs", "3"]),
    "sst2": ("classify", "sst2", ("train.tsv", "dev.tsv"), []),
    "CoLA": (
        "classify",
        "glue/CoLA",
        ("train.tsv", "dev.tsv"),
        ["--set", 'run.measures=["matthews"]'],
    ),
    "MRPC": ("classify", "glue/MRPC", ("train.tsv", "dev.tsv"), ["--set", PAIR]),
    "STS-B": ("classify", "glue/STS-B", ("train.tsv", "dev.tsv"), ["--number"]),
    "RTE": ("classify", "glue/RTE", ("train.tsv", "dev.tsv"), []),
    "CoNLL": ("tag", "conll2003", ("eng.train", "eng.testa"), ["--epochs", "10"]),
    "SQuAD": (
        "answer",
        "squad",
        ("train-v1.1.json", "dev-v1.1.json"),
        ["--length", "384", "--stride", "128"],
    ),
}


def command(name: str, model: str, out: str, args: argparse.Namespace) -> list[str]:
    task, folder, files, own = TASKS[name]
    train, dev = (
        next(p for p in (args.data / folder / f, args.data / folder / f"{f}.xz") if p.exists())
        for f in files
    )
    return [
        *(sys.executable, "-m", "cloze", "finetune", task, model),
        *("--train", str(train), "--dev", str(dev), "--out", out),
        *("--rate", str(args.rate), "--epochs", str(args.epochs), "--batch", str(args.batch)),
        *("--layer-decay", str(args.layer_decay), "--dtype", args.dtype),
        *own,
        *("--seeds", str(args.seeds), "--json", "--quiet", "--threads", "2"),
        *(["--device", "cpu"] if args.cpu else []),
        *(["--steps", str(args.steps)] if args.steps else []),
    ]


def measured(job: tuple[str, str], args: argparse.Namespace) -> dict[str, Any]:
    """One task with one model."""
    model, name = job
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            command(name, model, f"{out}/run", args),
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "2"},
            check=False,
        )
    row: dict[str, Any] = {"model": model, "task": name, "seconds": time.perf_counter() - begun}
    if done.returncode:
        row["error"] = done.stderr[-500:]
    else:
        said = json.loads(done.stdout)
        row |= {key: said.get(key) for key in ("score", "mean", "deviation", "measure")}
        row["scores"] = [trial["score"] for trial in said["trials"]] or [said["score"]]
    print(json.dumps(row), flush=True)
    return row


def told(row: dict[str, Any] | None) -> str:
    if row is None or "error" in row:
        return "failed" if row else ""
    mean = row["mean"] if row["mean"] is not None else row["score"]
    return f"{100 * mean:.1f}" + (f" ± {100 * row['deviation']:.1f}" if row["deviation"] else "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="folders")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--layer-decay", type=float, default=1.0)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--steps", type=int, help="only so many, to rehearse")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    jobs = [(model, task) for task, model in product(args.tasks, args.models)]
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda job: measured(job, args), jobs))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    found = {(row["model"], row["task"]): row for row in rows}
    table = Table("model", *args.tasks, title="dev, mean ± deviation of the seeds")
    for model in args.models:
        table.add_row(Path(model).name, *(told(found.get((model, task))) for task in args.tasks))
    console = Console(width=140)
    console.print(table)
    console.print(
        f"batch {args.batch}, rate {args.rate}, {args.epochs} epochs (SST-2 3, CoNLL 10), "
        f"layer decay {args.layer_decay}, {args.dtype}, {args.seeds} seeds, {args.jobs} at a time"
    )


if __name__ == "__main__":
    main()
