"""`export`: a model in the format of others."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.checkpoint.model import Model
from cloze.checkpoint.ngram import NGramModel
from cloze.checkpoint.vectors import export_vectors
from cloze.config import one_of
from cloze.data.files import PathLike, fresh_path
from cloze.errors import InputError
from cloze.models.word2vec import WordVectors


@dataclass(frozen=True)
class Format:
    """What a format is for, and how it is written."""

    model: type
    needs: str
    write: Callable[[Any, Path, bool], Path]


FORMATS = {
    "word2vec": Format(
        WordVectors, "word vectors", lambda model, out, _: export_vectors(model, out)
    ),
    "arpa": Format(
        NGramModel, "an n-gram model", lambda model, out, force: model.save_arpa(out, force=force)
    ),
    "huggingface": Format(
        Model, "an encoder", lambda model, out, force: model.save(out, overwrite=force)
    ),
}
"""By name: word2vec's text (binary where the file ends in .bin), ARPA (packed in .gz), and the
folder that `transformers` opens."""


def export(
    format: str, model: Model | NGramModel | WordVectors, out: PathLike, *, force: bool = False
) -> Path:
    """Write a model for others: word2vec, arpa (a file each) or huggingface (a folder)."""
    wanted = FORMATS[one_of("format", format, FORMATS)]
    if not isinstance(model, wanted.model):
        able = [name for name, one in FORMATS.items() if isinstance(model, one.model)]
        raise InputError(
            f"the format {format} is for {wanted.needs}",
            fix=f"use {able[0]}" if able else "this model's own folder is its only format",
        )
    target = fresh_path(out, force)
    return wanted.write(model, target, force or target.exists())  # an empty folder may be there
