"""What processes do together in the tests: `job(distributed, …)`, importable where they start."""

import errno
import json
import os
import random
import signal
import threading
import warnings
from contextlib import nullcontext
from pathlib import Path

import torch
from safetensors.torch import save_file

from cloze import pretrain, resume
from cloze.errors import ConfigError, FolderError
from cloze.make import image_run
from cloze.objectives.clip import ClipObjective
from cloze.objectives.pretraining import pretraining_objective
from cloze.train import distributed as distributed_module
from cloze.train import sharded_state
from cloze.train.gradients import compute_gradients
from cloze.train.guard import TrainingError
from cloze.train.loop import evaluate_objective, training_steps
from cloze.train.schedule import Budget, Schedule
from cloze.train.state import resume_training_state, save_training_state
from contrastive import pair_bert, pair_data, pair_objective
from helpers import Watch
from images import CLIP_SHAPE, RESNET_SHAPE, SHAPE, clip_model, drawings, image_text_batches
from training import data, new_state, packed, steps_of, tiny_bert

RUN = {"seed": 3, "betas": (0.9, 0.999), "corpus": "abc"}


def told(steps):
    return [(step.number, step.means, step.grad_norm, step.lr, step.tokens) for step in steps]


def other_bert(dropout):
    """Same shape, other weights: what is not restored shows."""
    model = tiny_bert(dropout)
    model.init_weights(0.5, torch.Generator().manual_seed(99))
    return model


def resumed(distributed, folder: Path, way: str, total: int, stop: int) -> None:
    """Straight, and stopped and resumed; every process checks what it can see."""
    config = {"seed": 3, "distributed": distributed, "way": way}
    straight = new_state(tiny_bert(0.1), **config)
    expected = told(steps_of(straight, total))
    save_training_state(straight, folder / "straight", RUN)
    stopped = new_state(tiny_bert(0.1), **config)
    first = told(steps_of(stopped, total, upto=stop))
    save_training_state(stopped, folder / "stopped", RUN)
    distributed.sum_over_processes([0])  # the others may read once the first has written
    again = new_state(other_bert(0.1), **config)
    assert resume_training_state(again, folder / "stopped", RUN) is not None
    second = told(steps_of(again, total))
    assert first + second == expected
    save_training_state(again, folder / "resumed", RUN)


def trained(distributed, folder: Path, way: str) -> None:
    """Each process writes what it saw: losses, samples, scores."""
    state = new_state(distributed=distributed, way=way)
    steps = steps_of(state, 12)
    report = {
        "losses": [step.means for step in steps],
        "norms": [step.grad_norm for step in steps],
        "samples": [[int(n) for ids in step.sample_ids for n in ids] for step in steps],
        "tokens": steps[-1].tokens,
        "scores": evaluate_objective(state, [packed(range(900 + n, 903 + n)) for n in range(5)]),
    }
    (folder / f"{distributed.world_size}-{distributed.rank}.json").write_text(json.dumps(report))
    save_training_state(state, folder / f"state-{distributed.world_size}", RUN)


def interrupted(distributed, folder: Path) -> None:
    """Only the last process is asked to stop, and all end after the same step."""
    state, wish = new_state(distributed=distributed), []
    seen = []
    budget, schedule = Budget(steps=50), Schedule()
    for step in training_steps(
        state, data(distributed), budget=budget, schedule=schedule, stop=lambda: bool(wish)
    ):
        seen.append(step.number)
        if step.number == 3 + distributed.rank and distributed.rank == distributed.world_size - 1:
            wish.append(1)
    (folder / f"{distributed.rank}.json").write_text(json.dumps(seen))


class Cramped:
    """Out of memory above so many tokens, in one process only."""

    def __init__(self, distributed, holds: int, after: int = 0) -> None:
        self.distributed, self.holds, self.after, self.calls = distributed, holds, after, 0

    def __call__(self, model, batch, rng):
        self.calls += 1
        full = batch.lengths.sum() > self.holds and self.calls > self.after
        if full and self.distributed.rank == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return pretraining_objective(model, batch, rng)


def cramped(distributed, folder: Path) -> None:
    """One process runs out of memory in the first step: all begin it again with halves."""
    state = new_state(distributed=distributed, objective=Cramped(distributed, holds=20))
    with warnings.catch_warnings(record=True) as told_of:
        warnings.simplefilter("always")
        steps = steps_of(state, 6, source=data(distributed, parts=distributed.world_size, size=4))
    assert told_of
    assert state.max_micro_tokens is not None
    report = {"losses": [step.means for step in steps], "limit": state.max_micro_tokens}
    (folder / f"cramped-{distributed.rank}.json").write_text(json.dumps(report))


def poisoned(distributed, folder: Path) -> None:
    """A NaN in one process's part stops all of them at the same step, weights untouched."""

    def objective(model, batch, rng):
        terms = dict(pretraining_objective(model, batch, rng))
        if 29 in batch.sample_ids:  # the fourth step; only one process has it
            terms["mlm"] = terms["mlm"] * torch.nan
        return terms

    state = new_state(distributed=distributed, objective=objective)
    sound = new_state(distributed=distributed)
    steps_of(sound, 9, upto=3)
    try:
        steps_of(state, 9)
    except TrainingError as error:
        (folder / f"poisoned-{distributed.rank}.txt").write_text(str(error))
    weights = zip(state.model.parameters(), sound.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)
    assert state.progress.step == 3


def several_things(distributed, folder: Path) -> None:
    """Starting processes takes longer than what they do."""
    interrupted(distributed, folder)
    cramped(distributed, folder)
    poisoned(distributed, folder)


def contrastive(distributed, folder: Path) -> None:
    """Each process embeds its texts, and all compute the loss of all vectors."""
    model = pair_bert()
    for head in model.task_heads.parameters():  # not trained without the masked-LM loss
        head.requires_grad_(False)
    state = new_state(model, objective=pair_objective(), distributed=distributed, seed=3)
    steps = steps_of(state, 6, source=pair_data(60, distributed))
    report = {
        "losses": [step.means for step in steps],
        "norms": [step.grad_norm for step in steps],
        "weights": {n: w.detach().flatten().tolist() for n, w in model.named_parameters()},
    }
    (folder / f"{distributed.rank}.json").write_text(json.dumps(report))


def image_text(distributed, folder: Path) -> None:
    """The gradients of a CLIP in float64, whose images are divided among the processes."""
    torch.set_default_dtype(torch.float64)
    means, gradients = compute_clip_gradients(distributed, part_size=4)
    save_file(gradients, folder / f"{distributed.rank}.safetensors")
    (folder / f"{distributed.rank}.json").write_text(json.dumps(means))


def compute_clip_gradients(distributed, part_size: int, **changes):
    """This process's part of the means of one step, and the gradient of every weight."""
    made = clip_model("distilbert", dropout=0.0, **changes)
    model = made.module.double().train()
    state = new_state(model, objective=ClipObjective(), distributed=distributed, seed=5)
    place = {"rank": distributed.rank, "world_size": distributed.world_size}
    parts = image_text_batches(made.tokenizer).make_parts(3, part_size, **place)
    counts = dict(
        zip(
            parts[0].counts,
            distributed.sum_over_processes([sum(part.size for part in parts)]),
            strict=True,
        )
    )
    (largest,) = distributed.max_over_processes([max(part.size for part in parts)])
    state.largest_fitting = int(largest)  # with several processes: average while computing
    means = compute_gradients(state, parts, counts, int(largest))
    found = {name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None}
    return {name: float(value) for name, value in means.items()}, found


def report_steps(steps) -> list:
    """Loss, gradient norm and samples of each step."""
    ids = [[int(n) for part in step.sample_ids for n in part] for step in steps]
    return [(step.means["mlm"], step.grad_norm, one) for step, one in zip(steps, ids, strict=True)]


def shard(distributed, folder: Path, total: int, stop: int) -> None:
    """Save shards, continue what one process saved, and fail to save."""
    config = {"seed": 3, "distributed": distributed, "way": "fsdp"}
    state = new_state(tiny_bert(0.0), **config)
    steps_of(state, total, upto=stop)
    save_training_state(state, folder / "two", RUN)
    again = new_state(other_bert(0.0), **config)
    assert resume_training_state(again, folder / "one", RUN) is not None
    found = report_steps(steps_of(again, total))
    (folder / f"continued-{distributed.rank}.json").write_text(json.dumps(found))
    _fail_to_save(distributed, folder, state)


def _fail_to_save(distributed, folder: Path, state) -> None:
    """The disk of the second process is full."""
    write = sharded_state.write_tensor_files

    def write_or_fail(*arguments):
        if distributed.rank == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*arguments)

    sharded_state.write_tensor_files = write_or_fail
    distributed_module.EXIT_DELAY = 0.0
    ended = ""
    try:
        save_training_state(state, folder / "two", RUN)
    except (FolderError, SystemExit) as error:
        ended = f"{type(error).__name__}: {error}"
    sharded_state.write_tensor_files = write
    (folder / f"failed-{distributed.rank}.txt").write_text(ended)


def die_while_saving(distributed, folder: Path, rank: int, at: str) -> None:
    """Save, train on, and be killed at a point of the next saving; list the folder before."""
    state = new_state(tiny_bert(0.0), seed=3, distributed=distributed, way="fsdp")
    steps_of(state, 9, upto=2)
    save_training_state(state, folder, RUN)
    steps_of(state, 9, upto=4)
    before = getattr(sharded_state, at)

    def call(*arguments):
        found = before(*arguments)
        if distributed.rank == rank:
            names = [path.name for path in folder.iterdir()]
            folder.with_suffix(".json").write_text(json.dumps(names))
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(sharded_state, at, call)
    save_training_state(state, folder, RUN)


def save_until_killed(distributed, folder: Path, seed: int) -> None:
    """Resume, and save after every step; one of the processes is killed at a random moment."""
    rng = random.Random(seed)
    victim, delay = rng.randrange(distributed.world_size), rng.uniform(0.0, 0.6)
    state = new_state(tiny_bert(0.0), seed=3, distributed=distributed, way="fsdp")
    resume_training_state(state, folder, RUN)
    first = True
    for _ in training_steps(
        state, data(distributed), budget=Budget(steps=10**6), schedule=Schedule(warmup=0.1)
    ):
        save_training_state(state, folder, RUN)
        if first and distributed.rank == victim:
            threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        first = False


def image_runs(distributed, folder: Path, text_encoder: Path) -> None:
    """Train a CLIP and a diffusion model; continue a run of one process, and stop another."""
    image_run.distributed_context = lambda _: nullcontext(distributed)  # it is open already
    distributed_module.EXIT_DELAY = 0.0
    train_images("clip", folder / "clip-2", text_encoder)
    resume(folder / "clip-resumed", sources=drawings(24), progress=False)
    train_images("diffusion", folder / "diffusion-2", text_encoder)
    stopped = train_images(
        "diffusion", folder / "diffusion-resumed", text_encoder, callbacks=Watch(stop_at=5)
    )
    assert stopped.stopped
    assert not distributed.is_first or stopped.steps == 5
    ended = ""
    try:
        train_images("clip", folder / "few", text_encoder, {"run.batch_size": 1})
    except (ConfigError, SystemExit) as error:
        ended = f"{type(error).__name__}: {error}"
    (folder / f"few-{distributed.rank}.txt").write_text(ended)


RESNET = {"model.vision": "resnet"} | {f"model.{k}": value for k, value in RESNET_SHAPE.items()}
IMAGE_VARIANTS = [
    ("clip", RESNET),
    ("clip", {**RESNET, "model.image_pooling": "mean"}),
    ("clip", {"text_encoder.architecture": "clip-text", "text_encoder.preset": "tiny"}),
    ("clip", {"model.text_pooling": "pooler", "text_encoder.from_scratch": True}),
    ("clip", {"text_encoder.lr_factor": 0.0}),
    ("clip", {"model.text_pooling": "cls", "run.ema_decay": 0.0, "data.hold_out": 0.0}),
    ("diffusion", {"model.latent_channels": 0, "model.prediction": "noise"}),
    ("diffusion", {"model.backbone": "dit", "model.codebook_size": 16, "model.prediction": "flow"}),
    ("diffusion", {"text_encoder.init_from": "", "data.hold_out": 0.0, "data.shift": 0.0}),
]


def image_variants(distributed, folder: Path, text_encoder: Path) -> None:
    """Every weight of every variant has a gradient, as DDP requires."""
    image_run.distributed_context = lambda _: nullcontext(distributed)
    for number, (family, changes) in enumerate(IMAGE_VARIANTS):
        train_images(family, folder / f"{number}-{distributed.world_size}", text_encoder, changes)


def train_images(family: str, out: Path, text_encoder: Path, changes=None, **options):
    """Six steps of a tiny model, whose updates do not amplify rounding errors."""
    shape = CLIP_SHAPE if family == "clip" else SHAPE
    settings = {
        **{f"model.{name}": value for name, value in shape.items()},
        "text_encoder.init_from": str(text_encoder),
        "optimizer.eps": 1e-3,
        "optimizer.lr": 1e-2,
        "run.batch_size": 5,
        "run.eval_every": 3,
        "run.save_every": 2,
        "run.log_every": 1,
        "run.ema_decay": 0.9,
        "data.hold_out": 0.3,
        "data.shift": 0.1,
        **({"run.part_size": 2} if family == "clip" else {"run.autoencoder_fraction": 0.4}),
        **(changes or {}),
    }
    steps = 6 if family == "clip" else 10
    return pretrain(
        drawings(24), out, family, settings=settings, steps=steps, device="cpu", **options
    )
