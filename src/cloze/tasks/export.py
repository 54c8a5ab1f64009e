"""`export`: a model in the format of others."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cloze.checkpoint.model import Model, not_a_model_error
from cloze.checkpoint.ngram import save_arpa
from cloze.checkpoint.word2vec import export_vectors
from cloze.config import one_of
from cloze.errors import InputError
from cloze.files import PathLike, check_output_path
from cloze.models.word2vec import WordVectors
from cloze.tasks.inputs import resolve_model


@dataclass(frozen=True)
class Format:
    """What a format is for, and how it is written."""

    models: tuple[str, ...]  # families, or kinds of families
    needs: str
    write: Callable[..., Path]


FORMATS = {
    "word2vec": Format(
        ("word2vec", "word_vectors"),
        "word vectors",
        lambda model, out, _, **options: export_vectors(model.module, out, **options),
    ),
    "arpa": Format(
        ("ngram",),
        "an n-gram model",
        lambda model, out, force: save_arpa(model, out, force=force),
    ),
    "huggingface": Format(
        ("encoder",), "an encoder", lambda model, out, force: model.save(out, overwrite=force)
    ),
}
"""By name: word2vec's text (binary where the file ends in .bin), ARPA (packed in .gz), and the
folder that `transformers` opens."""


def export(
    format: str,
    model: Model | WordVectors | PathLike,
    out: PathLike,
    *,
    header: bool = True,
    force: bool = False,
) -> Path:
    """Write a model for others: word2vec, arpa (a file each) or huggingface (a folder).

    word2vec without its `header`, the first line, is GloVe's format.
    """
    wanted = FORMATS[one_of("format", format, FORMATS)]
    model = resolve_model(model)
    if not isinstance(model, Model):
        raise not_a_model_error(model)
    own = {model.family.name, model.family.kind}
    if own.isdisjoint(wanted.models):
        able = [name for name, one in FORMATS.items() if not own.isdisjoint(one.models)]
        raise InputError(
            f"the format {format} is for {wanted.needs}",
            fix=f"use {able[0]}" if able else "this model's own folder is its only format",
        )
    if not header and format != "word2vec":
        raise InputError(
            f"the format {format} has no header to leave out", fix="leave out --no-header"
        )
    target = check_output_path(out, force, file=format != "huggingface")
    options = {} if header else {"header": False}
    return wanted.write(model, target, force or target.exists(), **options)  # or it is empty
