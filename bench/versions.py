"""How fast is one version of cloze compared with another?

    python bench/versions.py /path/to/old/src src --rounds 7

Each measurement is a process with one source tree on its path, which times its work without
imports, reading and preparation. The two versions alternate, in an order that changes every round.
The table shows the geometric mean of new/old seconds and the upper end of its one-sided 95 %
confidence interval (t distribution of the log ratios): below 1.05 the slowdown is below 5 %. Text
and labels are generated.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

# Student's t, one-sided 95 %, by degrees of freedom
T95 = {1: 6.31, 2: 2.92, 3: 2.35, 4: 2.13, 5: 2.02, 6: 1.94, 7: 1.89, 8: 1.86, 9: 1.83, 10: 1.81}
# by whether the version has a registry of families: versions before it named these differently
WORD2VEC_SETTINGS = {
    True: ["run.epochs=1", "vocabulary.min_count=1"],
    False: ["word2vec.epochs=1", "text.min_count=1"],
}
MEASURED = ("embed", "pretrain", "finetune", "translate", "word2vec")


def write_inputs(folder: Path) -> None:
    """Sentences of made-up words, as frequent as words are (Zipf), the same in every run."""
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(8000)]
    weights = [1 / (rank + 5) for rank in range(len(words))]
    lines = [
        " ".join(rng.choices(words, weights, k=rng.randint(5, 40))) + "." for _ in range(20_000)
    ]
    documents = ["\n".join(lines[at : at + 10]) for at in range(0, len(lines), 10)]
    (folder / "text.txt").write_text("\n\n".join(documents), "utf-8")
    (folder / "source.txt").write_text("\n".join(lines[:2000]), "utf-8")
    (folder / "target.txt").write_text("\n".join(lines[2000:4000]), "utf-8")
    rows = [{"text": line, "label": rng.choice(["a", "b"])} for line in lines[:2000]]
    (folder / "rows.json").write_text(json.dumps(rows), "utf-8")


def time_best(call: Callable[[], object], times: int = 3) -> float:
    """Seconds of the fastest of several calls, after one that does not count."""
    call()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return min(found)


def measure(what: str, folder: Path) -> float:
    """Seconds of one measurement, in this process."""
    import torch

    import cloze

    torch.set_num_threads(2)
    lines = (folder / "source.txt").read_text("utf-8").splitlines()
    rows = json.loads((folder / "rows.json").read_text("utf-8"))
    with tempfile.TemporaryDirectory(dir=folder) as work:
        out = Path(work, "out")
        if what == "embed":
            model = cloze.load("cloze-en", quiet=True)
            return time_best(lambda: cloze.embed(model, lines[:100]))
        if what == "translate":
            model = cloze.load(folder / "translator")
            return time_best(lambda: cloze.translate(model, lines[:120]))
        if what == "pretrain":
            made = cloze.pretrain(
                [folder / "text.txt"], out, "laptop", settings=["run.steps=30", "run.seed=0"]
            )
        elif what == "finetune":
            made = cloze.finetune(
                "classify",
                "cloze-en",
                rows[:200],
                out,
                dev=rows[200:216],
                settings=["run.steps=6"],
            )
        elif what == "word2vec":
            settings = WORD2VEC_SETTINGS[find_spec("cloze.models.registry") is not None]
            for number in range(3):  # the first one compiles
                made = cloze.pretrain(
                    [folder / "text.txt"], out / str(number), "word2vec", settings=settings
                )
        else:
            cloze.finetune(
                "translate",
                None,
                [folder / "source.txt", folder / "target.txt"],
                folder / "translator",
                settings=["run.steps=2", "vocabulary.size=2000"],
            )
            return 0.0
        return float(made.seconds)


def run_measurement(src: Path, what: str, folder: Path) -> float:
    """The same in a process with one version on its path."""
    environment = os.environ | {
        "PYTHONPATH": str(src),
        "OMP_NUM_THREADS": "2",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, __file__, "--measure", what, "--folder", str(folder)]
    done = subprocess.run(
        command, env=environment, check=False, capture_output=True, encoding="utf-8"
    )
    if done.returncode:
        sys.exit(f"{what} with {src} failed:\n{done.stderr[-3000:]}")
    return float(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path, nargs="?", help="src folder of the older version")
    parser.add_argument("new", type=Path, nargs="?", help="src folder of the newer version")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=MEASURED)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(measure(options.measure, options.folder))
        return
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        folder = Path(name)
        write_inputs(folder)
        if "translate" in options.only:
            run_measurement(options.old.resolve(), "translator", folder)
        print(f"{'':12} {'old s':>8} {'new s':>8} {'new/old':>8} {'upper 95 %':>10}")
        for what in options.only:
            print(compare(what, options, folder), flush=True)


def compare(what: str, options: argparse.Namespace, folder: Path) -> str:
    seconds: dict[str, list[float]] = {"old": [], "new": []}
    for number in range(options.rounds):
        for side in ("old", "new") if number % 2 else ("new", "old"):
            src = getattr(options, side).resolve()
            seconds[side].append(run_measurement(src, what, folder))
    logs = [math.log(n / o) for o, n in zip(seconds["old"], seconds["new"], strict=True)]
    mean, rounds = statistics.fmean(logs), len(logs)
    error = statistics.stdev(logs) / math.sqrt(rounds) if rounds > 1 else math.inf
    upper = math.exp(mean + T95.get(rounds - 1, 1.7) * error)
    old, new = (min(seconds[side]) for side in ("old", "new"))
    return f"{what:12} {old:8.2f} {new:8.2f} {math.exp(mean):8.3f} {upper:10.3f}"


if __name__ == "__main__":
    main()
