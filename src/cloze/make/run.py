"""What every training run has: a folder with files of these names, a recipe, onlookers, an end."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cloze import __version__
from cloze.config import to_toml
from cloze.data.files import PathLike, absolute
from cloze.data.streams import Source, is_stream, listed
from cloze.errors import FolderError, InputError
from cloze.files import expanded, write_text
from cloze.train.consumers import need_tensorboard
from cloze.train.run_files import CORPUS_FACTS as CORPUS_FACTS
from cloze.train.run_files import DATA_FACTS as DATA_FACTS
from cloze.train.run_files import FILLS as FILLS
from cloze.train.run_files import METRICS as METRICS
from cloze.train.run_files import NEIGHBOURS as NEIGHBOURS
from cloze.train.run_files import RECIPE as RECIPE
from cloze.train.run_files import REPORT as REPORT
from cloze.train.run_files import SAMPLES as SAMPLES
from cloze.train.run_files import STATE as STATE
from cloze.train.run_files import TRIALS as TRIALS
from cloze.train.run_files import VOCABULARY as VOCABULARY
from cloze.train.step import Step
from cloze.train.step_metrics import Meter

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from cloze.data.prepare import Preparing

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


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """How a run on raw text ended."""

    folder: Path
    steps: int
    tokens: int
    seconds: float
    scores: Mapping[str, float]  # of the last evaluation
    stopped: str | None  # the signal, where one ended it early


class Logged(Protocol):
    """What a recipe's table `run` says of the files that tell how it goes."""

    @property
    def log_every(self) -> int: ...

    @property
    def tensorboard(self) -> bool: ...


def check_extras(run: Logged) -> None:
    """Say what a run lacks before anything is read or overwritten for it."""
    if run.tensorboard:
        need_tensorboard()


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
    """Sources of text as a recipe can name them, wherever it is read; of a pipe nothing is left."""
    return tuple(map(_named, sources))


def _named(source: Any) -> str:  # noqa: ANN401 - whatever was given
    if not isinstance(source, str | os.PathLike):
        return UNNAMED
    return "-" if is_stream(source) else absolute(source)


def placed(model: PathLike) -> str:
    """A folder by its whole path; what is none here, such as a model of the hub, by its name."""
    there = os.path.exists(expanded(model))  # noqa: PTH110 - never raises
    return absolute(model) if there else str(model)


def check_named(texts: Sequence[Any]) -> None:
    """Refuse to read again what is gone: text in Python or from a pipe."""
    if any((isinstance(one, str) and one == UNNAMED) or is_stream(one) for one in texts):
        raise InputError(
            "this run began with text from a pipe or from Python, which cannot be read again",
            fix="give it again, cloze.resume(out, sources=…), or start anew with --force",
        )


def check_piped(names: Sequence[str], *, again: bool = False) -> None:
    """Refuse standard input where it is named twice, or nobody pipes a resumed run its data again.

    Other data than it began with are refused when they are read.
    """
    if names.count("-") > 1:
        raise InputError(
            "standard input is named twice, and can be read once",
            fix="save one of the two to a file and name that",
        )
    if again and "-" in names and (sys.stdin is None or sys.stdin.isatty()):
        raise InputError(
            "this run began with data from standard input, and nothing is piped in",
            fix="pipe the same data in again, or begin anew with files",
        )


def write_recipe(folder: Path, recipe: "DataclassInstance | Mapping[str, Any]") -> None:
    """The complete recipe of a run, into its folder."""
    said = f"# The complete recipe of this run, by cloze {__version__}.\n\n"
    write_text(folder / RECIPE, said + to_toml(recipe))


def recipe_in(out: PathLike) -> Path:
    """The recipe that a run in a folder began with."""
    path = Path(out) / RECIPE
    if not path.is_file():
        raise FolderError(
            f"there is no run to resume in {out}",
            fix=f"name the --out folder of a run: it holds {RECIPE}",
        )
    return path
