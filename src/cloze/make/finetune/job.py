"""One run of fine-tuning: a model with a new head, labelled data, and the loop around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.data.labelled.batch import Item, TaskBatch, batch_of
from cloze.data.randomness import Purpose, generator
from cloze.device import resolve_device
from cloze.errors import InputError
from cloze.files import write_json
from cloze.make.course import Course, exact, take
from cloze.make.extend_model import grown
from cloze.make.finetune.labelled import Labelled
from cloze.make.finetune.recipe import FinetuneRecipe, FinetuneRun
from cloze.make.finetune.transfer import PartlyFrozen, lowest_trained, rates, thaw, thawing
from cloze.make.run import DATA_FACTS, METRICS, Watch
from cloze.make.threshold import with_threshold
from cloze.nn.fuse import move_to_device
from cloze.objectives.core import Objective
from cloze.objectives.labelled import choices, classes, numbers, spans
from cloze.report.page import write_report
from cloze.tasks.judge import score_predictions
from cloze.tasks.task_functions import TASK_FUNCTIONS
from cloze.train.optim import build_optimizer
from cloze.train.run_files import append_metrics
from cloze.train.state import TrainState
from cloze.train.step_metrics import kept_row


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """How one run ended."""

    score: float | None  # the best on the dev data; None where there are none
    scores: Mapping[str, float]  # all measures of the best
    best_step: int
    steps: int
    seconds: float
    cut: int  # texts that were too long, and were cut by the policy
    stopped: str | None = None  # the signal, where one ended it early


def how_it_ended(ended: Tuned) -> dict[str, Any]:
    """How a run ended, and nothing else."""
    return {field.name: getattr(ended, field.name) for field in fields(Tuned)}


def tune(base: Model, data: Labelled, out: Path, recipe: FinetuneRecipe, watch: Watch) -> Tuned:
    """Train from `base`, or go on from the state in `out`; `out` then holds the best model."""
    model = headed(base, data, recipe)
    groups = _groups(model, data.train)
    cut = count_cut(groups, data, watch)
    epochs = Epochs(recipe.task, groups, recipe.run)
    state = _state(model, data, recipe)
    taken = take(
        state,
        epochs.step,
        Course(
            out=out,
            identity={
                "recipe": exact(recipe, "data.train", "data.dev", "model"),
                "data": data.fingerprint,
            },
            budget=recipe.run.budget(epochs.per_epoch),
            schedule=recipe.schedule,
            options=recipe.run,
            watch=watch,
            every=recipe.run.eval_interval(lambda: epochs.per_epoch),
            judge=(lambda: _scores(model, data, recipe)) if data.dev else None,
            keep=lambda: model.save_into(out),
            around=lambda steps, since: thawing(
                steps, model.module, recipe.transfer, per_epoch=epochs.per_epoch, after=since.step
            ),
        ),
    )
    score, scores = taken.score, taken.scores
    # who wants to be gone is not kept: a resumed run does it at its end
    if score is not None and data.task.none and not taken.stopped:
        chosen = with_threshold(
            load(out, quiet=True), data.dev, batch_tokens=recipe.run.batch_tokens
        )
        chosen.save_into(out)
        judged = score_predictions(chosen, data.dev, batch_tokens=recipe.run.batch_tokens)
        score, scores = data.score(judged), judged.scores
        append_metrics(out / METRICS, kept_row(taken.best_step, scores))
    tell(out, data, cut)
    return Tuned(
        score=score,
        scores=scores,
        best_step=taken.best_step,
        steps=state.progress.step,
        seconds=state.progress.seconds,
        cut=cut,
        stopped=taken.stopped,
    )


def headed(base: Model, data: Labelled, recipe: FinetuneRecipe) -> Model:
    """The model with a head for the task, on the device it will learn on."""
    length, share = recipe.data.length, recipe.transfer.dropout
    tokenizer = base.tokenizer if length is None else base.tokenizer.with_limit(length)
    changes: dict[str, Any] = {"labels": data.labels, "problem_type": data.problem}
    if share is not None:
        changes |= {"dropout": share, "attention_dropout": share}
    rng = torch.Generator().manual_seed(recipe.run.seed)
    model = grown(base, tokenizer, (data.task.head,), rng=rng, **changes)
    move_to_device(model.module, resolve_device(recipe.run.device))
    return replace(model, task=data.task, reader=None)


def objective(data: Labelled, recipe: FinetuneRecipe, device: torch.device) -> Objective[TaskBatch]:
    """What the task's head learns from."""
    head = data.task.head
    if data.problem == "number":
        return numbers(head)
    if recipe.task in ("answer", "choose"):
        smoothing = recipe.loss.smoothing
        return spans(head) if recipe.task == "answer" else choices(head, smoothing=smoothing)
    weights = weights_of(data, recipe, device)
    return classes(head, weights=weights, smoothing=recipe.loss.smoothing)


def weights_of(data: Labelled, recipe: FinetuneRecipe, device: torch.device) -> Tensor | None:
    """How much each class counts; None where all count the same."""
    balanced = recipe.loss.class_weights == "balanced"
    return data.class_weights().to(device) if balanced else None


def count_cut(groups: Sequence[Sequence[Item]], data: Labelled, watch: Watch) -> int:
    """How many sequences to learn from were too long, which is said."""
    cut = sum(any(getattr(item, "truncated", 0) for item in group) for group in groups)
    if cut:
        watch.say.text(f"{cut:,} sequences are too long and are cut ({data.task.policy})")
    return cut


class Epochs:
    """Batches of so many examples, in another order every epoch."""

    def __init__(self, name: str, groups: Sequence[Sequence[Item]], table: FinetuneRun) -> None:
        self._name, self._groups, self._table = name, groups, table
        self._epoch, self._order = -1, [0]
        self.per_epoch = -(-len(groups) // table.batch)

    def step(self, number: int) -> TaskBatch:
        """The batch of a step; the last one of an epoch may be smaller."""
        epoch, at = divmod(number, self.per_epoch)
        if self._epoch != epoch:
            order = generator(self._table.seed, epoch, Purpose.ORDER).permutation(len(self._groups))
            self._epoch, self._order = epoch, order.tolist()
        first = at * self._table.batch
        chosen = self._order[first : first + self._table.batch]
        return batch_of(self._name, [self._groups[n] for n in chosen])


def tell(out: Path, data: Labelled, cut: int) -> None:
    """What lies beside the model for people to read."""
    write_json(out / DATA_FACTS, {**data.summary(), "cut": cut})
    write_report(out)


def _state(model: Model, data: Labelled, recipe: FinetuneRecipe) -> TrainState:
    module, table, layers = model.module, recipe.transfer, len(model.module.blocks)
    thaw(module, lowest_trained(table, layers))
    return TrainState(
        learner=PartlyFrozen(module, objective(data, recipe, model.device)),
        model=module,
        optimizer=build_optimizer(module, recipe.optimizer, rates(table, layers)),
        config=recipe.run,
    )


def _groups(model: Model, examples: Sequence[Any]) -> list[list[Item]]:
    """What shares a target: the options of a question, else every sequence alone."""
    assert model.task is not None
    found = TASK_FUNCTIONS[model.task.name].encode_examples(model, examples, model.task)
    if model.task.name == "choose":
        groups = [list(items) for items in found if items[0].targets]
    else:
        groups = [[item] for items in found for item in items if item.targets]
    if not groups:
        raise InputError("the training data have no labels", fix="check the files and columns")
    return groups


def _scores(model: Model, data: Labelled, recipe: FinetuneRecipe) -> dict[str, float]:
    judged = score_predictions(model, data.dev, batch_tokens=recipe.run.batch_tokens)
    return {**judged.scores, "score": data.score(judged)}
