"""What the commands that train share: flags that a recipe can say too, bars, the live display."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import progress
from cloze.errors import ConfigError

if TYPE_CHECKING:
    from cloze.train.fit import Callbacks
    from cloze.train.step import Step
    from cloze.train.step_metrics import StepMetrics

Minutes = Annotated[float | None, typer.Option(metavar="N", help="Train this long.")]
Steps = Annotated[int | None, typer.Option(metavar="N", help="Or so many steps.")]
Tokens = Annotated[int | None, typer.Option(metavar="N", help="Or so many tokens.")]
Epochs = Annotated[float | None, typer.Option(metavar="N", help="Or so often all.")]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="X", help="The highest learning rate.")
]
Precision = Annotated[str | None, typer.Option(metavar="NAME", help="float32 or bfloat16 (mixed).")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="Any setting of the recipe.")
]
SaveEvery = Annotated[int | None, typer.Option(metavar="STEPS", help="Save the state.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]
Tensorboard = Annotated[
    bool | None, typer.Option("--tensorboard", help="Write for TensorBoard, too.")
]
RunSeed = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Seed of all that is random.")
]
# on raw text
Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUT", help="Files, folders or globs of text; - is standard input."),
]
Length = Annotated[int | None, typer.Option(metavar="N", help="Tokens in a sample, at most.")]
BatchTokens = Annotated[int | None, typer.Option(metavar="N", help="Tokens computed at once.")]
Accumulate = Annotated[
    int | None, typer.Option(metavar="N", help="Batches to a step, over all processes.")
]
CorpusFolder = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="A prepared corpus to share or reuse.")
]
Workers = Annotated[int | None, typer.Option(metavar="N", help="Processes that prepare the text.")]
# on labelled data
Batch = Annotated[int | None, typer.Option(metavar="N", help="Examples to a step.")]
Seeds = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Runs; tells mean and deviation.")
]
Search = Annotated[
    bool | None, typer.Option("--search", help="Try the paper's rates, batches, epochs on dev.")
]
TaskRecipe = Annotated[
    str | None, typer.Option(metavar="NAME|FILE", help="finetune, features, or a file.")
]


def given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were said, by their paths in a recipe."""
    return {path: value for path, value in flags.items() if value is not None}


def nested(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags by path as a recipe's tables."""
    tables: dict[str, Any] = {}
    for path, value in flags.items():
        table, _, name = path.partition(".")
        tables.setdefault(table, {})[name] = value
    return tables


def for_resuming(
    flags: Mapping[str, Any], settings: list[str] | None, *others: object, may: str = ""
) -> list[str]:
    """Flags and settings of a resumed run; what would make it another run is refused."""
    from cloze.make.recipe.run import CHANGEABLE

    said = [f"{path}={json.dumps(value)}" for path, value in flags.items()] + (settings or [])
    paths = {setting.partition("=")[0].strip() for setting in said}
    if any(others) or not paths <= CHANGEABLE | {may}:
        raise ConfigError(
            "a resumed run goes on by the recipe it began with",
            fix="give --resume and --out alone, or start a new run",
        )
    return said


@contextmanager
def watching(title: str, *, quiet: bool, display: bool) -> "Iterator[Callbacks]":
    """Bars while a run is prepared, and the live display once it trains."""
    from cloze.train.fit import Callbacks

    with ExitStack() as stack:
        steps = partial(shown, before=stack, title=title, quiet=quiet or not display)
        show = stack.enter_context(progress(quiet))
        yield Callbacks(log=log_to_stderr(quiet), progress=show, steps=steps)


def log_to_stderr(quiet: bool) -> "Callable[[str], None]":
    """Print log lines, unless `quiet`."""
    return (lambda _: None) if quiet else (lambda text: typer.echo(text, err=True))


def shown(
    steps: "Iterator[Step]", meter: "StepMetrics", *, before: ExitStack, title: str, quiet: bool
) -> "Iterator[Step]":
    """The steps, with a live display around them in place of the bars of the preparation."""
    from cloze.report.display import Display
    from cloze.train.consumers import emit_rows

    before.close()
    if quiet:
        yield from steps
        return
    with Display(title=title) as display:
        yield from emit_rows(steps, display.show, rows=meter.rows)
