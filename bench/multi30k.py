"""Every translator of the project on Multi30k and on English–Chinese sentences: BLEU and pictures.

    python bench/multi30k.py --out OUT --jobs 4
    python bench/multi30k.py --out OUT --only en-de/transformer --set optimizer.lr=2e-3
    python bench/multi30k.py --out OUT --examples 200 --steps 4 --tiny --cpu  # a rehearsal

Each run is a process of its own, so many at a time. The runs of two languages share one vocabulary.
The epoch is chosen by BLEU on val, then the length penalty of a beam of 4; test_2016 is translated
once, with these. What happens is told in lines of JSON; OUT/results.json has all figures,
OUT/pictures the pictures, OUT/runs the models. A run whose result is there is not run again, so a
sitting that was cut short can go on.

English–Chinese sentences are parted by a hash of the English side. The two `short` runs learn from
pairs of at most 16 tokens and are tested on the longer ones alone.
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

from multi30k_run import ASKED, NAMES, learn_vocabulary, runs, slug, tell, worker
from rich.console import Console
from rich.table import Table

from cloze.plot.line_chart import LineChart, Series
from common import DATA


def launch(name: str, given: argparse.Namespace) -> dict[str, Any]:
    place = given.out / "runs" / name / "result.json"
    if place.is_file() and not given.again:
        tell(run=name, says="its result is there")
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
        tell(run=name, failed=process.returncode, because=end)
        return {"run": name, "failed": end}
    return json.loads(place.read_text("utf-8"))


def others(out: Path, chosen: Collection[str]) -> list[dict[str, Any]]:
    """What was found in other sittings."""
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
        "--minutes", type=float, help="for each run, in place of its recipe's epochs"
    )
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--eval-epochs", type=float, default=2.0)
    parser.add_argument("--examples", type=int, help="of each part, to rehearse")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set", nargs="+", default=[], help="settings, such as run.batch_tokens=8192"
    )
    parser.add_argument("--tiny", action="store_true", help="small models, to rehearse")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument(
        "--unrecorded", action="store_true", help="launch every step kernel by kernel"
    )
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


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
