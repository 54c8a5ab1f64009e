"""`POST /api/search` and, if it is allowed, `POST /api/index`: the indexes of a server by name.

The model of an index is served, too. A search runs on the thread of the batcher, as views do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from cloze.checkpoint.model import Model
from cloze.checkpoint.source import find_folder
from cloze.errors import ClozeError, InputError
from cloze.retrieval.folder import read_manifest
from cloze.serve.config import MAX_TEXTS, ServeConfig
from cloze.serve.engine import Engine
from cloze.serve.errors_http import ErrorAnswer, list_responses
from cloze.serve.failures import refuse
from cloze.serve.functions import Request as RequestSchema
from cloze.serve.functions import Text, read_argument_help
from cloze.serve.images import IMAGE_HELP, IMAGE_TOKENS, EncodedImage, Image, encode_images
from cloze.serve.model_store import ModelStore, ServedModel, parse_sources
from cloze.serve.responses import make_json, run_until_disconnect
from cloze.serve.tokens import CHARS_PER_TOKEN
from cloze.tasks.index import index as index_documents
from cloze.tasks.search import SearchIndex, search

_HELP = read_argument_help(search)
_RESERVED = ("id", "title", "text")
_Filter = Annotated[dict[str, Any], Field(max_length=100)]
_Texts = Annotated[list[str], Field(max_length=MAX_TEXTS)]


class SearchRequest(RequestSchema):
    """A query, or several."""

    model: str | None = Field(None, description="Name of the model of an index.")
    index: str | None = Field(None, description="Name of the index. Default: the first one.")
    query: Text | None = Field(None, description=_HELP["query"])
    image: Image | None = Field(None, description=IMAGE_HELP.format("a text"))
    k: int = Field(10, ge=1, le=1000, description=_HELP["k"])
    mode: Literal["hybrid", "dense", "bm25"] = Field("hybrid", description=_HELP["mode"])
    filter: _Filter | _Texts | None = Field(None, description=_HELP["filter"])
    rerank: str | None = Field(
        None, description="Name of a model that orders the best 50 chunks again."
    )
    chunks: bool = Field(False, description=_HELP["chunks"])
    thumbnails: bool = Field(False, description=_HELP["thumbnails"])


class DocumentSchema(BaseModel):
    """A document to index."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    id: str = Field(min_length=1, max_length=1024)
    text: str = Field(description="The text, or the caption of an image.")
    title: str | None = None
    image: str | None = Field(None, description="For an index of images: the image file in base64.")
    metadata: dict[str, Any] = Field(default_factory=dict)


class IndexRequest(RequestSchema):
    """Changes of an index, which become visible together."""

    model: str | None = Field(None, description="Name of the model of an index.")
    index: str | None = Field(None, description="Name of the index. Default: the first one.")
    documents: Annotated[list[DocumentSchema], Field(max_length=MAX_TEXTS)] = Field(
        default_factory=list, description="Documents to add; those with a known id are replaced."
    )
    delete: _Texts = Field(default_factory=list, description="Ids of documents to delete.")


class IndexDescription(BaseModel):
    """An index of the server."""

    name: str
    model: str
    store: str
    content: str  # texts or images
    num_documents: int
    num_chunks: int


@dataclass(eq=False)
class ServedIndex:
    """An index, which is opened with its model when it is first searched."""

    name: str
    folder: Path
    served: ServedModel
    opened: SearchIndex | None = None

    def open(self, model: Model) -> SearchIndex:
        if self.opened is None:
            self.opened = SearchIndex(self.folder, model=model)
        return self.opened


def open_indexes(config: ServeConfig, store: ModelStore) -> dict[str, ServedIndex]:
    """The indexes by name; their models are added to the store unless they are there."""
    found: dict[str, ServedIndex] = {}
    for name, source in (parse_sources(config.indexes) if config.indexes else {}).items():
        folder = Path(source)
        served = _find_model(store, read_manifest(folder).model)
        found[name] = ServedIndex(name, folder, served)
        served.indexes.append(name)
    return found


def _find_model(store: ModelStore, source: str) -> ServedModel:
    folder = find_folder(source)
    for one in store.models.values():
        try:
            if find_folder(one.source).resolve() == folder.resolve():
                return one
        except ClozeError:  # a file of word vectors
            continue
    name = Path(source).name
    while name in store.models:
        name += "-2"
    store.add(name, source)
    return store.models[name]


def add_routes(app: FastAPI, engine: Engine, config: ServeConfig) -> None:
    """Add the routes of indexes."""
    indexes = open_indexes(config, engine.store)
    failures = list_responses(ErrorAnswer)
    documented = {**failures, 200: {"content": {"application/json": {}}, "description": "Result."}}

    @app.get("/api/indexes", tags=["status"], responses=failures)
    async def list_indexes() -> list[IndexDescription]:
        """The indexes and their models."""
        return [_describe(one) for one in indexes.values()]

    async def search_index(request: Request, body: SearchRequest) -> Response:
        chosen = _choose(indexes, body)
        second = None if body.rerank is None else await engine.load(body.rerank, "rerank")
        queries = [body.query] if isinstance(body.query, str) else body.query or []
        images = [] if body.image is None else encode_images(body.image)
        if bool(queries) == bool(images):
            raise refuse(
                400, "invalid_input", "there is a query and an image" if queries else "no query",
                fix="send either query or image",
            )  # fmt: skip
        work = partial(_search, index=chosen, body=body, images=images, second=second)
        found = await run_until_disconnect(
            request, _compute(engine, chosen, "search", queries, work, num_images=len(images))
        )
        return make_json(await engine.render(found.to_dict, (len(queries) or len(images)) * body.k))

    async def change_index(request: Request, body: IndexRequest) -> Response:
        chosen = _choose(indexes, body)
        texts = [text for one in body.documents for text in (one.title or "", one.text)]
        has_images = read_manifest(chosen.folder).content == "images"
        rows = [_make_row(one, has_images=has_images) for one in body.documents]
        work = partial(_index, index=chosen, rows=rows, delete=body.delete)
        count = len(rows) if has_images else 0
        found = await run_until_disconnect(
            request, _compute(engine, chosen, "index", texts, work, num_images=count)
        )
        return make_json(await engine.render(found.to_dict, 1))

    routes: dict[str, tuple[Callable[..., Any], str]] = {
        "search": (search_index, "Find the documents of an index that fit a query, best first.")
    }
    if config.allow_indexing:
        routes["index"] = (change_index, "Add, replace and delete documents of an index.")
    for name, (endpoint, summary) in routes.items():
        app.add_api_route(
            f"/api/{name}",
            endpoint,
            methods=["POST"],
            tags=["functions"],
            name=name,
            summary=summary,
            responses=documented,
            response_class=Response,
        )


def _describe(one: ServedIndex) -> IndexDescription:
    manifest = read_manifest(one.folder)
    return IndexDescription(
        name=one.name,
        model=one.served.name,
        store=manifest.store,
        content=manifest.content,
        num_documents=manifest.num_documents,
        num_chunks=manifest.num_chunks,
    )


def _choose(indexes: Mapping[str, ServedIndex], body: SearchRequest | IndexRequest) -> ServedIndex:
    """The index of this name, or the first one; of this model, if one is given."""
    for one in indexes.values():
        if body.index in (None, one.name) and body.model in (None, one.served.name):
            return one
    if not indexes:
        raise refuse(
            404, "index_not_found", "this server has no index",
            fix="start it with --index FOLDER",
        )  # fmt: skip
    wanted = f"the name {body.index!r}" if body.index else f"the model {body.model!r}"
    if body.index in indexes:
        wanted = f"the name {body.index!r} and the model {body.model!r}"
    raise refuse(
        404,
        "index_not_found",
        f"no index has {wanted}",
        fix="use one of: " + ", ".join(f"{o.name} ({o.served.name})" for o in indexes.values()),
    )


def _make_row(document: DocumentSchema, *, has_images: bool) -> dict[str, Any]:
    if has_images != (document.image is not None):
        raise InputError(
            f"{document.id[:80]!r} has {'no' if has_images else 'an'} image, but this is an index "
            f"of {'images' if has_images else 'texts'}",
            fix="send an image in base64" if has_images else "leave out the image",
        )
    taken = next((name for name in (*_RESERVED, "image") if name in document.metadata), None)
    if taken is not None:
        raise InputError(
            f"the metadata of {document.id[:80]!r} have the name {taken!r}", fix="use another name"
        )
    fields = {"id": document.id, "title": document.title, "text": document.text}
    if document.image is not None:
        image = EncodedImage(repr(document.id[:80]), document.image).decode()
        return {"image": image.content, **fields, **document.metadata}
    return {**fields, **document.metadata}


async def _compute(
    engine: Engine,
    index: ServedIndex,
    function: str,
    texts: list[str],
    work: Callable[[Model], Any],
    *,
    num_images: int = 0,
) -> Any:  # noqa: ANN401
    others = 1 + IMAGE_TOKENS * num_images

    def count(model: Model) -> int:
        return others + sum(len(ids) for ids in model.tokenizer.encode_ids(texts))

    estimate = others + sum(map(len, texts)) // CHARS_PER_TOKEN
    return await engine.compute_alone(index.served, function, count, work, estimate)


def _search(
    model: Model,
    *,
    index: ServedIndex,
    body: SearchRequest,
    images: list[EncodedImage],
    second: Model | None,
) -> Any:  # noqa: ANN401
    decoded: list[Any] = [one.decode() for one in images]
    find: Any = search  # whose result depends on its arguments
    return find(
        index.open(model),
        body.query,
        images=decoded[0] if isinstance(body.image, str) else decoded or None,
        k=body.k,
        mode=body.mode,
        filter=body.filter,
        rerank=second,
        chunks=body.chunks,
        thumbnails=body.thumbnails,
        progress=False,
    )


def _index(
    model: Model, *, index: ServedIndex, rows: list[dict[str, Any]], delete: list[str]
) -> Any:  # noqa: ANN401
    columns: dict[str, Any] = {f"{name}_column": name for name in _RESERVED} if rows else {}
    return index_documents(
        model, rows or None, index.folder, update=True, delete=delete, progress=False, **columns
    )
