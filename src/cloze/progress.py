"""Progress of long operations: the type of callbacks, and progress bars.

The bars are shown on standard error if it is a terminal, and in notebooks.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# called with the stage ("texts counted"), the number of items done, and their total (None: unknown)
ProgressCallback: TypeAlias = Callable[[str, int, int | None], object]
# of functions: a callback; True or False: with or without a bar; None: a bar for long work
ProgressOption: TypeAlias = ProgressCallback | bool | None

R = TypeVar("R")
_shows_bars: ContextVar[bool] = ContextVar("shows_bars", default=True)
_DELAY = 2.0  # seconds before a bar appears that was not asked for
_REFRESH = 0.2  # seconds between two updates in a notebook


@contextmanager
def open_progress(progress: ProgressOption = None) -> Iterator[ProgressCallback | None]:
    """The callback of an option; bars are removed at the end.

    Functions that are called inside show no bars unless they are asked to.
    """
    is_default = progress is None and _shows_bars.get()
    with hide_bars():
        if progress is not None and not isinstance(progress, bool):
            yield progress
        elif not (progress or is_default) or not (is_terminal() or is_notebook()):
            yield None
        else:
            bars = ProgressBars(delay=_DELAY if is_default else 0)
            try:
                yield bars
            finally:
                bars.close()


@contextmanager
def hide_bars() -> Iterator[None]:
    """Functions that are called inside show no bars by default."""
    token = _shows_bars.set(False)
    try:
        yield
    finally:
        _shows_bars.reset(token)


def with_progress(function: Callable[..., R]) -> Callable[..., R]:
    """Resolve the option `progress` of a function, which gets a callback or None."""

    @wraps(function)
    def call(*arguments: Any, progress: ProgressOption = None, **options: Any) -> R:  # noqa: ANN401
        with open_progress(progress) as show:
            return function(*arguments, progress=show, **options)

    return call


class ProgressBars:
    """A bar per stage; called with the stage, the number of items done, and their total.

    Only the timer of the current stage runs. A stage that starts again continues its own bar.
    """

    def __init__(self, *, delay: float = 0.0) -> None:
        self._due = time.monotonic() + delay
        self._bars: Progress | None = None
        self._handle: Any = None  # of the output in a notebook
        self._updated = 0.0
        self._tasks: dict[str, TaskID] = {}
        self._stage: str | None = None  # the current one

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        if self._bars is None:
            if time.monotonic() < self._due or not (is_terminal() or is_notebook()):
                return
            self._bars = self._open()
        if stage != self._stage:
            self._change_stage(self._bars, stage)
        count = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        self._bars.update(self._tasks[stage], completed=done, total=total, count=count)
        if self._handle is not None and time.monotonic() - self._updated >= _REFRESH:
            self._updated = time.monotonic()
            self._handle.update(self._bars.make_tasks_table(self._bars.tasks))

    def _open(self) -> "Progress":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        bars = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # output to a file or pipe is not redirected
        )
        if is_notebook():
            self._handle = show_in_notebook(bars.make_tasks_table([]))
        else:
            bars.start()
        return bars

    def _change_stage(self, bars: "Progress", stage: str) -> None:
        if self._stage is not None:
            last = self._tasks[self._stage]
            bars.update(last, total=bars.tasks[last].completed)  # it is finished
        self._stage = stage
        if stage in self._tasks:
            bars.reset(self._tasks[stage])
        else:
            self._tasks[stage] = bars.add_task(stage, total=None, count="")

    def close(self) -> None:
        """Remove the bars; a later call shows new ones."""
        bars, self._bars = self._bars, None
        self._tasks, self._stage = {}, None
        if bars is None:
            return
        if self._handle is not None:
            clear_in_notebook(self._handle)
            self._handle = None
        else:
            bars.stop()


def is_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from rich.console import Console

    return Console().is_jupyter


def show_in_notebook(renderable: object) -> Any:  # noqa: ANN401 - IPython has no types
    """Show something below the cell; the result has a method `update`."""
    return import_module("IPython.display").display(renderable, display_id=True)


def clear_in_notebook(handle: Any) -> None:  # noqa: ANN401
    """Remove what `show_in_notebook` has shown."""
    handle.update({"text/plain": ""}, raw=True)
