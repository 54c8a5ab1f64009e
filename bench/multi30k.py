"""Train all translators on Multi30k and on English–Chinese sentences: BLEU and plots.

    python bench/multi30k.py --out OUT --jobs 4
    python bench/multi30k.py --out OUT --only en-de/transformer --set optimizer.lr=2e-3
    python bench/multi30k.py --out OUT --only en-de/transformer en-de/decoder --jobs 4
    python bench/multi30k.py --out OUT --rehearse  # tiny models and few sentences on a CPU

Each run is a process; --jobs of them run at a time. The two directions of a pair of languages share
one vocabulary. BLEU on val selects the epoch, then the length penalty of beam size 4; test_2016 is
translated once, with these. Progress is printed as JSON lines; OUT/results.json has all figures,
OUT/pictures the plots, OUT/runs the models. A run that has a result is not repeated, so an
interrupted benchmark can be continued.

English–Chinese sentences are split by a hash of the English side. The two `short` runs are trained
on pairs of at most 16 tokens and tested on the longer ones only.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from multi30k_run import ASKED, NAMES, learn_vocabulary, print_event, runs, slug, worker
from rich.console import Console
from rich.table import Table

from cloze.plot.line_chart import LineChart, Series
from common import DATA


def launch(name: str, given: argparse.Namespace) -> dict[str, Any]:
    place = given.out / "runs" / name / "result.json"
    if place.is_file() and not given.again:
        print_event(run=name, says="its result is there")
        return json.loads(place.read_text("utf-8"))
    log = given.out / "logs" / f"{slug(name)}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    threads = max(1, (os.cpu_count() or 1) // given.jobs)
    told = [word for word in sys.argv[1:] if word != "--again"]
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, __file__, *told, "--worker", name],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            env=os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONIOENCODING": "utf-8"},
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
    if process.returncode:
        end = log.read_text("utf-8").strip().splitlines()[-3:]
        print_event(run=name, failed=process.returncode, because=end)
        return {"run": name, "failed": end}
    return json.loads(place.read_text("utf-8"))


def others(out: Path, chosen: Collection[str]) -> list[dict[str, Any]]:
    """The results of earlier calls."""
    places = [out / "runs" / name / "result.json" for name in runs() if name not in chosen]
    return [json.loads(place.read_text("utf-8")) for place in places if place.is_file()]


def by_length(results: Sequence[dict[str, Any]], pictures: Path) -> None:
    """One picture for each direction that several models were trained in."""
    for direction in ("en-de", "de-en"):
        lines = []
        for model, title in NAMES.items():
            for one in results:
                if one["run"] == f"{direction}/{model}" and "by_length" in one:
                    points = one["by_length"]
                    lines.append(
                        Series(
                            name=f"{title} ({one['test']:.1f})",
                            x=[point["words"] for point in points],
                            y=[point["bleu"] for point in points],
                        )
                    )
        if lines:
            LineChart(
                title=f"BLEU by length of the sentence, {direction.replace('-', ' → ')}",
                series=lines,
                x_label="words of the source",
                y_label="BLEU, Multi30k test_2016",
                include=[0.0],
                wide=True,
            ).save(pictures / f"by-length-{direction}.svg")


def show(results: Sequence[dict[str, Any]]) -> None:
    table = Table(title="Multi30k test_2016, English–Chinese test part; beam 4")
    table.add_column("run", no_wrap=True)
    for column in ("val", "test", "sacreBLEU", "sentences", "weights", "best step", "train"):
        table.add_column(column, justify="right")
    for one in results:
        if "failed" in one:
            table.add_row(one["run"], "failed")
            continue
        peer = one["sacrebleu"]
        table.add_row(
            one["run"],
            f"{one['val']:.2f}",
            f"{one['test']:.2f}",
            f"{peer['score']:.2f}" if peer else "–",
            f"{one['sentences']:,}",
            f"{one['parameters'] / 1e6:.1f} M",
            f"{one['best_step']:,} of {one['steps']:,}",
            f"{one['train_seconds']:.0f} s",
        )
    console = Console(stderr=True, width=110)
    console.print(table)
    for one in results:
        if "asked" in one:
            console.print(f"{one['run']}: {ASKED} → {one['asked']}")
    for signature in sorted(
        {(one["sacrebleu"] or one)["signature"] for one in results if "test" in one}
    ):
        console.print(signature)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--only", nargs="+", default=[], help="runs whose names begin so")
    parser.add_argument(
        "--minutes", type=float, help="minutes per run, instead of the epochs of its recipe"
    )
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--eval-epochs", type=float, default=2.0)
    parser.add_argument(
        "--examples", type=int, help="number of sentences of each part, for a dry run"
    )
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set", nargs="+", default=[], help="settings, such as run.batch_tokens=8192"
    )
    parser.add_argument("--tiny", action="store_true", help="small models, for a dry run")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument(
        "--rehearse", action="store_true", help="--examples 60 --steps 4 --tiny --cpu"
    )
    parser.add_argument(
        "--unrecorded", action="store_true", help="launch every step kernel by kernel"
    )
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rehearse:
        given.examples, given.steps = given.examples or 60, given.steps or 4
        given.tiny = given.cpu = True
    return given


def main() -> None:
    given = arguments()
    if given.worker:
        worker(given.worker, given)
        return
    chosen = {
        name: run
        for name, run in runs().items()
        if not given.only or name.startswith(tuple(given.only))
    }
    for run in chosen.values():
        learn_vocabulary(run, given)
    with ThreadPoolExecutor(given.jobs) as pool:
        done = list(pool.map(lambda name: launch(name, given), chosen))
    results = [*done, *others(given.out, chosen)]
    pictures = given.out / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    by_length(results, pictures)
    text = json.dumps(results, indent=1, ensure_ascii=False)
    (given.out / "results.json").write_text(text, encoding="utf-8")
    show(results)
    sys.exit(any("failed" in one for one in results))


if __name__ == "__main__":
    main()
