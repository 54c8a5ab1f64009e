"""Runs that are killed at random moments: importable where they start."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import cloze
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.complete import recipe
from cloze.make.resume import resume
from helpers import tiny_model
from images import SHAPE, drawings
from smallruns import SMALL, stories

SETTINGS = [*SMALL, "run.eval_every=2", "run.save_every=1", "run.keep_states=2"]


def kill_runs(folder: Path, times: int) -> None:
    """Kill runs of pre-training; see `kill_until_done`."""
    text = stories(folder)
    phases = kill_until_done(
        lambda out: pretrain(text, out, recipe(settings=SETTINGS), force=True),
        lambda out: resume(out),
        _find_phase,
        folder,
        times,
    )
    assert len(phases) > 2, phases


def kill_diffusion_runs(folder: Path, times: int) -> None:
    """Kill runs of a diffusion model, in both of its stages."""
    encoder, images = tiny_model("mlm").save(folder / "encoder"), drawings(12)
    settings = {
        **{f"model.{name}": value for name, value in SHAPE.items()},
        "run.batch_size": 4,
        "run.eval_every": 2,
        "run.save_every": 1,
        "run.autoencoder_fraction": 0.5,
        "data.hold_out": 0.3,
        "data.shift": 0.1,
        "text_encoder.init_from": str(encoder),
    }
    phases = kill_until_done(
        lambda out: cloze.pretrain(
            images, out, "diffusion", settings=settings, steps=12, device="cpu", force=True
        ),
        lambda out: cloze.resume(out, sources=images, progress=False),
        _find_stage,
        folder,
        times,
    )
    assert {"autoencoder", "network"} <= phases.keys(), phases


def kill_until_done(
    start: Callable[[Path], object],
    proceed: Callable[[Path], object],
    find_phase: Callable[[Path], str],
    folder: Path,
    times: int,
) -> Counter[str]:
    """Start or resume a run and kill it, until it ends; then the next, until there were enough.

    Every run that ends has the bytes of one that was never killed, and reported each evaluation
    once.
    """
    rng = random.Random(times)
    began = time.monotonic()
    assert _finish(start, proceed, folder / "straight", None) == "done"
    seconds = time.monotonic() - began
    expected = (folder / "straight" / "model.safetensors").read_bytes()
    killed, phases, runs = 0, Counter[str](), 0
    while killed < times:
        out, runs = folder / f"run-{runs}", runs + 1
        while True:
            moment = rng.uniform(0, seconds / rng.choice((1, 2, 5)))
            if _finish(start, proceed, out, moment) == "done":
                break
            killed += 1
            phases[find_phase(out)] += 1
        assert (out / "model.safetensors").read_bytes() == expected
        rows = (out / "metrics.jsonl").read_text()
        assert [rows.count(f'"eval", "step": {step}') for step in (2, 4, 6)] == [1, 1, 1], rows
    print(f"{killed} kills in {runs} runs: {dict(phases)}")  # noqa: T201
    return phases


def _finish(
    start: Callable[[Path], object],
    proceed: Callable[[Path], object],
    out: Path,
    kill_after: float | None,
) -> str:
    if not (child := os.fork()):
        status = 1
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            (proceed if (out / "recipe.toml").is_file() else start)(out)
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


def _find_stage(out: Path) -> str:
    """The stage of a diffusion model's run."""
    if not (out / "images" / "captions.json").exists():
        return "start"
    if (out / "metrics.jsonl").exists():
        return "network"
    return "between" if (out / "autoencoder" / "finished.json").exists() else "autoencoder"
