"""Two processes at once on two cores: sentences per second, alone and together, by setting.

    PYTHONPATH=src python bench/busy.py sentences.txt --settings spin=1000 spin=10000

Every setting has two processes, which load the model once and then wait. In turns they embed the
same sentences: one process with the settings of torch ("default"), one with ours alone, both with
ours at once. The table shows the median over the rounds. Settings: default (torch's own), ours
(what `import cloze` chooses), spin=N (GOMP_SPINCOUNT), passive (OMP_WAIT_POLICY), threads=N
(OMP_NUM_THREADS).
"""

import argparse
import lzma
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS", "KMP_BLOCKTIME")
WORKER = """
import sys, time
import {first}
import cloze
sentences = open(sys.argv[1], encoding="utf-8").read().splitlines()
model = cloze.load(sys.argv[2], device="cpu")
cloze.embed(model, sentences[:200])
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    cloze.embed(model, sentences)
    print(len(sentences) / (time.perf_counter() - start), flush=True)
"""


def start_worker(setting, sentences, model):
    name, _, value = setting.partition("=")
    environment = {key: text for key, text in os.environ.items() if key not in VARIABLES}
    environment |= {
        "default": {},
        "ours": {},
        "spin": {"GOMP_SPINCOUNT": value},
        "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
        "threads": {"OMP_NUM_THREADS": value},
    }[name]
    first = "torch" if name == "default" else "cloze"  # too late for cloze to set anything
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER.format(first=first), str(sentences), model],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout.readline() == "ready\n"
    return worker


def measure(*workers):
    """Sentences per second of all workers together, which start at the same time."""
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    return sum(float(worker.stdout.readline()) for worker in workers)


def read_sentences(path, count):
    opened = lzma.open if path.suffix == ".xz" else open
    found = []
    with opened(path, "rt", encoding="utf-8") as file:
        for line in file:
            text = line.split("\t")[0].strip()
            if 20 <= len(text) <= 300:
                found.append(text)
            if len(found) == count:
                return found
    raise SystemExit(f"{path} has only {len(found)} lines of 20 to 300 characters")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path, help="file with one sentence per line; may be .xz")
    parser.add_argument("--settings", nargs="+", default=["ours"], help="settings to compare")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sentences", type=int, default=1200)
    parser.add_argument("--model", default="cloze-en")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # inherited by the processes
    sentences = Path(f"/tmp/busy-{os.getpid()}.txt")
    sentences.write_text("\n".join(read_sentences(arguments.text, arguments.sentences)))
    workers = []
    try:
        for setting in ("default", *arguments.settings):
            pair = [start_worker(setting, sentences, arguments.model) for _ in range(2)]
            workers.append(pair)
        compare(arguments, workers)
    finally:
        for worker in (one for pair in workers for one in pair):
            worker.kill()
        sentences.unlink()


def compare(arguments, workers):
    (before, both), *pairs = workers
    today, together = [], []
    alone = {setting: [] for setting in arguments.settings}
    twice = {setting: [] for setting in arguments.settings}
    for _ in range(arguments.rounds):
        today.append(measure(before))
        together.append(measure(before, both))
        for setting, pair in zip(arguments.settings, pairs, strict=True):
            alone[setting].append(measure(pair[0]))
            twice[setting].append(measure(*pair))
    import torch

    print(f"torch {torch.__version__}, {len(os.sched_getaffinity(0))} cores, ", end="")
    print(f"{arguments.sentences:,} sentences, median of {arguments.rounds} rounds, ", end="")
    print(f"{time.strftime('%Y-%m-%d')}, load {os.getloadavg()[0]:.1f}")
    print(f"{'setting':<14}{'alone':>8}{'two':>8}{'alone/default':>15}{'two/alone':>11}")
    base = median(today)
    print(f"{'default':<14}{base:8.1f}{median(together):8.1f}{1:15.3f}", end="")
    print(f"{median(together) / base:11.3f}")
    for setting in arguments.settings:
        one, two = median(alone[setting]), median(twice[setting])
        print(f"{setting:<14}{one:8.1f}{two:8.1f}{one / base:15.3f}{two / one:11.3f}")


if __name__ == "__main__":
    main()
