"""The pages for browsers: `/`, `/docs`, and their files under `/page/`.

There is no build step, and nothing is loaded from elsewhere. The content security policy allows
scripts and styles of this server only, and, in the frame of an explain view, those of `cloze.plot`
by their hashes. Text never becomes HTML: Trusted Types make a browser refuse that, except for the
document of a view, which is shown in a frame of its own.
"""

import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cloze.plot.page import csp_hash, load_page_style
from cloze.plot.svg import load_asset

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_HEADERS = {
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@cache
def load_files() -> dict[str, bytes]:
    """The files of the pages, by their path under `/page/`."""
    found = dict(_list_files(resources.files("cloze.serve") / "page", ""))
    return {**found, "plot.css": load_page_style().encode()}


def _list_files(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _list_files(one, f"{prefix}{one.name}/")
        elif one.name.rpartition(".")[2] in _TYPES:
            found.append((prefix + one.name, one.read_bytes()))
    return found


@cache
def make_policy() -> str:
    """The content security policy of the pages."""
    folder = resources.files("cloze.plot") / "scripts"
    names = sorted(one.name for one in folder.iterdir())
    scripts = [load_asset("page.js")]
    scripts += [load_asset(f"scripts/{name}") for name in names if name.endswith(".js")]
    styles = [load_page_style()]
    styles += [load_asset(f"scripts/{name}") for name in names if name.endswith(".css")]
    return "; ".join(
        (
            "default-src 'self'",
            "img-src 'self' data:",  # pictures of `draw`
            f"script-src 'self' {' '.join(map(csp_hash, scripts))}",
            f"style-src 'self' {' '.join(map(csp_hash, styles))}",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types cloze-view",
        )
    )


def add_routes(app: FastAPI) -> None:
    """Add the pages; they are no part of the OpenAPI description."""

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return _respond(request, "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return _respond(request, "docs.html")

    @app.get("/page/settings.json", include_in_schema=False)
    async def settings() -> dict[str, bool]:
        return {"needs_key": bool(app.state.config.api_keys)}

    @app.get("/page/{path:path}", include_in_schema=False)
    async def file(request: Request, path: str) -> Response:
        return _respond(request, path)


def _respond(request: Request, path: str) -> Response:
    content = load_files().get(path)
    if content is None:
        raise HTTPException(404, "Not Found")
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**_HEADERS, "ETag": etag, "Content-Security-Policy": make_policy()}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers={**headers, "Content-Type": _TYPES[path.rpartition(".")[2]]})
