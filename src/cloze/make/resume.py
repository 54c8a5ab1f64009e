"""`resume`: continue a run of any kind, with the recipe in its folder."""

from collections.abc import Callable
from typing import Any

from cloze.config import Settings
from cloze.data.sources import Source, as_list
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.make.finetune.encoder import resume_finetune
from cloze.make.finetune.recipe import FinetuneRecipe
from cloze.make.language_model.job import resume_language
from cloze.make.language_model.recipe import LanguageModelRecipe, NGramRecipe
from cloze.make.pretrain.job import resume_encoder
from cloze.make.pretrain.recipe import DistillRecipe, PretrainRecipe
from cloze.make.recipe.complete import recipe
from cloze.make.run_folder import find_run_recipe
from cloze.make.translation.job import resume_translator
from cloze.make.translation.recipe import TranslationRecipe
from cloze.train.fit import Callbacks, RunResult

ON_RAW_TEXT: dict[type[Any], Callable[..., RunResult]] = {
    PretrainRecipe: resume_encoder,
    DistillRecipe: resume_encoder,
    LanguageModelRecipe: resume_language,
}
ON_EXAMPLES: dict[type[Any], Callable[..., RunResult]] = {
    FinetuneRecipe: resume_finetune,
    TranslationRecipe: resume_translator,
}


def resume(
    out: PathLike,
    *,
    sources: Source | list[Source] = (),
    settings: Settings = (),
    callbacks: Callbacks | None = None,
) -> RunResult:
    """Continue the run of `pretrain`, `finetune` or `distill` in a folder.

    It ends as if it had never been stopped, bit-exactly if the budget is in epochs,
    steps or tokens.

    Args:
        out: the run's folder, with its recipe.
        sources: the text of `pretrain` and `distill` again, where it must be read again and has
            moved, or the recipe could not name it; it must be the same.
        settings: may change where it runs and what it logs, not what it computes.
        callbacks: for logging and progress.
    """
    completed = recipe(find_run_recipe(out), settings=settings)
    how: dict[str, Any] = {"callbacks": callbacks}
    if type(completed) in ON_RAW_TEXT:
        return ON_RAW_TEXT[type(completed)](out, completed, sources=sources, **how)
    if type(completed) not in ON_EXAMPLES:
        family = "ngram" if isinstance(completed, NGramRecipe) else "word2vec"
        raise InputError(
            f"the family {family} is trained in one pass: there is no state to resume from",
            fix="train it again with --force",
        )
    if as_list(sources):
        raise InputError(
            "only runs on raw text accept their text again",
            fix="put the data back where the recipe names them",
        )
    return ON_EXAMPLES[type(completed)](out, completed, **how)
