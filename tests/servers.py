"""A server for tests: real HTTP, in a thread of this process."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from cloze.serve.app import create_app
from cloze.serve.config import ServeConfig
from cloze.serve.model_store import ModelStore

Models = dict[str, Any]


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
