"""`pretrain`: text to a model of any family; the recipe says which.

| family | recipe | trained by |
|---|---|---|
| encoders: bert, modernbert, gpt2 … | laptop, fast, gpt, music … | `make/pretrain/job.py` |
| retro | retro | `make/pretrain/job.py`, with the data of `make/pretrain/retro.py` |
| ngram | ngram | `make/ngram.py` |
| word2vec | word2vec | `make/word2vec.py` |
| language models: nnlm, lstm, elmo | nnlm, lstm, awd-lstm, elmo | `make/language_model.py` |
| diffusion (images) | diffusion | `make/diffusion.py` |
| clip (images) | clip | `make/clip.py` |
"""

from __future__ import annotations  # `help` shows types by their short names

from collections.abc import Iterable
from typing import Any, Unpack

from cloze.config import Settings
from cloze.data.sources import Sources, collect_sources
from cloze.files import PathLike
from cloze.make.recipe.classes import Recipe
from cloze.make.recipe.complete import complete_pretraining
from cloze.make.recipe.images import ClipRecipe, DiffusionRecipe
from cloze.make.recipe.keywords import PretrainOptions
from cloze.make.recipe.language_models import LanguageModelRecipe, NGramRecipe, Word2VecRecipe
from cloze.make.recipe.option_help import document_options
from cloze.make.recipe.pretrain import PretrainRecipe
from cloze.make.recipe.retro import RetroRecipe
from cloze.models.registry import resolve
from cloze.report.display import open_callbacks
from cloze.train.callbacks import Callback
from cloze.train.result import RunResult

# The function of each recipe class, as "module:attribute": only that of the run is imported.
JOBS: dict[type[Any], str] = {
    PretrainRecipe: "cloze.make.pretrain.job:pretrain_encoder",
    RetroRecipe: "cloze.make.pretrain.job:pretrain_encoder",
    LanguageModelRecipe: "cloze.make.language_model:pretrain_language",
    NGramRecipe: "cloze.make.ngram:pretrain_ngram",
    Word2VecRecipe: "cloze.make.word2vec:pretrain_word2vec",
    DiffusionRecipe: "cloze.make.diffusion:pretrain_diffusion",
    ClipRecipe: "cloze.make.clip:pretrain_clip",
}


@document_options("pretrain")
def pretrain(
    sources: Sources,
    out: PathLike,
    recipe: Recipe | PathLike | None = None,
    *,
    family: str | None = None,
    settings: Settings = (),
    force: bool = False,
    progress: bool = True,
    callbacks: Callback | Iterable[Callback] = (),
    **options: Unpack[PretrainOptions],
) -> RunResult:
    """Train a model on text: a BERT, or a ModernBERT on a GPU, unless another family is named.

    Args:
        sources: files, folders, globs (a str or a `Path`) or `-` (standard input); a data frame, a
            `datasets` object, or an iterator of texts or mappings; or several of these. If empty,
            the recipe's `data.sources`.
        out: the run's and the model's folder.
        recipe: a recipe, the name of one, or its file (default: the family's own).
        family: bert, modernbert, gpt2, ngram, word2vec, lstm, elmo … (default: as the recipe
            says).
        settings: any settings of the recipe, such as {"run.minutes": 30}, {"run": {"minutes": 30}}
            or ["run.minutes=30"].
        force: overwrite what is in `out`.
        progress: show progress bars and metrics on a terminal or in a notebook, else log lines.
        callbacks: called while the run is prepared and trained, and when it ends.
    """
    completed = complete_pretraining(recipe, family=family, options=options, settings=settings)
    train = resolve(JOBS[type(completed)])
    text = collect_sources(sources)
    with open_callbacks(progress, callbacks) as opened:
        result: RunResult = train(text, out, completed, force=force, callbacks=opened)
    return result
