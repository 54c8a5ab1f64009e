"""Why a request fails: the HTTP status, a code, a message and how to fix it."""

from dataclasses import dataclass

from cloze.errors import ClozeError, FolderError


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What is told to the client."""

    status: int
    code: str  # one of a few words, also the label of the metric
    message: str
    fix: str = ""
    retry_after: float | None = None  # seconds

    @property
    def headers(self) -> dict[str, str]:
        """Retry-After, in seconds and in milliseconds as OpenAI's client reads it."""
        if self.retry_after is None:
            return {}
        milliseconds = max(1, round(1000 * self.retry_after))
        return {
            "Retry-After": str(max(1, -(-milliseconds // 1000))),
            "retry-after-ms": str(milliseconds),
        }


class RequestError(Exception):
    """A request is refused."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def refuse(
    status: int, code: str, message: str, *, fix: str = "", retry_after: float | None = None
) -> RequestError:
    """The error of a request that is refused."""
    return RequestError(
        Failure(status=status, code=code, message=message, fix=fix, retry_after=retry_after)
    )


def describe_error(error: BaseException) -> Failure:
    """An exception as a failure; an unexpected one is internal, and its text is not shown."""
    if isinstance(error, RequestError):
        return error.failure
    if isinstance(error, FolderError):
        return Failure(
            status=503, code="model_unavailable", message=error.problem, fix=error.fix,
            retry_after=30.0,
        )  # fmt: skip
    if isinstance(error, ClozeError):
        return Failure(status=400, code="invalid_input", message=error.problem, fix=error.fix)
    return Failure(status=500, code="internal", message="the server failed to compute a result")
