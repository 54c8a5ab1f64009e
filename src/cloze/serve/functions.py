"""The functions of the server: one table, from which routes, schemas and calls are made.

The fields of a request are the inputs below and the options of the Python function.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

import cloze
from cloze.checkpoint.model import Model
from cloze.data.embedding_records import EmbeddingRecord
from cloze.data.images.read import ImageExample
from cloze.errors import InputError
from cloze.serve.config import MAX_TEXTS
from cloze.serve.failures import refuse
from cloze.serve.images import IMAGE_HELP, Base64Image, Image, decode_images, encode_images
from cloze.tasks.embed import embed, embed_stream
from cloze.tasks.inference import carries_state
from cloze.tasks.inputs import Failure

Text = str | Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
Texts = Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
Lists = Annotated[list[Texts], Field(min_length=1, max_length=MAX_TEXTS)]
# options of functions that have no meaning over HTTP, and those that name a path on the server
_EXCLUDED = {"text_column", "pair_column", "batch_tokens", "progress", "on_error", "on_truncated"}
_EXCLUDED |= {"database", "image", "images", "mask", "keep_steps", "on_step"}
_MAX_INT = 1 << 31
_INTEGER = Annotated[int, Field(ge=-_MAX_INT, le=_MAX_INT)]
_SEED = Annotated[int, Field(ge=0, lt=1 << 63)]


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function that requests may call."""

    name: str
    inputs: Mapping[str, Any]  # the type of each field; the first one decides how many there are
    result: tuple[str, ...]  # the fields of the JSON object, besides the inputs
    echo: Mapping[str, str] = field(default_factory=dict)  # fields with another name in the result
    python_names: Mapping[str, str] = field(default_factory=dict)  # of fields, where they differ
    shared: tuple[str, ...] = ()  # fields that may have one value for several inputs
    is_whole: bool = False  # a request is one input, whatever its fields are
    call: Callable[..., Any] | None = None  # in place of the public function
    computes: bool = True  # False: it only needs the tokenizer
    http_options: Mapping[str, tuple[Any, Any, str]] = field(default_factory=dict)
    """Options that Python has not, or with another type: type, default and description."""

    @property
    def python(self) -> Callable[..., Any]:
        """The public function."""
        found: Callable[..., Any] = getattr(cloze, self.name)
        return found

    @cached_property
    def options(self) -> dict[str, tuple[Any, Any]]:
        """The type and default of each option that requests may set."""
        names = {self.python_names.get(name, name) for name in self.inputs}
        others = {name: (kind, default) for name, (kind, default, _) in self.http_options.items()}
        return convert_options(self.python, _EXCLUDED | names) | others

    @property
    def title(self) -> str:
        return self.name.capitalize()

    @property
    def help(self) -> str:
        """The first lines of the docstring."""
        return inspect.cleandoc(self.python.__doc__ or "").partition("\n\nArgs:")[0]

    def split(self, values: Mapping[str, Any]) -> tuple[list[tuple[Any, ...]], bool]:
        """The inputs of a request, and whether it is a single one."""
        columns = [values.get(name) for name in self.inputs]
        if self.reads_images:
            columns = self._encode_images(columns)
        main = next((one for one in columns if one is not None), None)
        if self.is_whole or isinstance(main, str):
            for name, value in zip(self.inputs, columns, strict=True):
                if not self.is_whole and _depth(value) > self._single_depth(name):
                    raise refuse(
                        400, "invalid_input", f"{name} is a list, but there is only one input",
                        fix=f"use a list for {next(iter(self.inputs))}, too",
                    )  # fmt: skip
            return [tuple(columns)], True
        if self.reads_images and isinstance(values.get("image"), str):
            return [tuple(one and one[0] for one in columns)], True
        count = len(main or ())
        filled = [
            self._fill(name, column, count)
            for name, column in zip(self.inputs, columns, strict=True)
        ]
        return list(zip(*filled, strict=True)), False

    @property
    def reads_images(self) -> bool:
        """Whether images can take the place of texts."""
        return "image" in self.inputs

    def _encode_images(self, columns: list[Any]) -> list[Any]:
        """The fields with images in place of their base64 text; a request has texts or images."""
        given = dict(zip(self.inputs, columns, strict=True))
        image = given["image"]
        if self.is_whole:
            return self._encode_compared_images(given)
        texts = [name for name, value in given.items() if name != "image" and value is not None]
        if (image is None) == ("text" not in texts) or (image is not None and texts):
            raise refuse(
                400, "invalid_input",
                "there is no input" if image is None else "there are texts and images",
                fix="send either text or image",
            )  # fmt: skip
        if image is None:
            return columns
        return [encode_images(image) if name == "image" else None for name in self.inputs]

    def _encode_compared_images(self, given: Mapping[str, Any]) -> list[Any]:
        """The fields of a request that compares texts with texts or with images."""
        image = given["image"]
        if image is None:
            return list(given.values())
        if given["pair"] is not None:
            raise refuse(
                400, "invalid_input", "there are texts and images to compare with",
                fix="send either pair or image",
            )  # fmt: skip
        found = encode_images(image)
        return list({**given, "image": found[0] if isinstance(image, str) else found}.values())

    def _single_depth(self, name: str) -> int:
        return 1 if Text is not self.inputs[name] and Texts in get_args(self.inputs[name]) else 0

    def _fill(self, name: str, value: Any, count: int) -> list[Any]:  # noqa: ANN401
        if value is None:
            return [None] * count
        if _depth(value) == self._single_depth(name) and name in self.shared:
            return [value] * count
        if _depth(value) <= self._single_depth(name) or len(value) != count:
            raise refuse(
                400,
                "invalid_input",
                f"there are {count:,} inputs, but {name} does not have one value for each",
                fix=f"use a list of {count:,} for {name}",
            )
        return list(value)

    def compute(
        self, model: Model, inputs: Sequence[tuple[Any, ...]], options: Mapping[str, Any]
    ) -> list[Any]:
        """Call the function for inputs of one or several requests."""
        if carries_state(model) and len(inputs) > 1:  # none is read from the states after another
            return [one for each in inputs for one in self.compute(model, [each], options)]
        function = self.call or self.python
        names = [self.python_names.get(name, name) for name in self.inputs]
        if self.is_whole:
            given = (dict(zip(names, map(decode_images, one), strict=True)) for one in inputs)
            return [function(model, **one, **options) for one in given]
        columns = zip(*inputs, strict=True)
        columns_by_name = {
            name: decode_images(list(column))
            for name, column in zip(names, columns, strict=True)
            if any(value is not None for value in column)
        }
        return list(function(model, **columns_by_name, **options))

    def list_texts(self, one: tuple[Any, ...]) -> list[str]:
        """All texts of an input, whose tokens are counted."""
        return list(_flatten(one))


def _depth(value: object) -> int:
    if not isinstance(value, list):
        return 0
    return 1 + (_depth(value[0]) if value else 0)


def _flatten(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _flatten(one)


def _embed(
    model: Model,
    texts: list[str] | None = None,
    images: list[ImageExample] | None = None,
    **options: Any,  # noqa: ANN401
) -> list[Any]:
    if texts is not None:
        (records,) = embed_stream(model, texts, chunk=len(texts), **options)
        return [one.error or one for one in records]
    assert images is not None
    errors: dict[int, InputError] = {}
    vectors = embed(model, images=images, on_error=errors.__setitem__, **options)
    return [
        errors.get(n) or EmbeddingRecord(text=None, image=one.name, vectors=vectors[n])
        for n, one in enumerate(images)
    ]


def _classify(model: Model, **options: Any) -> list[Any]:  # noqa: ANN401
    if "images" not in options:
        return list(cloze.classify(model, **options))
    found: Any = cloze.classify(model, on_error=lambda *_: None, **options)
    return [one.error if isinstance(one, Failure) else one for one in found]


_TEXT = {"text": Text}
_PAIR = {"text": Text, "pair": Text | None}
_LIST = {
    "fill": Function(name="fill", inputs=_TEXT, result=("masks", "truncated_chars")),
    "embed": Function(
        name="embed", inputs={"text": Text | None, "image": Image | None}, call=_embed,
        result=("truncated_chars",), python_names={"text": "texts", "image": "images"},
    ),
    "classify": Function(
        name="classify", inputs={"text": Text | None, "pair": Text | None, "image": Image | None},
        result=("labels", "truncated_chars"), call=_classify, python_names={"image": "images"},
    ),
    "tag": Function(name="tag", inputs=_TEXT, result=("spans", "untagged", "truncated_chars")),
    "answer": Function(
        name="answer", inputs={"question": Text, "context": Text}, shared=("context",),
        result=("answers", "truncated_chars"),
    ),
    "choose": Function(
        name="choose", inputs={"text": Text, "options": Texts | Lists, "question": Text | None},
        result=("choices", "truncated_chars"),
    ),
    "translate": Function(
        name="translate", inputs=_TEXT, python_names={"text": "texts"}, echo={"text": "source"},
        result=("translations", "truncated_chars"),
    ),
    "summarize": Function(
        name="summarize", inputs=_TEXT, python_names={"text": "texts"}, echo={"text": "source"},
        result=("summaries", "truncated_chars"),
    ),
    "draw": Function(
        name="draw", inputs=_TEXT, python_names={"text": "texts"}, result=("pictures",),
        http_options={
            "image": (Base64Image | None, None, "An image file to start from, in base64."),
            "mask": (
                Base64Image | None, None,
                "With `image`, a file in base64: white pixels are drawn anew, black ones kept.",
            ),
            "stream": (
                bool, False,
                "Send the images after every step as server-sent events, then the result.",
            ),
        },
    ),
    "generate": Function(
        name="generate", inputs=_TEXT, result=("continuations", "truncated_chars")
    ),
    "suggest": Function(
        name="suggest", inputs=_TEXT, result=("suggestions", "unk_probability", "truncated_chars")
    ),
    "score": Function(
        name="score", inputs=_TEXT,
        result=("tokens", "log_probability", "mean_log_probability", "perplexity", "unknown"),
    ),
    "similar": Function(
        name="similar", inputs={"word": Text}, echo={"word": "query"}, result=("words",)
    ),
    "similarity": Function(
        name="similarity", inputs={**_PAIR, "image": Image | None}, is_whole=True,
        result=("truncated_chars",), echo={"text": "", "pair": ""},
        python_names={"image": "images"},
    ),
    "rerank": Function(
        name="rerank", inputs={"query": Text, "documents": Texts | Lists}, shared=("documents",),
        result=("kind", "documents", "truncated_chars"),
    ),
    "tokenize": Function(
        name="tokenize", inputs=_PAIR, computes=False,
        result=("ids", "tokens", "offsets", "words", "type_ids"),
    ),
}  # fmt: skip
FUNCTIONS: dict[str, Function] = _LIST
"""By name, in the order of the documentation."""


class Request(BaseModel):
    """What every request has."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    model: str | None = Field(
        None, description="Name of the model. Default: the first one that supports the function."
    )


class FailedInput(BaseModel):
    """One of several inputs that failed, with its fields."""

    model_config = ConfigDict(extra="allow")
    error: str


@cache
def make_schema(name: str) -> type[Request]:
    """The request of a function: its inputs, and its options with their types and defaults."""
    function = FUNCTIONS[name]
    help_texts = read_argument_help(function.python)
    fields: dict[str, Any] = {}
    for input_name, kind in function.inputs.items():
        text = help_texts.get(function.python_names.get(input_name, input_name), "")
        if input_name == "image":
            text = IMAGE_HELP.format("`pair`" if function.is_whole else "a text")
        is_optional = type(None) in get_args(kind)
        fields[input_name] = (kind, Field(None if is_optional else ..., description=text))
    for option, (kind, default) in function.options.items():
        text = function.http_options.get(option, ("", "", help_texts.get(option, "")))[2]
        fields[option] = (kind, Field(default, description=text))
    if "truncation" in function.options:
        fields["truncate"] = (
            bool,
            Field(
                False,
                description="Truncate texts that are too long, by the setting of the model. "
                "Default: they are an error, unless `truncation` is given.",
            ),
        )
    return create_model(f"{function.title}Request", __base__=Request, **fields)


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(inspect.unwrap(function), include_extras=True)


def convert_options(
    function: Callable[..., Any], excluded: Collection[str]
) -> dict[str, tuple[Any, Any]]:
    """The type and default of each keyword-only argument, as JSON has them."""
    hints = _hints(function)
    return {
        name: (_convert(hints[name], name), _convert_default(parameter.default))
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in excluded
    }


def _convert(kind: Any, name: str) -> Any:  # noqa: ANN401
    """The type of an option as JSON has it; whole numbers have a range."""
    if kind is int:
        return _SEED if name == "seed" else _INTEGER
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(_convert(one, name) for one in get_args(kind))]  # noqa: UP007
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal or not inspect.isclass(origin):
        return kind
    if issubclass(origin, Mapping):
        return dict[tuple(_convert(one, name) for one in arguments)]  # type: ignore[misc]
    if issubclass(origin, Iterable):
        kind_of_item = _convert(arguments[0], name)
        return Annotated[list[kind_of_item], Field(max_length=MAX_TEXTS)]  # type: ignore[valid-type]
    return kind


def _convert_default(default: Any) -> Any:  # noqa: ANN401
    return list(default) if isinstance(default, tuple) else default


@cache
def read_argument_help(function: Callable[..., Any]) -> dict[str, str]:
    """The descriptions in the section `Args` of a docstring, by argument."""
    _, _, section = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:\n")
    found = re.findall(r"^    (\w+): (.*?)(?=^    \w|\Z)", section, re.M | re.S)
    return {name: " ".join(text.split()) for name, text in found}


@cache
def make_result_schema(name: str) -> Any:  # noqa: ANN401
    """The JSON of an answer: an object, or a list of objects, some of which may be errors."""
    function = FUNCTIONS[name]
    inputs = [function.echo.get(one, one) for one in function.inputs]
    names = dict.fromkeys([*filter(None, inputs), *function.result])
    if function.reads_images:  # a result has the text or the image
        names = dict.fromkeys(function.result)
    if name in ("rerank", "tokenize"):  # without documents, and without the text
        names = dict.fromkeys((*inputs[:1], *function.result)[name == "tokenize" :])
    fields: dict[str, Any] = dict.fromkeys(names, (Any, ...))
    kind = create_model(f"{function.title}Result", __config__=ConfigDict(extra="allow"), **fields)
    if function.is_whole:
        return kind
    return kind | list[kind | FailedInput]  # type: ignore[valid-type]
