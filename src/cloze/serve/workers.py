"""Start a server: check the models, listen, then serve in this process or in several workers.

Workers are processes that accept connections from one socket. They map the same weight files into
memory, and the CPU cores are divided among them. This process only watches them: it passes signals
on, starts a worker again that has ended, and imports no torch.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType

from cloze.errors import ClozeError, ConfigError
from cloze.serve.config import WORKERS_VARIABLE, ServeConfig
from cloze.serve.log import LOGGER, set_up_log
from cloze.serve.model_store import ModelStore, parse_sources

_BACKLOG = 2048  # connections that wait to be accepted
_START_SECONDS = 10.0  # a worker that ends earlier did not start
_MAX_FAILED_STARTS = 3
_RESTART_SECONDS = 1.0


def serve(
    sources: list[str], config: ServeConfig, *, on_start: Callable[[str], object] | None = None
) -> None:
    """Serve models until a signal; `on_start` is called with the address."""
    found = parse_sources(sources)
    ModelStore(found).close()  # errors of folders
    listening = bind(config.host, config.port)
    host = f"[{config.host}]" if ":" in config.host else config.host
    address = f"http://{host}:{listening.getsockname()[1]}"

    def announce() -> None:
        if on_start is not None:
            on_start(address)

    if config.workers > 1:
        set_up_log(config.log_format)
        announce()
        with tempfile.TemporaryDirectory(prefix="cloze-serve-") as folder:
            _Supervisor(found, config, listening, Path(folder)).run()
        return
    from cloze.serve.server import serve_socket

    serve_socket(found, config, listening, on_start=announce)


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


@dataclass(eq=False)
class _Worker:
    """A process, and when it was started."""

    process: "subprocess.Popen[bytes]"
    since: float


class _Supervisor:
    """Keeps a number of workers running, until a signal."""

    def __init__(
        self, sources: dict[str, str], config: ServeConfig, listening: socket.socket, folder: Path
    ) -> None:
        self._sources, self._listening = sources, listening
        self._metrics, self._weights = folder / "metrics", folder / "weights"
        for one in (self._metrics, self._weights):
            one.mkdir()
        self._count = config.workers
        # the limit is that of the server
        tokens = max(1, config.max_queue_tokens // config.workers)
        self._config = replace(config, workers=1, max_queue_tokens=tokens)
        self._workers: list[_Worker] = []
        self._num_signals = self._failed_starts = 0

    def run(self) -> None:
        """Start the workers and wait until they have ended."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle_signal)
        for _ in range(self._count):
            self._start()
        while self._workers:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            for worker in [one for one in self._workers if one.process.poll() is not None]:
                self._handle_end(worker)
        if self._failed_starts >= _MAX_FAILED_STARTS:
            raise ClozeError(
                "the worker processes end as soon as they are started",
                fix="see the log lines above, or try it without --workers",
            )

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "cloze.serve.server"],
            stdin=subprocess.PIPE,
            env=os.environ | divide_threads(self._count) | {WORKERS_VARIABLE: str(self._metrics)},
            pass_fds=(self._listening.fileno(),),
            process_group=0,  # Ctrl-C in the terminal is for this process, which passes it on
        )
        assert process.stdin is not None
        settings = {
            "config": asdict(self._config),
            "sources": self._sources,
            "socket": self._listening.fileno(),
            "shared_folder": str(self._weights),
        }
        # it stays open: the worker ends when this process does
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()
        self._workers.append(_Worker(process, time.monotonic()))

    def _handle_end(self, worker: _Worker) -> None:
        from prometheus_client.multiprocess import mark_process_dead

        self._workers.remove(worker)
        mark_process_dead(worker.process.pid, str(self._metrics))  # type: ignore[no-untyped-call]
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        if self._num_signals:
            return
        LOGGER.error("a worker ended with status %d", worker.process.returncode)
        is_failed_start = time.monotonic() - worker.since < _START_SECONDS
        self._failed_starts = self._failed_starts + 1 if is_failed_start else 0
        if self._failed_starts >= _MAX_FAILED_STARTS:
            self._handle_signal(signal.SIGTERM, None)
            return
        time.sleep(_RESTART_SECONDS)
        if not self._num_signals:
            self._start()

    def _handle_signal(self, _: int, __: FrameType | None) -> None:
        """The first signal drains the workers, the second ends them at once."""
        self._num_signals += 1
        kind = signal.SIGTERM if self._num_signals <= 2 else signal.SIGKILL  # noqa: PLR2004
        for worker in self._workers:
            if worker.process.poll() is None:
                worker.process.send_signal(kind)


def divide_threads(workers: int) -> dict[str, str]:
    """Environment variables with the number of CPU threads of each worker."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = str(max(1, (cores or 1) // workers))
    return {name: os.environ.get(name, threads) for name in names}
