"""Answers: JSON, server-sent events, and work that ends when the client leaves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

T = TypeVar("T")
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def dump_json(value: object) -> bytes:
    """JSON; NaN and infinity are null, and a lone surrogate is U+FFFD."""
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        return orjson.dumps(_replace_surrogates(value), option=_OPTIONS)


def _replace_surrogates(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_surrogates(one) for one in value]
    return value


def make_json(content: bytes) -> Response:
    """An answer with JSON that is already written."""
    return Response(content, media_type="application/json")


async def run_until_disconnect(request: Request, work: Awaitable[T]) -> T:
    """The result of the work, which is cancelled if the client leaves."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        watcher.cancel()
        task.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """Server-sent events: `data: JSON`, ended by `data: [DONE]`; an error is an event, too."""

    def __init__(
        self,
        events: AsyncIterator[Any],
        close: Callable[[], Awaitable[None]],
        describe: Callable[[BaseException], dict[str, Any]],
    ) -> None:
        super().__init__(
            self._write(events, describe),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._close = close

    @staticmethod
    async def _write(
        events: AsyncIterator[Any], describe: Callable[[BaseException], dict[str, Any]]
    ) -> AsyncIterator[bytes]:
        try:
            async for event in events:
                yield b"data: " + dump_json(event) + b"\n\n"
        except Exception as error:
            yield b"data: " + dump_json(describe(error)) + b"\n\n"
        yield b"data: [DONE]\n\n"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._close()
