"""`finetune`: a model for a task; the name of the task, or the recipe, says how it is made.

| task | recipe | makes |
|---|---|---|
| classify, tag, answer, choose | finetune, features | model and head (`finetune/encoder.py`) |
| translate | transformer(-base), seq2seq | a translator, new or continued (`translation/job.py`) |
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import TASK_HEADS
from cloze.config import one_of, override
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.make.finetune.encoder import finetune_encoder, resume_finetune
from cloze.make.finetune.labelled import list_sources
from cloze.make.finetune.recipe import DEFAULT, FinetuneRecipe, finetune_recipe
from cloze.make.init_from import find_own_family
from cloze.make.pretrain.recipe import values_of
from cloze.make.recipe.maker import Maker
from cloze.make.translation.job import resume_translator, train_translator
from cloze.make.translation.recipe import DEFAULT as TRANSLATOR
from cloze.make.translation.recipe import TranslateRecipe, translate_recipe
from cloze.train.fit import Callbacks, RunResult

TRANSLATE, FEATURES = "translate", "features"
_SIDES = 2

TaskRecipe = FinetuneRecipe | TranslateRecipe
Data = PathLike | Iterable[Any]


def finetune(
    task: str,
    model: Model | PathLike | None,
    train: Data,
    out: PathLike,
    recipe: TaskRecipe | PathLike | None = None,
    *,
    dev: Data = (),
    settings: Sequence[str] = (),
    force: bool = False,
    callbacks: Callbacks | None = None,
) -> RunResult:
    """Fine-tune a model for a task (classify, tag, answer, choose), or train a translator.

    The folder contains the best model on the dev data at the end. SIGTERM and Ctrl-C save the
    state and end the run; `resume` continues it.

    Args:
        task: classify, tag, answer, choose or translate.
        model: the model to start from; None for a new translator.
        train: files, folders, globs or `-` (standard input) of labelled data; a `datasets` object
            or a list of mappings with the same columns; or examples of `cloze.data.labelled`; for
            a translator two of them, source and target: files, or lists of sentences.
        out: the run's and the model's folder.
        recipe: a recipe, the name of one, or its file (default: the task's own).
        dev: data to evaluate on (default: a tenth of the training data; for a translator, none).
        settings: such as "optimizer.lr=3e-5", applied on top of the recipe.
        force: overwrite what is in `out`.
        callbacks: for logging and progress.
    """
    maker, made = complete(recipe, task=task, model=model, settings=settings)
    result: RunResult = maker.make(
        task, model, train, out, made, dev=dev, force=force, callbacks=callbacks
    )
    return result


def complete(
    recipe: TaskRecipe | PathLike | None = None,
    *,
    task: str | None = None,
    model: Model | PathLike | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> tuple[Maker[Any], Any]:
    """How a task is taught, and the complete recipe, with flags and settings on top.

    A translator to go on from, `model`, is one of the settings, and says the kind of the recipe.
    """
    maker = maker_for(task, recipe)
    translates = maker.recipe is TranslateRecipe
    if translates and model is not None:
        start = _translator_in(model)
        flags = {**(flags or {}), "model": {"init_from": start}}
        recipe = recipe or find_own_family(start)
    if recipe is None:
        features = override(flags or {}, settings).get("transfer", {}).get("kind") == FEATURES
        recipe = FEATURES if features and not translates else maker.default
    reader: Any = translate_recipe if translates else finetune_recipe
    return maker, reader(recipe, flags=flags, settings=settings)


def maker_for(task: str | None, recipe: TaskRecipe | PathLike | None) -> Maker[Any]:
    """How a task is taught; unsaid, that of the recipe."""
    name = task or (None if recipe is None else task_of(recipe)) or FinetuneRecipe.task
    return TASK_MAKERS[one_of("task", name, TASK_MAKERS)]


def task_of(recipe: TaskRecipe | PathLike) -> str | None:
    """The task that a recipe is for; None: it is for none of these."""
    values = values_of(recipe)
    if values.keys() & {"transformer", "seq2seq"}:
        return TRANSLATE
    return next((name for name in TASK_HEADS if values.get("task") == name), None)


def _labelled(
    task: str | None,
    model: Model | PathLike | None,
    train: Data,
    out: PathLike,
    recipe: FinetuneRecipe,
    *,
    dev: Data,
    force: bool,
    callbacks: Callbacks | None,
) -> RunResult:
    base, files = model or recipe.model, list_sources(train) or list(recipe.data.train)
    if not base or not files:
        what = "labelled data to learn from" if base else "model to begin with"
        raise InputError(f"there is no {what}", fix="name it: finetune TASK MODEL --train PATH")
    judged = list_sources(dev) or list(recipe.data.dev)
    return finetune_encoder(
        task or recipe.task, base, files, out, recipe, dev=judged, force=force, callbacks=callbacks
    )


def _translator(
    _: str | None,
    model: object,  # noqa: ARG001 (the recipe has it)
    train: Data,
    out: PathLike,
    recipe: TranslateRecipe,
    *,
    dev: Data,
    force: bool,
    callbacks: Callbacks | None,
) -> RunResult:
    sides = _sides("train", list_sources(train) or recipe.data.train)
    judged = list_sources(dev) or recipe.data.dev
    return train_translator(
        *sides,
        out,
        recipe,
        dev=_sides("dev", judged) if judged else None,
        force=force,
        callbacks=callbacks,
    )


def _translator_in(model: Model | PathLike) -> str:
    """The folder of a translator to go on from; anything else is told apart here."""
    if not isinstance(model, str | os.PathLike):
        raise InputError(
            f"a translator goes on from a folder, and was given a {type(model).__name__}",
            fix="save it, and name the folder",
        )
    start = os.fspath(model)
    if find_own_family(start) not in ("transformer", "seq2seq"):
        raise InputError(
            f"{start} is no translator, and a translator goes on from nothing else",
            fix="leave it out to make a new one; which kind: --recipe transformer or seq2seq",
        )
    return start


def _sides(name: str, data: Sequence[Any]) -> tuple[Any, Any]:
    if len(data) != _SIDES:
        raise InputError(f"{name} is not two files", fix="name the source, then its translation")
    return data[0], data[1]


_teaching = Maker(recipe=FinetuneRecipe, default=DEFAULT, make=_labelled, resume=resume_finetune)

TASK_MAKERS: dict[str, Maker[Any]] = {
    **dict.fromkeys(TASK_HEADS, _teaching),
    TRANSLATE: Maker(
        recipe=TranslateRecipe,
        default=TRANSLATOR,
        make=_translator,
        resume=resume_translator,
        names={"data.length": "data.limit"},
    ),
}
"""By the name of the task."""
