"""Processes that save and are killed: importable where they start."""

import mmap
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import torch

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.checkpoint.state import SavedState, find_newest_state, read_state, save_state
from cloze.checkpoint.task import Task
from cloze.interop.sentence_transformers import Pooling
from cloze.train.consumers import save_steps
from cloze.train.loop import training_steps
from cloze.train.schedule import Budget, Schedule
from cloze.train.state import resume_training_state, save_training_state, snapshot
from helpers import tiny_model
from training import data, new_state, same, steps_of, tiny_bert


def numbered(step: int, size: int = 4000) -> SavedState:
    """A state in which everything says which step it is of."""
    weights = torch.full((size,), float(step))
    return SavedState(
        step=step,
        tensors={"model": {"a": weights, "b": -weights}, "optimizer": {"a.moment": weights / 2}},
        metadata={"run": {"seed": 1}, "progress": {"step": step}},
    )


def step_of(folder: Path) -> int:
    """The step of the newest whole state, after a look at all that is in it."""
    path = find_newest_state(folder)
    if path is None:
        return 0
    state = read_state(path)
    expected = numbered(state.step)
    assert state.metadata == expected.metadata
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
        before, status = find_newest_state(folder), None
        while status is None and find_newest_state(folder) == before:
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
    expected, found = snapshot(straight, {}), read_state(find_newest_state(folder))
    assert found.step == steps
    for kind, tensors in expected.tensors.items():
        same(found.tensors[kind], tensors)


def _train(folder: Path, steps: int) -> None:
    state = new_state(tiny_bert(0.1), seed=3)
    resume_training_state(state, folder, {})
    taken = training_steps(state, data(), budget=Budget(steps=steps), schedule=Schedule(warmup=0.1))
    for _ in save_steps(taken, lambda: save_training_state(state, folder, {}), every=3):
        pass
    os._exit(0)


def die_at_every_operation(folder: Path) -> None:
    """Save again and again, and die at the first operation on a file, the second, the third …"""
    step = 1
    save_state(folder, numbered(step))
    for operation in count():
        save = partial(save_state, folder, numbered(step + 1), keep=1)
        status = _dying_at(operation, save)
        newest = step_of(folder)
        assert newest in (step, step + 1), f"{newest} after operation {operation}"
        if status == 0:
            assert newest == step + 1
            assert operation > 15, "there were operations to die at"
            return
        step = newest


@cache
def marked(number: int) -> Model:
    """A model in which labels, task, pooling and weights say which it is."""
    model = tiny_model("sequence", **_facts(number))
    with torch.no_grad():
        for weight in model.module.parameters():
            weight.fill_(number)
    return replace(model, pooling=_pooling(number))


def mark_of(folder: Path) -> int:
    """The number of the model in a folder, after a look at all of it."""
    model = load(folder, device="cpu", quiet=True)
    number = int(model.labels[0].split()[1])
    assert {"labels": model.labels, "task": model.task} == _facts(number)
    assert model.pooling == _pooling(number)
    assert all((weight == number).all() for weight in model.module.parameters())
    return number


def _facts(number: int) -> dict[str, Any]:
    policy = "window" if number % 2 else None  # with a cloze.json, and without
    labels = f"no {number}", f"yes {number}"
    return {"labels": labels, "task": Task(name="classify", truncation=policy)}


def _pooling(number: int) -> Pooling | None:
    return Pooling(modes=("max",), max_seq_length=9) if number % 2 else None


def die_while_saving_into(folder: Path) -> None:
    """The same of a model saved into a folder that holds other things."""
    number = 1
    marked(number).save_into(folder)
    (folder / "state").mkdir()
    for operation in count():
        status = _dying_at(operation, partial(marked(number + 1).save_into, folder))
        found = mark_of(folder)
        assert found in (number, number + 1), f"{found} after operation {operation}"
        _check_without_the_hidden(folder)
        if status == 0:
            assert found == number + 1
            assert operation > 60, "there were operations to die at"
            break
        number = found
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")]
    assert (folder / "state").is_dir()


def _check_without_the_hidden(folder: Path) -> None:
    """Whoever knows nothing of hidden folders finds a whole model, or none."""
    if (folder / ".model").exists() and (folder / "model.safetensors").exists():
        seen = folder.with_name("seen")
        shutil.copytree(folder, seen, ignore=shutil.ignore_patterns(".*"))
        mark_of(seen)
        shutil.rmtree(seen)


def _dying_at(operation: int, act: Callable[[], object]) -> int:
    """The exit code of a process that dies, if it gets so far, at an operation on a file."""
    if not (child := os.fork()):
        _act_until(operation, act)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _act_until(operation: int, act: Callable[[], object]) -> None:
    seen = 0

    def look(event: str, _: object) -> None:
        nonlocal seen
        if event in {
            "open",
            "os.rename",
            "os.mkdir",
            "os.remove",
            "os.rmdir",
            "os.chmod",
            "os.link",
        }:
            seen += 1
            if seen > operation:
                os._exit(9)  # nothing is tidied up, as when the power goes

    sys.addaudithook(look)
    act()
    os._exit(0)
