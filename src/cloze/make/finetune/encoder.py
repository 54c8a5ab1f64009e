"""Fine-tune an encoder: a model and labelled data become a model for a task.

The run's folder is the model's folder, and it contains the best model so far by the dev data:

    config.json model.safetensors tokenizer.json …     the model
    cloze.json                                          the task and how texts are read
    recipe.toml metrics.jsonl data.json report.html state/
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike as OsPath
from pathlib import Path
from typing import Any

from cloze.checkpoint.atomic import lock_folder
from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model, unsupported_function_error
from cloze.checkpoint.recurrent_encoder import make_recurrent_encoder
from cloze.checkpoint.task import TASK_HEADS
from cloze.device import resolve_device
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, absolute_path
from cloze.make.finetune.causal import check_causal_options
from cloze.make.finetune.labelled import Labelled, list_sources, read_labelled_data
from cloze.make.finetune.stages import (
    FAMILIES,
    STAGES,
    check_stages,
    name_texts,
    train_language_model,
)
from cloze.make.finetune.trials import (
    best_trial,
    is_seed_trial,
    plan_trials,
    read_trials,
    run_trials,
    write_trials,
)
from cloze.make.language_model import check_base
from cloze.make.recipe.finetune import FEATURE_TASKS, FinetuneRecipe
from cloze.make.recipe.model import ModelSource
from cloze.make.recipe.transfer import TransferConfig
from cloze.make.run_folder import check_extras, check_one_process, prepare_folder, start_run
from cloze.make.sources import UNNAMED, check_standard_input, resolve_model_name
from cloze.models.configs.ulmfit import ULMFiTConfig
from cloze.models.registry import resolve
from cloze.train.callbacks import CallbackList
from cloze.train.result import RunResult

# What trains a head on vectors, or a head and layers of the encoder; imported when it is used.
FEATURES = "cloze.make.finetune.features:finetune_features"
LAYERS = "cloze.make.finetune.job:finetune_model"
RECURRENT = "lstm"  # the family of language models that become encoders


def finetune_encoder(
    model: Model | PathLike | None,
    train: PathLike | Iterable[Any],
    out: PathLike,
    recipe: FinetuneRecipe,
    *,
    dev: PathLike | Iterable[Any] = (),
    force: bool = False,
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Fine-tune a model for a task: classify, tag, answer or choose.

    After every epoch it is evaluated on the dev data, and the folder contains the best model at the
    end. With `run.search` the learning rates, batch sizes and epochs of the paper are tried first;
    with `run.seeds` several seeds are trained, and the best model is kept. SIGTERM and Ctrl-C save
    the state and end the run; `resume` continues it, bit-exactly if the budget is in epochs, steps
    or tokens, and without repeating finished trials.

    Args:
        model: the model to start from; None: a language model that is first pre-trained on the
            recipe's `language_model.general_text`.
        train: files, folders, globs or `-` (standard input) of labelled data; a data frame, a
            `datasets` object, an iterable of mappings with the same columns, a tuple (texts,
            labels); or examples of `cloze.data.labelled`.
        out: the run's and the model's folder.
        recipe: a complete recipe.
        dev: data to evaluate on (default: a tenth of the training data, chosen by a hash).
        force: overwrite what is in `out`.
        callbacks: what is called while the run is prepared and trained.
    """
    named = resolve_model_name(model) if isinstance(model, str | OsPath) else UNNAMED
    if model is None:
        named = ""
    train, dev = list_sources(train), list_sources(dev)  # an iterator can be read only once
    data = replace(recipe.data, train=_name_files(train), dev=_name_files(dev))
    made = replace(
        recipe,
        model=ModelSource(init_from=named),
        data=data,
        transfer=_name_word_vectors(recipe.transfer),
        language_model=name_texts(recipe.language_model),
    )
    check_one_process()
    check_standard_input([*data.train, *data.dev])
    check_extras(made.run)
    check_stages(made, has_model=model is not None)
    callbacks = callbacks or CallbackList()
    separate = {"model": None if named in (UNNAMED, "") else named}
    with start_run(out, force=force, separate_from=separate) as folder:
        base = _open_base(model, made)
        labelled = read_labelled_data(made, train, dev)
        if base is not None:
            check_causal_options(base, labelled, made)
        if made.run.has_trials and not labelled.dev:
            raise InputError(
                "there are no dev data to choose the best trial by",
                fix="give dev data (--dev), or hold some out (data.hold_out)",
            )
        callbacks.on_log(labelled.describe())
        plans = plan_trials(made)
        prepare_folder(folder, made, subfolders=(*plans, *STAGES))
        if plans:
            write_trials(folder, {})
        return _train(base, labelled, folder, made, callbacks)


def resume_finetune(
    out: PathLike, recipe: FinetuneRecipe, *, callbacks: CallbackList | None = None
) -> RunResult:
    """Continue the run in a folder with its recipe.

    Finished trials are not repeated.
    """
    folder, init_from, data = Path(out), recipe.model.init_from, recipe.data
    check_one_process()
    check_extras(recipe.run)
    if UNNAMED in (init_from, *data.train, *data.dev):
        raise InputError(
            "this run was started with Python objects, which its recipe cannot name",
            fix="fine-tune again, or give the model and the data as files",
        )
    check_standard_input([*data.train, *data.dev], resuming=True)
    with lock_folder(folder):
        base = _open_base(init_from or None, recipe)
        labelled = read_labelled_data(recipe, data.train, data.dev)
        return _train(base, labelled, folder, recipe, callbacks or CallbackList())


def _train(
    base: Model | None,
    data: Labelled,
    folder: Path,
    recipe: FinetuneRecipe,
    callbacks: CallbackList,
) -> RunResult:
    """The run or the trials of a recipe, from where the folder has come to."""
    if recipe.language_model.is_used:
        base, stopped = train_language_model(base, data, folder, recipe, callbacks)
        if stopped is not None:
            return _describe(stopped, folder, recipe, data, {}, 1)
    assert base is not None
    if base.family.name == RECURRENT:
        base = make_recurrent_encoder(base)

    def train(plan: FinetuneRecipe, out: Path) -> RunResult:
        job = FEATURES if plan.transfer.kind == "features" else LAYERS
        result: RunResult = resolve(job)(base, data, out, plan, callbacks)
        found: dict[str, Any] = {
            "task": recipe.task,
            "metric": data.selection_metric,
            "labels": data.labels,
        }
        callbacks.on_train_end(replace(result, **found))
        return result

    if recipe.run.has_trials:
        result, trials = run_trials(train, folder, recipe)
        return _describe(result, folder, recipe, data, trials, len(plan_trials(recipe)))
    trials = read_trials(folder)
    if trials:  # all are finished, and the recipe is that of the best one
        callbacks.on_log(f"the runs in {folder} are finished already")
        result = best_trial(trials.values())
        return _describe(result, folder, recipe, data, trials, len(trials))
    return _describe(train(recipe, folder), folder, recipe, data, {}, 1)


def _describe(
    result: RunResult,
    folder: Path,
    recipe: FinetuneRecipe,
    data: Labelled,
    trials: Mapping[str, RunResult],
    num_trials: int,
) -> RunResult:
    seeds = (trial.score for trial in trials.values() if is_seed_trial(trial))
    return replace(
        result,
        folder=folder,
        name=None,
        settings={},
        task=recipe.task,
        metric=data.selection_metric,
        labels=data.labels,
        trials=tuple(trials.values()) if num_trials > 1 else None,
        num_trials=num_trials,
        seed_scores=tuple(score for score in seeds if score is not None),
    )


def _name_word_vectors(table: TransferConfig) -> TransferConfig:
    if table.word_vectors is None:
        return table
    return replace(table, word_vectors=resolve_model_name(table.word_vectors))


def _name_files(sources: Sequence[Any]) -> tuple[str, ...]:
    if all(isinstance(one, str | OsPath) for one in sources):
        return tuple(absolute_path(one) for one in sources)
    return (UNNAMED,)


def _open_base(model: Model | PathLike | None, recipe: FinetuneRecipe) -> Model | None:
    """The model to start from, if it supports the recipe's transfer and is large enough.

    None if it is pre-trained first.
    """
    if model is None:
        return None
    if not isinstance(model, Model):
        model = load(model, device=resolve_device(recipe.run.device), quiet=True)
    if model.family.name == RECURRENT:
        _check_head(ULMFiTConfig, model, recipe)
        recipe.check_for(layers=model.config.num_layers, positions=ULMFiTConfig.max_positions)
        return model
    if recipe.language_model.is_used and model.family.name not in FAMILIES:
        raise ConfigError(
            f"the recipe fine-tunes a recurrent language model, but this model is "
            f"{model.family.description}",
            fix="use a model of `cloze pretrain --recipe ulmfit-general`, or another recipe",
        )
    if recipe.language_model.finetune_recipe:
        check_base(model.folder or "the model", model)
    if recipe.transfer.kind == "features":
        if "embed" not in model.capabilities:
            raise unsupported_function_error(model, "finetune --transfer features")
    else:
        _check_head(model.module, model, recipe)
    positions = getattr(model.module, "max_positions", None) or sys.maxsize
    recipe.check_for(layers=model.module.num_layers, positions=positions)
    return model


def _check_head(owner: Any, model: Model, recipe: FinetuneRecipe) -> None:  # noqa: ANN401
    """Raise if the owner, a module or a configuration class, lists no head for the task."""
    heads = getattr(owner, "TASK_HEADS", ())
    if recipe.transfer.kind == "features" or TASK_HEADS[recipe.task] in heads:
        return
    name = "finetune" if not heads else f"finetune {recipe.task}"
    reason = f"{model.folder or 'it'} has no head for the task {recipe.task}"
    error = unsupported_function_error(model, name, reason)
    if recipe.task not in FEATURE_TASKS or "embed" not in model.capabilities:
        raise error
    fix = f"train a classifier on its vectors (--recipe features), or {error.fix}"
    raise InputError(error.problem, fix=fix)
