"""The live display of a training run.

On a terminal it is a panel that is updated in place, elsewhere a line every few seconds. A row has
a `kind` (train or eval) and the values that were measured.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from cloze.report.panel import (
    HEIGHT,
    WIDTH,
    AsciiOnly,
    Row,
    RunSummary,
    format_evaluation,
    format_training,
    render_panel,
)

_PAUSE = 10.0  # seconds between two lines; evaluations are always shown
_REFRESH = 0.2  # seconds between two updates of the panel


class Display:
    """Shows rows of metrics. Training continues whatever happens to the terminal."""

    def __init__(self, *, title: str = "training", console: Console | None = None) -> None:
        self._title = title
        self._off = False  # after an error
        self._console = console or _Console(stderr=True)
        self._summary = RunSummary()
        self._live: Live | None = None
        self._unshown = 0  # rows since the last line or update
        self._shown_at: float | None = None

    def __enter__(self) -> Self:
        with self._ignore_errors():
            if self._console.is_terminal and not self._console.is_dumb_terminal:
                self._live = Live(
                    console=self._console,
                    auto_refresh=False,  # errors of a refresh thread could not be handled
                    redirect_stdout=sys.stdout.isatty(),  # output to a file is not redirected
                )
                self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._off:
            return
        with self._ignore_errors():
            if self._unshown:
                self._show()
            self._stop()

    def show(self, row: Row) -> None:
        """Add a row, and update the display if it is due."""
        if self._off:
            return
        with self._ignore_errors():
            self._summary.add(row)
            if row.get("kind") == "eval":
                self._show(held_out=True)
                return
            self._unshown += 1
            if self._is_due():
                self._show()

    def _is_due(self) -> bool:
        pause = _PAUSE if self._live is None else _REFRESH
        return self._shown_at is None or time.monotonic() - self._shown_at >= pause

    def _show(self, *, held_out: bool = False) -> None:
        if self._live is not None:
            self._live.update(self._render(), refresh=True)
        else:
            line = format_evaluation if held_out else format_training
            self._console.print(self._convert(Text(line(self._summary))), soft_wrap=True)
            if held_out:  # the training line is still due
                return
        self._unshown = 0
        self._shown_at = time.monotonic()

    def _render(self) -> RenderableType:
        width, height = self._console.size
        if width < WIDTH or height < HEIGHT:
            return self._convert(
                Text(format_training(self._summary), no_wrap=True, overflow="ellipsis")
            )
        ascii_only = self._console.options.ascii_only
        return self._convert(
            render_panel(self._summary, title=self._title, width=width, ascii_only=ascii_only)
        )

    def _convert(self, renderable: RenderableType) -> RenderableType:
        return AsciiOnly(renderable) if self._console.options.ascii_only else renderable

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    @contextmanager
    def _ignore_errors(self) -> Iterator[None]:
        """An error, such as a closed terminal, ends the display and nothing else."""
        try:
            yield
        except (Exception, SystemExit) as error:  # rich exits when a pipe is closed
            self._off = True
            with suppress(Exception, SystemExit):
                self._stop()
            with suppress(Exception, SystemExit):
                reason = f"{type(error).__name__}: {error}"
                self._console.print(Text(f"the display stopped ({reason}), training continues"))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("the pipe is closed")  # instead of exiting
