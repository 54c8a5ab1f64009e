"""Runs that are killed at random moments: importable where they start."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.complete import recipe
from cloze.make.resume import resume
from smallruns import SMALL, stories

SETTINGS = [*SMALL, "run.eval_every=2", "run.save_every=1", "run.keep_states=2"]


def kill_runs(folder: Path, times: int) -> None:
    """Start or resume a run and kill it, until it ends; then the next, until there were enough.

    Every run that ends has the bytes of one that was never killed, and reported each evaluation
    once.
    """
    text, rng = stories(folder), random.Random(times)
    began = time.monotonic()
    assert _finish(text, folder / "straight", None) == "done"
    seconds = time.monotonic() - began
    expected = (folder / "straight" / "model.safetensors").read_bytes()
    killed, phases, runs = 0, Counter[str](), 0
    while killed < times:
        out, runs = folder / f"run-{runs}", runs + 1
        while _finish(text, out, rng.uniform(0, seconds / rng.choice((1, 2, 5)))) == "killed":
            killed += 1
            phases[_find_phase(out)] += 1
        assert (out / "model.safetensors").read_bytes() == expected
        rows = (out / "metrics.jsonl").read_text()
        assert [rows.count(f'"eval", "step": {step}') for step in (2, 4, 6)] == [1, 1, 1], rows
    print(f"{killed} kills in {runs} runs: {dict(phases)}")  # noqa: T201
    assert len(phases) > 2, phases


def _finish(text: Path, out: Path, kill_after: float | None) -> str:
    if not (child := os.fork()):
        status = 1
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            if (out / "recipe.toml").is_file():
                resume(out)
            else:
                pretrain(text, out, recipe(settings=SETTINGS), force=True)
            status = 0
        finally:
            os._exit(status)
    stop = None if kill_after is None else time.monotonic() + kill_after
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert os.waitstatus_to_exitcode(status) == 0, "a run failed"
            return "done"
        if stop is not None and time.monotonic() >= stop:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "killed"
        time.sleep(0.002)


def _find_phase(out: Path) -> str:
    if not (out / "recipe.toml").exists():
        return "start"
    if not (out / "corpus").exists():
        return "vocabulary and corpus"
    if (out / "model.safetensors").exists() or (out / ".model").exists():
        return "model and report"
    return "training" if (out / "metrics.jsonl").exists() else "before training"
