"""Run the application on a socket, with a stop that loses nothing that was accepted.

`python -m cloze.serve.server` is a worker process (`cloze.serve.workers`).
"""

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from cloze.serve.app import create_app
from cloze.serve.config import ServeConfig
from cloze.serve.log import LOGGER, set_up_log
from cloze.serve.model_store import ModelStore

_QUIET_SECONDS = 0.2  # without a request, after which a stopping server closes


class DrainingServer(uvicorn.Server):
    """Stops in two steps: it refuses new requests with 503, answers all others, then closes."""

    def __init__(self, config: uvicorn.Config, state: Any) -> None:  # noqa: ANN401
        super().__init__(config)
        self._state = state  # of the application: engine, gate, jobs
        self._drain_seconds: float = state.config.drain_seconds
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second closes at once."""
        if self._state.engine.is_draining:
            super().handle_exit(sig, frame)
            return
        self._state.engine.is_draining = True
        LOGGER.info("draining after %s", signal.Signals(sig).name)
        self._loop.call_soon_threadsafe(self._start_draining)

    def _start_draining(self) -> None:
        if self._state.jobs is not None:
            self._state.jobs.stop_all()  # they save their state meanwhile
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the end."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def _drain(self) -> None:
        """Wait until all requests are answered, and connections in the backlog were accepted."""
        try:
            async with asyncio.timeout(self._drain_seconds):
                gate = self._state.gate
                while True:
                    await gate.is_idle.wait()
                    before = gate.num_requests
                    await asyncio.sleep(_QUIET_SECONDS)
                    if gate.is_idle.is_set() and gate.num_requests == before:
                        break
        except TimeoutError:
            LOGGER.warning("requests are open after %g seconds", self._drain_seconds)
        self.should_exit = True


def serve_socket(
    sources: dict[str, str],
    config: ServeConfig,
    listening: socket.socket,
    *,
    shared_folder: Path | None = None,
    on_start: Callable[[], object] | None = None,
) -> None:
    """Serve models on a socket until a signal; weights in a shared folder are mapped."""
    store = ModelStore(
        sources, device=config.device, dtype=config.dtype, shared_folder=shared_folder
    )
    set_up_log(config.log_format)
    app = create_app(config, store)
    server = DrainingServer(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=max(1, round(config.drain_seconds)),
            server_header=False,
            date_header=True,
        ),
        app.state,
    )
    if on_start is not None:
        on_start()
    server.run(sockets=[listening])


def _end_with_parent() -> None:
    """Stop when the process that holds the other end of standard input has ended."""
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def run_worker() -> None:
    """Serve on a socket that was inherited; standard input has the settings."""
    given = json.loads(sys.stdin.buffer.readline())
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given["config"].items()
    }
    threading.Thread(target=_end_with_parent, daemon=True).start()
    listening = socket.socket(fileno=given["socket"])
    shared = Path(given["shared_folder"])
    serve_socket(given["sources"], ServeConfig(**settings), listening, shared_folder=shared)


if __name__ == "__main__":
    run_worker()
