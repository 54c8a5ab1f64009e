"""Processes that save and are killed: importable where they start."""

import mmap
import os
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path

import torch

from cloze.checkpoint.state import SavedState, newest_state, read_state, save_state
from cloze.train.budget import Budget
from cloze.train.consumers import saving
from cloze.train.loop import run
from cloze.train.schedule import Schedule
from cloze.train.state import resume, save, snapshot
from training import data, new_state, same, steps_of, tiny_bert


def numbered(step: int, size: int = 4000) -> SavedState:
    """A state in which everything says which step it is of."""
    weights = torch.full((size,), float(step))
    return SavedState(
        step=step,
        tensors={"model": {"a": weights, "b": -weights}, "optimiser": {"a.moment": weights / 2}},
        facts={"run": {"seed": 1}, "progress": {"step": step}},
    )


def step_of(folder: Path) -> int:
    """The step of the newest whole state, after a look at all that is in it."""
    path = newest_state(folder)
    if path is None:
        return 0
    state = read_state(path)
    expected = numbered(state.step)
    assert state.facts == expected.facts
    for kind, tensors in expected.tensors.items():
        assert state.tensors[kind].keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert torch.equal(state.tensors[kind][name], tensor)
    return state.step


def kill_while_saving(folder: Path, times: int) -> None:
    """SIGKILL at random moments: what was reported as saved is there, or something newer."""
    rng = random.Random(times)
    done = mmap.mmap(-1, 8)  # the last step reported as saved, seen by parent and child
    step = torn = 0
    for _ in range(times):
        done[:] = step.to_bytes(8, "little")
        if not (child := os.fork()):
            _save_forever(folder, step, done)
        while int.from_bytes(done, "little") == step:
            time.sleep(0.0005)
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "it was still saving"
        torn += any(path.name.startswith(".") for path in folder.iterdir())
        reported, step = int.from_bytes(done, "little"), step_of(folder)
        assert step >= reported
    assert torn, "at least once the kill came in the middle of a saving"


def _save_forever(folder: Path, step: int, done: mmap.mmap) -> None:
    while True:
        step += 1
        save_state(folder, numbered(step), keep=2)
        done[:] = step.to_bytes(8, "little")


def kill_while_training(folder: Path, steps: int) -> None:
    """Train, be killed, resume, be killed …: in the end it is the run that was never killed."""
    rng = random.Random(7)
    killed = 0
    while True:
        if not (child := os.fork()):
            _train(folder, steps)
        before, status = newest_state(folder), None
        while status is None and newest_state(folder) == before:
            time.sleep(0.01)
            ended, status = os.waitpid(child, os.WNOHANG)
            status = status if ended else None
        if status is None:
            time.sleep(rng.uniform(0.0, 0.2))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            break
        killed += 1
    assert killed, "it came to a kill"
    straight = new_state(tiny_bert(0.1), seed=3)
    steps_of(straight, steps)
    expected, found = snapshot(straight, {}), read_state(newest_state(folder))
    assert found.step == steps
    for kind, tensors in expected.tensors.items():
        same(found.tensors[kind], tensors)


def _train(folder: Path, steps: int) -> None:
    state = new_state(tiny_bert(0.1), seed=3)
    resume(state, folder, {})
    taken = run(state, data(), budget=Budget(steps=steps), schedule=Schedule(warmup=0.1))
    for _ in saving(taken, lambda: save(state, folder, {}), every=3):
        pass
    os._exit(0)


def die_at_every_operation(folder: Path) -> None:
    """Save again and again, and die at the first operation on a file, the second, the third …"""
    step = 1
    save_state(folder, numbered(step))
    for operation in count():
        if not (child := os.fork()):
            _save_until(operation, folder, step + 1)
        _, status = os.waitpid(child, 0)
        newest = step_of(folder)
        assert newest in (step, step + 1), f"{newest} after operation {operation}"
        if os.waitstatus_to_exitcode(status) == 0:
            assert newest == step + 1
            assert operation > 15, "there were operations to die at"
            return
        step = newest


def _save_until(operation: int, folder: Path, step: int) -> None:
    seen = 0

    def look(event: str, _: object) -> None:
        nonlocal seen
        if event in {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod"}:
            seen += 1
            if seen > operation:
                os._exit(9)  # nothing is tidied up, as when the power goes

    sys.addaudithook(look)
    save_state(folder, numbered(step), keep=1)
    os._exit(0)
