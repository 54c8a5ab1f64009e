"""`pretrain --plan`: what a run would do, from a trial of a few seconds, and nothing is kept."""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from cloze.data.files import PathLike
from cloze.data.streams import Source
from cloze.make.pretrain.job import asked, beginning
from cloze.make.pretrain.prepare import begun
from cloze.make.pretrain.recipe import DEFAULT, Recipe
from cloze.make.pretrain.setup import open_workshop
from cloze.make.run import Say
from cloze.train.budget import Budget
from cloze.train.loop import run
from cloze.train.parallel import assemble

TRIAL_SECONDS = 10.0
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to expect of a run."""

    parameters: int
    vocabulary: int
    documents: int
    tokens_per_epoch: int
    tokens_per_step: int
    real_share: float  # of the places in a batch
    tokens_per_second: float  # in the trial
    steps: int
    tokens: int
    epochs: float
    hours: float
    weights_mib: float  # weights, gradients and the optimizer's moments
    peak_mib: float | None  # in the trial, of the GPU or the process; None where nobody tells


def plan(
    sources: Source | list[Source],
    out: PathLike,
    recipe: Recipe | PathLike = DEFAULT,
    *,
    settings: Sequence[str] = (),
    say: Say | None = None,
) -> Plan:
    """Prepare what the run will need anyway, train for ten seconds, and foretell the rest.

    The vocabulary and the corpus stay in `out` and are used when the run is started; the weights of
    the trial are thrown away. A folder that holds a run or a model is not planned in.
    """
    texts, made = asked(sources, recipe, settings)
    folder, say = Path(out), say or Say()
    with assemble(made.run.device) as team, ExitStack() as held:
        with begun(texts, folder, made, team, held, planned=True) as readable:
            workshop = open_workshop(readable, folder, made, team=team, say=say)
        say.text(f"training for {TRIAL_SECONDS:.0f} seconds, and to the end of a step")
        with beginning(workshop, team) as state:
            steps: list[tuple[float, int]] = []
            clock = time.monotonic()
            for step in run(
                state,
                lambda n: (workshop.step(number, team) for number in range(n, 1 << 40)),
                budget=Budget(steps=1 << 40),
                schedule=made.schedule,
                stop=lambda: bool(steps) and steps[-1][0] > TRIAL_SECONDS,
            ):
                steps.append((time.monotonic() - clock, step.tokens))  # noqa: PERF401 - read by `stop`
        peak = _peak(team.device)
    # the first step is slower than the others; where there is no other it has to do
    (began, before), (ended, done) = steps[0] if len(steps) > 1 else (0.0, 0), steps[-1]
    speed = (done - before) / (ended - began)
    packing = workshop.batches.epoch(0).packing
    per_step = round(packing.tokens / len(packing) * workshop.batches.batching.per_step)
    tokens = _tokens(made.run.budget(lambda: packing.tokens), per_step, speed)
    weights, learning = (
        sum(weight.numel() for weight in part.parameters())
        for part in (workshop.model.module, state.model)
    )
    return Plan(
        parameters=weights,
        vocabulary=workshop.tokenizer.size,
        documents=workshop.corpus.summary.documents,
        tokens_per_epoch=packing.tokens,
        tokens_per_step=per_step,
        real_share=packing.real_share,
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
    """The most memory so far: of the GPU that the run is on, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
