"""Small runs on a little text, for tests of what a run tells, keeps and goes on from."""

import json

import torch

from cloze.checkpoint.state import find_newest_state, read_state
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.complete import recipe
from cloze.make.resume import resume
from helpers import files_of

SMALL = [
    "model.preset=tiny",
    "model.hidden_size=16",
    "model.max_positions=32",
    "vocabulary.size=120",
    "sampling.max_length=32",
    "sampling.pairs=none",
    "run.batch_tokens=256",
    "data.hold_out=0.2",
    "data.workers=1",
    "run.steps=6",
    "run.log_every=1",
    "run.device=cpu",
]
FAST = [*SMALL, "run.eval_every=3", "run.fast=true"]  # batches made on the device


def stories(folder):
    """A file with 150 documents of three sentences."""
    path = folder / "a.txt"
    told = [f"the cat number {n} sat.\nit saw a dog.\nthe dog ran." for n in range(150)]
    path.write_text("\n\n".join(told))
    return path


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def check_resumed(made, text, settings, out):
    """The run in `made`, stopped after its fourth step and resumed in `out`: the same bits."""
    pretrain(text, out, recipe(settings=[*settings, "run.save_every=4", "run.keep_states=9"]))
    for path in (out / "state").iterdir():
        if not path.name.endswith("-step-4"):
            for name in files_of(path):
                (path / name).unlink()
            path.rmdir()
    (out / "model.safetensors").unlink()
    assert resume(out).steps == 6
    assert (out / "model.safetensors").read_bytes() == (made / "model.safetensors").read_bytes()
    ours, theirs = (
        read_state(find_newest_state(f / "state")).tensors["model"] for f in (out, made)
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
