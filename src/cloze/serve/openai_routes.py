"""OpenAI's routes: /v1/embeddings, /v1/completions, /v1/models."""

import base64
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from cloze.serve.engine import Engine
from cloze.serve.errors_http import ErrorAnswer, list_responses
from cloze.serve.failures import refuse
from cloze.serve.openai_completions import (
    CompletionsAnswer,
    CompletionsRequest,
    Inputs,
    OpenAIRequest,
    Usage,
    compute_completions,
    stream_completion,
)
from cloze.serve.responses import make_json, run_until_disconnect


class EmbeddingsRequest(OpenAIRequest):
    """Texts, or token ids of the model's own vocabulary."""

    input: Inputs
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None


class Embedding(BaseModel):
    """The embedding of one input."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsAnswer(BaseModel):
    """The embeddings of all inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class ModelObject(BaseModel):
    """A model of the server."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    """The models of the server."""

    object: Literal["list"]
    data: list[ModelObject]


def add_routes(app: FastAPI, engine: Engine) -> None:
    """Add the routes to the application."""
    failures, store = list_responses(ErrorAnswer), engine.store

    def describe_model(name: str) -> ModelObject:
        served = store.find(name, "")
        return ModelObject(id=name, object="model", created=served.created, owned_by="cloze")

    @app.get("/v1/models", tags=["openai"], responses=failures)
    async def models() -> ModelList:
        """The models of the server."""
        store.refresh()
        return ModelList(object="list", data=[describe_model(name) for name in store.models])

    @app.get("/v1/models/{model}", tags=["openai"], responses=failures)
    async def model(model: str) -> ModelObject:
        """One of the models."""
        return describe_model(model)

    @app.post(
        "/v1/embeddings",
        tags=["openai"],
        responses={**failures, 200: {"model": EmbeddingsAnswer}},
        response_class=Response,
    )
    async def embeddings(request: Request, body: EmbeddingsRequest) -> Response:
        """Embeddings of texts."""
        content = await run_until_disconnect(request, _embed(engine, body))
        return make_json(content)

    @app.post(
        "/v1/completions",
        tags=["openai"],
        responses={
            **failures,
            200: {
                "model": CompletionsAnswer,
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
        },
        response_class=Response,
    )
    async def completions(request: Request, body: CompletionsRequest) -> Response:
        """Continuations of prompts."""
        texts = await _read_texts(engine, body.model, "generate", body.prompt)
        if body.stream:
            return await stream_completion(engine, request, body, texts)
        work = compute_completions(engine, body, texts)
        return make_json(await run_until_disconnect(request, work))


async def _read_texts(engine: Engine, model: str, function: str, given: Any) -> list[str]:  # noqa: ANN401
    """The texts of a request, which may be given as token ids."""
    if isinstance(given, str):
        return [given]
    if isinstance(given[0], str):
        return list(given)
    rows: list[list[int]] = given if isinstance(given[0], list) else [given]
    loaded = await engine.load(model, function)
    tokenizer = loaded.tokenizer
    vocab_size = tokenizer.vocab_size
    wrong = next((id_ for row in rows for id_ in row if id_ >= vocab_size), None)
    if wrong is not None:
        raise refuse(
            400, "invalid_input", f"the vocabulary of {model} has no token {wrong}",
            fix="send texts, or ids of this model's own tokenizer (/api/tokenize)",
        )  # fmt: skip
    return await run_in_threadpool(lambda: [tokenizer.decode(row) for row in rows])


def shorten_vectors(vectors: Any, dimensions: int | None) -> Any:  # noqa: ANN401 - b d arrays
    """The first dimensions of vectors, with length 1 again (Kusupati et al. 2022)."""
    if dimensions is None:
        return vectors
    if dimensions > vectors.shape[1]:
        raise refuse(
            400, "invalid_input",
            f"dimensions is {dimensions}, but the vectors have {vectors.shape[1]}",
            fix="use a smaller number, or leave it out",
        )  # fmt: skip
    kept = vectors[:, :dimensions]
    return kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-12)


async def _embed(engine: Engine, body: EmbeddingsRequest) -> bytes:
    texts = await _read_texts(engine, body.model, "embed", body.input)
    outcome = (await engine.call("embed", {"text": texts}, model=body.model)).raise_first()
    vectors = shorten_vectors(np.stack([one.vectors for one in outcome.results]), body.dimensions)
    tokens = sum(outcome.costs)

    def render() -> dict[str, Any]:
        rows = vectors.tolist()
        if body.encoding_format == "base64":
            little = vectors.astype("<f4")
            rows = [base64.b64encode(row.tobytes()).decode() for row in little]
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": row}
                for index, row in enumerate(rows)
            ],
            "model": body.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }

    return await engine.render(render, len(texts))
