"""SIGTERM and Ctrl-C request a stop, which the training loop performs between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def exit_status(reason: str) -> int:
    """The exit status of a program that a signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + signal.Signals[reason]


class StopRequest:
    """Whether a stop was requested, and by which signal; call it to check."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self) -> bool:
        return self.reason is not None

    def request(self, reason: str) -> None:
        self.reason = reason


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """The first signal requests a stop; a second one has its usual effect immediately.

    Outside the main thread, where Python receives no signals, only `request` does so.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        stop.request(signal.Signals(number).name)
        _restore_handlers()

    def _restore_handlers() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in SIGNALS:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        _restore_handlers()
