"""Failures as JSON, in the shape that the clients of a route expect."""

import uuid
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from cloze.serve.failures import Failure
from cloze.serve.responses import dump_json

TEI_ROUTES = (
    *("/embed", "/embed_all", "/embed_sparse", "/predict", "/rerank", "/similarity"),
    *("/tokenize", "/info"),
)
_SHOWN_PROBLEMS = 5
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ErrorDetail(BaseModel):
    """What is wrong, and how to fix it."""

    message: str
    type: str
    param: str | None = None
    code: str
    fix: str = ""


class ErrorAnswer(BaseModel):
    """The error of a native or OpenAI route."""

    error: ErrorDetail


class TEIErrorAnswer(BaseModel):
    """The error of a route of text-embeddings-inference."""

    error: str
    error_type: str


class CohereErrorAnswer(BaseModel):
    """The error of a Cohere route."""

    id: str
    message: str


STATUSES = {
    400: "The request is invalid.",
    401: "A key is needed.",
    403: "The request comes from a page of another site.",
    404: "There is no such model.",
    413: "The body or the request is too large.",
    421: "The header Host names another server.",
    429: "The queue is full.",
    503: "A model is being loaded, the deadline has passed, or the server is stopping.",
}


def list_responses(kind: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The failures of a route, for the OpenAPI description."""
    return {status: {"model": kind, "description": text} for status, text in STATUSES.items()}


def render_failure(path: str, failure: Failure) -> dict[str, Any]:
    """The JSON of a failure."""
    message = failure.message + (f" (fix: {failure.fix})" if failure.fix else "")
    if path.startswith("/v2/"):
        return {"id": str(uuid.uuid4()), "message": message}
    if path in TEI_ROUTES:
        return {"error": message, "error_type": failure.code}
    kind = _TYPES.get(failure.status, "server_error" if failure.status >= 500 else None)  # noqa: PLR2004
    detail = {
        "message": message if path.startswith("/v1/") else failure.message,
        "type": kind or "invalid_request_error",
        "param": None,
        "code": failure.code,
        "fix": failure.fix,
    }
    return {"error": detail}


def make_response(path: str, failure: Failure, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request that failed."""
    return Response(
        dump_json(render_failure(path, failure)),
        failure.status,
        {**failure.headers, **(headers or {})},
        "application/json",
    )


def describe_validation(error: RequestValidationError) -> Failure:
    """What is wrong with the fields of a request."""
    problems = [
        f"{'.'.join(str(part) for part in one['loc'] if part != 'body') or 'body'}: {one['msg']}"
        for one in error.errors()[:_SHOWN_PROBLEMS]
    ]
    message = "; ".join(dict.fromkeys(problems))
    return Failure(
        status=400, code="invalid_request", message=message, fix="see /openapi.json for the fields"
    )


def describe_http_exception(error: HTTPException) -> Failure:
    """An error of the framework: unknown route, wrong method, body too large."""
    codes = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
    return Failure(
        status=error.status_code,
        code=codes.get(error.status_code, "invalid_request"),
        message=str(error.detail),
    )
