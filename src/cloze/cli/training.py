"""What the commands that train share: options that are not in recipes, resuming, progress."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.format_run import print_run_result
from cloze.errors import ConfigError

if TYPE_CHECKING:
    from cloze.train.callbacks import Callback
    from cloze.train.result import RunResult

Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUT", help="Text files, folders or globs; - reads standard input."),
]
Out = Annotated[
    Path, typer.Option("--out", metavar="FOLDER", help="Folder to write the run and the model to.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="A.B=C",
        help="Override a setting of the recipe, such as optimizer.lr=1e-4; may be repeated.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")]


@contextmanager
def report_usage() -> Iterator[None]:
    """Report an option that the family or the task does not have as a usage error."""
    from cloze.make.recipe.options import OptionError

    try:
        yield
    except OptionError as error:
        flag = "--" + error.option.replace("_", "-")
        raise typer.BadParameter(f"{error.owner} has no such option", param_hint=flag) from error


def settings_to_resume(
    out: Path,
    options: Mapping[str, Any],
    settings: list[str] | None,
    *others: object,
    moved: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The settings to change in a resumed run; those that must stay the same are rejected.

    `others` are arguments that a resumed run does not take, `moved` are settings with new paths of
    the same files.
    """
    from cloze.config import parse_settings
    from cloze.make.recipe.complete import CLASSES, get_recipe_class, read_values
    from cloze.make.recipe.options import find_options, map_options
    from cloze.make.recipe.run import CHANGEABLE

    fields = [find_options(cls).items() for classes in CLASSES.values() for cls in classes]
    changeable = {name for some in fields for name, (path, _) in some if path in CHANGEABLE}
    assigned = parse_settings(settings or [])
    rejected = [*(options.keys() - changeable), *(assigned.keys() - CHANGEABLE)]
    if rejected or any(others):
        what = f"{min(rejected)} cannot be changed" if rejected else "it takes no other arguments"
        raise ConfigError(
            f"--resume continues a run with its own recipe: {what}",
            fix="give only --resume and --out, or start a new run",
        )
    from cloze.make.run_folder import find_run_recipe

    cls = get_recipe_class(read_values(find_run_recipe(out)))
    with report_usage():
        return {**map_options(cls, options, owner="this run"), **assigned, **(moved or {})}


def run_training(
    train: "Callable[..., RunResult]",
    *,
    command: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Call a function that trains with callbacks that show its progress, and print its result."""
    shown = display_callbacks(quiet=quiet, show_steps=not as_json)
    print_run_result(train(progress=False, callbacks=shown), as_json, command=command)


def resume_run(
    out: Path,
    changes: Mapping[str, Any],
    *,
    sources: list[str] | None = None,
    command: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Resume the run in a folder, with the settings in `changes`, and print its result."""
    import cloze

    train = partial(cloze.resume, out, sources=sources or [], settings=changes)
    run_training(train, command=command, as_json=as_json, quiet=quiet)


def display_callbacks(*, quiet: bool, show_steps: bool = True) -> "list[Callback]":
    """The callback that shows a run, unless `quiet`."""
    if quiet:
        return []
    from cloze.report.display import ProgressDisplay

    return [ProgressDisplay(show_steps=show_steps)]
