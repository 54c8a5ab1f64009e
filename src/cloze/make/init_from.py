"""Continue a language model or a translator, which keeps its configuration and its vocabulary."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from cloze.checkpoint.atomic import whole_folder
from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.checkpoint.source import find_folder
from cloze.errors import ConfigError
from cloze.make.recipe.model import detect_family
from cloze.make.sources import resolve_model_name
from cloze.text.tokenizer import Tokenizer

R = TypeVar("R", bound=Any)  # a recipe with a table `model`


def open_base(recipe: Any) -> Model | None:  # noqa: ANN401 (any such recipe)
    """The model that a recipe continues, on the CPU; its family must be that of the recipe."""
    init_from = recipe.model.init_from
    if init_from is None:
        return None
    folder, family = find_folder(init_from), detect_family(init_from)
    if family is None or family.name != recipe.model.family:
        found = "no such model" if family is None else family.description
        raise ConfigError(
            f"the recipe is for the family {recipe.model.family}, but {init_from} contains {found}",
            fix="use the recipe of its family, or train a new model",
        )
    return load(folder, device="cpu")


def with_absolute_base(recipe: R) -> R:
    """The recipe with the absolute path of the model it continues."""
    init_from = recipe.model.init_from
    if init_from is None:
        return recipe
    model = replace(recipe.model, init_from=resolve_model_name(init_from))
    changed: R = replace(recipe, model=model)
    return changed


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
