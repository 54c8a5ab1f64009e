"""The live display of a training run.

On a terminal and in a notebook it is a panel that is updated in place, elsewhere a line every few
seconds. A row has a `kind` (train or eval) and the values that were measured.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from cloze.progress import ProgressBars, hide_bars, is_notebook, show_in_notebook
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
from cloze.terminal import LINES, escape_control_characters
from cloze.train.callbacks import Callback, CallbackList, TrainingRun
from cloze.train.result import RunResult

_PAUSE = 10.0  # seconds between two lines; evaluations are always shown
_REFRESH = 0.2  # seconds between two updates of the panel


class Display:
    """Shows rows of metrics. Training continues whatever happens to the terminal."""

    def __init__(self, *, title: str = "training", console: Console | None = None) -> None:
        self._title = title
        self.is_started = False  # with the first row
        self._off = False  # after an error
        self._console = console or _Console(stderr=True)
        self._summary = RunSummary()
        self._live: Live | None = None
        self._handle: Any = None  # of the output in a notebook
        self._unshown = 0  # rows since the last line or update
        self._shown_at: float | None = None

    def __enter__(self) -> Self:
        return self

    def _start(self) -> None:
        """Open the panel, where there can be one."""
        self.is_started = True
        if self._console.is_jupyter:
            self._handle = show_in_notebook(Text())
        elif self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(
                console=self._console,
                auto_refresh=False,  # errors of a refresh thread could not be handled
                redirect_stdout=sys.stdout.isatty(),  # output to a file is not redirected
            )
            self._live.start()

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
            if not self.is_started:
                self._start()
            self._summary.add(row)
            if row.get("kind") == "eval":
                self._show(held_out=True)
                return
            self._unshown += 1
            if self._is_due():
                self._show()

    def finish(self, seconds: float, *, is_complete: bool) -> None:
        """Show that the run has ended: nothing is left of its time, and nothing of its budget."""
        if self.is_started and not self._off:
            with self._ignore_errors():
                self._summary.finish(seconds, is_complete=is_complete)
                if self._live is not None or self._handle is not None:
                    self._show()

    def _is_due(self) -> bool:
        pause = _PAUSE if self._live is None and self._handle is None else _REFRESH
        return self._shown_at is None or time.monotonic() - self._shown_at >= pause

    def _show(self, *, held_out: bool = False) -> None:
        if self._live is not None:
            self._live.update(self._render(), refresh=True)
        elif self._handle is not None:
            self._handle.update(self._render())
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


class ProgressDisplay(Callback):
    """Shows a run on standard error, or in a notebook: bars and log lines, then its metrics.

    Args:
        show_steps: show the metrics while it trains.
    """

    def __init__(self, *, show_steps: bool = True) -> None:
        self._show_steps = show_steps
        self._bars = ProgressBars()
        self._display: Display | None = None

    def on_log(self, message: str) -> None:
        """Print the line."""
        with suppress(OSError, ValueError):  # the terminal or the pipe was closed
            stream = sys.stdout if is_notebook() else sys.stderr
            if stream is not None:
                stream.write(f"{escape_control_characters(message, keep=LINES)}\n")
                stream.flush()

    def on_progress(self, stage: str, done: int, total: int | None) -> None:
        """Update the bar of the stage."""
        self._bars(stage, done, total)

    def on_train_begin(self, run: TrainingRun) -> None:
        """Replace the bars by the display of the metrics."""
        self.close()
        if self._show_steps:
            self._display = Display(title=str(run.folder)).__enter__()

    def on_step(self, metrics: Mapping[str, Any]) -> None:
        """Update the display."""
        self._bars.close()
        if self._display is not None:
            self._display.show({"kind": "train", **metrics})

    def on_evaluate(self, step: int, scores: Mapping[str, float]) -> None:
        """Show the scores; those of a model that is trained in one pass are in its result."""
        if self._display is not None and self._display.is_started:
            self._display.show({"kind": "eval", "step": step, **scores})

    def on_train_end(self, result: RunResult) -> None:
        """End the display; its last state stays visible."""
        if self._display is not None:
            self._display.finish(result.seconds, is_complete=result.stopped is None)
        self.close()

    def close(self) -> None:
        """Remove the bars, and end the display."""
        self._bars.close()
        display, self._display = self._display, None
        if display is not None:
            display.__exit__(None, None, None)


@contextmanager
def open_callbacks(
    progress: bool, callbacks: Callback | Iterable[Callback]
) -> Iterator[CallbackList]:
    """The callbacks of a run, and the display if `progress` is set; they are closed at the end."""
    shown = [ProgressDisplay()] if progress else []
    given = callbacks if isinstance(callbacks, Iterable) else [callbacks]
    with hide_bars(), closing(CallbackList([*shown, *given])) as opened:
        yield opened


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("the pipe is closed")  # instead of exiting
