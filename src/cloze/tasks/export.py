"""`export`: write a model in the file format of another library."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.checkpoint.model import Model, not_a_model_error
from cloze.checkpoint.word2vec import export_vectors
from cloze.config import one_of
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, check_output_path
from cloze.models.registry import Family
from cloze.models.word2vec import WordVectors
from cloze.tasks.inputs import resolve_model


def _write_arpa(model: Model, out: Path, *, force: bool) -> Path:
    from cloze.checkpoint.ngram import save_arpa

    return save_arpa(model, out, force=force)


def _write_allennlp(model: Model, out: Path, *, force: bool) -> Path:
    from cloze.checkpoint.elmo import save_published

    return save_published(model, out, force=force)


def _write_onnx(
    model: Model, out: Path, *, force: bool, task: str | None = None, dtype: str = "float32"
) -> Path:
    from cloze.tasks.export_onnx import save_onnx

    return save_onnx(model, out, task=task, dtype=dtype, force=force)


@dataclass(frozen=True)
class Format:
    """A file format: the models it supports, and how it is written."""

    models: tuple[str, ...]  # families, or kinds of families
    needs: str
    write: Callable[..., Path]
    excluded: tuple[str, ...] = ()  # families of these kinds that it does not support

    def supports(self, family: Family) -> bool:
        """Whether models of a family can be written in this format."""
        is_listed = not {family.name, family.kind}.isdisjoint(self.models)
        return is_listed and family.name not in self.excluded


FORMATS = {
    "word2vec": Format(
        ("word2vec", "word_vectors"),
        "word vectors",
        lambda model, out, _, **options: export_vectors(model.module, out, **options),
    ),
    "arpa": Format(
        ("ngram",),
        "an n-gram model",
        lambda model, out, force: _write_arpa(model, out, force=force),
    ),
    "allennlp": Format(
        ("elmo",), "an ELMo", lambda model, out, force: _write_allennlp(model, out, force=force)
    ),
    "huggingface": Format(
        ("encoder",),
        "an encoder that transformers has a class for",
        lambda model, out, force: model.save(out, force=force),
        excluded=("gpt3",),
    ),
    "onnx": Format(
        ("encoder",),
        "an encoder",
        lambda model, out, force, **options: _write_onnx(model, out, force=force, **options),
    ),
}
"""word2vec text format (binary for .bin files), ARPA (compressed for .gz files), the published
layout of ELMo, the folder layout of `transformers`, and ONNX with its tokenizer in a folder."""
FOLDERS = ("allennlp", "huggingface", "onnx")  # formats that are not a single file


def check_format(format: str, model: object) -> None:
    """Raise unless the format is one; the error knows if model and format are swapped."""
    if isinstance(model, str) and model in FORMATS and format not in FORMATS:
        raise ConfigError(
            f"format has an unknown value: {format[:80]!r}",
            fix=f"give the format first, then the model: {model} {format}",
        )
    one_of("format", format, FORMATS)


def export(
    format: str,
    model: Model | WordVectors | PathLike,
    out: PathLike,
    *,
    header: bool = True,
    task: str | None = None,
    dtype: str | None = None,
    force: bool = False,
) -> Path:
    """Write a model in the format word2vec, arpa (files), allennlp, huggingface or onnx (folders).

    Without `header`, the first line, word2vec files have the format of GloVe. An ONNX file has the
    outputs of one `task`: embed, fill, classify, tag, answer or choose (default: that of the
    model), in the `dtype` float32 or int8; before it is written, its outputs are compared with
    those of the model.
    """
    check_format(format, model)
    wanted = FORMATS[format]
    model = resolve_model(model)
    if not isinstance(model, Model):
        raise not_a_model_error(model)
    is_exported = "export" in model.capabilities
    able = [name for name, one in FORMATS.items() if is_exported and one.supports(model.family)]
    if format not in able:
        raise InputError(
            f"the format {format} needs {wanted.needs}, but this is {model.family.description}",
            fix=f"use the format {able[0]}"
            if able
            else "this family cannot be exported; other programs read its model folder",
        )
    if not header and format != "word2vec":
        raise InputError(
            f"the format {format} has no header to leave out", fix="leave out --no-header"
        )
    if format != "onnx" and (task is not None or dtype is not None):
        name = "dtype" if task is None else "task"
        raise InputError(f"the format {format} has no {name}", fix=f"leave out {name}")
    target = check_output_path(out, force, file=format not in FOLDERS)
    options: dict[str, Any] = {} if header else {"header": False}
    options |= {} if task is None else {"task": task}
    options |= {} if dtype is None else {"dtype": dtype}
    overwrite = force or target.exists()  # without force, an existing folder is empty
    return wanted.write(model, target, overwrite, **options)
