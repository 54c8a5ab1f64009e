"""What every training run has: a folder with files of these names, a recipe, and onlookers."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cloze import __version__
from cloze.config import to_toml
from cloze.data.files import PathLike
from cloze.errors import FolderError
from cloze.make.metrics import Meter
from cloze.train.step import Step

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from cloze.data.prepare import Progress as Preparing

RECIPE, STATE, METRICS, REPORT = "recipe.toml", "state", "metrics.jsonl", "report.html"
UNNAMED = "<objects in Python>"  # what a recipe cannot name


@dataclass(frozen=True, kw_only=True)
class Say:
    """How the work tells what it does; all of it may be left out."""

    text: Callable[[str], None] = lambda _: None
    progress: Callable[[str, int, int | None], None] | None = None  # stage, done, of how many
    corpus: "Callable[[Preparing], None] | None" = None


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What wants to see the run: the preparation in words, the training step by step."""

    say: Say = field(default_factory=Say)
    steps: Callable[[Iterator[Step], Meter], Iterator[Step]] = lambda steps, _: steps


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
