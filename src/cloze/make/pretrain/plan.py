"""`pretrain --plan`: estimate a run from a few seconds of training."""

import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from cloze.data.sources import Sources
from cloze.files import PathLike
from cloze.make.pretrain.job import add_sources, training_state
from cloze.make.pretrain.prepare import prepare_run
from cloze.make.pretrain.setup import open_setup
from cloze.make.recipe.pretrain import EncoderRecipe
from cloze.train.callbacks import CallbackList
from cloze.train.distributed import distributed_context
from cloze.train.loop import training_steps
from cloze.train.schedule import Budget

TRIAL_SECONDS = 10.0
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The estimated size and duration of a run."""

    parameters: int
    vocabulary: int
    documents: int
    tokens_per_epoch: int
    tokens_per_step: int
    non_padding_fraction: float  # of the positions in a batch
    tokens_per_second: float  # in the trial
    steps: int
    tokens: int
    epochs: float
    hours: float
    weights_mib: float  # weights, gradients and optimizer state
    peak_mib: float | None  # in the trial, of the GPU or the process; None if unknown

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def plan(
    sources: Sources,
    out: PathLike,
    recipe: EncoderRecipe,
    *,
    callbacks: CallbackList | None = None,
) -> Plan:
    """Prepare the tokenizer and the corpus, train for ten seconds, and estimate the whole run.

    The tokenizer and the corpus stay in `out` and are used when the run is started; the weights are
    discarded. A folder that contains a run or a model is refused.
    """
    texts, made = add_sources(sources, recipe)
    folder, callbacks = Path(out), callbacks or CallbackList()
    with distributed_context(made.run.device) as distributed, ExitStack() as lock:
        with prepare_run(texts, folder, made, distributed, lock, planned=True) as readable:
            setup = open_setup(readable, folder, made, distributed=distributed, callbacks=callbacks)
        callbacks.on_log(f"training for {TRIAL_SECONDS:.0f} seconds, until the end of a step")
        with training_state(setup, distributed) as state:
            steps: list[tuple[float, int]] = []
            clock = time.monotonic()
            for step in training_steps(
                state,
                lambda n: (setup.step(number, distributed) for number in range(n, 1 << 40)),
                budget=Budget(steps=1 << 40),
                schedule=made.schedule,
                stop=lambda: bool(steps) and steps[-1][0] > TRIAL_SECONDS,
            ):
                steps.append((time.monotonic() - clock, step.tokens))  # noqa: PERF401 - read by `stop`
        peak = _peak(distributed.device)
    # the first step is slower than the others; it counts only if there is no other
    (began, before), (ended, done) = steps[0] if len(steps) > 1 else (0.0, 0), steps[-1]
    speed = (done - before) / (ended - began)
    packing = setup.batches.epoch(0).packing
    per_step = round(packing.tokens / len(packing) * setup.batches.batching.per_step)
    tokens = _tokens(made.run.budget(lambda: packing.tokens), per_step, speed)
    weights, learning = (
        sum(weight.numel() for weight in part.parameters())
        for part in (setup.model.module, state.model)
    )
    return Plan(
        parameters=weights,
        vocabulary=setup.tokenizer.vocab_size,
        documents=setup.corpus.summary.documents,
        tokens_per_epoch=packing.tokens,
        tokens_per_step=per_step,
        non_padding_fraction=packing.non_padding_fraction,
        tokens_per_second=speed,
        steps=max(1, round(tokens / per_step)),
        tokens=tokens,
        epochs=tokens / packing.tokens,
        hours=tokens / speed / 3600,
        weights_mib=learning * 16 / MIB,  # weight, gradient, two moments, of four bytes each
        peak_mib=None if peak is None else peak / MIB,
    )


def _tokens(budget: Budget, per_step: int, speed: float) -> int:
    if budget.tokens is not None:
        return budget.tokens
    if budget.steps is not None:
        return budget.steps * per_step
    assert budget.minutes is not None
    return round(budget.minutes * 60 * speed)


def _peak(device: torch.device) -> int | None:
    """Peak memory: of the run's GPU, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
