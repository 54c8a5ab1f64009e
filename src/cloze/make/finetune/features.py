"""Feature-based transfer: a small classifier on the hidden states of a frozen encoder.

A logistic (or ridge) regression or a CNN for texts; a BiLSTM for the words of a sentence, as in
Devlin et al. 2018, §5.3. The folder contains the unchanged encoder and the classifier.

n vectors, d their size, c labels.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.checkpoint.model import Model
from cloze.config import to_mapping
from cloze.data.batch import Ints
from cloze.data.labelled.batch import EncodedExample
from cloze.make.best_model import fit_best, new_state
from cloze.make.finetune.epoch_order import EpochOrder
from cloze.make.finetune.labelled import (
    Labelled,
    choose_label_thresholds,
    class_weights,
    count_truncated,
    finetune_fingerprint,
    set_label_thresholds,
    write_outputs,
)
from cloze.make.finetune.outcomes import write_outcome
from cloze.make.finetune.task_model import build_task_model
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.models.configs.encoder import MULTI_LABEL
from cloze.nn.feature_heads import FeatureHead, LinearFeatureHead, ScalarMix
from cloze.nn.utils import eval_mode, float64_device
from cloze.objectives.core import Learner, Objective, Terms, count_correct
from cloze.objectives.labelled import binary_cross_entropy
from cloze.tasks.evaluate_labelled import TASK_FUNCTIONS, compute_metrics
from cloze.tasks.features import Features, apply_feature_head, extract_features
from cloze.tasks.scored_predictions import ScoredPredictions
from cloze.train.callbacks import CallbackList, TrainingRun
from cloze.train.fit import one_batch_each
from cloze.train.result import RunResult

ITERATIONS = 1000  # of L-BFGS, at most


def finetune_features(
    base: Model, data: Labelled, out: Path, recipe: FinetuneRecipe, callbacks: CallbackList
) -> RunResult:
    """Compute the vectors of all examples once, and train a classifier on them."""
    started = time.monotonic()
    model = build_task_model(base, data, recipe)
    train = _Vectors.compute(model, data.train, recipe, callbacks, "training vectors")
    dev = _Vectors.compute(model, data.dev, recipe, callbacks, "dev vectors") if data.dev else None
    truncated = count_truncated(train.groups, data, callbacks)
    if isinstance(model.feature_head, LinearFeatureHead):
        callbacks.on_train_begin(TrainingRun(out, to_mapping(recipe)))
        result = _fit_linear(model, train, dev, data, out=out, recipe=recipe)
        if result.scores:
            callbacks.on_evaluate(result.steps, result.scores)
        callbacks.on_save(out)
    else:
        result = _fit_network(model, train, dev, data, out=out, recipe=recipe, callbacks=callbacks)
        if result.score is not None and data.problem == MULTI_LABEL and not result.stopped:
            result = set_label_thresholds(result, data, out, recipe)
    if result.score is not None and not result.stopped:
        write_outcome(out, data, None, batch_tokens=recipe.run.eval_batch_tokens)
    write_outputs(out, data, truncated)
    return replace(result, seconds=time.monotonic() - started, truncated=truncated)


def _fit_linear(
    model: Model,
    train: "_Vectors",
    dev: "_Vectors | None",
    data: Labelled,
    *,
    out: Path,
    recipe: FinetuneRecipe,
) -> RunResult:
    """A regression, solved in one step: nothing to resume and no best step to choose."""
    assert isinstance(model.feature_head, LinearFeatureHead)
    _solve_regression(
        model.feature_head,
        torch.cat(list(train.features.vectors)),
        torch.tensor([target for item in train.items for target in item.targets]),
        penalty=recipe.transfer.l2_penalty,
        weights=class_weights(data, recipe, next(model.feature_head.parameters()).device),
        smoothing=recipe.loss.label_smoothing,
        mix_penalty=recipe.transfer.mix_penalty,
    )
    scored = None if dev is None else dev.evaluate(model)
    if scored is not None and data.problem == MULTI_LABEL:
        model, scored = choose_label_thresholds(model, scored)
    model.save_into(out)
    return RunResult(
        folder=out,
        score=None if scored is None else data.score(scored),
        scores={} if scored is None else {**scored.scores, **scored.baseline},
        best_step=1,
        steps=1,
    )


@dataclass(frozen=True, kw_only=True)
class _Vectors:
    """Examples with the vectors of their sequences."""

    examples: Sequence[Any]
    groups: Sequence[Sequence[EncodedExample]]
    features: Features

    @property
    def items(self) -> list[EncodedExample]:
        return [item for group in self.groups for item in group]

    @classmethod
    def compute(
        cls,
        model: Model,
        examples: Sequence[Any],
        recipe: FinetuneRecipe,
        callbacks: CallbackList,
        stage: str,
    ) -> Self:
        assert model.task is not None
        assert model.task.features is not None
        groups = TASK_FUNCTIONS[recipe.task].encode_examples(model, examples, model.task)
        show = callbacks.on_progress
        features = extract_features(
            model,
            [item for group in groups for item in group],
            model.task.features,
            pooled=recipe.task == "classify",
            batch_tokens=recipe.run.eval_batch_tokens,
            progress=lambda _, done, total: show(stage, done, total),
        )
        return cls(examples=examples, groups=groups, features=features)

    def evaluate(self, model: Model) -> ScoredPredictions:
        assert model.task is not None
        scores = apply_feature_head(model, self.features)
        predictions = TASK_FUNCTIONS[model.task.name].postprocess(
            model, self.examples, self.groups, scores
        )
        return compute_metrics(model, model.task, self.examples, predictions)


def _solve_regression(
    feature_head: LinearFeatureHead,
    vectors: Tensor,
    targets: Tensor,
    *,
    penalty: float,
    weights: Tensor | None,
    smoothing: float,
    mix_penalty: float,
) -> None:
    """Minimise Σ loss + penalty/2·‖W‖² by L-BFGS, as scikit-learn's regressions do.

    Its C is 1/penalty; the intercept is not penalised. The classification loss is that of
    `objectives.labelled.classes`, with class weights and label smoothing. Where the head mixes
    layers, their scores are learned too, with the penalty n·mix_penalty·‖s‖²; γ stays 1, because W
    has a scale already.

    L-BFGS works on copies of the weights on the CPU. It reads a number for each vector of its
    history in every iteration, and on a GPU each of them would wait for all that was launched.
    """
    home = feature_head.dense.weight.device
    x = vectors.to(float64_device(home)).double()
    head = feature_head.to(x.device).double().requires_grad_(True)
    dense = head.dense
    with torch.no_grad():
        dense.weight.zero_()
        dense.bias.zero_()
    wanted, weighing = targets.to(x.device), None if weights is None else weights.to(x)
    if dense.out_features == 2 and wanted.ndim == 1:  # noqa: PLR2004
        penalty *= 2  # W is split into two rows of opposite sign, whose squares add up to half
    learned = [*dense.parameters(), *(mix.scores for mix in list_mixes(head))]
    copies = [weight.detach().cpu().clone() for weight in learned]
    search = torch.optim.LBFGS(
        copies,
        max_iter=ITERATIONS,
        tolerance_grad=1e-6,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        head.zero_grad()
        with torch.no_grad():
            torch._foreach_copy_(learned, copies)
        scores = head(x, ())
        if wanted.ndim > 1:  # several labels: one regression for each
            error = binary_cross_entropy(scores, wanted, weighing, smoothing).sum()
        elif wanted.is_floating_point():
            error = (scores.squeeze(-1) - wanted).square().sum() / 2
        else:
            error = F.cross_entropy(
                scores, wanted, weighing, label_smoothing=smoothing, reduction="sum"
            )
        total = (
            error
            + penalty / 2 * dense.weight.square().sum()
            + len(wanted) * compute_mix_penalty(head, mix_penalty)
        )
        total.backward()
        for weight, copy in zip(learned, copies, strict=True):
            copy.grad = None if weight.grad is None else weight.grad.cpu()
        return total.detach().cpu()

    search.step(loss)
    with torch.no_grad():
        torch._foreach_copy_(learned, copies)
    head.float().to(home).requires_grad_(False)


def list_mixes(feature_head: nn.Module) -> list[Any]:
    """The sums of layers whose weights a task model learns."""
    mixes: list[Any] = [one for one in feature_head.modules() if isinstance(one, ScalarMix)]
    return [mix for mix in mixes if isinstance(mix.scores, nn.Parameter)]


def compute_mix_penalty(feature_head: nn.Module, penalty: float) -> Tensor | float:
    """λ·‖s‖² of the scores of mixed layers (Peters et al. 2018, §3.3); 0 if there are none."""
    return sum((penalty * mix.scores.square().sum() for mix in list_mixes(feature_head)), 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorBatch:
    """Sequences as vectors of their words or tokens, with tags of the words or one label each."""

    name: str = "tag"  # of the loss
    features: Features
    targets: Sequence[Sequence[int | float]]
    sample_ids: Ints

    @property
    def counts(self) -> Mapping[str, int]:
        return {self.name: sum(map(len, self.targets))}

    @property
    def size(self) -> int:
        return sum(self.features.sizes)

    @property
    def lengths(self) -> Ints:
        return np.array(self.features.sizes, np.int64)

    def split(self, parts: int) -> list["VectorBatch"]:
        cuts = np.unique(np.linspace(0, len(self.targets), parts + 1).astype(int)).tolist()
        return [
            VectorBatch(
                name=self.name,
                features=self.features.select(range(a, b)),
                targets=self.targets[a:b],
                sample_ids=self.sample_ids[a:b],
            )
            for a, b in pairwise(cuts)
        ]


def make_vector_objective(
    weights: Tensor | None, smoothing: float, mix_penalty: float = 0.0
) -> Objective[VectorBatch]:
    """As the objectives of classes, several labels and numbers, for given vectors."""

    def objective(
        feature_head: FeatureHead,
        batch: VectorBatch,
        rng: torch.Generator | None = None,  # noqa: ARG001
    ) -> Terms:
        scores = batch.features.apply(feature_head)
        targets = torch.tensor(
            [one for each in batch.targets for one in each], device=scores.device
        )
        penalty = len(targets) * compute_mix_penalty(feature_head, mix_penalty)
        if targets.ndim > 1:
            losses = binary_cross_entropy(scores, targets, weights, smoothing)
            return {batch.name: losses.mean(-1).sum() + penalty}
        if targets.is_floating_point():
            return {batch.name: (scores.squeeze(-1) - targets).square().sum() + penalty}
        loss = F.cross_entropy(scores, targets, weights, label_smoothing=smoothing, reduction="sum")
        return {
            batch.name: loss + penalty,
            f"{batch.name}.accuracy": count_correct(scores, targets),
        }

    return objective


def _fit_network(
    model: Model,
    train: _Vectors,
    dev: _Vectors | None,
    data: Labelled,
    *,
    out: Path,
    recipe: FinetuneRecipe,
    callbacks: CallbackList,
) -> RunResult:
    """Train a BiLSTM on the vectors of words, or a CNN on those of tokens."""
    feature_head = model.feature_head
    assert feature_head is not None
    items = train.items
    labelled = [number for number, item in enumerate(items) if len(item.targets)]
    order = EpochOrder(len(labelled), recipe.run)

    def batch(index: int) -> VectorBatch:
        chosen = [labelled[n] for n in order.indices(index)]
        return VectorBatch(
            name=recipe.task,
            features=train.features.select(chosen),
            targets=[items[n].targets for n in chosen],
            sample_ids=np.array([items[n].example for n in chosen], np.int64),
        )

    def evaluate() -> dict[str, float]:
        assert dev is not None
        with eval_mode(feature_head):
            scored = dev.evaluate(model)
        if data.problem == MULTI_LABEL:
            scored = choose_label_thresholds(model, scored)[1]
        return {**scored.scores, **scored.baseline, "score": data.score(scored)}

    objective = make_vector_objective(
        class_weights(data, recipe, next(feature_head.parameters()).device),
        recipe.loss.label_smoothing,
        recipe.transfer.mix_penalty,
    )
    return fit_best(
        new_state(Learner(feature_head, objective), recipe),
        recipe,
        out=out,
        batches=one_batch_each(batch),
        steps_per_epoch=order.per_epoch,
        fingerprint=finetune_fingerprint(recipe, data),
        evaluate=None if dev is None else evaluate,
        save_model=lambda: model.save_into(out),
        callbacks=callbacks,
    )
