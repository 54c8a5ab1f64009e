"""`pretrain`: text to a model of any kind; the name of a kind, or the recipe, says which.

| kind | recipe | makes |
|---|---|---|
| bert, modernbert | laptop, fast, bert-tiny … | an encoder (`make/pretrain/job.py`) |
| ngram | ngram | an n-gram model, by counting (`make/ngram.py`) |
| word2vec | word2vec | word vectors (`make/word2vec.py`) |
| nnlm, lstm | nnlm, lstm | a neural language model (`make/language_model/job.py`) |
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from cloze.config import one_of, override
from cloze.data.sources import Source, as_list
from cloze.errors import ConfigError
from cloze.files import PathLike
from cloze.make.init_from import find_own_family
from cloze.make.language_model.job import pretrain_language, resume_language
from cloze.make.language_model.recipe import LanguageRecipe, NGramRecipe, Word2VecRecipe
from cloze.make.ngram import pretrain_ngram
from cloze.make.pretrain.job import pretrain_encoder, resume_encoder
from cloze.make.pretrain.recipe import DEFAULT, FAST, Recipe, completed, values_of
from cloze.make.recipe.maker import Maker
from cloze.make.word2vec import pretrain_word2vec
from cloze.models.registry import get_family
from cloze.train.distributed import world_size_from_env
from cloze.train.fit import Callbacks, RunResult

Text = Source | list[Source]
AnyRecipe = Recipe | NGramRecipe | Word2VecRecipe | LanguageRecipe

START = "model.init_from"  # the model to go on from
# what only recipes of finetune have
FINETUNE_TABLES = {"task", "data", "transfer", "transformer", "seq2seq"}


def pretrain(
    sources: Text,
    out: PathLike,
    recipe: AnyRecipe | PathLike | None = None,
    *,
    model: str | None = None,
    settings: Sequence[str] = (),
    force: bool = False,
    callbacks: Callbacks | None = None,
) -> RunResult:
    """Make a model of text: unless another kind is named, a BERT, or a ModernBERT on a GPU.

    Args:
        sources: what `cloze.data.sources.rows` reads; if empty, the recipe's `corpus.sources`.
        out: the model's folder, and the run's.
        recipe: one, the name of one, or its file; unsaid, the kind's own.
        model: bert, modernbert, ngram, word2vec, nnlm or lstm; unsaid, as the recipe says.
        settings: such as "run.minutes=30", on top of the recipe.
        force: overwrite what is there.
        callbacks: for logging and progress.
    """
    maker, made = complete(recipe, model=model, settings=settings)
    return maker.make(as_list(sources), out, made, force=force, callbacks=callbacks or Callbacks())


def complete(
    recipe: AnyRecipe | PathLike | None = None,
    *,
    model: str | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> tuple[Maker[RunResult], AnyRecipe]:
    """Who makes what is asked for, and its complete recipe, with flags and settings on top."""
    if model is not None:
        one_of("model", model, MODEL_MAKERS)
    asked = {**(flags or {})}
    start = override(asked, settings).get("model", {}).get("init_from")
    if recipe is None and model is None:
        model = kind_in(start)
    if recipe is None:
        recipe = default_recipe(flags, settings) if model is None else MODEL_MAKERS[model].default
    else:
        _check_verb(recipe)
        said = kind_of(recipe)
        if model is not None and MODEL_MAKERS[model].recipe is not MODEL_MAKERS[said].recipe:
            raise ConfigError(
                f"the recipe is one for {said}, and {model} was asked for",
                fix="leave one of the two out",
            )
        model = model or said
    maker = MODEL_MAKERS[model or "bert"]
    if start is not None and maker.path(START) is None:
        raise made_in_one_go(model or kind_of(recipe))
    for table, values in maker.base.items():
        asked[table] = {**values, **asked.get(table, {})}
    made: AnyRecipe = completed(maker.recipe, recipe, asked, settings)
    if isinstance(made, LanguageRecipe) and model in ("nnlm", "lstm") and not getattr(made, model):
        raise ConfigError(
            f"the recipe has no table {model}, and {model} was asked for",
            fix="leave one of the two out",
        )
    return maker, made


def default_recipe(flags: Mapping[str, Any] | None = None, settings: Sequence[str] = ()) -> str:
    """The recipe of one who names neither a recipe nor a kind: `fast` if one GPU will run it."""
    device = override(flags or {}, settings).get("run", {}).get("device")
    on_gpu = torch.cuda.is_available() if device is None else str(device).startswith("cuda")
    return FAST if on_gpu and world_size_from_env() == 1 else DEFAULT


def kind_of(recipe: AnyRecipe | PathLike) -> str:
    """The kind of model that a recipe makes: the table that describes it tells."""
    values = values_of(recipe)
    return next((name for name in MODEL_MAKERS if name in values), "bert")


def kind_in(start: object) -> str | None:
    """The kind of the model to go on from; None: an encoder, or none."""
    family = find_own_family(start)
    if family is not None and family not in MODEL_MAKERS:
        raise ConfigError(
            f"{start} holds {get_family(family).description}, which learns from aligned text",
            fix="go on with it by cloze finetune translate MODEL --train SRC TGT",
        )
    return family


def made_in_one_go(kind: str) -> ConfigError:
    """What is wrong where such a kind of model is to go on."""
    return ConfigError(
        f"{get_family(kind).description} cannot go on from others: that kind is made in one go",
        fix="make a new one, of the old text and the new together, without --from",
    )


def _check_verb(recipe: AnyRecipe | PathLike) -> None:
    """Refuse a recipe for labelled data by its verb, not by its first unknown setting."""
    values = values_of(recipe)
    if values.keys() & FINETUNE_TABLES or (
        kind_of(recipe) == "bert" and "batch" in values.get("run", {})
    ):
        name = recipe if isinstance(recipe, str | os.PathLike) else "it"
        raise ConfigError(
            f"{name}: that is a recipe for finetune",
            fix="use cloze finetune, or a recipe for raw text",
        )


_encoder = partial(
    Maker, recipe=Recipe, default=DEFAULT, make=pretrain_encoder, resume=resume_encoder
)
_language = partial(
    Maker,
    recipe=LanguageRecipe,
    make=pretrain_language,
    resume=resume_language,
    names={"samples.length": "run.length"},
)

MODEL_MAKERS: dict[str, Maker[RunResult]] = {
    "ngram": Maker(recipe=NGramRecipe, default="ngram", make=pretrain_ngram),
    "word2vec": Maker(
        recipe=Word2VecRecipe,
        default="word2vec",
        make=pretrain_word2vec,
        names={
            "run.seed": "word2vec.seed",
            "run.threads": "word2vec.threads",
            "run.epochs": "word2vec.epochs",
            "optimizer.lr": "word2vec.rate",
            "vocabulary.size": "text.max_words",
        },
    ),
    "nnlm": _language(default="nnlm"),
    "lstm": _language(default="lstm"),
    "bert": _encoder(),
    "modernbert": _encoder(base={"model": {"family": "modernbert"}, "samples": {"pairs": "none"}}),
}
"""By the name of `--model`; those that a recipe tells by a table of their name come first."""
