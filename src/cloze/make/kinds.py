"""`pretrain`: text to a model of any kind; the name of a kind, or the recipe, says which.

| kind | recipe | makes |
|---|---|---|
| bert, modernbert | laptop, fast, bert-tiny … | an encoder (`make/pretrain.py`) |
| ngram | ngram | an n-gram model, by counting (`make/ngram.py`) |
| word2vec | word2vec | word vectors (`make/word2vec.py`) |
| nnlm, lstm | nnlm, lstm | a neural language model (`make/language.py`) |
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import torch

from cloze.checkpoint.abilities import OWN
from cloze.config import one_of, override, read_toml, to_mapping
from cloze.data.files import PathLike
from cloze.data.streams import Source, listed
from cloze.errors import ConfigError
from cloze.make.language import pretrain_language, resume_language
from cloze.make.language_recipe import LanguageRecipe, NGramRecipe, Word2VecRecipe
from cloze.make.ngram import pretrain_ngram
from cloze.make.onward import family_in
from cloze.make.pretrain import Pretrained, resume_run
from cloze.make.pretrain import pretrain as pretrain_encoder
from cloze.make.recipe import DEFAULT, FAST, Recipe, completed, find_recipe
from cloze.make.run import Watch, named, texts_of, write_recipe
from cloze.make.word2vec import pretrain_word2vec
from cloze.train.parallel import processes

Text = Source | list[Source]
AnyRecipe = Recipe | NGramRecipe | Word2VecRecipe | LanguageRecipe
Ended = TypeVar("Ended")

START = "model.start"  # the model to go on from

LABELLED = {"task", "data", "transfer", "transformer", "seq2seq"}  # in recipes of finetune alone


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[Ended]):
    """How one kind of model is made."""

    recipe: type[Any]
    default: str
    make: Callable[..., Ended]
    resume: Callable[..., Ended] | None = None
    base: Mapping[str, Any] = field(default_factory=dict)  # what the name of the kind sets
    names: Mapping[str, str] = field(default_factory=dict)  # of settings that are called otherwise

    def path(self, setting: str) -> str | None:
        """What a setting of other kinds is called here; None: there is none."""
        path = self.names.get(setting, setting)
        return path if has_setting(self.recipe, path) else None


def pretrain(
    sources: Text,
    out: PathLike,
    recipe: AnyRecipe | PathLike | None = None,
    *,
    model: str | None = None,
    settings: Sequence[str] = (),
    force: bool = False,
    watch: Watch | None = None,
) -> Pretrained:
    """Make a model of text: unless another kind is named, a BERT, or a ModernBERT on a GPU.

    Args:
        sources: what `cloze.data.streams.rows` reads; if empty, the recipe's `corpus.sources`.
        out: the model's folder, and the run's.
        recipe: one, the name of one, or its file; unsaid, the kind's own.
        model: bert, modernbert, ngram, word2vec, nnlm or lstm; unsaid, as the recipe says.
        settings: such as "run.minutes=30", on top of the recipe.
        force: overwrite what is there.
        watch: who wants to see it.
    """
    kind, made = complete(recipe, model=model, settings=settings)
    return kind.make(listed(sources), out, made, force=force, watch=watch or Watch())


def complete(
    recipe: AnyRecipe | PathLike | None = None,
    *,
    model: str | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> tuple[Kind[Pretrained], AnyRecipe]:
    """The kind that is asked for and its complete recipe, with flags and settings on top."""
    if model is not None:
        one_of("model", model, KINDS)
    asked = {**(flags or {})}
    start = override(asked, settings).get("model", {}).get("start")
    if recipe is None and model is None:
        model = kind_in(start)
    if recipe is None:
        recipe = default_recipe(flags, settings) if model is None else KINDS[model].default
    else:
        _check_verb(recipe)
        said = kind_of(recipe)
        if model is not None and KINDS[model].recipe is not KINDS[said].recipe:
            raise ConfigError(
                f"the recipe is one for {said}, and {model} was asked for",
                fix="leave one of the two out",
            )
        model = model or said
    kind = KINDS[model or "bert"]
    if start is not None and kind.path(START) is None:
        raise made_in_one_go(model or kind_of(recipe))
    for table, values in kind.base.items():
        asked[table] = {**values, **asked.get(table, {})}
    made: AnyRecipe = completed(kind.recipe, recipe, asked, settings)
    if isinstance(made, LanguageRecipe) and model in ("nnlm", "lstm") and not getattr(made, model):
        raise ConfigError(
            f"the recipe has no table {model}, and {model} was asked for",
            fix="leave one of the two out",
        )
    return kind, made


def default_recipe(flags: Mapping[str, Any] | None = None, settings: Sequence[str] = ()) -> str:
    """The recipe of one who names neither a recipe nor a kind: `fast` if one GPU will run it."""
    device = override(flags or {}, settings).get("run", {}).get("device")
    on_gpu = torch.cuda.is_available() if device is None else str(device).startswith("cuda")
    return FAST if on_gpu and processes() == 1 else DEFAULT


def kind_of(recipe: AnyRecipe | PathLike) -> str:
    """The kind of model that a recipe makes: the table that describes it tells."""
    values = _values(recipe)
    return next((name for name in KINDS if name in values), "bert")


def kind_in(start: object) -> str | None:
    """The kind of the model to go on from; None: an encoder, or none."""
    family = family_in(start)
    if family is not None and family not in KINDS:
        raise ConfigError(
            f"{start} holds {OWN[family].name}, which learns from aligned text",
            fix="go on with it by cloze finetune translate MODEL --train SRC TGT",
        )
    return family


def made_in_one_go(kind: str) -> ConfigError:
    """What is wrong where such a kind of model is to go on."""
    return ConfigError(
        f"{OWN[kind].name} cannot go on from others: that kind is made in one go",
        fix="make a new one, of the old text and the new together, without --from",
    )


def _values(recipe: AnyRecipe | PathLike) -> Mapping[str, Any]:
    if isinstance(recipe, str | os.PathLike):
        return read_toml(find_recipe(recipe))
    return to_mapping(recipe)


def _check_verb(recipe: AnyRecipe | PathLike) -> None:
    """Refuse a recipe for labelled data by its verb, not by its first unknown setting."""
    values = _values(recipe)
    if values.keys() & LABELLED or (kind_of(recipe) == "bert" and "batch" in values.get("run", {})):
        name = recipe if isinstance(recipe, str | os.PathLike) else "it"
        raise ConfigError(
            f"{name}: that is a recipe for finetune",
            fix="use cloze finetune, or a recipe for raw text",
        )


def has_setting(recipe: type[Any], path: str) -> bool:
    """Whether a tree of dataclasses has a setting of this path, such as run.minutes."""
    kind: Any = recipe
    for name in path.split("."):
        if isinstance(kind, UnionType):
            kind = next(one for one in get_args(kind) if one is not type(None))
        if not is_dataclass(kind) or name not in {one.name for one in fields(kind)}:
            return False
        kind = get_type_hints(kind)[name]
    return True


def _ngram(
    sources: list[Source], out: PathLike, recipe: NGramRecipe, *, force: bool, watch: Watch
) -> Pretrained:
    began, table = time.monotonic(), recipe.vocabulary
    texts = texts_of(sources, recipe.corpus.sources)
    model = pretrain_ngram(
        texts,
        out,
        order=recipe.ngram.order,
        tokenizer=table.folder,
        kind=table.kind,
        size=table.size,
        min_count=table.min_count,
        lowercase=table.lowercase,
        memory=recipe.ngram.memory,
        column=recipe.corpus.column,
        force=force,
        progress=watch.say.progress,
    )
    counts = {
        f"{order}-grams": float(len(level.keys))
        for order, level in enumerate(model.module.levels, 1)
    }
    write_recipe(Path(out), replace(recipe, corpus=replace(recipe.corpus, sources=named(texts))))
    return _made(out, began, counts)


def _word2vec(
    sources: list[Source], out: PathLike, recipe: Word2VecRecipe, *, force: bool, watch: Watch
) -> Pretrained:
    began = time.monotonic()
    texts = texts_of(sources, recipe.corpus.sources)
    vectors = pretrain_word2vec(
        texts,
        out,
        settings=recipe.word2vec,
        text=recipe.text,
        column=recipe.corpus.column,
        force=force,
        progress=watch.say.progress,
    )
    write_recipe(Path(out), replace(recipe, corpus=replace(recipe.corpus, sources=named(texts))))
    return _made(out, began, {"words": float(len(vectors.words))})


def _made(out: PathLike, began: float, scores: Mapping[str, float]) -> Pretrained:
    """What was made in one go: there are no steps to tell of."""
    seconds = time.monotonic() - began
    return Pretrained(
        folder=Path(out), steps=0, tokens=0, seconds=seconds, scores=scores, stopped=None
    )


_encoder = partial(Kind, recipe=Recipe, default=DEFAULT, make=pretrain_encoder, resume=resume_run)
_language = partial(
    Kind,
    recipe=LanguageRecipe,
    make=pretrain_language,
    resume=resume_language,
    names={"samples.length": "run.length"},
)

KINDS: dict[str, Kind[Pretrained]] = {
    "ngram": Kind(recipe=NGramRecipe, default="ngram", make=_ngram),
    "word2vec": Kind(
        recipe=Word2VecRecipe,
        default="word2vec",
        make=_word2vec,
        names={
            "run.seed": "word2vec.seed",
            "run.threads": "word2vec.threads",
            "run.epochs": "word2vec.epochs",
            "optimiser.rate": "word2vec.rate",
            "vocabulary.size": "text.max_words",
        },
    ),
    "nnlm": _language(default="nnlm"),
    "lstm": _language(default="lstm"),
    "bert": _encoder(),
    "modernbert": _encoder(base={"model": {"family": "modernbert"}, "samples": {"pairs": "none"}}),
}
"""By the name of `--model`; those that a recipe tells by a table of their name come first."""
