"""Going on from a model of our own families, which brings its shape and its vocabulary."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from cloze.checkpoint.abilities import OWN, own_family
from cloze.checkpoint.body import optional_json
from cloze.checkpoint.own import CONFIG
from cloze.checkpoint.source import existing, find_folder, model_in
from cloze.config import to_mapping
from cloze.errors import ConfigError
from cloze.make.folder import check_apart
from cloze.make.recipe.run import StartTable
from cloze.make.run import placed

B = TypeVar("B")


def family_in(start: object) -> str | None:
    """Which of our own families lies in a folder, if one does."""
    place = existing(start) if isinstance(start, str) else None
    if place is None or not place.is_dir():
        return None
    return own_family(optional_json(model_in(place), CONFIG))


def base_of(recipe: Any, open_: Callable[..., B]) -> B | None:  # noqa: ANN401 (of any such family)
    """The model that a recipe goes on from, on the processor; it must be one for its kind."""
    start = recipe.model.init_from
    if start is None:
        return None
    folder, family = find_folder(start), family_in(str(start))
    if getattr(recipe, family or "", None) is None:
        wanted = next(name for name in OWN if getattr(recipe, name, None) is not None)
        held = "no such model" if family is None else OWN[family].name
        raise ConfigError(
            f"the recipe is one for {wanted}, and {start} holds {held}",
            fix="go on with the recipe of its kind, or leave the model out",
        )
    return open_(folder, device="cpu")


def fitted(recipe: Any, base: Any, out: Path) -> Any:  # noqa: ANN401
    """The recipe with the shape of the model it goes on from, and no vocabulary of its own."""
    if base is None:
        return recipe
    check_apart(out, recipe.model.init_from)
    family = base.config.family
    shape = getattr(recipe, family)
    values = {one.name: getattr(base.config, one.name) for one in fields(shape)}
    changes = {family: replace(shape, **values), "vocabulary": type(recipe.vocabulary)()}
    return replace(recipe, model=StartTable(init_from=placed(recipe.model.init_from)), **changes)


def said(recipe: Any) -> dict[str, Any]:  # noqa: ANN401
    """As the run's file says it: nothing of a vocabulary that another model brings."""
    values = to_mapping(recipe)
    if recipe.model.init_from is not None:
        del values["vocabulary"]
    return values
