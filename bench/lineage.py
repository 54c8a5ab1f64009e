"""word2vec, ELMo, GPT and BERT on the same text, with equal tokens: features and fine-tuning.

    cloze pretrain TEXT --family word2vec --out W2V --set model.hidden_size=256 --set run.epochs=2
    python bench/lineage.py TEXT --data DATA --word2vec W2V --out OUT       # 12 minutes on one H200
    python bench/lineage.py TEXT --data DATA --word2vec W2V --out OUT --rehearse

ELMo, the slowest, is pre-trained for --minutes; GPT and BERT read as many tokens. Their sizes are
similar (about 20 million parameters). Then every seed of every task is a `cloze finetune` process:
on the frozen model's vectors (a logistic regression; a BiLSTM for tags), and with all weights. Dev
selects the epoch and is reported, with the standard deviation of the seeds.
"""

import argparse
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from rich.table import Table
from spec_runs import Bench, each, format_scores

from common import print_result, versions

PAIR = ["--set", 'run.selection_metrics=["accuracy","f1"]']
TASKS: dict[str, tuple[str, str, str, list[str]]] = {
    # task, training file, dev file, settings
    "SST-2": ("classify", "sst2/train.tsv", "sst2/dev.tsv", []),
    "MRPC": ("classify", "glue/MRPC/train.tsv", "glue/MRPC/dev.tsv", PAIR),
    "STS-B": ("classify", "glue/STS-B/train.tsv", "glue/STS-B/dev.tsv", ["--regression"]),
    "CoNLL": ("tag", "conll2003/eng.train", "conll2003/eng.testa", []),
}
DEVICE_BATCHES = ["--max-length", "128", "--batch-tokens", "16384", "--workers", "8"]
PRETRAIN = {
    "elmo": ["--recipe", "elmo"],
    "gpt": [
        *("--recipe", "gpt", "--preset", "small", "--vocabulary-size", "16000"),
        *DEVICE_BATCHES,
    ],
    "bert": [
        *("--recipe", "laptop", "--preset", "small", "--vocabulary-size", "16000"),
        *("--pairs", "none", "--lr", "1e-3", "--set", "schedule.warmup=0.1", *DEVICE_BATCHES),
    ],
}
WAYS = ("features", "finetune")
MODELS = ("word2vec", "elmo", "gpt", "bert")


def train(bench: Bench, name: str, budget: list[str]) -> dict[str, Any]:
    out = bench.args.work / name
    small = ["--preset", "tiny", "--vocabulary-size", "800"]
    small += (
        ["--batch-size", "8"]
        if name == "elmo"
        else ["--batch-tokens", "512", "--set", "run.fast=true"]
    )
    dtype = [] if name == "elmo" else ["--dtype", "bf16"]
    found = bench.cloze(
        f"pretrain {name}", "pretrain", *map(str, bench.args.text), "--out", str(out),
        *PRETRAIN[name], *(small if bench.args.rehearse else dtype), *bench.budget(*budget),
    )  # fmt: skip
    bench.report(
        "pretrain", name, found["scores"], tokens=found["tokens"], seconds=found["seconds"]
    )
    return found


def transfer(bench: Bench, model: str, task: str, way: str, seed: int) -> None:
    kind, train_file, dev_file, own = TASKS[task]
    folder = bench.args.word2vec if model == "word2vec" else bench.args.work / model
    train_path, dev_path = (_find(bench.args.data / file) for file in (train_file, dev_file))
    options = [*own]
    if way == "features":
        options += [
            "--recipe",
            "features",
            "--layers",
            "last" if model == "word2vec" else "scalar-mix",
        ]
        if kind == "tag":
            options += [
                "--set",
                "transfer.hidden_size=256",
                "--set",
                "transfer.num_layers=1",
                "--epochs",
                "8",
            ]
        else:
            options += ["--pooling", "mean"]
    else:
        options += ["--lr", "2e-4", "--epochs", "5", "--layer-decay", "0.9", "--batch-size", "32"]
        options += [] if bench.args.rehearse else ["--dtype", "bf16"]
        if model == "gpt" and task in ("MRPC", "STS-B"):
            options += ["--transformation", "similarity"]
    if bench.args.rehearse and "--epochs" in options:
        at = options.index("--epochs")
        options[at : at + 2] = bench.budget()
    name = f"{task} {model} {way}"
    out = bench.args.work / "runs" / f"{name} {seed}".replace(" ", "-")
    try:
        found = bench.cloze(
            f"{name} {seed}", "finetune", kind, str(folder), "--train", str(train_path),
            "--dev", str(dev_path), "--out", str(out), "--seed", str(seed), *options,
        )  # fmt: skip
        bench.report("runs", name, found["score"], seed=seed, scores=found["scores"])
    except RuntimeError as error:  # the others go on
        bench.report("failed", name, str(error)[-300:], seed=seed)


def _find(path: Path) -> Path:
    return path if path.exists() else path.with_name(f"{path.name}.xz")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("text", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--word2vec", type=Path, required=True, help="folder of word vectors")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="folder of models (default: OUT/../lineage-work)")
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--rehearse", action="store_true", help="two steps on a CPU")
    args = parser.parse_args()
    args.work = (args.work or args.out.resolve().parent / "lineage-work").resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    began = time.perf_counter()
    bench = Bench(args=args, slots=threading.Semaphore(2 if args.rehearse else args.jobs))
    if "elmo" in args.models and not (args.work / "elmo").exists():
        tokens = str(train(bench, "elmo", ["--minutes", str(args.minutes)])["tokens"])
        each([lambda n=n: train(bench, n, ["--tokens", tokens]) for n in ("gpt", "bert")])
    seeds = range(1 if args.rehearse else args.seeds)
    jobs = [
        (model, task, way, seed)
        for way in WAYS
        for task in reversed(args.tasks)  # the longest first
        for model in args.models
        if way == "features" or model in ("gpt", "bert")
        for seed in (seeds if way == "finetune" or TASKS[task][0] == "tag" else [0])
    ]
    each([lambda job=job: transfer(bench, *job) for job in jobs])
    table = Table("model", "transfer", *args.tasks, title="dev scores")
    for model in args.models:
        for way in WAYS:
            cells = []
            for task in args.tasks:
                name = f"{task} {model} {way}"
                scores = [
                    r["value"] for r in bench.rows if (r["section"], r["what"]) == ("runs", name)
                ]
                cells.append(format_scores(scores) if scores else "")
            if any(cells):
                table.add_row(model, way, *cells)
    end = f"{time.perf_counter() - began:.0f} s, {versions('torch', 'tokenizers')}"
    print_result(table, end)
    print(json.dumps([r for r in bench.rows if r["section"] in ("pretrain", "failed")], indent=1))


if __name__ == "__main__":
    main()
