"""SIGTERM and Ctrl-C as a wish to stop, which the loop grants between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def status(reason: str) -> int:
    """How a shell reports a program that this signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + signal.Signals[reason]


class Stop:
    """Whether someone asked to stop, and how. Ask it by calling it."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self) -> bool:
        return self.reason is not None

    def ask(self, reason: str) -> None:
        self.reason = reason


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """The first signal asks to stop; a second one does what it always did, and at once.

    Outside the main thread, where Python hears no signals, only `ask` asks.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def hear(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        stop.ask(signal.Signals(number).name)
        _give_back()

    def _give_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in SIGNALS:
        signal.signal(number, hear)
    try:
        yield stop
    finally:
        _give_back()
