"""AWD-LSTM on the Penn Treebank, and ULMFiT on IMDB with each technique left out in turn.

    python bench/ulmfit.py ptb --data DATA --out OUT --minutes 9 --only paper
    python bench/ulmfit.py general --data DATA --out OUT --minutes 6
    python bench/ulmfit.py imdb --data DATA --out OUT --lm-minutes 2.5 --jobs 7
    python bench/ulmfit.py ptb --rehearse --out OUT        # a tiny run on a CPU; also general, imdb

`ptb` trains variants of `recipes/awd-lstm.toml` for --minutes each and evaluates them on the valid
text as one continuous text. `general` pre-trains the language model of ULMFiT on Wikipedia
(OUT/general). `imdb` fine-tunes it on the texts of the training part and the unlabelled reviews
(OUT/adapted, once), then trains the classifiers, each a process, --jobs of them at a time. IMDB is
split by a hash of the id: 70 % train, 10 % dev, which chooses the epoch, 20 % test, which is
evaluated once. A result that is there is not computed again. OUT/results-PART.json has all figures,
OUT/imdb.svg a picture of the means and of the lowest and highest seed.
"""

import argparse
import csv
import json
import lzma
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from cloze.plot.interval_chart import IntervalChart, IntervalRow
from common import DATA, print_result, versions

AVERAGED, SPLIT = "run.average_patience", {"train": range(7), "dev": (7,), "test": (8, 9)}
# With a budget in minutes a falling learning rate is an alternative to averaging the weights.
FALLING = ["schedule.shape=linear", "schedule.warmup=0.01", f"{AVERAGED}=1000"]
ADAMW = ["optimizer.name=adamw", "optimizer.betas=[0.9,0.99]"]
PTB = {
    "paper": [],
    "batch-80": ["run.batch_size=80"],
    "batch-20": ["run.batch_size=20"],
    "falling": FALLING,
    "falling-80": [*FALLING, "run.batch_size=80"],
    "adamw": [*FALLING, *ADAMW, "optimizer.lr=0.003"],
    "adamw-80": [
        *(*FALLING, *ADAMW),
        *("optimizer.lr=0.004", "schedule.warmup=0.05", "run.batch_size=80"),
    ],
}
NO_STAGE = ["language_model.finetune_recipe="]
NO_DECAY, NO_UNFREEZING = ["transfer.layer_decay=1"], ["transfer.unfreeze_every=0"]
NO_SCHEDULE = ["schedule.shape=constant", "schedule.warmup=0", "schedule.min_factor=0"]
# what the classifier starts from, and the settings that differ from the recipe
IMDB: dict[str, tuple[str, list[str]]] = {
    "ulmfit": ("adapted", []),
    "scratch": ("random", [*NO_DECAY, *NO_UNFREEZING]),
    "scratch-lower-lr": ("random", [*NO_DECAY, *NO_UNFREEZING, "optimizer.lr=0.001"]),
    "without-lm-finetuning": ("general", []),
    "without-layer-rates": ("adapted", NO_DECAY),
    "without-slanted-schedule": ("adapted", NO_SCHEDULE),
    "without-unfreezing": ("adapted", NO_UNFREEZING),
    "without-concat-pooling": ("adapted", ["transfer.concat_pooling=false"]),
    "without-any-of-these": (
        "adapted",
        [*NO_DECAY, *NO_SCHEDULE, *NO_UNFREEZING, "transfer.concat_pooling=false"],
    ),
}
SMALL = ["model.hidden_size=24", "model.embedding_size=12", "run.batch_size=8"]


def read_lines(path: Path, limit: int | None = None) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [line for _, line in zip(range(limit or 1 << 40), file, strict=False)]


def split_imdb(given: argparse.Namespace) -> dict[str, Path]:
    """The parts of the labelled reviews as files of their own."""
    folder = given.out / "imdb"
    folder.mkdir(parents=True, exist_ok=True)
    lines = read_lines(given.data / "imdb" / "train.tsv.xz", 300 if given.rehearse else None)
    rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    for name, shares in SPLIT.items():
        part = [row for row in rows if zlib.crc32(row["id"].encode()) % 10 in shares]
        text = "".join(f"{row['label']}\t{row['text']}\n" for row in part)
        (folder / f"{name}.tsv").write_text(f"label\ttext\n{text}", encoding="utf-8")
    return {name: folder / f"{name}.tsv" for name in SPLIT}


def use_tf32() -> None:
    """Linear layers compute in TF32 on a GPU, as cuDNN's LSTMs do anyway."""
    import torch

    torch.set_float32_matmul_precision("high")


def budget(given: argparse.Namespace, minutes: float) -> dict[str, Any]:
    return {"steps": 6} if given.rehearse else {"minutes": minutes}


def train_ptb(name: str, given: argparse.Namespace) -> dict[str, Any]:
    import cloze

    train, valid = (given.data / "ptb" / f"ptb.{one}.txt.xz" for one in ("train", "valid"))
    if given.rehearse:
        for number, (source, count) in enumerate(((train, 300), (valid, 40))):
            target = given.out / f"ptb-{number}-{name}.txt"
            target.write_text("".join(read_lines(source, count)), encoding="utf-8")
            train, valid = (target, valid) if number == 0 else (train, target)
    out, begin = given.out / "ptb" / name, time.monotonic()
    result = cloze.pretrain(
        train,
        out,
        "awd-lstm",
        settings=[
            *("vocabulary.kind=spaced", "vocabulary.min_count=1", "run.eval_rows=10"),
            *("run.evals_per_epoch=0.5", "run.average_patience=3", "run.save_minutes=1000"),
            *(SMALL if given.rehearse else []),
            *PTB[name],
            *given.settings,
        ],
        dev=str(valid),
        dtype=given.dtype,
        force=True,
        progress=False,
        **budget(given, given.minutes),
    )
    seconds = time.monotonic() - begin
    scores = cloze.evaluate(out, valid).scores
    return {
        "perplexity": scores["perplexity"],
        "bits_per_byte": scores["bits_per_byte"],
        "dev_perplexity_in_10_rows": result.scores["perplexity"],
        "is_averaged": result.scores.get("is_averaged", 0.0),
        "steps": result.steps,
        "tokens": result.tokens,
        "best_step": result.best_step,
        "training_seconds": result.seconds,
        "seconds": seconds,
    }


def train_general(given: argparse.Namespace) -> dict[str, Any]:
    import cloze

    sources: list[Any] = [given.data / "text" / f"{name}.txt.xz" for name in given.texts]
    if given.rehearse:
        sources = [read_lines(sources[0], 200)]
    result = cloze.pretrain(
        sources,
        given.out / "general",
        "ulmfit-general",
        settings=[
            *(SMALL if given.rehearse else []),
            *("data.hold_out=0.005", "run.evals_per_epoch=2", "run.save_minutes=1000"),
            *given.settings,
        ],
        dtype=given.dtype,
        force=True,
        progress=False,
        **budget(given, given.minutes),
    )
    return {**result.scores, "steps": result.steps, "tokens": result.tokens}


def make_random(given: argparse.Namespace) -> Path:
    """The same model and vocabulary with random weights."""
    import torch

    import cloze

    model = cloze.load(given.out / "general", device="cpu")
    model.module.init_weights(torch.Generator().manual_seed(0))
    return Path(model.save(given.out / "random", force=True))


def adapt(given: argparse.Namespace, parts: dict[str, Path]) -> dict[str, Any]:
    """The second stage, with the texts of the training part and the unlabelled reviews."""
    import cloze

    with parts["train"].open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        texts = [row["text"] for row in rows]
    reviews = read_lines(given.data / "text" / "reviews-00.txt.xz", 50 if given.rehearse else None)
    result = cloze.pretrain(
        [[*texts, *reviews]],
        given.out / "adapted",
        recipe="ulmfit-lm",
        init_from=given.out / "general",
        settings=[*(SMALL[-1:] if given.rehearse else []), *given.settings],
        dtype=given.dtype,
        force=True,
        progress=False,
        **budget(given, given.lm_minutes),
    )
    return {**result.scores, "steps": result.steps, "tokens": result.tokens}


def train_imdb(name: str, given: argparse.Namespace) -> dict[str, Any]:
    import cloze

    variant, _, seed = name.rpartition("/")
    base, settings = IMDB[variant]
    parts = {one: given.out / "imdb" / f"{one}.tsv" for one in SPLIT}
    out = given.out / "runs" / name
    short = ["run.batch_size=8"] if given.rehearse else []
    result = cloze.finetune(
        *("classify", given.out / base, parts["train"], out, "ulmfit"),
        dev=parts["dev"],
        settings=[*NO_STAGE, *short, *settings, *given.settings],
        max_length=64 if given.rehearse else given.max_length,
        dtype=given.dtype,
        seed=int(seed),
        force=True,
        progress=False,
        **({"epochs": 1} if given.rehearse else {"epochs": given.epochs}),
    )
    if result.stopped:
        raise SystemExit(f"{name} was stopped")
    found = cloze.evaluate(out, parts["test"]).scores
    return {
        "variant": variant,
        "seed": int(seed),
        "accuracy": found["accuracy"],
        "dev_accuracy": result.score,
        "epochs_to_best": result.best_step * given.epochs / max(1, result.steps),
        "seconds": result.seconds,
    }


def launch(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Run one variant in a process of its own; its result is a file."""
    file = given.out / f"result-{given.part}-{name.replace('/', '-')}.json"
    if file.is_file() and not given.again:
        return json.loads(file.read_text("utf-8"))
    threads = given.threads or max(1, (os.cpu_count() or 1) // given.jobs)
    process = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], "--worker", name],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
    )
    if process.returncode:
        end = process.stderr.strip().splitlines()[-12:]
        print(json.dumps({"run": name, "failed": end}), flush=True)
        return {"run": name, "failed": end}
    print(process.stdout.strip().splitlines()[-1], flush=True)
    return json.loads(file.read_text("utf-8"))


def work(name: str, given: argparse.Namespace) -> None:
    found = (train_ptb if given.part == "ptb" else train_imdb)(name, given)
    found = {"run": name, **found}
    file = given.out / f"result-{given.part}-{name.replace('/', '-')}.json"
    file.write_text(json.dumps(found), encoding="utf-8")
    print(json.dumps(found), flush=True)


def summarise(given: argparse.Namespace, results: Sequence[dict[str, Any]]) -> None:
    if given.part == "ptb":
        columns = ("run", "perplexity", "bits_per_byte", "steps", "training_seconds", "is_averaged")
        rows = [[_format(one.get(name, "failed")) for name in columns] for one in results]
    else:
        columns = ("variant", "test accuracy, mean", "standard deviation", "seeds", "dev")
        rows, drawn = [], []
        for variant in dict.fromkeys(one.get("variant") for one in results):
            same = [one for one in results if variant and one.get("variant") == variant]
            scores = [one["accuracy"] for one in same]
            if scores:
                spread = f"{stdev(scores):.4f}" if len(scores) > 1 else ""
                dev = f"{mean(one['dev_accuracy'] for one in same):.4f}"
                rows.append([variant, f"{mean(scores):.4f}", spread, str(len(scores)), dev])
                bounds = {"low": min(scores), "high": max(scores)}
                name = variant.replace("-", " ")
                drawn.append(IntervalRow(name=name, value=mean(scores), **bounds))
        title = "ULMFiT on IMDB: test accuracy"
        IntervalChart(title=title, rows=drawn, percent=True).save(given.out / "imdb.svg")
    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    file = given.out / f"results-{given.part}.json"
    print_result(table, versions("torch", "tokenizers"), results=list(results), file=file)


def _format(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("ptb", "general", "imdb"))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0, help="of ptb and general")
    parser.add_argument("--lm-minutes", type=float, default=3.0, help="of the second stage")
    parser.add_argument("--epochs", type=float, default=10.0, help="of the classifiers")
    parser.add_argument("--max-length", type=int, default=512, help="of the reviews, in tokens")
    parser.add_argument("--texts", nargs="+", default=["wiki-00", "wiki-01"], help="general text")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="names of variants")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--threads", type=int, help="of a process (default: the cores / --jobs)")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--again", action="store_true", help="repeat what has a result")
    parser.add_argument("--rehearse", action="store_true", help="tiny runs on a CPU")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    use_tf32()
    if given.worker:
        work(given.worker, given)
        return
    if given.part == "general":
        found = train_general(given)
        (given.out / "result-general.json").write_text(json.dumps(found), encoding="utf-8")
        print(json.dumps(found))
        return
    if given.part == "imdb":
        if not (given.out / "general" / "config.json").is_file() or given.rehearse:
            train_general(given)
        parts = split_imdb(given)
        make_random(given)
        if given.again or not (given.out / "adapted" / "report.html").is_file():
            print(json.dumps({"adapted": adapt(given, parts)}), flush=True)
    seeds = 1 if given.rehearse else given.seeds
    known = list(PTB) if given.part == "ptb" else list(IMDB)
    chosen = given.only or (known[:2] if given.rehearse else known)
    names = chosen if given.part == "ptb" else [f"{n}/{s}" for s in range(seeds) for n in chosen]
    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(lambda name: launch(name, given), names))
    summarise(given, results)


if __name__ == "__main__":
    main()
