"""Complete a recipe: a name, a file or an object, changed by options and settings.

The command line, the Python functions and `resume` all complete recipes here. The result is a
frozen tree whose values are checked; a job uses it as it is. No torch is imported,
unless the default recipe depends on whether there is a GPU.
"""

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Unpack

from cloze.checkpoint.source import find_folder
from cloze.checkpoint.task import TARGET_TASKS
from cloze.config import (
    Settings,
    from_mapping,
    merge,
    one_of,
    override,
    parse_settings,
)
from cloze.errors import ConfigError, FolderError, InputError
from cloze.files import PathLike
from cloze.make.recipe.classes import (
    EMBED,
    FINETUNE_CLASSES,
    PRETRAIN_CLASSES,
    Recipe,
    class_of_family,
    get_recipe_class,
    is_for_finetune,
    read_family,
    read_task,
)
from cloze.make.recipe.embedding import EmbeddingRecipe
from cloze.make.recipe.files import describe_source, list_recipes, read_values
from cloze.make.recipe.finetune import AXES, FinetuneRecipe, check_task
from cloze.make.recipe.images import ClipRecipe, DiffusionRecipe
from cloze.make.recipe.keywords import RecipeOptions
from cloze.make.recipe.language_models import (
    LanguageModelRecipe,
    NGramRecipe,
    TranslationRecipe,
    Word2VecRecipe,
)
from cloze.make.recipe.model import detect_causality, detect_family, preset_settings
from cloze.make.recipe.options import OptionError, check_tables, find_options, map_options
from cloze.make.recipe.pretrain import DistillRecipe, PretrainRecipe
from cloze.make.recipe.retro import DECODERS, RetroRecipe
from cloze.make.recipe.run import EXCLUSIVE
from cloze.models.registry import Family, get_family, list_families
from cloze.text.music import EVENT_WORDS

LAPTOP, FAST = "laptop", "fast"  # the default recipes of pretrain, without and with a GPU
DISTILL = "distill"  # the recipe of students; `pretrain` continues them with its own
DECODER = "decoder"  # the recipe that teaches a pre-trained decoder to translate or summarize


def recipe(
    source: Recipe | PathLike = LAPTOP,
    *,
    settings: Settings = (),
    **options: Unpack[RecipeOptions],
) -> Any:  # noqa: ANN401 (any of the classes in `Recipe`)
    """The complete recipe of a name, a file or an object.

    Args:
        source: a recipe, the name of one, or its file.
        settings: by their paths, {"optimizer.lr": 1e-4}, {"optimizer": {"lr": 1e-4}} or
            ["optimizer.lr=1e-4"].
        **options: those of the function that the recipe is for, such as `lr=1e-4`.
    """
    cls = get_recipe_class(read_values(source))
    if cls is DistillRecipe:
        return complete_distillation(source, options=options, settings=settings)
    complete = complete_finetuning if cls in FINETUNE_CLASSES else complete_pretraining
    return complete(source, options=options, settings=settings)


def complete_pretraining(
    source: Recipe | PathLike | None = None,
    *,
    family: str | None = None,
    options: Mapping[str, Any] | None = None,
    settings: Settings = (),
) -> (
    PretrainRecipe
    | LanguageModelRecipe
    | NGramRecipe
    | Word2VecRecipe
    | DiffusionRecipe
    | ClipRecipe
):
    """The complete recipe of `pretrain`.

    Args:
        source: a recipe, the name of one, or its file (default: that of the family).
        family: of the model (default: that of the recipe).
        options: by the names of their flags, {"lr": 1e-4}; None means not given.
        settings: by their paths, ["optimizer.lr=1e-4"] or {"optimizer.lr": 1e-4}.
    """
    flags, overrides = _drop_unset(options), parse_settings(settings)
    if isinstance(source, PRETRAIN_CLASSES) and not (family or flags or overrides):
        return source
    family = family or overrides.get("model.family")
    if family is not None:
        one_of("model.family", family, list_families())
        _check_pretrained(get_family(family))
        one_of("model.family", family, list_pretrained_families())
    init_from: Any = flags.get("init_from") or overrides.get("model.init_from")
    base = detect_family(init_from)
    if base is not None:
        _check_pretrained(base, init_from)
    if source is None:
        own = None if base is None else _recipe_to_continue(base, init_from, family)
        source = own or _default_recipe(family, flags, overrides)
    values = read_values(source)
    cls = _check_class(values, family, source)
    family_name = _resolve_family(values, family, base)
    if "preset" in flags and not preset_settings(family_name):
        raise OptionError("preset", f"the family {family_name}", fix="leave it out")
    paths = {**map_options(cls, flags, owner=f"the family {family_name}"), **overrides}
    paths["model.family"] = family_name
    if cls is PretrainRecipe and family is not None and not _has_segments(family_name):
        paths.setdefault("sampling.pairs", "none")
    made = build_recipe(cls, values, paths)
    given = {**map_options(cls, flags), **overrides}
    _check_continued(made, given)
    _check_vocabulary(made, given)
    return made


def complete_distillation(
    source: Recipe | PathLike | None = None,
    *,
    teacher: PathLike | None = None,
    options: Mapping[str, Any] | None = None,
    settings: Settings = (),
) -> DistillRecipe:
    """The complete recipe of `distill`; see `complete_pretraining`."""
    flags, overrides = _drop_unset(options), parse_settings(settings)
    if isinstance(source, DistillRecipe) and not (flags or overrides or teacher):
        return source
    values = read_values(source or DISTILL)
    if "distill" not in values:
        raise ConfigError(
            f"{describe_source(source)} is not a recipe for distill",
            fix="use one with a table [distill]",
        )
    paths = map_options(DistillRecipe, flags, owner="distill")
    if teacher is not None:
        paths["distill.teacher"] = str(teacher)
    made: DistillRecipe = build_recipe(DistillRecipe, values, paths | overrides)
    return made


def complete_finetuning(
    source: Recipe | PathLike | None = None,
    *,
    task: str | None = None,
    model: str | None = None,
    options: Mapping[str, Any] | None = None,
    settings: Settings = (),
) -> FinetuneRecipe | EmbeddingRecipe | TranslationRecipe:
    """The complete recipe of `finetune`.

    Args:
        source: a recipe, the name of one, or its file (default: that of the task).
        task: classify, tag, answer, choose, embed, translate or summarize (default: that of the
            recipe).
        model: the folder or name of the model that the run starts from.
        options: see `complete_pretraining`.
        settings: see `complete_pretraining`.
    """
    flags, overrides = _drop_unset(options), parse_settings(settings)
    if isinstance(source, FINETUNE_CLASSES) and not (task or model or flags or overrides):
        return source
    values = {} if source is None else read_values(source)
    task = task or overrides.get("task") or read_task(values) or FinetuneRecipe.task
    check_task(task, model)
    if task in TARGET_TASKS:
        return _complete_translation(source, task, model, flags, overrides)
    if task == EMBED:
        return _complete_embedding(source, model, flags, overrides)
    mapped = map_options(FinetuneRecipe, flags, owner=f"the task {task}", task=task)
    paths = {**mapped, **overrides, "task": task}
    if model is not None:
        paths["model.init_from"] = model
    if source is None:
        values = read_values("features" if paths.get("transfer.kind") == "features" else "finetune")
    elif get_recipe_class(values) not in (FinetuneRecipe, PretrainRecipe) or (
        "family" in values.get("model", {})
    ):
        raise ConfigError(
            f"{describe_source(source)} is not a recipe for the task {task}",
            fix="use finetune, features, or a file like them",
        )
    made: FinetuneRecipe = build_recipe(FinetuneRecipe, values, paths)
    known = find_options(FinetuneRecipe)
    made.check_options({name: known[name][0] for name in flags if name in known})
    if not made.run.search:
        return made
    fixed = {
        axis for axis, settings_of_axis in AXES.items() if paths.keys() & set(settings_of_axis)
    }
    return made.with_run(fixed=tuple(sorted(fixed.union(made.run.fixed))))


def _complete_embedding(
    source: Recipe | PathLike | None,
    model: str | None,
    flags: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> EmbeddingRecipe:
    values = read_values(EMBED if source is None else source)
    if source is not None and get_recipe_class(values) is not EmbeddingRecipe:
        raise ConfigError(
            f"{describe_source(source)} is not a recipe for the task {EMBED}",
            fix="use embed, or a file like it",
        )
    paths = {**map_options(EmbeddingRecipe, flags, owner=f"the task {EMBED}"), **overrides}
    if model is not None:
        paths["model.init_from"] = model
    made: EmbeddingRecipe = build_recipe(EmbeddingRecipe, values, {**paths, "task": EMBED})
    return made


def build_recipe(cls: type[Any], values: Mapping[str, Any], paths: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """A recipe of a class from plain values, changed by settings that are given by their paths."""
    check_tables(cls, paths)
    overrides, base = override({}, paths), override(values, {})
    for group in EXCLUSIVE:  # a setting that is given replaces the others of its group
        if any(f"run.{name}" in paths for name in group) and "run" in base:
            base["run"] = {name: one for name, one in base["run"].items() if name not in group}
    if "model.preset" in paths:  # a preset replaces the sizes of the recipe
        family = overrides["model"].get("family") or base.get("model", {}).get("family", "bert")
        for name in preset_settings(family) & base.get("model", {}).keys():
            del base["model"][name]
    return from_mapping(cls, merge(base, overrides))


def _drop_unset(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options that are given."""
    return {name: value for name, value in (options or {}).items() if value is not None}


def _check_class(values: Mapping[str, Any], family: str | None, source: object) -> type[Any]:
    """The class of a recipe for `pretrain`; raises if it is for another command or family."""
    if "distill" in values or is_for_finetune(values):
        command = "distill" if "distill" in values else "finetune"
        raise ConfigError(
            f"{describe_source(source)} is a recipe for {command}",
            fix=f"use cloze {command}, or a recipe for pretrain",
        )
    recipe_family = read_family(values)
    cls = get_recipe_class(values)
    same = family is None or family == recipe_family
    if not same and (
        cls is not PretrainRecipe or class_of_family(get_family(str(family))) is not cls
    ):
        raise ConfigError(
            f"the recipe is for the family {recipe_family}, but --family is {family}",
            fix="leave one of the two out",
        )
    return cls


def _resolve_family(values: Mapping[str, Any], family: str | None, base: Family | None) -> str:
    """The family of the model, which must be that of the model to continue."""
    if base is not None and base.name in DECODERS and get_recipe_class(values) is RetroRecipe:
        return family or "retro"  # RETROfit
    family_name = family or (base.name if base else read_family(values))
    if base is not None and base.name != family_name:
        raise ConfigError(
            f"model.family is {family_name!r}, but the model to continue is {base.description}",
            fix="leave --family out",
        )
    cls, recipe_family = get_recipe_class(values), read_family(values)
    is_encoder = base is not None and class_of_family(base) is cls is PretrainRecipe
    if base is not None and base.name != recipe_family and not is_encoder:
        raise ConfigError(
            f"the recipe is for the family {recipe_family}, but the model to continue is "
            f"{base.description}",
            fix=f"use the recipe {base.recipe}, or leave --init-from out",
        )
    return family_name


def list_pretrained_families() -> list[str]:
    """The families that `pretrain` trains."""
    found = [one for one in list_families().values() if class_of_family(one) in PRETRAIN_CLASSES]
    return [one.name for one in found if one.recipe not in (None, DISTILL)]


def _check_pretrained(family: Family, init_from: object = None) -> None:
    """Raise if `pretrain` does not train a family, or cannot continue its models."""
    if family.kind == "translator":
        raise ConfigError(
            f"{init_from or family.name} is {family.description}, which learns from aligned text",
            fix="use cloze finetune translate MODEL --train SRC TGT",
        )
    if family.recipe is None:
        raise ConfigError(
            f"{init_from or family.name} is {family.description}, which learns from labelled data",
            fix="use cloze finetune; a language model that it was made from can be continued",
        )


def _check_default_recipes(options: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise if no default recipe accepts the options, before torch is imported to choose one."""
    errors = []
    for recipe in (LAPTOP, FAST):
        try:
            complete_pretraining(recipe, options=options, settings=settings)
        except ConfigError as error:
            errors.append(error)
        else:
            return
    raise errors[0]


def _recipe_to_continue(base: Family, init_from: PathLike, family: str | None) -> str | None:
    """The recipe of the model to continue; None: that of a new model, or of the named family."""
    if family not in (None, base.name):
        return None
    if base.causal_recipe is not None and detect_causality(init_from):
        return base.causal_recipe
    is_own = family is None and base.recipe not in (LAPTOP, DISTILL)
    return base.recipe if is_own else None


def _default_recipe(
    family: str | None, options: Mapping[str, Any], settings: Mapping[str, Any]
) -> str:
    """The recipe of a new model."""
    if family is not None:
        return get_family(family).recipe or LAPTOP
    _check_default_recipes(options, settings)
    device = options.get("device") or settings.get("run.device")
    return default_recipe(None if device is None else str(device))


def default_recipe(device: str | None = None) -> str:
    """The default recipe of `pretrain`: fast if the run has one GPU, else laptop."""
    if device is None:
        import torch

        on_gpu = torch.cuda.is_available()
    else:
        on_gpu = device.startswith("cuda")
    return FAST if on_gpu and int(os.environ.get("WORLD_SIZE", "1")) == 1 else LAPTOP


def _has_segments(family: str) -> bool:
    names = {field.name for field in fields(get_family(family).config_class)}
    return "type_vocab_size" in names


def _detect_base(model: str) -> Family | None:
    """The family of the model to continue; raises if there is no such model."""
    try:
        return detect_family(find_folder(model))  # "org/name" may be in the cache of the hub
    except FolderError as error:
        if model not in list_recipes():
            raise
        raise FolderError(
            error.problem, fix=f"to train a new model with this recipe, use --recipe {model}"
        ) from None


def _complete_translation(
    source: Recipe | PathLike | None,
    task: str,
    model: str | None,
    flags: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> TranslationRecipe:
    base = None if model is None else _detect_base(model)
    if model is not None and (base is None or base.kind not in ("translator", "encoder")):
        raise InputError(
            f"{model} cannot be trained to {task}: it is neither a translator nor a GPT",
            fix="leave it out to train a new model: --recipe transformer, seq2seq or "
            "decoder-translate",
        )
    is_decoder = base is not None and base.kind == "encoder"
    default = DECODER if is_decoder else (base.recipe if base else None)
    values = read_values(source or default or "transformer")
    if get_recipe_class(values) is not TranslationRecipe:
        raise ConfigError(
            f"{describe_source(source)} is not a recipe for {task}",
            fix="use transformer, transformer-base, seq2seq, decoder-translate, or a file like "
            "them",
        )
    if base is not None and is_decoder:
        values = _replace_family(values, base)
    family = overrides.get("model.family", read_family(values))
    if family != read_family(values):
        raise ConfigError(
            f"model.family is {family!r}, but the recipe is for {read_family(values)}",
            fix="use a recipe of that family: transformer, transformer-base or seq2seq",
        )
    paths = {
        **map_options(TranslationRecipe, flags, owner=f"the task {task}"),
        **overrides,
        "task": task,
    }
    if base is not None:
        paths |= {"model.init_from": model, "model.family": _resolve_family(values, None, base)}
    made: TranslationRecipe = build_recipe(TranslationRecipe, values, paths)
    given = {**map_options(TranslationRecipe, flags), **overrides}
    _check_continued(made, given)
    _check_vocabulary(made, given)
    return made


def _replace_family(values: Mapping[str, Any], base: Family) -> Mapping[str, Any]:
    """A recipe of a decoder-only model for the family of the model to continue."""
    if get_family(read_family(values)).kind != "encoder":
        raise ConfigError(
            f"the recipe is for the family {read_family(values)}, but the model to continue is "
            f"{base.description}",
            fix=f"use the recipe {DECODER}, or leave the model out",
        )
    return {**values, "model": {"family": base.name}}


def _check_continued(made: Any, paths: Mapping[str, Any]) -> None:  # noqa: ANN401
    """Raise on settings of a model or vocabulary that the model to continue has already.

    They would have no effect, and a user who gives them expects a model of another size.
    """
    if made.model.init_from is None:
        return
    allowed = {"model.init_from", "model.family", "vocabulary.extra_tokens"}
    for path in paths.keys() - allowed:
        if path.startswith(("model.", "vocabulary.")):
            raise ConfigError(
                f"{path} is given, but the model to continue has its own",
                fix="leave it out"
                + ("; --extra-tokens adds words of the new text" if "vocabulary" in path else ""),
            )


def _check_vocabulary(made: Any, paths: Mapping[str, Any]) -> None:  # noqa: ANN401
    """Raise on settings of a vocabulary that is learned, if that of music is used."""
    if getattr(getattr(made, "vocabulary", None), "kind", None) != "midi":
        return
    for name in ("size", "lowercase", "byte_fallback", "min_count"):
        if f"vocabulary.{name}" in paths:
            raise ConfigError(
                f"vocabulary.{name} has no effect: the vocabulary of music is always its "
                f"{len(EVENT_WORDS)} events",
                fix="leave it out",
            )
