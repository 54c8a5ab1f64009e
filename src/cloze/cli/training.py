"""What the commands that train share: options that are not in recipes, resuming, progress."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import explain_interrupt
from cloze.cli.format_run import print_run_result

if TYPE_CHECKING:
    from cloze.train.callbacks import Callback, TrainingRun
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
    """Report an option that the family or the task does not have as a usage error.

    Errors about the value of an option name its flag.
    """
    from cloze.errors import ConfigError
    from cloze.make.recipe.options import OptionError, OptionValueError

    try:
        yield
    except OptionError as error:
        flag = _name_flag(error.option)
        raise typer.BadParameter(f"{error.owner} has no such option", param_hint=flag) from error
    except OptionValueError as error:
        problem = _name_flag(error.option) + error.problem.removeprefix(error.option)
        raise ConfigError(problem, fix=error.fix) from None


def _name_flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def settings_to_resume(
    out: Path,
    options: Mapping[str, Any],
    settings: list[str] | None,
    *,
    recipe: str | None = None,
    **arguments: object,
) -> dict[str, Any]:
    """The settings to change in a resumed run; arguments that differ from the run's are an error.

    `arguments` are other arguments of the command, as settings of the recipe by their paths.
    """
    from cloze.make.recipe.resumed import find_changes
    from cloze.make.run_folder import find_run_recipe
    from cloze.train.run_files import TRIALS

    with report_usage():
        return find_changes(
            find_run_recipe(out),
            options=options,
            settings=settings or [],
            arguments=arguments,
            source=recipe,
            has_trials=(out / TRIALS).is_file(),
        )


def check_paths(model: str | None, sources: Iterable[str]) -> None:
    """Raise if the model or one of the sources does not exist, before torch is imported."""
    from cloze.checkpoint.load import find_source
    from cloze.data.input_files import match_paths
    from cloze.data.sources import is_stream

    if model:
        find_source(model)
    for source in sources:
        if not is_stream(source):
            match_paths(source)


def check_texts(sources: list[str]) -> None:
    """Raise if one of the texts to train on does not exist, or is a model."""
    from cloze.make.sources import resolve_sources

    if sources:
        resolve_sources(sources, ())
        check_paths(None, sources)


@contextmanager
def explain_interrupted_run(
    command: str, *, restart: str = "run the same command"
) -> "Iterator[Callback]":
    """Say how to go on when Ctrl-C interrupts a run: from its last state, or from the start.

    The callback that it yields notes whether training has begun.
    """
    from cloze.train.callbacks import Callback

    class Begin(Callback):
        """Notes the folder of a run that has begun to train."""

        folder: Path | None = None

        def on_train_begin(self, run: "TrainingRun") -> None:
            self.folder = run.folder

    begin = Begin()

    def explain() -> str:
        if begin.folder is None:
            return f"interrupted before training began; {restart} to start again"
        again = f"cloze {command} --resume --out {begin.folder}"
        return f"interrupted; to resume from the last saved state: {again}"

    with explain_interrupt(explain):
        yield begin


def run_training(
    train: "Callable[..., RunResult]",
    *,
    command: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Call a function that trains with callbacks that show its progress, and print its result."""
    with explain_interrupted_run(command) as begin:
        shown = [begin, *display_callbacks(quiet=quiet, show_steps=not as_json)]
        result = train(progress=False, callbacks=shown)
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

    train = partial(cloze.resume, out, sources=sources or [], settings=changes)
    run_training(train, command=command, as_json=as_json, quiet=quiet)


def display_callbacks(*, quiet: bool, show_steps: bool = True) -> "list[Callback]":
    """The callback that shows a run, unless `quiet`."""
    if quiet:
        return []
    from cloze.report.display import ProgressDisplay

    return [ProgressDisplay(show_steps=show_steps)]
