"""What every training run has: a folder with files of these names, a recipe, and onlookers."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloze import __version__
from cloze.config import to_toml
from cloze.data.files import PathLike
from cloze.data.streams import Source, listed
from cloze.errors import FolderError, InputError
from cloze.make.metrics import Meter
from cloze.make.workshop import Say
from cloze.train.step import Step

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RECIPE, STATE, METRICS, REPORT = "recipe.toml", "state", "metrics.jsonl", "report.html"
UNNAMED = "<objects in Python>"  # what a recipe cannot name


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What wants to see the run: the preparation in words, the training step by step."""

    say: Say = field(default_factory=Say)
    steps: Callable[[Iterator[Step], Meter], Iterator[Step]] = lambda steps, _: steps


def texts_of(sources: Source | Sequence[Any], own: Sequence[str]) -> list[Source]:
    """The text to learn from: what was given, else what the recipe names."""
    texts = listed(sources) or list(own)
    if not texts:
        raise no_text("name files, folders or globs, or set corpus.sources in the recipe")
    return texts


def no_text(fix: str = "are the files empty?") -> InputError:
    """What is wrong where nothing can be learned."""
    return InputError("there is no text to learn from", fix=fix)


def named(sources: Iterable[object]) -> tuple[str, ...]:
    """Sources of text as a recipe can name them."""
    return tuple(str(one) if isinstance(one, str | os.PathLike) else UNNAMED for one in sources)


def write_recipe(folder: Path, recipe: "DataclassInstance") -> None:
    """The complete recipe of a run, into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    said = f"# The complete recipe of this run, by cloze {__version__}.\n\n"
    (folder / RECIPE).write_text(said + to_toml(recipe), encoding="utf-8")


def recipe_in(out: PathLike) -> Path:
    """The recipe that a run in a folder began with."""
    path = Path(out) / RECIPE
    if not path.is_file():
        raise FolderError(
            f"there is no run to resume in {out}",
            fix=f"name the --out folder of a run: it holds {RECIPE}",
        )
    return path
