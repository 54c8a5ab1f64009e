"""`finetune`: a model for a task; the task, or the recipe, says how it is trained.

| task | recipe | trains |
|---|---|---|
| classify, tag, answer, choose | finetune, features | a model with a head (`finetune/encoder.py`) |
| embed | embed | the vectors of an encoder, on pairs of texts (`finetune/embedding.py`) |
| classify | ulmfit | a language model, then a classifier on it (`finetune/stages.py`) |
| translate, summarize | transformer(-base), seq2seq | an encoder–decoder, new or continued |
| translate, summarize | decoder | a pre-trained decoder-only model (`translation.py`) |
| translate, summarize | decoder-translate, decoder-summarize | a new decoder-only model |
"""

from __future__ import annotations  # `help` shows types by their short names

import os
from collections.abc import Iterable
from typing import Any, Unpack

from cloze.checkpoint.model import Model
from cloze.config import Settings
from cloze.data.objects import Frame
from cloze.data.sources import as_list
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.make.finetune.encoder import finetune_encoder
from cloze.make.finetune.labelled import list_sources
from cloze.make.recipe.classes import Recipe
from cloze.make.recipe.complete import complete_finetuning
from cloze.make.recipe.embedding import EmbeddingRecipe
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.make.recipe.keywords import FinetuneOptions
from cloze.make.recipe.language_models import TranslationRecipe
from cloze.make.recipe.option_help import document_options
from cloze.report.display import open_callbacks
from cloze.train.callbacks import Callback
from cloze.train.result import RunResult

Data = PathLike | Frame | Iterable[Any]


@document_options("finetune")
def finetune(
    task: str | None,
    model: Model | PathLike | None,
    train: Data,
    out: PathLike,
    recipe: Recipe | PathLike | None = None,
    *,
    dev: Data = (),
    settings: Settings = (),
    force: bool = False,
    progress: bool = True,
    callbacks: Callback | Iterable[Callback] = (),
    **options: Unpack[FinetuneOptions],
) -> RunResult:
    """Fine-tune a model for a task, its embeddings, or train a translator or a summarizer.

    The folder contains the best model on the dev data at the end. SIGTERM and Ctrl-C save the
    state and end the run; `resume` continues it.

    Args:
        task: classify, tag, answer, choose, embed, translate or summarize; None: as the recipe
            says.
        model: the model to start from; None: the recipe's, or for a new translator none. For
            translate and summarize a GPT or another causal language model, or a translator.
        train: files, folders, globs or `-` (standard input) of labelled data; a data frame (pandas,
            polars), a `datasets` object, a list of mappings or another iterable of them with the
            same columns, a tuple (texts, labels); or examples of `cloze.data.labelled`. For embed
            tables of pairs, triplets or scored pairs, running text, or a list of tuples (anchor,
            positive), (anchor, positive, negative) or (a, b, score). For translate and summarize a
            table with a column for the source and one for the target, or two files or lists whose
            lines are aligned. If empty, the recipe's `data.train`.
        out: the run's and the model's folder.
        recipe: a recipe, the name of one, or its file (default: the task's own).
        dev: data to evaluate on (default: a tenth of the training data; for translate and
            summarize, none).
        settings: any settings of the recipe, such as {"optimizer.lr": 3e-5},
            {"optimizer": {"lr": 3e-5}} or ["optimizer.lr=3e-5"].
        force: overwrite what is in `out`.
        progress: show progress bars and metrics on a terminal or in a notebook, else log lines.
        callbacks: called while the run is prepared and trained, and when it ends.
    """
    named = os.fspath(model) if isinstance(model, str | os.PathLike) else None
    completed = complete_finetuning(
        recipe, task=task, model=named, options=options, settings=settings
    )
    reads_labels = isinstance(completed, FinetuneRecipe)
    list_data = list_sources if reads_labels else as_list
    files, dev_files = (
        list_data(given) or list(getattr(completed.data, name))
        for given, name in ((train, "train"), (dev, "dev"))
    )
    if isinstance(completed, TranslationRecipe):
        if model is not None and named is None:
            raise InputError(
                f"{completed.task} starts from the folder of a translator or a GPT, not from a "
                f"{type(model).__name__}",
                fix="save it, and name the folder",
            )
        from cloze.make.translation import train_translator

        if not files:
            raise InputError(
                "there are no pairs of a source and a target to learn from",
                fix="name them: --train text.en text.de, or --train articles.jsonl",
            )
        with open_callbacks(progress, callbacks) as opened:
            return train_translator(
                files, out, completed, dev=dev_files, force=force, callbacks=opened
            )
    base = model or completed.model.init_from or None
    if isinstance(completed, EmbeddingRecipe):
        from cloze.make.finetune.embedding import finetune_embedding

        if base is None or not files:
            what = "model to start from" if base is None else "training data"
            raise InputError(
                f"there is no {what}", fix="name it: finetune embed MODEL --train PATH"
            )
        with open_callbacks(progress, callbacks) as opened:
            return finetune_embedding(
                base, files, out, completed, dev=dev_files, force=force, callbacks=opened
            )
    has_model = base is not None or completed.language_model.general_text
    if not has_model or not files:
        what = "labelled data" if has_model else "model to start from"
        fix = "name it: finetune TASK MODEL --train PATH"
        if not has_model and completed.language_model.finetune_recipe:
            fix += ", or pre-train one: --general-text PATH"
        raise InputError(f"there is no {what}", fix=fix)
    with open_callbacks(progress, callbacks) as opened:
        return finetune_encoder(
            base, files, out, completed, dev=dev_files, force=force, callbacks=opened
        )
