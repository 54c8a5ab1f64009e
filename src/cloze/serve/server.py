"""Run the application: address, log, and a stop that loses nothing that was accepted."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from cloze.errors import ConfigError
from cloze.serve.app import create_app
from cloze.serve.config import ServeConfig
from cloze.serve.engine import LOGGER
from cloze.serve.model_store import ModelStore, parse_sources

_BACKLOG = 2048  # connections that wait to be accepted
_QUIET_SECONDS = 0.2  # without a request, after which a stopping server closes


class DrainingServer(uvicorn.Server):
    """Stops in two steps: it refuses new requests with 503, answers all others, then closes."""

    def __init__(self, config: uvicorn.Config, engine: Any, gate: Callable[[], Any]) -> None:  # noqa: ANN401
        super().__init__(config)
        self._engine, self._find_gate = engine, gate
        self._drain_seconds: float = engine.config.drain_seconds
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second closes at once."""
        if self._engine.is_draining:
            super().handle_exit(sig, frame)
            return
        self._engine.is_draining = True
        LOGGER.info('{"event": "draining", "signal": "%s"}', signal.Signals(sig).name)
        loop = self._loop
        loop.call_soon_threadsafe(self._start_draining)

    def _start_draining(self) -> None:
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the end."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def _drain(self) -> None:
        """Wait until all requests are answered, and connections in the backlog were accepted."""
        try:
            async with asyncio.timeout(self._drain_seconds):
                gate = self._find_gate()
                while True:
                    await gate.is_idle.wait()
                    before = gate.num_requests
                    await asyncio.sleep(_QUIET_SECONDS)
                    if gate.is_idle.is_set() and gate.num_requests == before:
                        break
        except TimeoutError:
            LOGGER.warning('{"event": "drain_timeout"}')
        self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; an address that is in use is an error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            fix="choose another --port (0 selects a free one) or --host",
        ) from None
    found.listen(_BACKLOG)
    found.setblocking(False)
    return found


def serve(
    sources: list[str], config: ServeConfig, *, on_start: Callable[[str], object] | None = None
) -> None:
    """Serve models until a signal; `on_start` is called with the address."""
    store = ModelStore(parse_sources(sources), device=config.device, dtype=config.dtype)
    listening = bind(config.host, config.port)
    set_up_log()
    app = create_app(config, store)
    host = f"[{config.host}]" if ":" in config.host else config.host
    address = f"http://{host}:{listening.getsockname()[1]}"
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
        app.state.engine,
        lambda: app.state.gate,
    )
    if on_start is not None:
        on_start(address)
    server.run(sockets=[listening])


def set_up_log() -> None:
    """Log lines of this package on standard error, one line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
