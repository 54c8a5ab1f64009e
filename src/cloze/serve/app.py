"""The application: routes of every function, adapters, health, metrics and the description."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from cloze import __version__
from cloze.errors import ClozeError
from cloze.models.capabilities import describe_needed_model
from cloze.serve import (
    cohere_routes,
    explain_routes,
    openai_routes,
    page_routes,
    search_routes,
    tei_routes,
)
from cloze.serve.config import ServeConfig
from cloze.serve.engine import Engine, Outcome
from cloze.serve.errors_http import (
    ErrorAnswer,
    describe_http_exception,
    describe_validation,
    list_responses,
    make_response,
    render_failure,
)
from cloze.serve.failures import RequestError, describe_error
from cloze.serve.functions import FUNCTIONS, Function, make_result_schema, make_schema
from cloze.serve.log import LOGGER, log_request
from cloze.serve.metrics import CONTENT_TYPE
from cloze.serve.middleware import Gate
from cloze.serve.model_store import ModelStore, ServedModel
from cloze.serve.responses import EventStream, dump_json, make_json, run_until_disconnect
from cloze.serve.streams import WorkStream
from cloze.tasks.explain.views import VIEWS

if TYPE_CHECKING:
    from cloze.serve.finetune_jobs import JobStore

_CLIENT_LEFT = 499  # as nginx logs it; nobody reads the answer


class Status(BaseModel):
    """Whether the server is alive or ready."""

    status: str


class ModelDescription(BaseModel):
    """A model of the server."""

    name: str
    family: str
    description: str  # of the family
    functions: dict[str, str]  # that it supports, each with what it returns
    unsupported: dict[str, str]  # other functions, each with the model that it needs
    views: dict[str, str]  # of `/api/explain` that apply, each with what it shows
    unsupported_views: dict[str, str]  # other views, each with what the model lacks
    mask_token: str | None  # that `fill` predicts words for
    reads_images: bool  # whether `embed` and `classify` read images
    indexes: list[str]  # that `/api/search` searches with it
    is_loaded: bool


def create_app(config: ServeConfig, store: ModelStore) -> FastAPI:
    """The application with its engine, which is started and closed with it."""
    engine = Engine(config, store)
    jobs = _open_jobs(config, store)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.batcher.start()
        names = list(store.models) if config.preload else list(store.models)[:1]
        preloading = [engine.preload(name) for name in names]
        if jobs is not None:
            await run_in_threadpool(jobs.start_waiting)
        try:
            yield
        finally:
            for task in preloading:
                task.cancel()
            if jobs is not None:
                await run_in_threadpool(jobs.close)
            engine.close()

    app = FastAPI(
        title="cloze",
        version=__version__,
        description="Inference with BERT and related models; JSON is that of `to_dict()`.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.engine, app.state.config, app.state.jobs = engine, config, jobs
    app.add_middleware(
        Gate,
        config=config,
        engine=engine,
        on_create=lambda gate: setattr(app.state, "gate", gate),
    )
    _add_error_handlers(app, engine)
    _add_status_routes(app, engine)
    for function in FUNCTIONS.values():
        _add_function(app, engine, function)
    for adapter in (explain_routes, openai_routes, tei_routes, cohere_routes):
        adapter.add_routes(app, engine)
    search_routes.add_routes(app, engine, config)
    if jobs is not None:
        from cloze.serve import finetune_routes

        finetune_routes.add_routes(app, engine, jobs)
    page_routes.add_routes(app)
    _describe_keys(app, config)
    return app


def _open_jobs(config: ServeConfig, store: ModelStore) -> "JobStore | None":
    """The fine-tuning jobs of the server, whose models it serves, too."""
    if config.finetuning_folder is None:
        return None
    from cloze.serve.finetune_jobs import JobStore  # it needs the file locks of Unix

    jobs = JobStore(
        Path(config.finetuning_folder),
        max_running=config.max_finetuning_jobs,
        device=config.device,
    )
    store.list_others = jobs.list_models
    store.refresh()
    return jobs


def _add_function(app: FastAPI, engine: Engine, function: Function) -> None:
    schema = make_schema(function.name)

    async def endpoint(request: Request, body: Any) -> Response:  # noqa: ANN401
        values = body.model_dump(exclude_unset=True)
        if values.get("stream"):
            stream = await engine.stream(function.name, values, model=body.model)
            events = write_steps(engine, stream) if function.name == "draw" else write_text(stream)
            return EventStream(
                events,
                stream.aclose,
                lambda error: render_failure(request.url.path, describe_error(error)),
            )
        work = engine.call(function.name, values, model=body.model)
        outcome = await run_until_disconnect(request, work)
        if outcome.is_single:
            outcome.raise_first()
        rendered = await engine.render(
            lambda: _render(function, outcome, values), len(outcome.results)
        )
        return make_json(rendered)

    endpoint.__annotations__["body"] = schema
    app.add_api_route(
        f"/api/{function.name}",
        endpoint,
        methods=["POST"],
        tags=["functions"],
        name=function.name,
        summary=function.help.partition("\n")[0],
        description=function.help,
        responses={
            **list_responses(ErrorAnswer),
            200: {"model": make_result_schema(function.name), "description": "The result."},
        },
        response_class=Response,
    )


def _render(function: Function, outcome: Outcome, values: dict[str, Any]) -> Any:  # noqa: ANN401
    """The object of a single input, or the list of several; some may be errors."""
    if outcome.is_single:
        return outcome.results[0].to_dict()
    inputs, _ = function.split(values)
    return [
        _render_failed(function, given, found)
        if isinstance(found, BaseException)
        else found.to_dict()
        for given, found in zip(inputs, outcome.results, strict=True)
    ]


def _render_failed(
    function: Function, given: tuple[Any, ...], error: BaseException
) -> dict[str, Any]:
    failure = describe_error(error)
    _log_internal(error)
    named = dict(zip(function.inputs, given, strict=True))
    image = named.pop("image", None)
    inputs = {function.echo.get(name, name): value for name, value in named.items()}
    if image is not None:
        inputs = {"image": image.name}
    return {**inputs, "error": failure.message}


async def write_text(stream: WorkStream) -> AsyncIterator[dict[str, Any]]:
    """Chunks of a continuation, then the result."""
    async for number, text, _ in stream:
        if text:
            yield {"index": number, "text": text}
    yield {"result": stream.value.to_dict()}


async def write_steps(engine: Engine, stream: WorkStream) -> AsyncIterator[dict[str, Any]]:
    """The images after each step, then the result."""
    async for (step,) in stream:
        yield await engine.run_on_thread(partial(stream.value.describe_step, step))
    (result,) = stream.value.make_results()
    yield {"result": await engine.run_on_thread(result.to_dict)}


def _add_status_routes(app: FastAPI, engine: Engine) -> None:
    failures = list_responses(ErrorAnswer)
    store = engine.store

    @app.get("/health", tags=["status"], responses=failures)
    async def health() -> Status:
        """Whether the server is alive."""
        return Status(status="ok")

    @app.get("/ready", tags=["status"], responses=failures | {503: {"model": Status}})
    async def ready() -> Response:
        """Whether the server accepts requests: not while a model is loaded at the start."""
        status = "ready"
        if engine.is_draining:
            status = "draining"
        elif engine.is_preloading:
            status = "loading"
        return Response(
            dump_json({"status": status}),
            200 if status == "ready" else 503,
            {} if status == "ready" else {"Retry-After": "1", "retry-after-ms": "1000"},
            "application/json",
        )

    @app.get(
        "/metrics",
        tags=["status"],
        responses={**failures, 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        response_class=Response,
    )
    async def metrics() -> Response:
        """Metrics in the text format of Prometheus."""
        return Response(engine.metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    @app.get("/api/models", tags=["status"], responses=failures)
    async def models() -> list[ModelDescription]:
        """The models and the functions that each supports."""
        store.refresh()
        return [describe_served_model(one) for one in store.models.values()]


def describe_served_model(served: ServedModel) -> ModelDescription:
    """What a model does, and what it does not."""
    views = {name: served.view_obstacles[name] for name in explain_routes.list_served_views()}
    return ModelDescription(
        name=served.name,
        family=served.family,
        description=served.description,
        functions={
            name: served.capabilities[name] for name in FUNCTIONS if name in served.capabilities
        },
        unsupported={
            name: describe_needed_model(name)
            for name in FUNCTIONS
            if name not in served.capabilities
        },
        views={name: VIEWS[name].help for name, obstacle in views.items() if not obstacle},
        unsupported_views={name: obstacle for name, obstacle in views.items() if obstacle},
        mask_token=served.mask_token,
        reads_images=served.reads_images,
        indexes=served.indexes,
        is_loaded=served.model is not None,
    )


Handler = Callable[[Request, Exception], Awaitable[Response]]


def _add_error_handlers(app: FastAPI, engine: Engine) -> None:
    def respond(request: Request, error: BaseException) -> Response:
        headers: dict[str, str] = {}
        if isinstance(error, RequestValidationError):
            failure = describe_validation(error)
        elif isinstance(error, HTTPException):
            failure, headers = describe_http_exception(error), dict(error.headers or {})
        else:
            failure = describe_error(error)
        engine.metrics.count_failure(failure.code)
        log_request(error=failure.code)
        return make_response(request.url.path, failure, headers)

    async def handle(request: Request, error: Exception) -> Response:
        return respond(request, error)

    async def handle_left(_: Request, __: Exception) -> Response:
        engine.metrics.count_failure("client_left")
        log_request(error="client_left")
        return Response(status_code=_CLIENT_LEFT)

    kinds: list[type[Exception]] = [
        *(RequestError, ClozeError, RequestValidationError, HTTPException)
    ]
    for kind in kinds:
        app.add_exception_handler(kind, handle)
    app.add_exception_handler(ClientDisconnect, handle_left)


def _log_internal(error: BaseException) -> None:
    if not isinstance(error, ClozeError | RequestError):
        LOGGER.error("a request failed", exc_info=error)


def _describe_keys(app: FastAPI, config: ServeConfig) -> None:
    """Say in the OpenAPI description that every route needs a key, if there are keys."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        found = generate()
        for path in found["paths"].values():
            for operation in path.values():
                operation.get("responses", {}).pop("422", None)  # invalid requests are 400
        if config.api_keys:
            found.setdefault("components", {})["securitySchemes"] = {
                "key": {"type": "http", "scheme": "bearer"}
            }
            found["security"] = [{"key": []}]
        return found

    app.openapi = openapi  # type: ignore[method-assign]
