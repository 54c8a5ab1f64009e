"""The functions that process files block by block: embed, classify, tag and answer.

A `BlockFunction` names a model and options. Where it is called, which may be a worker on another
machine, it loads the model and returns a function from the rows of a block to their records: one
for each row, in order. A row that could not be read is an `InputError` and has a record, too.
"""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from cloze.checkpoint.load import find_model_file, load
from cloze.checkpoint.model import Model
from cloze.checkpoint.source import find_folder, find_path
from cloze.checkpoint.task import override_truncation
from cloze.config import one_of
from cloze.data.embedding_records import EmbeddingRecord
from cloze.data.labelled.examples import Origin, QuestionExample, TextExample
from cloze.data.result_files import Record
from cloze.data.sources import Row
from cloze.errors import InputError, TruncationWarning
from cloze.files import PathLike, absolute_path
from cloze.tasks.inputs import Failure, add_location, isolate_errors

Item: TypeAlias = Row | TextExample | QuestionExample
ItemOrError: TypeAlias = Item | InputError
Compute: TypeAlias = Callable[[Sequence[Any]], Sequence[Record]]

# The fields of a row that a function reads, by its name.
INPUTS: Mapping[str, tuple[str, ...]] = {
    "embed": ("text",),
    "classify": ("text", "pair"),
    "tag": ("text",),
    "answer": ("question", "context"),
}


class Computed(NamedTuple):
    """The records of a block, and the maximum number of tokens that the model reads of a row."""

    records: list[Record]
    max_length: int


@dataclass(frozen=True, kw_only=True)
class BlockFunction:
    """A function with its model and options, which can be sent to workers."""

    name: str  # a key of `INPUTS`
    model: str
    device: str | None = None
    dtype: str = "float32"
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        one_of("function", self.name, tuple(INPUTS))

    @property
    def kind(self) -> str:
        """The kind of its results: a key of `cloze.data.result_files.COLUMNS`."""
        by_token = self.name == "embed" and self.options.get("pooling") == "none"
        return "embed tokens" if by_token else self.name

    def __call__(self) -> Callable[[Sequence[ItemOrError]], "Computed"]:
        """Load the model, and return the function from a block to its records."""
        model = load(self.model, device=self.device, dtype=self.dtype, quiet=True)
        makers: Mapping[str, Callable[..., Compute]] = {
            "embed": _make_embed,
            "classify": _make_classify,
            "tag": _make_tag,
            "answer": _make_answer,
        }
        compute, fields = makers[self.name](model, **self.options), INPUTS[self.name]
        return lambda block: Computed(_compute_records(compute, fields, block), model.max_length)

    def describe(self) -> dict[str, Any]:
        """JSON: all that the results depend on, except the rows."""
        return {
            "function": self.name,
            "model": compute_model_digest(self.model),
            "dtype": self.dtype,
            "options": {name: _plain(one) for name, one in sorted(self.options.items())},
        }


def compute_key(block: Sequence[ItemOrError], fields: Sequence[str]) -> str:
    """A hash of what a function reads of a block."""
    digest = blake2b(digest_size=16)
    for item in block:
        unread = isinstance(item, InputError)
        for name in ("problem",) if unread else fields:
            value = getattr(item, name)
            data = b"\xff" if value is None else value.encode()  # no text in UTF-8 has this byte
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def measure_item(item: ItemOrError, fields: Sequence[str]) -> int:
    """The number of characters that a function reads of a row."""
    if isinstance(item, InputError):
        return len(item.problem)
    return sum(len(getattr(item, name) or "") for name in fields)


def find_model(model: PathLike) -> str:
    """The absolute path of a model, or its name; workers may run in another folder."""
    if not isinstance(model, str | os.PathLike):
        raise InputError(
            f"the model has type {type(model).__name__}, and files are processed by models that "
            "each worker loads",
            fix="pass the model's folder or name",
        )
    path = find_path(model)
    return os.fspath(model) if path is None else absolute_path(path)


def compute_model_digest(model: str) -> str:
    """A hash of the files of a model: the same model has it in another folder, too."""
    file = find_model_file(model)
    paths = [file] if file is not None else _list_files(find_folder(model))
    digest = blake2b(digest_size=16)
    for path in paths:
        with path.open("rb") as stream:
            digest.update(path.name.encode() + file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _list_files(folder: Path) -> list[Path]:
    """The files of a model, without those of its training."""
    inside = [*folder.glob("*"), *folder.glob("[0-9]_*/*")]  # of sentence-transformers folders
    endings = (".json", ".safetensors", ".txt", ".model", ".bin", ".hdf5")
    return sorted(path for path in inside if path.is_file() and path.suffix in endings)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """An option as JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _compute_records(
    compute: Compute, fields: Sequence[str], block: Sequence[ItemOrError]
) -> list[Record]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)  # they are counted
        found = iter(compute([item for item in block if not isinstance(item, InputError)]))
    return [
        _make_unread(one, fields) if isinstance(one, InputError) else next(found) for one in block
    ]


def _make_unread(error: InputError, fields: Sequence[str]) -> Record:
    if fields == INPUTS["embed"]:
        return EmbeddingRecord(text=None, error=error)
    return Failure(inputs=dict.fromkeys(fields), error=error)


def _make_embed(model: Model, **options: Any) -> Compute:  # noqa: ANN401
    from cloze.tasks.embed import embed_stream

    def compute(rows: Sequence[Row]) -> Sequence[Record]:
        stream = embed_stream(model, (row.text for row in rows), chunk=len(rows) or 1, **options)
        return [
            replace(one, error=add_location(one.error, row)) if one.error else one
            for one, row in zip((one for part in stream for one in part), rows, strict=True)
        ]

    return compute


def _make_classify(
    model: Model,
    *,
    truncation: str | None = None,
    overlap: int | None = None,
    top: int | None = None,
) -> Compute:
    from cloze.tasks.classify import predict
    from cloze.tasks.inference import resolve_task

    task = override_truncation(resolve_task("classify", model), truncation, overlap)
    several = model.problem_type == "multi_label_classification"
    most = 1 if top is None and not several else top  # as the command prints them

    def compute(examples: Sequence[TextExample]) -> Sequence[Record]:
        found = predict(model, examples, task=task)
        return found if most is None else [one.keep_top(most) for one in found]

    return partial(_isolate, compute, INPUTS["classify"])


def _make_tag(
    model: Model,
    *,
    truncation: str | None = None,
    overlap: int | None = None,
    aggregation: str = "first",
) -> Compute:
    from cloze.tasks.inference import resolve_task
    from cloze.tasks.tag import make_examples, predict

    task = override_truncation(resolve_task("tag", model), truncation, overlap)

    def compute(rows: Sequence[Row]) -> Sequence[Record]:
        origins = [Origin(file=row.file, line=row.line) for row in rows]
        examples = make_examples(model, [row.text for row in rows], origins, task=task)
        return predict(model, examples, task=task, aggregation=aggregation)

    return partial(_isolate, compute, INPUTS["tag"])


def _make_answer(
    model: Model,
    *,
    truncation: str | None = None,
    overlap: int | None = None,
    **options: Any,  # noqa: ANN401
) -> Compute:
    from cloze.tasks.answer import predict
    from cloze.tasks.inference import resolve_task

    task = override_truncation(resolve_task("answer", model), truncation, overlap)
    return partial(_isolate, partial(predict, model, task=task, **options), INPUTS["answer"])


def _isolate(
    compute: Callable[[Sequence[Any]], Sequence[Record]],
    fields: Sequence[str],
    items: Sequence[Any],
) -> list[Record]:
    """The result of each row; a row that fails has a `Failure` and does not stop the others."""
    found = isolate_errors(compute, items) if items else []
    return [
        Failure(
            inputs={name: getattr(item, name) for name in fields}, error=add_location(one, item)
        )
        if isinstance(one, InputError)
        else one
        for item, one in zip(items, found, strict=True)
    ]
