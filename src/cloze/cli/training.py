"""What the commands that train share: options that are not in recipes, resuming, progress."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import print_note, progress
from cloze.cli.format_run import print_run_result
from cloze.errors import ConfigError

if TYPE_CHECKING:
    from cloze.train.fit import Callbacks, RunResult
    from cloze.train.step import Step
    from cloze.train.step_metrics import StepMetrics

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
        raise typer.BadParameter(
            f"{error.owner} has no such option", param_hint=error.option
        ) from error


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
    train: "Callable[[Callbacks], RunResult]",
    out: Path,
    *,
    command: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Call a function that trains with callbacks that show its progress, and print its result."""
    with show_progress(str(out), quiet=quiet, display=not as_json) as callbacks:
        result = train(callbacks)
    print_run_result(result, as_json, command=command)


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

    def resume(callbacks: "Callbacks") -> "RunResult":
        return cloze.resume(out, sources=sources or [], settings=changes, callbacks=callbacks)

    run_training(resume, out, command=command, as_json=as_json, quiet=quiet)


@contextmanager
def show_progress(title: str, *, quiet: bool, display: bool) -> "Iterator[Callbacks]":
    """Progress bars while a run is prepared, and the live display while it trains."""
    from cloze.train.fit import Callbacks

    with ExitStack() as stack:
        steps = partial(display_steps, before=stack, title=title, quiet=quiet or not display)
        show = stack.enter_context(progress(quiet))
        yield Callbacks(log=log_to_stderr(quiet), progress=show, steps=steps)


def log_to_stderr(quiet: bool) -> "Callable[[str], None]":
    """Print log lines, unless `quiet`."""
    return (lambda _: None) if quiet else print_note


def display_steps(
    steps: "Iterator[Step]", meter: "StepMetrics", *, before: ExitStack, title: str, quiet: bool
) -> "Iterator[Step]":
    """The steps, with a live display in place of the progress bars of the preparation."""
    from cloze.report.display import Display
    from cloze.train.consumers import emit_rows

    before.close()
    if quiet:
        yield from steps
        return
    with Display(title=title) as display:
        yield from emit_rows(steps, display.show, rows=meter.rows)
