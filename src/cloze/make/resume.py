"""`resume`: continue a run of any kind, with the recipe in its folder."""

from __future__ import annotations  # `help` shows types by their short names

from collections.abc import Iterable
from typing import Any

from cloze.config import Settings
from cloze.data.sources import Sources, collect_sources
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.make.recipe.complete import recipe
from cloze.make.recipe.embedding import EmbeddingRecipe
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.make.recipe.images import ClipRecipe, DiffusionRecipe
from cloze.make.recipe.language_models import LanguageModelRecipe, TranslationRecipe
from cloze.make.recipe.pretrain import DistillRecipe, PretrainRecipe
from cloze.make.recipe.retro import RetroRecipe
from cloze.make.run_folder import find_run_recipe
from cloze.models.registry import resolve
from cloze.report.display import open_callbacks
from cloze.train.callbacks import Callback
from cloze.train.result import RunResult

# The function of each recipe class, as "module:attribute": only that of the run is imported.
ON_RAW_TEXT: dict[type[Any], str] = {
    PretrainRecipe: "cloze.make.pretrain.job:resume_encoder",
    RetroRecipe: "cloze.make.pretrain.job:resume_encoder",
    DistillRecipe: "cloze.make.pretrain.job:resume_encoder",
    LanguageModelRecipe: "cloze.make.language_model:resume_language",
    DiffusionRecipe: "cloze.make.diffusion:resume_diffusion",
    ClipRecipe: "cloze.make.clip:resume_clip",
}
ON_EXAMPLES: dict[type[Any], str] = {
    FinetuneRecipe: "cloze.make.finetune.encoder:resume_finetune",
    EmbeddingRecipe: "cloze.make.finetune.embedding:resume_embedding",
    TranslationRecipe: "cloze.make.translation:resume_translator",
}


def resume(
    out: PathLike,
    *,
    sources: Sources = (),
    settings: Settings = (),
    progress: bool = True,
    callbacks: Callback | Iterable[Callback] = (),
) -> RunResult:
    """Continue the run of `pretrain`, `finetune` or `distill` in a folder.

    It ends as if it had never been stopped, bit-exactly if the budget is in epochs,
    steps or tokens.

    Args:
        out: the run's folder, with its recipe.
        sources: the text of `pretrain` and `distill` again, where it must be read again and has
            moved, or the recipe could not name it; it must be the same.
        settings: may change where it runs and what it logs, not what it computes.
        progress: show progress bars and metrics on a terminal or in a notebook, else log lines.
        callbacks: called while the run is prepared and trained, and when it ends.
    """
    completed = recipe(find_run_recipe(out), settings=settings)
    reread: dict[str, Any] = {}
    if type(completed) in ON_RAW_TEXT:
        name, reread = ON_RAW_TEXT[type(completed)], {"sources": collect_sources(sources)}
    elif type(completed) not in ON_EXAMPLES:
        raise InputError(
            f"the family {completed.model.family} is trained in one pass: there is no state to "
            "resume from",
            fix="train it again with --force",
        )
    elif collect_sources(sources):
        raise InputError(
            "only runs on raw text accept their text again",
            fix="put the data back where the recipe names them",
        )
    else:
        name = ON_EXAMPLES[type(completed)]
    with open_callbacks(progress, callbacks) as opened:
        result: RunResult = resolve(name)(out, completed, callbacks=opened, **reread)
    return result
