"""Continue a language model or a translator, which keeps its configuration and its vocabulary."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from cloze.checkpoint.atomic import whole_folder
from cloze.checkpoint.contents import read_family
from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.checkpoint.source import existing, find_folder, model_in
from cloze.config import to_mapping
from cloze.errors import ConfigError
from cloze.make.recipe.run import StartTable
from cloze.make.sources import resolve_model_name
from cloze.models.registry import get_family, list_families
from cloze.text.tokenizer import Tokenizer


def find_own_family(model: object) -> str | None:
    """The name of our own family that a model folder belongs to; None for any other model."""
    folder = existing(model) if isinstance(model, str) else None
    if folder is None or not folder.is_dir():
        return None
    family = read_family(model_in(folder))
    return None if family is None or family.kind == "encoder" else family.name


def open_base(recipe: Any) -> Model | None:  # noqa: ANN401 (any such recipe)
    """The model that a recipe continues, on the CPU; its family must be that of the recipe."""
    init_from = recipe.model.init_from
    if init_from is None:
        return None
    folder, family = find_folder(init_from), find_own_family(str(init_from))
    if getattr(recipe, family or "", None) is None:
        wanted = next(one for one in list_families() if getattr(recipe, one, None) is not None)
        found = "no such model" if family is None else get_family(family).description
        raise ConfigError(
            f"the recipe is for {wanted}, but {init_from} contains {found}",
            fix="use the recipe of its family, or train a new model",
        )
    return load(folder, device="cpu")


def inherit_config(recipe: Any, base: Any) -> Any:  # noqa: ANN401
    """The recipe with the configuration of the model it continues and no vocabulary of its own."""
    if base is None:
        return recipe
    family = base.config.family
    config = getattr(recipe, family)
    choices = [one.name for one in fields(config) if one.name not in config.FROM_DATA]
    values = {name: getattr(base.config, name) for name in choices}
    init_from = resolve_model_name(recipe.model.init_from)
    return replace(
        recipe,
        model=StartTable(init_from=init_from),
        vocabulary=type(recipe.vocabulary)(),
        **{family: replace(config, **values)},
    )


def recipe_values(recipe: Any) -> dict[str, Any]:  # noqa: ANN401
    """The recipe as its run stores it: without the vocabulary table if a model is continued."""
    values = to_mapping(recipe, from_data=False)
    if recipe.model.init_from is not None:
        del values["vocabulary"]
    return values


def load_or_train_tokenizer(
    folder: Path,
    base: Any,  # noqa: ANN401
    train: Callable[[], Tokenizer],
) -> Tokenizer:
    """The tokenizer of the base model, or that in the run's folder, or a new one stored there."""
    if base is not None:
        tokenizer: Tokenizer = base.tokenizer
        return tokenizer
    if folder.is_dir():  # of the same run before it was resumed
        return Tokenizer.load(folder)
    tokenizer = train()
    with whole_folder(folder) as work:
        tokenizer.save(work)
    return tokenizer
