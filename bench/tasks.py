"""Fine-tune models on the same tasks: dev scores, mean ± standard deviation over seeds.

    python bench/tasks.py runs/fast runs/original MINILM --data DATA --jobs 6 --json out.json

Each seed of each task is a `cloze finetune` process, `--jobs` of them at a time: on a GPU several
small models run faster together (even more with NVIDIA's MPS). All models have the same settings
for a task. Dev selects the epoch and is reported, as in published tables.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from rich.table import Table

from common import DATA, print_result

PAIR = 'run.selection_metrics=["accuracy","f1"]'
# the largest set has twenty times what the others have: fewer and larger steps do
LARGE = ["--epochs", "3", "--batch-size", "128", "--lr", "2e-4"]
TASKS: dict[str, tuple[str, str, tuple[str, str], list[str]]] = {
    # task, folder, train and dev files, settings of its own
    "SST-2": ("classify", "glue/SST-2", ("train.tsv", "dev.tsv"), LARGE),
    "sst2": ("classify", "sst2", ("train.tsv", "dev.tsv"), []),
    "CoLA": (
        "classify",
        "glue/CoLA",
        ("train.tsv", "dev.tsv"),
        ["--set", 'run.selection_metrics=["matthews_correlation"]'],
    ),
    "MRPC": ("classify", "glue/MRPC", ("train.tsv", "dev.tsv"), ["--set", PAIR]),
    "STS-B": ("classify", "glue/STS-B", ("train.tsv", "dev.tsv"), ["--regression"]),
    "RTE": ("classify", "glue/RTE", ("train.tsv", "dev.tsv"), []),
    "CoNLL": ("tag", "conll2003", ("eng.train", "eng.testa"), ["--epochs", "8"]),
    "SQuAD": (
        "answer",
        "squad",
        ("train-v1.1.json", "dev-v1.1.json"),
        ["--max-length", "384", "--overlap", "128"],
    ),
}


Job = tuple[str, str, int]  # model, task, seed


def command(job: Job, out: str, args: argparse.Namespace) -> list[str]:
    model, name, seed = job
    task, folder, files, own = TASKS[name]
    train, dev = (
        next(p for p in (args.data / folder / f, args.data / folder / f"{f}.xz") if p.exists())
        for f in files
    )
    made = [
        *(sys.executable, "-m", "cloze", "finetune", task, model),
        *("--train", str(train), "--dev", str(dev), "--out", out),
        *("--lr", str(args.lr), "--epochs", str(args.epochs)),
        *("--batch-size", str(args.batch_size)),
        *("--layer-decay", str(args.layer_decay), "--dtype", args.dtype),
        *own,
        *("--seed", str(seed), "--json", "--quiet", "--threads", "2"),
        *(["--device", "cpu"] if args.cpu else []),
    ]
    while args.steps and "--epochs" in made:  # a dry run: steps instead of epochs
        at = made.index("--epochs")
        made[at : at + 2] = []
    return [*made, *(["--steps", str(args.steps)] if args.steps else [])]


def run_job(job: Job, args: argparse.Namespace) -> dict[str, Any]:
    """One run."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            command(job, f"{out}/run", args),
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "2"},
            check=False,
        )
    row: dict[str, Any] = dict(zip(("model", "task", "seed"), job, strict=True))
    row["seconds"] = time.perf_counter() - begun
    if done.returncode:
        row["error"] = done.stderr[-500:]
    else:
        said = json.loads(done.stdout)
        row |= {key: said[key] for key in ("score", "scores", "metric")}
    print(json.dumps(row), flush=True)
    return row


def format_scores(rows: list[dict[str, Any]], model: str, task: str) -> str:
    """The mean of the seeds and their deviation, and how many failed."""
    seeds = [row for row in rows if (row["model"], row["task"]) == (model, task)]
    scores = [100 * row["score"] for row in seeds if "error" not in row]
    failed = f", {len(seeds) - len(scores)} failed" if len(scores) < len(seeds) else ""
    if not scores:
        return failed.strip(", ")
    spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{statistics.fmean(scores):.1f}{spread}{failed}"


def run_jobs(models: list[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every seed of every task with every model."""
    jobs = [(m, task, seed) for task, m, seed in product(args.tasks, models, range(args.seeds))]
    with ThreadPoolExecutor(args.jobs) as pool:
        return list(pool.map(lambda job: run_job(job, args), jobs))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--layer-decay", type=float, default=1.0)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--steps", type=int, help="number of steps, for a dry run")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--json", type=Path)


def settings(args: argparse.Namespace) -> str:
    return (
        f"batch size {args.batch_size}, lr {args.lr}, {args.epochs} epochs (CoNLL 8; SST-2 3, "
        f"batch size 128, lr 2e-4), layer decay {args.layer_decay}, {args.dtype}, "
        f"{args.seeds} seeds, {args.jobs} at a time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="folders")
    add_options(parser)
    args = parser.parse_args()
    rows = run_jobs(args.models, args)
    table = Table("model", *args.tasks, title="dev, mean ± deviation of the seeds")
    for model in args.models:
        table.add_row(Path(model).name, *(format_scores(rows, model, task) for task in args.tasks))
    print_result(table, settings(args), results=rows, file=args.json)


if __name__ == "__main__":
    main()
