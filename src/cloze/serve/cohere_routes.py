"""Cohere's routes: /v2/embed and /v2/rerank."""

import base64
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from cloze.serve.config import MAX_TEXTS
from cloze.serve.engine import Engine
from cloze.serve.errors_http import CohereErrorAnswer, list_responses
from cloze.serve.failures import refuse
from cloze.serve.images import Images
from cloze.serve.openai_routes import shorten_vectors
from cloze.serve.responses import make_json, run_until_disconnect
from cloze.serve.tei_routes import convert_score

_TRUNCATIONS = {"NONE": "error", "START": "tail", "END": "head"}
_META = {"api_version": {"version": "2"}}


class EmbedRequest(BaseModel):
    """Texts or images to embed; images are files in base64, as data URLs."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)
    model: str
    texts: Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)] | None = None
    images: Images | None = None
    input_type: str | None = None
    embedding_types: (
        list[Literal["float", "base64", "binary", "ubinary", "int8", "uint8"]] | None
    ) = None
    output_dimension: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    truncate: Literal["NONE", "START", "END"] = "END"


class EmbedAnswer(BaseModel):
    """The embeddings by type."""

    id: str
    embeddings: dict[str, list[Any]]
    texts: list[str]
    meta: dict[str, Any]
    response_type: Literal["embeddings_by_type"]


class RerankRequest(BaseModel):
    """A query and documents."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)
    model: str
    query: str
    documents: Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
    top_n: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    max_tokens_per_doc: int | None = None


class RankedResult(BaseModel):
    """A document by its index, and its score."""

    index: int
    relevance_score: float


class RerankAnswer(BaseModel):
    """The documents in their order."""

    id: str
    results: list[RankedResult]
    meta: dict[str, Any]


def add_routes(app: FastAPI, engine: Engine) -> None:
    """Add the routes to the application."""
    failures = list_responses(CohereErrorAnswer)

    @app.post(
        "/v2/embed",
        tags=["cohere"],
        name="cohere_embed",
        responses={**failures, 200: {"model": EmbedAnswer}},
        response_class=Response,
    )
    async def embed(request: Request, body: EmbedRequest) -> Response:
        """Embeddings of texts, or of images by a model of both."""
        kinds = body.embedding_types or ["float"]
        for kind in kinds:
            if kind not in _ENCODERS:
                raise refuse(
                    400, "unsupported_option", f"the embedding type {kind} is not supported",
                    fix=f"use {', '.join(_ENCODERS)}",
                )  # fmt: skip
        work = engine.call("embed", _read_inputs(body), model=body.model)
        outcome = (await run_until_disconnect(request, work)).raise_first()
        vectors = np.stack([one.vectors for one in outcome.results])
        vectors = shorten_vectors(vectors, body.output_dimension)
        answer = {
            "id": str(uuid.uuid4()),
            "texts": body.texts or [],
            "meta": {
                **_META,
                "billed_units": {"input_tokens": sum(outcome.costs)}
                if body.images is None
                else {"images": len(body.images)},
            },
            "response_type": "embeddings_by_type",
        }
        return make_json(
            await engine.render(
                lambda: {**answer, "embeddings": {one: _ENCODERS[one](vectors) for one in kinds}},
                len(vectors),
            )
        )

    @app.post(
        "/v2/rerank",
        tags=["cohere"],
        name="cohere_rerank",
        responses={**failures, 200: {"model": RerankAnswer}},
        response_class=Response,
    )
    async def rerank(request: Request, body: RerankRequest) -> Response:
        """Documents in the order in which they fit a query; long ones are truncated."""
        values: dict[str, Any] = {"query": body.query, "documents": body.documents}
        values |= {"truncate": True, "top": body.top_n}
        work = engine.call("rerank", values, model=body.model)
        outcome = (await run_until_disconnect(request, work)).raise_first()
        (ranking,) = outcome.results
        answer = {
            "id": str(uuid.uuid4()),
            "results": [
                {
                    "index": one.index,
                    "relevance_score": convert_score(one.score, ranking.kind, raw=False),
                }
                for one in ranking.documents
            ],
            "meta": {**_META, "billed_units": {"search_units": 1}},
        }
        return make_json(await engine.render(lambda: answer, len(ranking.documents)))


def _read_inputs(body: EmbedRequest) -> dict[str, Any]:
    """The texts or images of a request, as `/api/embed` has them."""
    if (body.texts is None) == (body.images is None):
        raise refuse(
            400, "invalid_input",
            "there are no texts and no images" if body.texts is None
            else "there are texts and images",
            fix="send either texts or images",
        )  # fmt: skip
    if body.input_type is not None and (body.input_type == "image") == (body.images is None):
        raise refuse(
            400, "invalid_input",
            f"the input type {body.input_type[:40]} does not fit the inputs",
            fix="use image for images, and another one for texts",
        )  # fmt: skip
    if body.images is not None:
        return {"image": body.images}
    return {"text": body.texts, "truncation": _TRUNCATIONS[body.truncate]}


_ENCODERS: dict[str, Callable[[Any], list[Any]]] = {
    "float": lambda vectors: vectors.tolist(),
    "base64": lambda vectors: [
        base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors
    ],
    "ubinary": lambda vectors: np.packbits(vectors > 0, axis=1).tolist(),
    "binary": lambda vectors: (np.packbits(vectors > 0, axis=1).astype(int) - 128).tolist(),
}
"""Embeddings as JSON, by type; a bit is 1 where a number is positive."""
