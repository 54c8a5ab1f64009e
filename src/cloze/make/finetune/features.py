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
from cloze.checkpoint.modules import build_feature_head
from cloze.checkpoint.task import FeatureSettings
from cloze.config import to_mapping
from cloze.data.batch import Ints
from cloze.data.labelled.batch import EncodedExample
from cloze.device import resolve_device
from cloze.make.best_model import fit_best, new_state
from cloze.make.finetune.labelled import (
    EpochOrder,
    Labelled,
    adapt_model,
    choose_label_thresholds,
    class_weights,
    count_truncated,
    finetune_fingerprint,
    set_label_thresholds,
    write_outputs,
)
from cloze.make.finetune.outcomes import write_outcome
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.models.configs.encoder import MULTI_LABEL
from cloze.nn.heads import LinearFeatureHead, ScalarMix
from cloze.nn.utils import eval_mode, float64_device
from cloze.objectives.core import Learner, Objective, Terms, count_correct
from cloze.objectives.labelled import binary_cross_entropy
from cloze.tasks.evaluate_labelled import TASK_FUNCTIONS, compute_metrics
from cloze.tasks.features import (
    apply_feature_head,
    choose_pooling,
    extract_features,
    measure_features,
    prepare_source,
    select_feature_layers,
)
from cloze.tasks.scored_predictions import ScoredPredictions
from cloze.train.callbacks import CallbackList, TrainingRun
from cloze.train.forward_context import seed_rng
from cloze.train.result import RunResult

ITERATIONS = 1000  # of L-BFGS, at most


def finetune_features(
    base: Model, data: Labelled, out: Path, recipe: FinetuneRecipe, callbacks: CallbackList
) -> RunResult:
    """Compute the vectors of all examples once, and train a classifier on them."""
    started = time.monotonic()
    model = _freeze_encoder(base, data, recipe)
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
        torch.cat(train.vectors),
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


def _freeze_encoder(base: Model, data: Labelled, recipe: FinetuneRecipe) -> Model:
    """The encoder without heads, and a new classifier on it."""
    base = prepare_source(base)
    table = recipe.transfer
    layers = select_feature_layers(table.layers, base.module.num_layers)
    size = measure_features(base, layers)
    kind = "bilstm" if recipe.task == "tag" else table.classifier
    is_network = kind != "linear"
    spec = FeatureSettings(
        input_size=size // len(layers.numbers) if layers.mixed else size,
        layers=table.layers,
        pooling=table.pooling or choose_pooling(base),
        kind=kind,
        hidden_size=table.hidden_size if is_network else 0,
        num_layers=table.num_layers if is_network else 0,
        kernel_size=table.kernel_size if kind == "cnn" else 0,
        mixed_layers=len(layers.numbers) if layers.mixed else 0,
    )
    body, task = _remove_heads(base, data, recipe), replace(data.task, features=spec)
    if not hasattr(body.config, "labels"):
        own: dict[str, Any] = {"labels": data.labels, "problem_type": data.problem}
        task = replace(task, **own)
    with seed_rng(torch.device("cpu"), recipe.run.seed):
        feature_head = build_feature_head(spec, len(data.labels))
        feature_head = feature_head.to(resolve_device(recipe.run.device))
    return replace(body, task=task, feature_head=feature_head.eval())


def _remove_heads(base: Model, data: Labelled, recipe: FinetuneRecipe) -> Model:
    """The model without task heads, with the recipe's maximum length; its weights are the same."""
    if hasattr(base.config, "labels"):
        return adapt_model(base, data, recipe, ())
    length = recipe.data.max_length
    tokenizer = base.tokenizer if length is None else base.tokenizer.with_max_length(length)
    return replace(base, tokenizer=tokenizer, pooling=None).to(resolve_device(recipe.run.device))


@dataclass(frozen=True, kw_only=True)
class _Vectors:
    """Examples with the vectors of their sequences."""

    examples: Sequence[Any]
    groups: Sequence[Sequence[EncodedExample]]
    vectors: list[Tensor]  # of each item: 1 d, or one vector per word

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
        vectors = extract_features(
            model,
            [item for group in groups for item in group],
            model.task.features,
            pooled=recipe.task == "classify",
            batch_tokens=recipe.run.eval_batch_tokens,
            progress=lambda _, done, total: show(stage, done, total),
        )
        return cls(examples=examples, groups=groups, vectors=vectors)

    def evaluate(self, model: Model) -> ScoredPredictions:
        assert model.task is not None
        scores = apply_feature_head(model, self.vectors)
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
    """
    home = feature_head.dense.weight.device
    x = vectors.to(float64_device(home)).double()
    head = feature_head.to(x.device).double().requires_grad_(True)
    dense, mix = head.dense, head.mix
    with torch.no_grad():
        dense.weight.zero_()
        dense.bias.zero_()
    wanted, weighing = targets.to(x.device), None if weights is None else weights.to(x)
    if dense.out_features == 2 and wanted.ndim == 1:  # noqa: PLR2004
        penalty *= 2  # W is split into two rows of opposite sign, whose squares add up to half
    scores_of_layers = [mix.scores] if isinstance(mix, ScalarMix) else []
    search = torch.optim.LBFGS(
        [*dense.parameters(), *scores_of_layers],
        max_iter=ITERATIONS,
        tolerance_grad=1e-6,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        search.zero_grad()
        scores = dense(mix(x))
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
            + len(x) * compute_mix_penalty(head, mix_penalty)
        )
        total.backward()
        return total

    search.step(loss)
    head.float().to(home).requires_grad_(False)


def compute_mix_penalty(feature_head: nn.Module, penalty: float) -> Tensor | float:
    """λ·‖s‖² of the scores of mixed layers (Peters et al. 2018, §3.3); 0 if there are none."""
    mix = getattr(feature_head, "mix", None)
    return penalty * mix.scores.square().sum() if isinstance(mix, ScalarMix) else 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorBatch:
    """Sequences as vectors of their words or tokens, with tags of the words or one label each."""

    name: str = "tag"  # of the loss
    vectors: Sequence[Tensor]
    targets: Sequence[Sequence[int | float]]
    sample_ids: Ints

    @property
    def counts(self) -> Mapping[str, int]:
        return {self.name: sum(map(len, self.targets))}

    @property
    def size(self) -> int:
        return sum(map(len, self.vectors))

    @property
    def lengths(self) -> Ints:
        return np.array([len(one) for one in self.vectors], np.int64)

    def split(self, parts: int) -> list["VectorBatch"]:
        cuts = np.unique(np.linspace(0, len(self.vectors), parts + 1).astype(int)).tolist()
        return [
            VectorBatch(
                name=self.name,
                vectors=self.vectors[a:b],
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
        feature_head: nn.Module,
        batch: VectorBatch,
        rng: torch.Generator | None = None,  # noqa: ARG001
    ) -> Terms:
        device = next(feature_head.parameters()).device
        scores = feature_head(torch.cat(list(batch.vectors)).to(device), batch.lengths.tolist())
        targets = torch.tensor([one for each in batch.targets for one in each], device=device)
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
    pairs = [(i, v) for i, v in zip(train.items, train.vectors, strict=True) if len(i.targets)]
    order = EpochOrder(len(pairs), recipe.run)

    def batch(index: int) -> VectorBatch:
        chosen = order.indices(index)
        return VectorBatch(
            name=recipe.task,
            vectors=[pairs[n][1] for n in chosen],
            targets=[pairs[n][0].targets for n in chosen],
            sample_ids=np.array([pairs[n][0].example for n in chosen], np.int64),
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
        batch_of=batch,
        steps_per_epoch=order.per_epoch,
        fingerprint=finetune_fingerprint(recipe, data),
        evaluate=None if dev is None else evaluate,
        save_model=lambda: model.save_into(out),
        callbacks=callbacks,
    )
