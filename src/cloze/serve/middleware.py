"""What happens to every request before its route: host, key, limits, log line, metrics."""

import asyncio
import base64
import hashlib
import hmac
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloze.serve.config import ServeConfig
from cloze.serve.engine import Engine
from cloze.serve.errors_http import make_response
from cloze.serve.failures import RequestError, describe_error, refuse
from cloze.serve.log import LOGGER, REQUEST_LOG, make_line

_ALWAYS_ANSWERED = ("/health", "/ready", "/metrics")  # also while the server is stopping
UPLOAD_ROUTE = "/api/finetune/files"  # its bodies have a limit of their own
TIMEOUT_HEADER = "x-timeout-seconds"
_MIN_TIMEOUT = 0.001
_CLOSING = (401, 403, 408, 413, 421)  # statuses after which the connection is closed


class Gate:
    """ASGI middleware; the application is inside."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        config: ServeConfig,
        engine: Engine,
        on_create: Callable[["Gate"], object] = lambda _: None,
    ) -> None:
        self._app, self._config, self._engine = app, config, engine
        self._keys = [hashlib.sha256(key.encode()).digest() for key in config.api_keys]
        self._hosts = {host.lower() for host in config.hosts}
        self.num_open = self.num_requests = 0  # now, and since the start
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        on_create(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        record = _Record(scope, send, self._engine, self._config)
        token = REQUEST_LOG.set(record.log)
        self.num_open += 1
        self.num_requests += 1
        self.is_idle.clear()
        try:
            try:
                self._check(scope, headers)
                record.log["deadline"] = time.monotonic() + self._find_timeout(headers)
            except RequestError as error:
                record.log["values"]["error"] = error.failure.code
                self._engine.metrics.count_failure(error.failure.code)
                extra = _make_challenge(scope["path"], error.failure.status)
                response = make_response(scope["path"], error.failure, extra)
                await response(scope, receive, record.send)
            else:
                limit = self._find_body_limit(scope["path"])
                await self._run(scope, self._count_bytes(headers, receive, limit), record)
        finally:
            self.num_open -= 1
            if not self.num_open:
                self.is_idle.set()
            REQUEST_LOG.reset(token)
            record.finish()

    async def _run(self, scope: Scope, receive: Receive, record: "_Record") -> None:
        """Call the application; an unexpected error is logged and answered."""
        try:
            await self._app(scope, receive, record.send)
        except Exception as error:
            LOGGER.error("a request failed", exc_info=error)
            if record.is_started:  # nothing else can be said
                raise
            failure = describe_error(error)
            record.log["values"]["error"] = failure.code
            self._engine.metrics.count_failure(failure.code)
            await make_response(scope["path"], failure)(scope, receive, record.send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if "*" not in self._hosts and name not in self._hosts:
            raise refuse(
                421, "wrong_host", "the header Host does not name this server",
                fix="use its address, or start it with --allowed-host",
            )  # fmt: skip
        origin = headers.get("origin")
        is_foreign = origin is not None and urlsplit(origin).netloc.lower() != host
        if is_foreign or _is_cross_site(headers):
            raise refuse(
                403, "cross_origin", "requests of pages from other sites are not accepted",
                fix="send the request from the server of that site",
            )  # fmt: skip
        if self._keys and not self._is_key_valid(headers.get("authorization", "")):
            raise refuse(
                401, "invalid_api_key", "the API key is missing or wrong",
                fix="send the header Authorization: Bearer KEY, or on the page the key as password",
            )  # fmt: skip
        if self._engine.is_draining and scope["path"] not in _ALWAYS_ANSWERED:
            raise refuse(
                503, "draining", "the server is stopping", fix="try again later", retry_after=1.0
            )

    def _is_key_valid(self, header: str) -> bool:
        """Compare in constant time, with every key; a browser sends a key as password (Basic)."""
        scheme, _, given = header.partition(" ")
        if scheme.lower() == "basic":
            given = _read_password(given)
        digest = hashlib.sha256(given.strip().encode("utf-8", "replace")).digest()
        matches = [hmac.compare_digest(digest, key) for key in self._keys]
        return any(matches) and scheme.lower() in ("bearer", "basic")

    def _find_timeout(self, headers: Headers) -> float:
        """Seconds until the deadline; a client may ask for fewer than the server's setting."""
        given = headers.get(TIMEOUT_HEADER)
        try:
            wanted = self._config.deadline if given is None else float(given)
        except ValueError:
            wanted = float("nan")
        if not wanted > 0:
            raise refuse(
                400, "invalid_request", f"the header {TIMEOUT_HEADER} is not a positive number",
                fix="use a number of seconds",
            )  # fmt: skip
        return min(max(wanted, _MIN_TIMEOUT), self._config.deadline)

    def _find_body_limit(self, path: str) -> int:
        config = self._config
        return config.max_upload_bytes if path == UPLOAD_ROUTE else config.max_body_bytes

    def _count_bytes(self, headers: Headers, receive: Receive, limit: int) -> Receive:
        """Receive a body up to the limit; a larger one is refused as soon as that is known."""
        received = 0
        log = REQUEST_LOG.get()
        assert log is not None

        def refuse_body() -> HTTPException:
            return HTTPException(413, f"the body has more than {limit:,} bytes")

        async def count() -> Message:
            nonlocal received
            declared = headers.get("content-length", "0")
            if declared.isdigit() and int(declared) > limit:
                raise refuse_body()
            if received < 0:  # the body is complete: wait until the client leaves
                return await receive()
            try:
                async with asyncio.timeout(max(0.0, log["deadline"] - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "the body did not arrive in time") from None
            received += len(message.get("body", b""))
            if received > limit:
                raise refuse_body()
            if not message.get("more_body", False):
                received = -1
            return message

        return count


def is_page(path: str) -> bool:
    """Whether a path belongs to the pages for browsers."""
    return path in ("/", "/docs") or path.startswith("/page/")


def _make_challenge(path: str, status: int) -> dict[str, str]:
    """How to send a key: of a page, a browser asks for it and keeps it until it is closed."""
    if status != 401:  # noqa: PLR2004
        return {}
    basic = 'Basic realm="cloze: the password is an API key", charset="UTF-8"'
    return {"WWW-Authenticate": basic if is_page(path) else "Bearer"}


def _is_cross_site(headers: Headers) -> bool:
    """Whether a page of another site loads something, which a browser may send a key with."""
    site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
    return site == "cross-site" and mode != "navigate"


def _read_password(encoded: str) -> str:
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except ValueError:
        return ""
    return text.partition(":")[2]


class _Record:
    """What is logged and measured of one request."""

    def __init__(self, scope: Scope, send: Send, engine: Engine, config: ServeConfig) -> None:
        self._scope, self._send, self._engine = scope, send, engine
        self._format = config.log_format
        self._since, self._status, self._id = time.perf_counter(), 500, uuid.uuid4().hex
        self.is_started = False  # whether an answer is being sent
        self.log: dict[str, Any] = {
            "deadline": time.monotonic() + config.deadline,
            "values": {},
        }

    async def send(self, message: Message) -> None:
        """Add headers to the answer."""
        if message["type"] == "http.response.start":
            self._status, self.is_started = message["status"], True
            extra = [
                (b"x-request-id", self._id.encode()),
                (b"x-content-type-options", b"nosniff"),
            ]
            if self._status in _CLOSING or self._engine.is_draining:
                extra.append((b"connection", b"close"))
            message = {**message, "headers": [*message["headers"], *extra]}
        await self._send(message)

    def finish(self) -> None:
        """Measure the request and write its log line."""
        seconds = time.perf_counter() - self._since
        self._engine.metrics.observe_request(_find_route(self._scope), self._status, seconds)
        if self._format == "none":
            return
        values = {
            "request": self._id,
            "method": self._scope["method"],
            "path": self._scope["path"],
            "status": self._status,
            "seconds": round(seconds, 6),
            **self.log["values"],
        }
        LOGGER.info(make_line(values, as_json=self._format == "json"))


def _find_route(scope: Scope) -> str:
    """The pattern of the route, so that unknown paths are one label."""
    route = scope.get("route")
    return str(getattr(route, "path", "other"))
