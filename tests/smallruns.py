"""Small runs on a little text, for tests of what a run tells, keeps and goes on from."""

import json

SMALL = [
    "model.preset=tiny",
    "model.width=16",
    "model.positions=32",
    "vocabulary.size=120",
    "samples.length=32",
    "samples.pairs=none",
    "batch.tokens=256",
    "corpus.hold_out=0.2",
    "corpus.workers=1",
    "run.steps=6",
    "run.log_every=1",
    "run.device=cpu",
]
FAST = [*SMALL, "run.evaluate_every=3", "run.fast=true"]  # batches made on the device


def stories(folder):
    """A file with 150 documents of three sentences."""
    path = folder / "a.txt"
    told = [f"the cat number {n} sat.\nit saw a dog.\nthe dog ran." for n in range(150)]
    path.write_text("\n\n".join(told))
    return path


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
