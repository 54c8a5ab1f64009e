"""The routes of text-embeddings-inference."""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from cloze import __version__
from cloze.serve.config import MAX_TEXTS
from cloze.serve.engine import Engine, Outcome
from cloze.serve.errors_http import TEIErrorAnswer, list_responses
from cloze.serve.failures import refuse
from cloze.serve.openai_routes import shorten_vectors
from cloze.serve.responses import make_json, run_until_disconnect

_Texts = str | Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
_LOWEST = 2.0**-53
F = TypeVar("F", bound=Callable[..., Any])


class _Body(BaseModel):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False)
    model: str | None = Field(None, description="Name of the model, an addition of this server.")
    truncate: bool | None = False
    truncation_direction: Literal["Left", "Right", "left", "right"] = "Right"
    prompt_name: str | None = None

    @property
    def truncation(self) -> str:
        """The truncation of functions."""
        if not self.truncate:
            return "error"
        return "head" if self.truncation_direction.lower() == "right" else "tail"


class EmbedRequest(_Body):
    """Texts to embed."""

    inputs: _Texts
    normalize: bool = True
    dimensions: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None


class EmbedAllRequest(_Body):
    """Texts whose tokens are embedded."""

    inputs: _Texts


class PredictRequest(_Body):
    """A text, a pair (list of two texts), or a list of lists of one or two texts."""

    inputs: (
        str
        | Annotated[
            list[Annotated[list[str], Field(min_length=1, max_length=2)] | str],
            Field(min_length=1, max_length=MAX_TEXTS),
        ]
    )
    raw_scores: bool = False


class RerankRequest(_Body):
    """A query and texts."""

    query: str
    texts: Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
    raw_scores: bool = False
    return_text: bool = False


class SimilarityInput(BaseModel):
    """A text and those it is compared with."""

    source_sentence: str
    sentences: Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]


class SimilarityRequest(BaseModel):
    """A text, others, and parameters."""

    model_config = ConfigDict(extra="allow")
    inputs: SimilarityInput
    parameters: _Body | None = None
    model: str | None = None


class TokenizeRequest(_Body):
    """Texts to tokenize."""

    inputs: _Texts
    add_special_tokens: bool = True


class Prediction(BaseModel):
    """A label and its score."""

    label: str
    score: float


class Rank(BaseModel):
    """A text by its index, and its score."""

    index: int
    score: float
    text: str | None = None


class Token(BaseModel):
    """A token of a text."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Info(BaseModel):
    """What the server is."""

    model_id: str
    model_dtype: str
    model_type: str
    max_input_length: int | None
    max_batch_tokens: int
    max_client_batch_size: int
    max_concurrent_requests: int
    version: str


class _Routes:
    """Adds routes of this API to an application."""

    def __init__(self, app: FastAPI, engine: Engine) -> None:
        self._app, self._engine = app, engine
        self.failures = list_responses(TEIErrorAnswer)

    def post(self, path: str, kind: Any) -> Callable[[F], F]:  # noqa: ANN401
        """A decorator of a route with an answer of this type."""
        return self._app.post(
            path,
            tags=["text-embeddings-inference"],
            responses={**self.failures, 200: {"model": kind}},
            response_class=Response,
        )

    async def call(self, request: Request, function: str, **values: Any) -> Outcome:  # noqa: ANN401
        """The results of a function; an error of one input is that of the request."""
        model = values.pop("model")
        work = self._engine.call(function, values, model=model)
        return (await run_until_disconnect(request, work)).raise_first()


def add_routes(app: FastAPI, engine: Engine) -> None:
    """Add the routes to the application."""
    routes = _Routes(app, engine)
    _add_embedding_routes(routes, engine)
    _add_pair_routes(routes, engine)
    _add_info(app, routes, engine)


def _add_embedding_routes(routes: _Routes, engine: Engine) -> None:
    @routes.post("/embed", list[list[float]])
    async def embed(request: Request, body: EmbedRequest) -> Response:
        """Embeddings of texts."""
        outcome = await routes.call(
            request,
            "embed",
            text=_list_texts(body),
            truncation=body.truncation,
            normalize=body.normalize,
            model=body.model,
        )
        return make_json(
            await engine.render(
                lambda: [
                    shorten_vectors(one.vectors[None], body.dimensions)[0].tolist()
                    for one in outcome.results
                ],
                len(outcome.results),
            )
        )

    @routes.post("/embed_all", list[list[list[float]]])
    async def embed_all(request: Request, body: EmbedAllRequest) -> Response:
        """Embeddings of the tokens of texts."""
        outcome = await routes.call(
            request,
            "embed",
            text=_list_texts(body),
            truncation=body.truncation,
            pooling="none",
            model=body.model,
        )
        results = outcome.results
        return make_json(
            await engine.render(lambda: [one.vectors.tolist() for one in results], MAX_TEXTS)
        )

    @routes.post("/embed_sparse", list[list[Any]])
    async def embed_sparse(body: EmbedAllRequest) -> Response:
        """Sparse embeddings, which no family of models has yet."""
        engine.store.find(body.model, "embed")
        raise refuse(
            400, "unsupported_function", "no model of this server has sparse embeddings",
            fix="use /embed",
        )  # fmt: skip


def _add_pair_routes(routes: _Routes, engine: Engine) -> None:
    @routes.post("/predict", list[Prediction] | list[list[Prediction]])
    async def predict(request: Request, body: PredictRequest) -> Response:
        """Labels of texts or pairs."""
        pairs, is_single = _read_pairs(body.inputs)
        values: dict[str, Any] = {"text": [text for text, _ in pairs]}
        if any(pair is not None for _, pair in pairs):
            values["pair"] = [pair for _, pair in pairs]
        outcome = await routes.call(
            request, "classify", **values, truncation=body.truncation, model=body.model
        )
        found = [
            [
                {"label": label, "score": _log_odds(score) if body.raw_scores else score}
                for label, score in one.scores.items()
            ]
            for one in outcome.results
        ]
        return make_json(await engine.render(lambda: found[0] if is_single else found, len(found)))

    @routes.post("/rerank", list[Rank])
    async def rerank(request: Request, body: RerankRequest) -> Response:
        """Texts in the order in which they fit a query."""
        outcome = await routes.call(
            request,
            "rerank",
            query=body.query,
            documents=body.texts,
            truncation=body.truncation,
            model=body.model,
        )
        (ranking,) = outcome.results
        found = [
            {
                "index": one.index,
                "score": convert_score(one.score, ranking.kind, raw=body.raw_scores),
                **({"text": one.text} if body.return_text else {}),
            }
            for one in ranking.documents
        ]
        return make_json(await engine.render(lambda: found, len(found)))

    @routes.post("/similarity", list[float])
    async def similarity(request: Request, body: SimilarityRequest) -> Response:
        """The cosine of a text with others."""
        parameters = body.parameters or _Body(model=None)
        outcome = await routes.call(
            request,
            "similarity",
            text=body.inputs.source_sentence,
            pair=body.inputs.sentences,
            truncation=parameters.truncation,
            model=body.model or parameters.model,
        )
        (matrix,) = outcome.results
        return make_json(await engine.render(lambda: matrix.scores[0].tolist(), 1))

    @routes.post("/tokenize", list[list[Token]])
    async def tokenize(request: Request, body: TokenizeRequest) -> Response:
        """Tokens of texts."""
        outcome = await routes.call(request, "tokenize", text=_list_texts(body), model=body.model)
        found = [_list_tokens(one, body.add_special_tokens) for one in outcome.results]
        return make_json(await engine.render(lambda: found, len(found)))


def _add_info(app: FastAPI, routes: _Routes, engine: Engine) -> None:
    @app.get("/info", tags=["text-embeddings-inference"], responses=routes.failures)
    async def info() -> Info:
        """What the server is; the model is the first one."""
        served = next(iter(engine.store.models.values()))
        loaded = served.model
        longest = None if loaded is None else loaded.max_length
        return Info(
            model_id=served.name,
            model_dtype=engine.config.dtype,
            model_type=served.family,
            max_input_length=longest if longest and longest < 1 << 31 else None,
            max_batch_tokens=engine.config.max_request_tokens,
            max_client_batch_size=MAX_TEXTS,
            max_concurrent_requests=engine.config.max_queue_tokens,
            version=__version__,
        )


def _list_texts(body: Any) -> list[str]:  # noqa: ANN401
    if body.prompt_name is not None:
        raise refuse(
            400, "unsupported_option", "prompt_name is not supported",
            fix="leave it out: the prompt of the model is used",
        )  # fmt: skip
    return [body.inputs] if isinstance(body.inputs, str) else list(body.inputs)


def _read_pairs(inputs: Any) -> tuple[list[tuple[str, str | None]], bool]:  # noqa: ANN401
    """Texts with their pairs or None, and whether it is a single one."""
    if isinstance(inputs, str):
        return [(inputs, None)], True
    if all(isinstance(one, str) for one in inputs):
        if len(inputs) > 2:  # noqa: PLR2004
            raise refuse(
                400, "invalid_input", "a list of texts is a pair, and has two of them",
                fix="use a list of lists for several inputs: [[text], [text]]",
            )  # fmt: skip
        return [(inputs[0], inputs[1] if len(inputs) > 1 else None)], True
    if any(isinstance(one, str) for one in inputs):
        raise refuse(
            400, "invalid_input", "inputs mixes texts and lists", fix="use lists for all of them"
        )
    return [(one[0], one[1] if len(one) > 1 else None) for one in inputs], False


def convert_score(score: float, kind: str, *, raw: bool) -> float:
    """The score of a document: between 0 and 1, or before the sigmoid if it is raw."""
    if kind == "probability":
        return _log_odds(score) if raw else score
    if kind == "number" and not raw:
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, score))))
    return score


def _log_odds(probability: float) -> float:
    """log(p / (1 − p)), finite also for 0 and 1."""
    clipped = min(max(probability, _LOWEST), 1 - _LOWEST)
    return math.log(clipped / (1 - clipped))


def _list_tokens(alignment: Any, with_special: bool) -> list[dict[str, Any]]:  # noqa: ANN401
    columns = (
        *(alignment.ids, alignment.tokens, alignment.special_tokens_mask, alignment.offsets),
    )
    return [
        {
            "id": id_ if isinstance(id_, int) else -1,
            "text": token,
            "special": bool(special),
            "start": None if special else start,
            "stop": None if special else stop,
        }
        for id_, token, special, (start, stop) in zip(*columns, strict=True)
        if with_special or not special
    ]
