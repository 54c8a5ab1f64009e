"""The folder of an n-gram model, whose tables are memory-mapped, and ARPA files.

`model.safetensors` has the tensors `keys.n`, `log_p.n` and `backoff.n` of every order n, except
`keys.1`, which would be 0, 1, 2, …, and `backoff.n` of the highest order.
"""

import gzip
import json
import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from cloze.checkpoint.contents import FolderContents
from cloze.checkpoint.model import Model
from cloze.checkpoint.weights import WEIGHTS_FILE, StoredTensor, map_array
from cloze.data.input_files import open_text
from cloze.errors import FolderError
from cloze.files import atomic_file, check_output_path, expand_user, open_for_writing
from cloze.interop.arpa import read_arpa, write_arpa
from cloze.models.configs.ngram import BOS, SYMBOLS, NGramConfig
from cloze.models.language import Vocabulary
from cloze.models.ngram import Floats, Ints, Level, NGram
from cloze.text.tokenizer_training import build_whitespace_tokenizer

_DTYPES = {"I64": "<i8", "F32": "<f4"}
_AGAIN = "download the folder or train the model again"
_ROWS = 1 << 20  # checked at once


def open_ngram(contents: FolderContents) -> NGram:
    """The model of a folder; its tables are checked, and read from disk when they are used."""
    return NGram(contents.config, _read_levels(contents.stored, contents.config))


def write_ngram(model: Model[NGram, NGramConfig], folder: Path) -> None:
    """Write the tables of a model."""
    _write_arrays(folder / WEIGHTS_FILE, _list_arrays(model.module))


def load_arpa(path: str | os.PathLike[str]) -> Model[NGram, NGramConfig]:
    """Read an ARPA file, which may be compressed; its words are separated by whitespace."""
    with open_text(expand_user(path)) as lines:
        words, module = read_arpa(lines, os.fspath(path))
    tokenizer = build_whitespace_tokenizer(words[len(SYMBOLS) :])
    return Model(module=module, config=module.config, tokenizer=tokenizer)


def save_arpa(
    model: Model[NGram, NGramConfig], path: str | os.PathLike[str], *, force: bool = False
) -> Path:
    """Write an ARPA file, compressed if its name ends in .gz."""
    target = check_output_path(path, force, file=True)
    is_compressed = target.suffix == ".gz"
    with (
        atomic_file(target) as file,
        gzip.GzipFile(target.name, "wb", 6, file) if is_compressed else nullcontext(file) as stream,
    ):
        for part in write_arpa(Vocabulary(model.tokenizer).tokens, model.module):
            stream.write(part.encode())
    return target


def _list_shapes(config: NGramConfig) -> dict[str, tuple[str, tuple[int]]]:
    found: dict[str, tuple[str, tuple[int]]] = {}
    for order, count in enumerate(config.counts, 1):
        if order > 1:
            found[f"keys.{order}"] = "I64", (count,)
        found[f"log_p.{order}"] = "F32", (count,)
        if order < config.order:
            found[f"backoff.{order}"] = "F32", (count,)
    return found


def _list_arrays(module: NGram) -> dict[str, tuple[str, Ints | Floats]]:
    return {
        name: (dtype, getattr(module.levels[int(name[-1]) - 1], name[:-2]))
        for name, (dtype, _) in _list_shapes(module.config).items()
    }


def _write_arrays(file: Path, arrays: Mapping[str, tuple[str, Ints | Floats]]) -> None:
    """Write a safetensors file without copying the arrays first, as the library would."""
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, values) in arrays.items():
        start, end = end, end + len(values) * np.dtype(_DTYPES[dtype]).itemsize
        header[name] = {"dtype": dtype, "shape": [len(values)], "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open_for_writing(file) as opened:
        opened.write(struct.pack("<Q", len(text)) + text)
        for dtype, values in arrays.values():
            opened.write(np.ascontiguousarray(values, dtype=_DTYPES[dtype]).data)


def _read_levels(stored: Mapping[str, StoredTensor], config: NGramConfig) -> Sequence[Level]:
    expected, counts = _list_shapes(config), config.counts
    for name, (dtype, shape) in expected.items():
        if name not in stored or (stored[name].dtype, stored[name].shape) != (dtype, shape):
            raise FolderError(
                f"{WEIGHTS_FILE} has no {name} of the size that config.json implies",
                fix="use config.json and tables of the same model",
            )
    tables = {name: map_array(stored[name]) for name in expected}
    keys = [np.arange(config.vocab_size), *(tables[f"keys.{n}"] for n in range(2, len(counts) + 1))]
    for order, (below, level) in enumerate(zip(counts, keys[1:], strict=False), 2):
        _check_keys(f"keys.{order}", level, below, config)
    for name, table in tables.items():
        if not name.startswith("keys."):
            _check_logs(name, table)
    return [
        Level(
            keys=level,
            log_p=tables[f"log_p.{order}"],
            backoff=tables.get(f"backoff.{order}", np.zeros(0, dtype=np.float32)),
        )
        for order, level in enumerate(keys, 1)
    ]


def _check_keys(name: str, keys: Ints, below: int, config: NGramConfig) -> None:
    """Raise unless keys are ascending and refer to existing contexts and words."""
    bits, last = config.bits, -1
    for start in range(0, len(keys), _ROWS):
        part = keys[start : start + _ROWS]
        if part[0] <= last or (part[1:] <= part[:-1]).any():
            raise FolderError(
                f"model.safetensors is damaged: {name} is not in ascending order", fix=_AGAIN
            )
        last = int(part[-1])
        if last >> bits >= below or (part & ((1 << bits) - 1)).max() >= config.vocab_size:
            raise FolderError(
                f"model.safetensors is damaged: {name} refers to unknown contexts or words",
                fix=_AGAIN,
            )


def _check_logs(name: str, logs: Floats) -> None:
    """Raise unless all are finite, except that of <s>, which is never predicted."""
    for start in range(0, len(logs), _ROWS):
        valid = np.isfinite(logs[start : start + _ROWS])
        if name == "log_p.1" and start == 0:
            valid[BOS] |= logs[BOS] == -np.inf
        if not valid.all():
            raise FolderError(f"{name} contains NaN or infinite values", fix=_AGAIN)
