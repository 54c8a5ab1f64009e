"""One run of fine-tuning: a model with a new head, trained on labelled data.

The parts of an encoder have depths, which decide what is trained and with which learning rate: 0
the embeddings, k block k, and above the last block the pooler and the head.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.data.labelled.batch import EncodedExample, TaskBatch, collate_examples
from cloze.data.labelled.examples import QuestionExample
from cloze.errors import InputError
from cloze.make.best_model import fit_best, new_state
from cloze.make.finetune.causal import (
    choose_transformation,
    is_causal_encoder,
    is_double_headed,
    lm_head_name,
    lm_weight,
    without_training_heads,
)
from cloze.make.finetune.epoch_order import EpochOrder
from cloze.make.finetune.labelled import (
    Labelled,
    adapt_model,
    choose_label_thresholds,
    class_weights,
    count_truncated,
    finetune_fingerprint,
    set_label_thresholds,
    write_outputs,
)
from cloze.make.finetune.outcomes import BestPredictions, write_outcome
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.make.recipe.transfer import TransferConfig
from cloze.metrics import squad
from cloze.models.configs.encoder import MULTI_LABEL
from cloze.models.ulmfit import ULMFiT
from cloze.nn.encoder import Encoder
from cloze.objectives.core import Learner, Objective
from cloze.objectives.labelled import (
    make_choice_objective,
    make_classification_objective,
    make_multi_label_objective,
    make_regression_objective,
    make_span_objective,
)
from cloze.tasks.answer import predict
from cloze.tasks.evaluate_labelled import TASK_FUNCTIONS, score_predictions
from cloze.tasks.scored_predictions import ScoredPredictions
from cloze.text.input_tokens import add_input_tokens
from cloze.train.callbacks import CallbackList
from cloze.train.fit import one_batch_each
from cloze.train.result import RunResult
from cloze.train.run_files import METRICS_FILE, append_metrics
from cloze.train.schedule import Progress
from cloze.train.state import TrainState
from cloze.train.step import Step
from cloze.train.step_metrics import make_kept_row

_LONG, _SMALL_BATCH = 64, 8  # tokens of a sequence, examples of a batch


def finetune_model(
    base: Model, data: Labelled, out: Path, recipe: FinetuneRecipe, callbacks: CallbackList
) -> RunResult:
    """Train from `base`, or resume the state in `out`, which then contains the best model."""
    weight = lm_weight(base, recipe)
    model = add_head(base, data, recipe, has_lm=weight > 0)
    saved = without_training_heads(model)
    groups = _training_groups(model, data.train)
    truncated = count_truncated(groups, data, callbacks)
    order = EpochOrder(len(groups), recipe.run)

    def batch(step: int) -> TaskBatch:
        chosen = [groups[n] for n in order.indices(step)]
        return collate_examples(recipe.task, chosen, has_lm=weight > 0)

    best = BestPredictions()

    def wrap_steps(steps: Iterable[Step], start: Progress) -> Iterator[Step]:
        best.start = start.step
        return unfreeze_gradually(
            steps, model.module, recipe.transfer, per_epoch=order.per_epoch, after=start.step
        )

    result = fit_best(
        _training_state(model, data, recipe, weight),
        recipe,
        out=out,
        batches=one_batch_each(batch),
        steps_per_epoch=order.per_epoch,
        fingerprint=finetune_fingerprint(recipe, data),
        evaluate=(lambda: _evaluate(model, data, recipe, best)) if data.dev else None,
        save_model=lambda: saved.save_into(out),
        callbacks=callbacks,
        faster_steps=_describe_faster_steps(groups, recipe),
        wrap_steps=wrap_steps,
    )
    # a run that a signal stopped ends at once; the threshold is chosen when it is resumed
    if result.score is not None and not result.stopped:
        scored = best.get(result.best_step)
        if data.problem == MULTI_LABEL:
            result, scored = set_label_thresholds(result, data, out, recipe), None
        elif data.task.allow_no_answer:
            result, scored = _set_threshold(result, data, out, recipe)
        write_outcome(out, data, scored, batch_tokens=recipe.run.eval_batch_tokens)
    write_outputs(out, data, truncated)
    return replace(result, truncated=truncated)


def _describe_faster_steps(
    groups: Sequence[Sequence[EncodedExample]], recipe: FinetuneRecipe
) -> str:
    """How a step can be made faster: by half of the longest sequence, or of the batch."""
    longest = max(len(item.ids) for group in groups for item in group)
    size = recipe.run.batch_size
    shorter = f"--max-length {max(16, longest // 2)}, " if longest > _LONG else ""
    smaller = f"--batch-size {max(1, size // 2)}, " if size > _SMALL_BATCH else ""
    return f"{shorter}{smaller}or --recipe features (a classifier on the frozen model)"


def add_head(base: Model, data: Labelled, recipe: FinetuneRecipe, *, has_lm: bool = False) -> Model:
    """The model with a head for the task, and maybe its LM head, on the training device.

    A causal model gets start, delimiter and extract tokens if its tokenizer has no such tokens.
    """
    transformation = choose_transformation(base, data, recipe)
    tokenizer = base.tokenizer
    if is_causal_encoder(base) and transformation in ("entailment", "similarity"):
        tokenizer = add_input_tokens(tokenizer)
    heads = [data.task.head]
    # the class of transformers for multiple choice with a GPT has both heads
    if has_lm or is_double_headed(base, data.task.head):
        heads.append(lm_head_name(base))
    model = adapt_model(
        base, data, recipe, heads, tokenizer=tokenizer, **_config_changes(base, recipe)
    )
    task = replace(data.task, transformation=transformation)
    return replace(model, task=task, feature_head=None)


def _config_changes(base: Model, recipe: FinetuneRecipe) -> dict[str, Any]:
    """The settings of the model that the recipe changes."""
    table, changes = recipe.transfer, dict[str, Any]()
    if table.dropout is not None:
        changes = {"dropout": table.dropout, "attention_dropout": table.dropout}
        changes |= {"input_dropout": None, "output_dropout": None}  # as `dropout`
        changes |= {"classifier_dropout": table.dropout}
    changes["concat_pooling"] = table.concat_pooling
    if table.gradient_length is not None:
        changes["gradient_length"] = table.gradient_length
    known = {field.name for field in fields(base.config)}
    return {name: value for name, value in changes.items() if name in known}


def task_objective(
    data: Labelled, recipe: FinetuneRecipe, device: torch.device, weight: float = 0.0
) -> Objective[TaskBatch]:
    """The loss of the task's head, and with a weight that of the LM head."""
    head, smoothing = data.task.head, recipe.loss.label_smoothing
    if data.problem == "regression":
        return make_regression_objective(head, lm_weight=weight)
    if recipe.task == "answer":
        return make_span_objective(head, lm_weight=weight)
    if recipe.task == "choose":
        return make_choice_objective(head, smoothing=smoothing, lm_weight=weight)
    make = (
        make_multi_label_objective if data.problem == MULTI_LABEL else make_classification_objective
    )
    weights = class_weights(data, recipe, device)
    return make(head, weights=weights, smoothing=smoothing, lm_weight=weight)


def depth_of(name: str, layers: int) -> int:
    """The depth of the parameter with this name."""
    if name.startswith("embeddings."):
        return 0
    found = re.match(r"(?:blocks|rnn\.layers)\.(\d+)\.", name)
    return int(found[1]) + 1 if found else layers + 1


def layer_lr_factors(table: TransferConfig, layers: int) -> Callable[[str], float]:
    """Layer-wise learning-rate decay: each layer has `layer_decay` times the rate of the next.

    Discriminative fine-tuning, Howard & Ruder 2018, §3.2 (their factor 2.6 is 1/0.38 here).
    """
    return lambda name: table.layer_decay ** (layers + 1 - depth_of(name, layers))


def lowest_trained_depth(table: TransferConfig, layers: int) -> int:
    """The lowest depth that is trained at all."""
    return 0 if table.kind == "full" else layers + 1 - table.count_trained_layers(layers)


def unfreeze(module: Encoder | ULMFiT, lowest: int) -> None:
    """Train what is at this depth and above, and freeze the rest."""
    layers = module.num_layers
    for name, weight in module.named_parameters():
        weight.requires_grad_(depth_of(name, layers) >= lowest)


def unfreeze_gradually(
    steps: Iterable[Step],
    module: Encoder | ULMFiT,
    table: TransferConfig,
    *,
    per_epoch: int,
    after: int,
) -> Iterator[Step]:
    """Unfreeze one layer after another from the top, which protects the lower layers at first.

    Gradual unfreezing, Howard & Ruder 2018, §3.3: one layer per epoch there; here
    `table.unfreeze_every` epochs per layer. `after` is the step at which the run starts or resumes.
    """
    layers = module.num_layers
    final, interval = lowest_trained_depth(table, layers), table.unfreeze_every * per_epoch

    def lowest(step: int) -> int:
        return max(final, layers + 1 - int(step / interval)) if interval else final

    unfreeze(module, lowest(after))
    for step in steps:
        yield step
        if lowest(step.number) != lowest(step.number - 1):
            unfreeze(module, lowest(step.number))


class PartlyFrozen(Learner):
    """A learner whose frozen parts stay in evaluation mode: without dropout."""

    def train(self, mode: bool = True) -> "PartlyFrozen":
        super().train(mode)
        assert isinstance(self.model, Encoder | ULMFiT)
        for part in (self.model.embeddings, *self.model.blocks):
            if mode and not _is_trained(part):
                part.eval()
        return self


def _is_trained(part: nn.Module) -> bool:
    return any(weight.requires_grad for weight in part.parameters())


def _training_state(
    model: Model, data: Labelled, recipe: FinetuneRecipe, weight: float
) -> TrainState:
    module, table, layers = model.module, recipe.transfer, model.module.num_layers
    unfreeze(module, lowest_trained_depth(table, layers))
    learner = PartlyFrozen(module, task_objective(data, recipe, model.device, weight))
    return new_state(learner, recipe, layer_lr_factors(table, layers))


def _training_groups(model: Model, examples: Sequence[Any]) -> list[list[EncodedExample]]:
    """The sequences that share a target: options of a question, orders of a pair, else one."""
    assert model.task is not None
    found = TASK_FUNCTIONS[model.task.name].encode_examples(model, examples, model.task)
    if model.task.name == "choose":
        groups = [list(items) for items in found if items[0].targets]
    else:
        groups = [list(item.sequences) for items in found for item in items if item.targets]
    if not groups:
        raise InputError("the training data have no labels", fix="check the files and columns")
    return groups


def _evaluate(
    model: Model, data: Labelled, recipe: FinetuneRecipe, best: BestPredictions
) -> dict[str, float]:
    scored = score_predictions(model, data.dev, batch_tokens=recipe.run.eval_batch_tokens)
    if data.problem == MULTI_LABEL:
        _, scored = choose_label_thresholds(model, scored)
    score = data.score(scored)
    best.add(scored, score)
    return {**scored.scores, **scored.baseline, "score": score}


def _set_threshold(
    result: RunResult, data: Labelled, out: Path, recipe: FinetuneRecipe
) -> tuple[RunResult, ScoredPredictions]:
    """Choose the no-answer threshold of the best model on the dev data, and evaluate again."""
    batch_tokens = recipe.run.eval_batch_tokens
    chosen = choose_threshold(load(out, quiet=True), data.dev, batch_tokens=batch_tokens)
    chosen.save_into(out)
    scored = score_predictions(chosen, data.dev, batch_tokens=batch_tokens)
    scores = {**scored.scores, **scored.baseline}
    append_metrics(out / METRICS_FILE, make_kept_row(result.best_step, scores))
    return replace(result, score=data.score(scored), scores=scores), scored


def choose_threshold(model: Model, dev: Sequence[QuestionExample], *, batch_tokens: int) -> Model:
    """The model with the no-answer threshold that gives the best F1 on the dev data.

    Devlin et al. 2018, §4.3.
    """
    assert model.task is not None
    predictions = predict(model, dev, allow_no_answer=False, batch_tokens=batch_tokens)
    rows = [
        (one.no_answer_margin, one.text, [answer.text for answer in example.answers or ()])
        for one, example in zip(predictions, dev, strict=True)
        if math.isfinite(one.no_answer_margin)  # without a span there is only "no answer"
    ]
    if not rows:
        return model
    leads, texts, gold = zip(*rows, strict=True)
    chinese = squad.is_chinese(example.context for example in dev)
    answered = [score.f1 for score in squad.score_answers(gold, texts, chinese=chinese)]
    unanswered = [float(not answers) for answers in gold]
    found = squad.find_best_threshold(leads, answered, unanswered)
    return replace(model, task=replace(model.task, threshold=found.threshold))
