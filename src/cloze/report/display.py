"""What people look at while a model trains.

    with Display(title="pretrain") as display:
        for step in telling(steps, display.show, rows=meter.rows): ...

On a terminal it is a panel that stays in place, elsewhere a plain line now and then. A row has a
`kind` (train or eval) and what was measured; what it lacks is not shown.
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

_PAUSE = 10.0  # seconds from one plain line to the next; evaluations are always told
_REFRESH = 0.2  # seconds between two pictures of the panel


class Display:
    """Shows one row after another. Whatever happens to the terminal, training goes on."""

    def __init__(self, *, title: str = "training", console: Console | None = None) -> None:
        self._title = title
        self._off = False  # something went wrong here
        self._console = console or _Console(stderr=True)
        self._seen = RunSummary()
        self._live: Live | None = None
        self._unshown = 0  # rows since the last line or picture
        self._shown_at: float | None = None

    def __enter__(self) -> Self:
        with self._survived():
            if self._console.is_terminal and not self._console.is_dumb_terminal:
                self._live = Live(
                    console=self._console,
                    auto_refresh=False,  # a thread of its own would also fail on its own
                    redirect_stdout=sys.stdout.isatty(),  # what goes to a file stays there
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
        with self._survived():
            if self._unshown:
                self._show()
            self._stop()

    def show(self, row: Row) -> None:
        """Take in a row, and show it if it is time."""
        if self._off:
            return
        with self._survived():
            self._seen.add(row)
            if row.get("kind") == "eval":
                self._show(held_out=True)
                return
            self._unshown += 1
            if self._due():
                self._show()

    def _due(self) -> bool:
        pause = _PAUSE if self._live is None else _REFRESH
        return self._shown_at is None or time.monotonic() - self._shown_at >= pause

    def _show(self, *, held_out: bool = False) -> None:
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
        else:
            line = format_evaluation if held_out else format_training
            self._console.print(self._fit(Text(line(self._seen))), soft_wrap=True)
            if held_out:  # does not count as news of training
                return
        self._unshown = 0
        self._shown_at = time.monotonic()

    def _picture(self) -> RenderableType:
        width, height = self._console.size
        if width < WIDTH or height < HEIGHT:
            return self._fit(Text(format_training(self._seen), no_wrap=True, overflow="ellipsis"))
        plain = self._console.options.ascii_only
        return self._fit(render_panel(self._seen, title=self._title, width=width, ascii_only=plain))

    def _fit(self, shown: RenderableType) -> RenderableType:
        return AsciiOnly(shown) if self._console.options.ascii_only else shown

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    @contextmanager
    def _survived(self) -> Iterator[None]:
        """A terminal that is gone, or anything else that goes wrong here, ends only the display."""
        try:
            yield
        except (Exception, SystemExit) as error:  # rich leaves the program when a pipe is closed
            self._off = True
            with suppress(Exception, SystemExit):
                self._stop()
            with suppress(Exception, SystemExit):
                reason = f"{type(error).__name__}: {error}"
                self._console.print(Text(f"the display ended ({reason}), training goes on"))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("nobody reads any more")  # where rich would leave the program
