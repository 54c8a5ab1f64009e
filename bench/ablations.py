"""BERT's ablations at equal budgets: what the parts of its pre-training are worth.

    python bench/ablations.py TEXT… --out runs/ablations --minutes 5 --json out.json

Devlin et al. 2018, §5.1 and appendix C.2, in minutes: masked words with and without next sentences,
a left-to-right model without them, and masks that always hide, where BERT's hide 80 %, swap 10 %
and leave 10 %. Each is a `cloze pretrain --recipe bert-original` on the same text, corpus and
vocabulary for the same minutes, one after another, or with --updates for the same steps, where
--together trains all of them at once; then all go through the same tasks, as in bench/tasks.py. The
left-to-right one is causal when it is fine-tuned too, and read at a text's end.

"MLM accuracy" is on held-out documents; of the causal model it is the accuracy of the next token:
these two are not to be compared. "tokens/s" is the median of a run and leaves compiling out, which
the budget does not; of runs together it is a share. A run that lies in --out is not taken again.

To rehearse: --cpu --steps 20 --preset tiny --set run.batch_tokens=1024 --set vocabulary.size=2000
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
from common import tell

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
        *("--recipe", "bert-original", "--corpus", str(args.corpus or args.out / "corpus")),
        *(["--steps", str(updates)] if updates else ["--minutes", str(args.minutes)]),
        *(["--vocabulary", str(vocabulary)] if vocabulary else []),
        *(["--preset", args.preset] if args.preset else []),
        *(rehearsal if args.cpu else []),
        *(part for one in args.set for part in ("--set", one)),
        *RUNS[name][1],
        *("--json", "--force"),
    ]


def run_pretraining(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """How a run ended; what it says is kept beside its folder."""
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
    parser.add_argument("--corpus", type=Path, help="where the prepared text lies or is to lie")
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
    tell(
        table,
        f"tasks: dev, mean ± deviation; {settings(args)}",
        results={"runs": list(ended.values()), "tasks": rows},
        file=args.json,
    )


if __name__ == "__main__":
    main()
