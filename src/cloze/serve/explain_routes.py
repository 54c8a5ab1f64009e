"""`POST /api/explain`: the views of `cloze.explain`, as JSON or as an interactive HTML document.

A view has one schema, made from the signature of its function. Over HTTP no view reads files:
where a function takes a file or a table, a request has a list of texts.
"""

import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Annotated, Any, Literal, get_args

from fastapi import FastAPI
from pydantic import Field, create_model
from starlette.requests import Request
from starlette.responses import Response

from cloze.checkpoint.model import Model
from cloze.errors import InputError, TruncationWarning
from cloze.plot.view import View
from cloze.serve.engine import Engine
from cloze.serve.errors_http import ErrorAnswer, list_responses
from cloze.serve.failures import refuse
from cloze.serve.functions import Request as RequestSchema
from cloze.serve.functions import Text, Texts, convert_options, read_argument_help
from cloze.serve.log import log_request
from cloze.serve.model_store import ServedModel
from cloze.serve.responses import make_json, run_until_disconnect
from cloze.serve.tokens import CHARS_PER_TOKEN
from cloze.tasks.explain import VIEWS, explain
from cloze.tasks.explain.open_model import open_model

MAX_TOKENS = 4096  # of the text of a view, whatever the model reads
MAX_CORPUS_TOKENS = 1 << 15  # of all texts of a view of many texts
_FIRST = ("text", "texts", "data")  # names of the first argument after the model
_TEXT_KINDS: dict[str, Any] = {  # of the field `text`; of all others it is one text
    "heads": Texts,
    "cka": Texts,
    "occurrences": Texts,
    "embeddings": Text,
    "neighbors": Text,
    "layer_weights": str | None,
}
_FILE_VIEWS = ("probe",)  # that need labelled data
# options that read files, load models, or have no meaning over HTTP
_EXCLUDED = {
    *("text_column", "pair_column", "label_column", "tag_column", "progress", "batch_tokens"),
    *("data", "test", "corpus", "neuron", "other_model", "max_texts"),
}
_LARGEST = {  # values of options that cost time or memory
    "steps": 1000,
    "random_orders": 100,
    "new_tokens": 200,
    "generate": 200,
    "shown": 200,
    "top": 100,
    "units": 1000,
    "limit": 2000,
    "clusters": 100,
}
_POLICY = "sandbox allow-scripts"  # of a document; the rest of its policy is inside it


@dataclass(frozen=True, kw_only=True)
class ServedView:
    """A view of `cloze.explain` that requests may ask for."""

    name: str
    function: Callable[..., View]
    text: Any  # the type of its field
    has_pair: bool

    @property
    def options(self) -> dict[str, tuple[Any, Any]]:
        """The type and default of each option."""
        found = convert_options(self.function, _EXCLUDED | {*_FIRST, "pair"})
        return {name: (_limit(name, kind), default) for name, (kind, default) in found.items()}


def _limit(name: str, kind: Any) -> Any:  # noqa: ANN401
    return kind if name not in _LARGEST else Annotated[kind, Field(le=_LARGEST[name])]


@cache
def list_served_views() -> dict[str, ServedView]:
    """The views by name."""
    return {
        name: _describe(name, getattr(explain, name)) for name in VIEWS if name not in _FILE_VIEWS
    }


def _describe(name: str, function: Callable[..., View]) -> ServedView:
    kind: Any = _TEXT_KINDS.get(name, str)
    has_pair = "pair" in inspect.signature(function).parameters
    return ServedView(name=name, function=function, text=kind, has_pair=has_pair)


def make_view_schema(view: ServedView) -> type[RequestSchema]:
    """The request of a view: its inputs and options, with their types and defaults."""
    help_texts = read_argument_help(view.function)
    text_help = next((help_texts[one] for one in _FIRST if one in help_texts), "")
    is_optional = type(None) in get_args(view.text)
    fields: dict[str, Any] = {
        "view": (Literal[view.name], Field(description=VIEWS[view.name].help)),
        "text": (view.text, Field(None if is_optional else ..., description=text_help)),
    }
    if view.has_pair:
        fields["pair"] = (str | None, Field(None, description=help_texts.get("pair", "")))
    for name, (kind, default) in view.options.items():
        given = ... if default is inspect.Parameter.empty else default
        fields[name] = (kind, Field(given, description=help_texts.get(name, "")))
    fields["format"] = (
        Literal["json", "html"],
        Field("json", description="json: the values; html: an interactive HTML document."),
    )
    fields["truncate"] = (
        bool, Field(False, description="Truncate a text that is too long. Default: an error."),
    )  # fmt: skip
    title = "".join(part.capitalize() for part in view.name.split("_"))
    return create_model(f"Explain{title}Request", __base__=RequestSchema, **fields)


def list_texts(values: Mapping[str, Any]) -> list[str]:
    """The texts of a request."""
    text = values.get("text")
    found = [text] if isinstance(text, str) else list(text or ())
    others = (values.get(name) for name in ("pair", "target_text", "from_text", "from_pair"))
    return [*found, *(one for one in others if isinstance(one, str))]


def count_cost(model: Model, view: ServedView, values: Mapping[str, Any]) -> int:
    """The tokens that a request costs; raises if its texts are too long."""
    texts = list_texts(values)
    limit = model.max_length
    found = model.tokenizer.encode_ids(texts, limit=MAX_CORPUS_TOKENS) if texts else []
    counts = [len(ids) for ids in found]
    is_corpus = isinstance(values.get("text"), list)
    _check_size(sum(counts), MAX_CORPUS_TOKENS if is_corpus else MAX_TOKENS, values)
    longest = max(counts, default=0) if is_corpus else sum(counts[: 1 + bool(values.get("pair"))])
    if limit != sys.maxsize and longest > limit and not values.get("truncate"):
        raise InputError(
            f"the text has {longest:,} tokens, but the model reads at most {limit:,}",
            fix="shorten it, or ask for truncation (truncate)",
        )
    read = sum(min(count, limit) for count in counts)
    return max(1, read * _count_passes(view.name, values, read))


def _check_size(tokens: int, limit: int, values: Mapping[str, Any]) -> None:
    if tokens > limit and not values.get("truncate"):
        raise refuse(
            413, "too_many_tokens", f"the texts have {tokens:,} tokens, but a view shows at most "
            f"{limit:,}", fix="use shorter texts",
        )  # fmt: skip


def _count_passes(view: str, values: Mapping[str, Any], tokens: int) -> int:
    """About how often the model reads the text."""
    if view in ("ablation", "patching"):
        return 64  # heads, sublayers and blocks
    if view != "saliency":
        return 1
    method = values.get("method", "gradient")
    passes = {"integrated": int(values.get("steps", 50)), "leave-one-out": tokens}.get(method, 2)
    if values.get("faithfulness"):
        passes += 10 * int(values.get("random_orders", 10))
    return max(1, passes)


def compute_view(model: Model, view: ServedView, values: Mapping[str, Any]) -> View:
    """Call the function of the view."""
    options = {name: values[name] for name in view.options if name in values}
    inputs = [values["text"]] if values.get("text") is not None else []
    if values.get("pair") is not None:
        options["pair"] = values["pair"]
    with warnings.catch_warnings():  # only here: the thread of the batcher is one thread
        warnings.simplefilter("ignore", TruncationWarning)  # a request has asked for it
        return view.function(model, *inputs, **options)


def add_routes(app: FastAPI, engine: Engine) -> None:
    """Add `/api/explain`."""
    views = list_served_views()
    schemas: Sequence[Any] = [make_view_schema(view) for view in views.values()]
    union = reduce(lambda one, other: one | other, schemas)

    async def endpoint(request: Request, body: Any) -> Response:  # noqa: ANN401
        values = body.model_dump(exclude_unset=True)
        view = views[values["view"]]
        served = find_model(engine, body.model, view.name)
        found = await run_until_disconnect(request, _compute(engine, served, view, values))
        log_request(view=view.name)
        if values.get("format") == "html":
            document = await engine.run_on_thread(found.html)
            return Response(
                document, media_type="text/html", headers={"Content-Security-Policy": _POLICY}
            )
        return make_json(await engine.render(found.to_dict, sys.maxsize))

    endpoint.__annotations__["body"] = Annotated[union, Field(discriminator="view")]
    app.add_api_route(
        "/api/explain",
        endpoint,
        methods=["POST"],
        tags=["functions"],
        name="explain",
        summary="Show how a model reads a text.",
        description="Show how a model reads a text. The JSON has the values of the view; "
        "`/api/models` lists the views of each model.",
        responses={
            **list_responses(ErrorAnswer),
            200: {
                "description": "The values of the view, or an HTML document.",
                "content": {
                    "application/json": {"schema": {"type": "object"}},
                    "text/html": {"schema": {"type": "string"}},
                },
            },
        },
        response_class=Response,
    )


def find_model(engine: Engine, name: str | None, view: str) -> ServedModel:
    """The model of this name, or the first one that a view applies to."""
    if name is not None:
        return engine.store.find(name, "explain")
    for one in engine.store.models.values():
        if not one.view_obstacles[view]:
            return one
    raise refuse(
        400, "unsupported_function", f"the view {view} applies to no model of this server",
        fix="start the server with a model that has it (cloze info lists the views of a model)",
    )  # fmt: skip


async def _compute(
    engine: Engine, served: ServedModel, view: ServedView, values: Mapping[str, Any]
) -> View:
    def count(model: Model) -> int:
        open_model(model, view.name)
        return count_cost(model, view, values)

    estimate = 1 + sum(map(len, list_texts(values))) // CHARS_PER_TOKEN
    found: View = await engine.compute_alone(
        served, "explain", count, lambda model: compute_view(model, view, values), estimate
    )
    return found
