"""Fine-tuning over HTTP: upload rows, start a job, watch it; its model can be used by its name."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from cloze.checkpoint.atomic import is_disk_full
from cloze.files import temporary_sibling
from cloze.serve.engine import Engine
from cloze.serve.errors_http import ErrorAnswer, list_responses, render_failure
from cloze.serve.failures import describe_error, refuse
from cloze.serve.finetune_jobs import FORMATS, FinetuneJob, JobStore
from cloze.serve.middleware import UPLOAD_ROUTE
from cloze.serve.responses import EventStream

_CHUNK_BYTES = 1 << 20
_POLL_SECONDS = 0.3  # between two looks at the files of a job
_TYPES = {
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/json": "json",
}
_SHOWN = ("step", "fraction", "tokens", "seconds", "loss", "lr")
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Column = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=1, lt=1 << 30)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class FinetuneOptions(BaseModel):
    """Options of `cloze finetune`, with its names and defaults."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    epochs: Annotated[float, Field(gt=0, le=10_000)] | None = None
    steps: Count | None = None
    minutes: Annotated[float, Field(gt=0, le=100_000)] | None = None
    lr: Annotated[float, Field(gt=0, le=1000)] | None = None
    batch_size: Count | None = None
    weight_decay: Annotated[float, Field(ge=0, le=1000)] | None = None
    warmup: Fraction | None = None
    schedule: Literal["linear", "cosine", "constant", "inverse-sqrt"] | None = None
    patience: Count | None = None
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] | None = None
    transfer: Annotated[str, Field(pattern=r"^(full|head|last-\d{1,3})$")] | None = None
    class_weights: Literal["none", "balanced"] | None = None
    label_smoothing: Fraction | None = None
    max_length: Count | None = None
    truncation: Literal["head", "tail", "head+tail", "window"] | None = None
    text_column: Column | None = None
    pair_column: Column | None = None
    label_column: Column | None = None
    label_delimiter: Column | None = None
    tag_column: Column | None = None
    target_column: Column | None = None
    skip_bad: bool | None = None


class FinetuneRequest(BaseModel):
    """A job: a task, a model to start from, and files that were uploaded."""

    model_config = ConfigDict(extra="forbid")
    task: Literal["classify", "tag", "answer", "choose", "embed", "translate", "summarize"]
    model: str = Field(description="Name of a model of the server to start from.")
    train: str = Field(description="Id of a file with training data.")
    dev: str | None = Field(None, description="Id of a file with dev data. Default: a tenth.")
    name: Name | None = Field(None, description="Name of the new model. Default: made up.")
    options: FinetuneOptions = FinetuneOptions()


class UploadedFile(BaseModel):
    """A file with rows."""

    id: str
    format: str
    bytes: int
    created_at: float


class JobError(BaseModel):
    """Why a job failed."""

    message: str
    fix: str


class JobAnswer(BaseModel):
    """A job, how far it is, and its result."""

    id: str
    name: str
    task: str
    model: str
    train: str
    dev: str | None
    options: dict[str, Any]
    status: Literal[
        "queued", "running", "cancelling", "succeeded", "failed", "cancelled", "interrupted",
        "deleted",
    ]  # fmt: skip
    created_at: float
    started_at: float | None
    progress: dict[str, Any]
    scores: dict[str, Any]
    result: dict[str, Any] | None
    error: JobError | None


_DESCRIPTIONS = {409: "The state of the job, or another name, does not allow it."}


def add_routes(app: FastAPI, engine: Engine, jobs: JobStore) -> None:
    """Add the routes to the application."""
    failures = list_responses(ErrorAnswer)
    failures[409] = {"model": ErrorAnswer, "description": _DESCRIPTIONS[409]}
    options: dict[str, Any] = {"tags": ["fine-tuning"], "responses": failures}
    _add_file_routes(app, jobs, options)
    _add_job_routes(app, engine, jobs, options)

    @app.get(
        "/api/finetune/{job}/events",
        tags=["fine-tuning"],
        responses={
            **failures,
            200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
        },
        response_class=Response,
    )
    async def finetune_events(request: Request, job: str) -> Response:
        """Rows of metrics.jsonl as server-sent events while the job runs, then the job."""
        await run_in_threadpool(jobs.find_job, job)
        return EventStream(
            _follow(engine, jobs, job),
            _do_nothing,
            lambda error: render_failure(request.url.path, describe_error(error)),
        )


def _add_file_routes(app: FastAPI, jobs: JobStore, options: dict[str, Any]) -> None:
    kinds = ("application/jsonl", "text/csv", "text/tab-separated-values", "text/plain")
    content = {kind: {"schema": {"type": "string"}} for kind in kinds}
    body = {"requestBody": {"required": True, "content": content}}

    @app.post(UPLOAD_ROUTE, status_code=201, openapi_extra=body, **options)
    async def upload_rows(
        request: Request,
        format: Literal["jsonl", "csv", "tsv", "conll", "json"] | None = None,
    ) -> UploadedFile:
        """Upload labelled rows as the body: JSON lines, a table, CoNLL columns or SQuAD's JSON.

        The format is that of the parameter, else by the header Content-Type, else JSON lines.
        """
        declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        chosen = format or _TYPES.get(declared, "jsonl")
        _, path = await run_in_threadpool(jobs.new_file, chosen)
        await _store_body(request, path)
        return _describe_file(path)

    @app.get(UPLOAD_ROUTE, **options)
    async def list_uploaded_files() -> list[UploadedFile]:
        """The files that were uploaded."""
        found = await run_in_threadpool(jobs.list_files)
        return [_describe_file(path) for path in found.values()]

    @app.delete(UPLOAD_ROUTE + "/{file}", **options)
    async def delete_uploaded_file(file: str) -> UploadedFile:
        """Delete a file that no job needs any more."""
        path = await run_in_threadpool(jobs.find_file, file)
        described = _describe_file(path)
        await run_in_threadpool(jobs.remove_file, file)
        return described


def _add_job_routes(app: FastAPI, engine: Engine, jobs: JobStore, options: dict[str, Any]) -> None:
    @app.post("/api/finetune", status_code=201, **options)
    async def create_finetune_job(body: FinetuneRequest) -> JobAnswer:
        """Start to fine-tune a model, or wait until other jobs have ended."""
        return await run_in_threadpool(_create_job, engine, jobs, body)

    @app.get("/api/finetune", **options)
    async def list_finetune_jobs() -> list[JobAnswer]:
        """All jobs, the oldest first."""
        return await run_in_threadpool(
            lambda: [_describe_job(jobs, job) for job in jobs.list_jobs()]
        )

    @app.get("/api/finetune/{job}", **options)
    async def get_finetune_job(job: str) -> JobAnswer:
        """A job, with its progress."""
        return await run_in_threadpool(lambda: _describe_job(jobs, jobs.find_job(job)))

    @app.delete("/api/finetune/{job}", **options)
    async def delete_finetune_job(job: str) -> JobAnswer:
        """Cancel a job that waits or runs; remove one that has ended, with its model."""
        found = await run_in_threadpool(_remove_job, jobs, job)
        engine.store.refresh()
        return found

    @app.post("/api/finetune/{job}/resume", **options)
    async def resume_finetune_job(job: str) -> JobAnswer:
        """Continue a job that was interrupted, cancelled or failed, from its last saved state."""
        return await run_in_threadpool(lambda: _describe_job(jobs, jobs.resume(job)))


def _create_job(engine: Engine, jobs: JobStore, body: FinetuneRequest) -> JobAnswer:
    served = engine.store.find(body.model, "")
    for file in (body.train, body.dev):
        if file is not None:
            jobs.find_file(file)
    name, source = uuid.uuid4().hex[:16], Path(served.source)
    job = FinetuneJob(
        id=name,
        name=body.name or f"{served.name}-{body.task}-{name}",
        task=body.task,
        model=served.name,
        source=str(source.absolute()) if source.exists() else served.source,
        train=body.train,
        dev=body.dev,
        options=body.options.model_dump(exclude_none=True),
        created_at=time.time(),
    )
    return _describe_job(jobs, jobs.create(job, list(engine.store.models)))


def _remove_job(jobs: JobStore, name: str) -> JobAnswer:
    before = _describe_job(jobs, jobs.find_job(name))
    left = jobs.cancel(name)
    if left is None:
        return before.model_copy(update={"status": "deleted"})
    return _describe_job(jobs, left)


async def _store_body(request: Request, path: Path) -> None:
    """Write the body to a file while it arrives; an empty one is an error."""
    try:
        with temporary_sibling(path) as work:
            size = 0
            with work.open("wb") as file:
                async for chunk in request.stream():
                    size += len(chunk)
                    if len(chunk) > _CHUNK_BYTES:
                        await run_in_threadpool(file.write, chunk)
                    else:
                        file.write(chunk)
            if not size:
                raise refuse(400, "invalid_input", "the body is empty", fix="send rows")
            work.replace(path)
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise refuse(
            503, "disk_full", "the disk of the server is full", fix="delete files and jobs",
            retry_after=60.0,
        ) from None  # fmt: skip


def _describe_file(path: Path) -> UploadedFile:
    found = path.stat()
    formats = {ending: name for name, ending in FORMATS.items()}
    return UploadedFile(
        id=path.stem, format=formats[path.suffix], bytes=found.st_size, created_at=found.st_mtime
    )


def _describe_job(jobs: JobStore, job: FinetuneJob) -> JobAnswer:
    status = jobs.find_status(job)
    if status == "queued":
        jobs.start_waiting()
        job = jobs.find_job(job.id)
        status = jobs.find_status(job)
    rows = jobs.read_metrics(job)
    steps = [row for row in rows if row.get("kind") == "train"]
    scores = [row for row in rows if row.get("kind") == "eval"]
    result = jobs.read_result(job) if status == "succeeded" else None
    if result is not None:
        result.pop("folder", None)
    error = jobs.read_error(job) if status == "failed" else None
    return JobAnswer(
        id=job.id,
        name=job.name,
        task=job.task,
        model=job.model,
        train=job.train,
        dev=job.dev,
        options=dict(job.options),
        status=status,  # type: ignore[arg-type]
        created_at=job.created_at,
        started_at=job.started_at,
        progress={name: steps[-1][name] for name in _SHOWN if name in steps[-1]} if steps else {},
        scores={k: v for k, v in scores[-1].items() if k != "kind"} if scores else {},
        result=result,
        error=None if error is None else JobError(**error),
    )


async def _follow(engine: Engine, jobs: JobStore, name: str) -> AsyncIterator[dict[str, Any]]:
    """Rows that are new, until the job or the server ends."""
    sent: set[tuple[Any, Any]] = set()
    while True:
        job = await run_in_threadpool(jobs.find_job, name)
        found = await run_in_threadpool(_describe_job, jobs, job)
        for row in await run_in_threadpool(jobs.read_metrics, job):
            key = (row.get("kind"), row.get("step"))
            if key not in sent:
                sent.add(key)
                yield row
        if found.status not in ("queued", "running", "cancelling") or engine.is_draining:
            yield {"job": found.model_dump()}
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _do_nothing() -> None:
    """The stream has nothing to close."""
