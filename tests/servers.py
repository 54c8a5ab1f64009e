"""Servers for tests: real HTTP, in a thread of this process, or the command."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

import cloze
from cloze.serve.app import create_app
from cloze.serve.config import ServeConfig
from cloze.serve.model_store import ModelStore

Models = dict[str, Any]
SOURCE = Path(cloze.__file__).parents[1]


@dataclass(frozen=True)
class TestServer:
    """Its address, a client, and what is inside."""

    url: str
    client: httpx.Client
    app: Any
    __test__ = False

    @property
    def engine(self):
        return self.app.state.engine

    def post(self, path, json=None, **options):
        return self.client.post(path, json=json, **options)


@contextmanager
def run_server(
    sources: dict[str, str], *, load_model=None, ready: bool = True, **settings
) -> Iterator[TestServer]:
    """Serve model folders; `settings` are those of `ServeConfig`."""
    config = ServeConfig(**{"log_format": "none", "device": "cpu", **settings})
    store = ModelStore(
        {name: str(path) for name, path in sources.items()}, device="cpu", load_model=load_model
    )
    app = create_app(config, store)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    headers = {"Authorization": f"Bearer {config.api_keys[0]}"} if config.api_keys else {}
    client = httpx.Client(base_url=url, headers=headers, timeout=60)
    try:
        while not server.started or (ready and client.get("/ready").status_code != 200):
            time.sleep(0.005)
            assert thread.is_alive()
        yield TestServer(url, client, app)
    finally:
        client.close()
        server.should_exit = True
        thread.join(20)
        listening.close()


@contextmanager
def run_command(*arguments, env=None):
    """`cloze serve` as a process; yields it and its address."""
    command = [sys.executable, "-m", "cloze", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)} | (env or {}),
    )  # fmt: skip
    try:
        line = process.stderr.readline()
        (url,) = re.findall(r"http://[\d.:]+", line) or [line]
        yield process, url
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def list_children(pid):
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def count_requests(text):
    found = re.findall(r'cloze_request_seconds_count\{route="/api/fill",status="200"\} (.*)', text)
    return sum(map(float, found))
