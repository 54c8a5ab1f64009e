"""A small HTTP client for load tests: keep-alive connections, and little CPU time per request.

The clients of libraries need about as much CPU time for a request as the server for a text, on the
same two cores.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_LIMIT = 1 << 26


@dataclass
class Load:
    """What a load test measured."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)  # of requests with status 200, in seconds
    statuses: dict[int, int] = field(default_factory=dict)
    refused: list[float] = field(default_factory=list)  # seconds until a 429 or 503
    texts: int = 0  # that were computed

    @property
    def rate(self) -> float:
        """Texts per second."""
        return self.texts / self.seconds if self.seconds else 0.0

    def quantile(self, q: float) -> float:
        """Milliseconds in which this fraction of the requests is answered."""
        found = sorted(self.latencies)
        return 1000 * found[min(len(found) - 1, int(q * len(found)))] if found else float("nan")


def make_request(path: str, body: object, host: str) -> bytes:
    """A request as bytes."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def _send(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, bytes]:
    """The status and the body of the answer."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    body = await reader.readexactly(size)
    return int(head[9:12]), body


async def _run(
    host: str, requests: Iterator[tuple[bytes, int]], connections: int, load: Load
) -> None:
    name, _, port = host.rpartition(":")

    async def work() -> None:
        reader, writer = await asyncio.open_connection(name, int(port), limit=_LIMIT)
        for request, texts in requests:
            since = time.perf_counter()
            try:
                status, _ = await _send(reader, writer, request)
            except (ConnectionError, asyncio.IncompleteReadError):
                status = 0
            seconds = time.perf_counter() - since
            load.statuses[status] = load.statuses.get(status, 0) + 1
            if status == 200:
                load.latencies.append(seconds)
                load.texts += texts
            elif status in (429, 503):
                load.refused.append(seconds)
                await asyncio.sleep(0.05)  # less than Retry-After says
            if status == 0:
                writer.close()
                reader, writer = await asyncio.open_connection(name, int(port), limit=_LIMIT)
        writer.close()

    since = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    load.seconds = time.perf_counter() - since


def run_load(
    host: str,
    requests: Sequence[tuple[bytes, int]],
    *,
    connections: int,
    seconds: float | None = None,
) -> Load:
    """Send requests over a number of connections, each the next one as soon as it has its answer.

    Args:
        host: address and port.
        requests: bytes of requests and their numbers of texts.
        connections: number of connections.
        seconds: repeat the requests for so long; None sends each once.
    """

    def repeat() -> Iterator[tuple[bytes, int]]:
        end = float("inf") if seconds is None else time.perf_counter() + seconds
        while True:
            for one in requests:
                if time.perf_counter() > end:
                    return
                yield one
            if seconds is None:
                return

    load = Load()
    asyncio.run(_run(host, repeat(), connections, load))
    return load
