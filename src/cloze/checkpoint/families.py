"""Open any model: a folder in the Hugging Face layout or of our own families, a file of others."""

import os
from collections.abc import Callable
from typing import Any

import torch

from cloze.checkpoint.abilities import OWN, own_family
from cloze.checkpoint.language import open_language
from cloze.checkpoint.load import load as load_encoder
from cloze.checkpoint.ngram import FAMILY as NGRAM
from cloze.checkpoint.ngram import is_arpa, load_arpa, open_ngram
from cloze.checkpoint.own import CONFIG
from cloze.checkpoint.source import find_folder
from cloze.checkpoint.translator import load_translator
from cloze.checkpoint.vectors import FAMILY as WORD2VEC
from cloze.checkpoint.vectors import import_vectors, is_vectors, open_vectors
from cloze.device import resolve_dtype
from cloze.errors import InputError
from cloze.files import read_json

OPENERS: dict[str, Callable[..., Any]] = {
    NGRAM: open_ngram,
    WORD2VEC: open_vectors,
    "nnlm": open_language,
    "lstm": open_language,
    "transformer": load_translator,
    "seq2seq": load_translator,
}
"""By `model_type`: what opens a folder of ours, given it, a device and, of nets, a dtype."""
TABLES = (NGRAM, WORD2VEC)  # numbers that are looked up where they lie, and no nets


def load(
    source: str | os.PathLike[str],
    *,
    device: str | torch.device | None = None,
    dtype: str = "float32",
    allow_missing: bool = False,
    quiet: bool = False,
) -> Any:  # noqa: ANN401 (a folder decides what it is; verbs say what they take)
    """The model in a folder, or of a name "org/name" in the local Hugging Face cache or the hub.

    An encoder comes as a `Model`, with its options as in `cloze.checkpoint.load`; other families
    come as records of their own, nets in the `dtype` asked for. A file .arpa is an n-gram model;
    .txt, .vec and .bin are word vectors of word2vec, GloVe or fastText. Both may be packed.
    """
    precision = resolve_dtype(dtype)
    if is_arpa(source):
        _check_table(NGRAM, precision)
        return load_arpa(source)
    if is_vectors(source):
        _check_table(WORD2VEC, precision)
        return import_vectors(source)
    folder = find_folder(source)
    family = own_family(read_json(folder / CONFIG)) if (folder / CONFIG).is_file() else None
    if family in TABLES:
        _check_table(family, precision)
        return OPENERS[family](folder, device=device)
    if family is not None:
        return OPENERS[family](folder, device=device, dtype=precision)
    return load_encoder(
        folder, device=device, dtype=dtype, allow_missing=allow_missing, quiet=quiet
    )


def _check_table(family: str, dtype: torch.dtype) -> None:
    if dtype != torch.float32:
        raise InputError(
            f"{OWN[family].name} cannot be had in {str(dtype).removeprefix('torch.')}",
            fix="leave the dtype out: its numbers are float32",
        )
