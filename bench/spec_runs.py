"""The processes of bench/spec_results.py."""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The settings of a call, and the processes that may run at a time."""

    args: argparse.Namespace
    slots: threading.Semaphore
    rows: list[dict[str, Any]] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    @property
    def data(self) -> Path:
        return self.args.carry / "data"

    def model(self, name: str) -> str:
        return name if name == "cloze-en" else str(self.args.work / name)

    def report(self, section: str, what: str, value: object, **more: Any) -> None:
        row = {"section": section, "what": what, "value": value, **more}
        print(json.dumps(row, ensure_ascii=False), flush=True)
        with self.lock:  # what is measured is written at once
            self.rows.append(row)
            text = json.dumps(self.rows, indent=1, ensure_ascii=False, default=str)
            (self.args.out / "results.json").write_text(text, "utf-8")

    def run(self, name: str, command: Sequence[str]) -> str:
        """The standard output of a command; its log stays if it fails."""
        log = self.args.work / "logs" / f"{name.replace('/', '-').replace(' ', '-')}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with self.slots, log.open("w", encoding="utf-8") as errors:
            began = time.perf_counter()
            done = subprocess.run(
                list(command), stdout=subprocess.PIPE, stderr=errors, text=True, check=False
            )
        if done.returncode:
            end = log.read_text("utf-8").strip().splitlines()[-4:]
            raise RuntimeError(f"{name}: {' '.join(command)[:300]}: {' / '.join(end)[-500:]}")
        print(f"# {name}: {time.perf_counter() - began:.0f} s", flush=True)
        log.unlink()
        return done.stdout

    def cloze(self, name: str, *words: str) -> dict[str, Any]:
        """A command of cloze that trains or evaluates, and its JSON."""
        command = [sys.executable, "-m", "cloze", *words, "--json", "--quiet"]
        command += ["--device", "cpu" if self.args.rehearse else "cuda"]
        lines = self.run(name, command).strip().splitlines()
        return json.loads(lines[-1])

    def budget(self, *words: str) -> list[str]:
        """The budget of a training; two steps in a rehearsal."""
        return ["--steps", "2"] if self.args.rehearse else list(words)


def finetune(
    bench: Bench, name: str, task: str, model: str, files: tuple[str, str], options: list[str],
    *, seed: int, keep: bool = False,
) -> tuple[dict[str, Any], Path]:  # fmt: skip
    """One run; its folder is removed unless it is needed later."""
    words = list(options)
    if bench.args.rehearse and "--epochs" in words:
        at = words.index("--epochs")
        words[at : at + 2] = bench.budget()
    out = bench.args.work / "runs" / f"{name} {seed}".replace("/", "-").replace(" ", "-")
    train, dev = (str(bench.data / file) for file in files)
    found = bench.cloze(
        f"{name} {seed}", "finetune", task, model, "--train", train, "--dev", dev,
        "--out", str(out), "--seed", str(seed), *words,
        *([] if bench.args.rehearse or "features" in words else ["--dtype", "bf16"]),
    )  # fmt: skip
    bench.report("runs", f"{name}, seed {seed}", found["score"], scores=found["scores"])
    if not keep:
        shutil.rmtree(out, ignore_errors=True)
    return found, out


def format_scores(values: Sequence[float]) -> str:
    scores = [100 * one for one in values]
    spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{statistics.fmean(scores):.1f}{spread}"


def each(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(max(1, len(calls))) as pool:
        return [one.result() for one in [pool.submit(call) for call in calls]]
