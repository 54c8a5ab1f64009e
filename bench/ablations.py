"""BERT's ablations at equal budgets: what the parts of its pre-training contribute.

    python bench/ablations.py TEXT… --out runs/ablations --minutes 5 --json out.json

Devlin et al. 2018, section 5.1 and appendix C.2, in minutes: MLM with and without NSP, a causal
model without NSP, and 100 % [MASK] instead of 80/10/10. Each model is trained with `cloze pretrain
--recipe bert-original --max-length 128` on the same text, corpus and vocabulary for the same
minutes, one after another; with --updates for the same number of steps, where --together trains all
at once. Then all are fine-tuned on the same tasks, as in bench/tasks.py. The causal model stays
causal when it is fine-tuned, and its classifier reads the last token.

"MLM accuracy" is on held-out documents; for the causal model it is the next-token accuracy, which
cannot be compared. "tokens/s" is the median of a run, without compilation, which the budget
includes; runs that are trained together share the GPU. A run that exists in --out is not repeated.

Dry run: --cpu --steps 20 --preset tiny --set run.batch_tokens=1024 --set vocabulary.size=2000
"""

import argparse
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.table import Table
from tasks import add_options, format_scores, run_jobs, settings

from cloze.plot.format import format_percent
from common import print_result

RUNS: dict[str, tuple[str, list[str]]] = {
    # folder -> what it is called, and its own settings
    "mlm-nsp": ("MLM + NSP", []),
    "mlm": ("MLM", ["--pairs", "none"]),
    "left-to-right": (
        "left to right",
        ["--pairs", "none", "--set", "objective.kind=causal"],
    ),
    "all-masks": ("MLM + NSP, 100 % [MASK]", ["--set", "masking.split=[1.0,0.0,0.0]"]),
}
FIRST = next(iter(RUNS))
TASKS = ["MRPC", "sst2", "CoLA", "STS-B"]
WORDS = ("mlm_accuracy", "lm_accuracy")


def command(name: str, args: argparse.Namespace) -> list[str]:
    # the first run learns the vocabulary of all, unless there is one
    vocabulary = args.vocabulary or (args.out / FIRST / "tokenizer" if name != FIRST else None)
    updates = args.steps or args.updates
    rehearsal = ["--device", "cpu", "--dtype", "float32", "--set", "run.fast=true"]
    return [
        *(sys.executable, "-m", "cloze", "pretrain", *args.texts, "--out", str(args.out / name)),
        *(
            "--recipe",
            "bert-original",
            "--max-length",
            "128",
            "--corpus",
            str(args.corpus or args.out / "corpus"),
        ),
        *(["--steps", str(updates)] if updates else ["--minutes", str(args.minutes)]),
        *(["--vocabulary", str(vocabulary)] if vocabulary else []),
        *(["--preset", args.preset] if args.preset else []),
        *(rehearsal if args.cpu else []),
        *(part for one in args.set for part in ("--set", one)),
        *RUNS[name][1],
        *("--json", "--force"),
    ]


def run_pretraining(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run a pre-training and return its result; the output is stored next to its folder."""
    said = args.out / f"{name}.json"
    if not said.exists():
        print(" ".join(command(name, args)), flush=True)
        done = subprocess.run(
            command(name, args), stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False
        )
        if done.returncode:
            raise SystemExit(f"{name} ended with {done.returncode}")
        said.write_text(done.stdout)
    ended: dict[str, Any] = json.loads(said.read_text())
    rows = map(json.loads, (args.out / name / "metrics.jsonl").read_text().splitlines())
    rates = [row["tokens_per_second"] for row in rows if row.get("tokens_per_second")]
    return ended | {"run": name, "tokens_per_second": statistics.median(rates) if rates else None}


def cells(ended: dict[str, Any]) -> list[str]:
    scores, rate = ended["scores"], ended["tokens_per_second"]
    words = next((scores[name] for name in WORDS if name in scores), None)
    shares = (words, scores.get("nsp_accuracy"))
    return [
        f"{ended['tokens'] / 1e6:,.1f} M",
        f"{rate:,.0f}" if rate else "",
        *("" if share is None else format_percent(share) for share in shares),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("texts", nargs="+", help="files, folders and globs")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the runs' folders")
    parser.add_argument("--runs", nargs="*", default=list(RUNS), choices=list(RUNS))
    parser.add_argument(
        "--corpus",
        type=Path,
        help="folder of the prepared corpus; it is created if it does not exist",
    )
    parser.add_argument("--vocabulary", type=Path, help="a tokenizer; else the first run learns it")
    parser.add_argument("--minutes", type=float, default=5.0, help="of each run")
    parser.add_argument("--updates", type=int, help="of each run, instead of minutes")
    parser.add_argument("--together", action="store_true", help="train all at once")
    parser.add_argument("--preset", help="of every model")
    parser.add_argument("--set", action="append", default=[], help="a.b=c, for every run")
    add_options(parser)
    parser.set_defaults(tasks=TASKS)
    args = parser.parse_args()
    args.dtype = "float32" if args.cpu else args.dtype
    if args.together and not (args.vocabulary and args.corpus and args.updates):
        parser.error("--together needs --vocabulary, a prepared --corpus, and --updates")
    args.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(args.runs) if args.together else 1) as pool:
        found = pool.map(lambda name: run_pretraining(name, args), args.runs)
        ended = dict(zip(args.runs, found, strict=True))
    rows = run_jobs([str(args.out / name) for name in args.runs], args)
    table = Table("run", "tokens", "tokens/s", "MLM accuracy", "NSP accuracy", *args.tasks)
    for name, run in ended.items():
        scores = (format_scores(rows, str(args.out / name), task) for task in args.tasks)
        table.add_row(RUNS[name][0], *cells(run), *scores)
    print_result(
        table,
        f"tasks: dev, mean ± deviation; {settings(args)}",
        results={"runs": list(ended.values()), "tasks": rows},
        file=args.json,
    )


if __name__ == "__main__":
    main()
