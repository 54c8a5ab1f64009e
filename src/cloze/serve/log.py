"""Log lines of the server: one line each, as JSON or as text."""

import json
import logging
import sys
import time
from contextvars import ContextVar
from typing import Any

LOGGER = logging.getLogger("cloze.serve")
REQUEST_LOG: ContextVar[dict[str, Any] | None] = ContextVar("request_log", default=None)
"""What is known of the request that is being answered: its deadline, and values to log."""


class _Lines(logging.Formatter):
    """Every record is one line, an exception with its traceback included."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__("%(message)s")
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if message.startswith("{"):  # a line that is complete
            return message
        values = {"level": record.levelname.lower(), "event": message}
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        return make_line(values, as_json=self._as_json)


def make_line(values: dict[str, Any], *, as_json: bool) -> str:
    """A line with the time and these values; line ends inside of them are escaped."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if as_json:
        return json.dumps({"time": stamp, **values})
    shown = " ".join(f"{name}={value}" for name, value in values.items())
    return f"{stamp} {json.dumps(shown)[1:-1]}"


def set_up_log(format_: str) -> None:
    """Log lines of this package on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(as_json=format_ == "json"))
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(logging.ERROR if format_ == "none" else logging.INFO)
    LOGGER.propagate = False


def log_request(**values: object) -> None:
    """Add values to the log line of the request."""
    log = REQUEST_LOG.get()
    if log is not None:
        log["values"].update(values)
