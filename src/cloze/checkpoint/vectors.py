"""Word vectors on disk: our folder, and the files that others read and write.  v words, d width.

A folder holds `config.json`, `model.safetensors` (`vectors`, and `grams` where there are n-grams)
and `vocabulary.tsv` (word TAB count).
"""

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from cloze.checkpoint.own import CONFIG, Saved, read_settings, write_settings
from cloze.checkpoint.weights import SINGLE, check, file_weights, read_table
from cloze.config import from_mapping, in_range, to_mapping
from cloze.data.input_files import open_binary, split_endings
from cloze.errors import ConfigError, FolderError, InputError
from cloze.files import PathLike, atomic_file, expand_user
from cloze.interop.word2vec import (
    LONGEST,
    WIDEST,
    looks_like_vectors,
    read_vectors,
    write_vectors,
)
from cloze.models.configs.word2vec import Grams
from cloze.models.word2vec import WordVectors

if TYPE_CHECKING:
    import torch

FAMILY = "word2vec"
ENDINGS = (".txt", ".vec", ".bin")  # of others' files, which may be packed
VOCABULARY = "vocabulary.tsv"
MOST = 1 << 31  # words


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)  # as of WordVectors
class WordModel(WordVectors, Saved):
    """Word vectors that can be saved: what a folder or a file holds, and what training makes."""

    def _write(self, work: Path) -> None:
        config = {
            "vocab_size": len(self.words),
            "hidden_size": self.width,
            "lowercase": self.lowercase,
            "grams": None if self.grams is None else to_mapping(self.grams),
            "training": self.training,
        }
        tensors = {"vectors": np.ascontiguousarray(self.vectors, np.float32)}
        if self.gram_vectors is not None:
            tensors["grams"] = np.ascontiguousarray(self.gram_vectors, np.float32)
        write_settings(work, FAMILY, config)
        (work / VOCABULARY).write_bytes("".join(map(_line, *_columns(self))).encode())
        save_file(tensors, work / SINGLE, metadata={"format": "np"})


def open_vectors(folder: PathLike, *, device: "str | torch.device | None" = None) -> WordModel:  # noqa: ARG001 (they stay with the processor)
    """The word vectors in a folder of ours."""
    place = Path(folder)
    config = _config(place)
    size, width, grams = config["vocab_size"], config["hidden_size"], config["grams"]
    words, counts = _vocabulary(place / VOCABULARY, size)
    if not (place / SINGLE).is_file():
        raise FolderError(f"{place} has no {SINGLE}", fix="is this the folder of a model?")
    stored = file_weights(place / SINGLE)
    wanted = {"vectors": (size, width)} | ({"grams": (grams.buckets, width)} if grams else {})
    for name, shape in wanted.items():
        if name not in stored:
            raise FolderError(f"{SINGLE} holds no {name}", fix="fetch or save the folder again")
        check(name, stored[name], shape)
    tables = {name: read_table(name, stored[name]) for name in wanted}
    return WordModel(
        words=words,
        vectors=tables["vectors"],
        counts=counts,
        grams=grams,
        gram_vectors=tables.get("grams"),
        lowercase=config["lowercase"],
        training=config["training"],
    )


def is_vectors(path: PathLike) -> bool:
    """Whether this is a file that its name lets be one of vectors; a .txt may be any text."""
    return split_endings(path)[0] in ENDINGS and os.path.isfile(expand_user(path))  # noqa: PTH113 - never raises


def begins_vectors(path: PathLike) -> bool:
    """The same, and a .txt begins as vectors do."""
    if not is_vectors(path):
        return False
    if split_endings(path)[0] != ".txt":
        return True
    with open_binary(expand_user(path)) as stream:
        return looks_like_vectors(stream.readline(WIDEST))


def import_vectors(
    path: PathLike,
    *,
    header: bool | None = None,
    limit: int | None = None,
) -> WordModel:
    """Vectors from a file of word2vec, GloVe or fastText (.vec), which may be packed.

    Args:
        path: of the file; `.bin` is binary, all else is text.
        header: whether the first line is `V D`; by default as it looks.
        limit: read no more than the first so many, which are the most frequent.
    """
    place = expand_user(path)
    ending, packing = split_endings(place)
    if not place.is_file():
        raise InputError(f"{place}: there is no such file or folder", fix="check the spelling")
    with open_binary(place) as stream:
        if not packing:
            return _imported(stream, place, ending, header, limit)
        with tempfile.TemporaryFile() as unpacked:  # so that its size is known
            shutil.copyfileobj(stream, unpacked)
            unpacked.seek(0)
            return _imported(unpacked, place, ending, header, limit)


def export_vectors(vectors: WordVectors, path: PathLike, *, header: bool = True) -> Path:
    """Write word2vec's format, binary where the name ends in `.bin`; n-grams are left out.

    Without its first line, the header, text is as GloVe writes it; binary cannot do without.
    """
    place = Path(path)
    binary = place.suffix == ".bin"
    if binary and not header:
        raise InputError(
            "binary files begin with a header, always", fix="write text: a name not ending in .bin"
        )
    with atomic_file(place) as stream:
        write_vectors(stream, vectors.words, vectors.vectors, binary=binary, header=header)
    return place


def load_vectors(
    source: PathLike, *, limit: int | None = None, header: bool | None = None
) -> WordModel:
    """Word vectors from a folder of ours, or from a file of others (see `import_vectors`)."""
    place = Path(source)
    if not place.is_dir():
        return import_vectors(place, limit=limit, header=header)
    vectors = open_vectors(place)
    if limit is None:
        return vectors
    counts = None if vectors.counts is None else vectors.counts[:limit]
    return replace(
        vectors, words=vectors.words[:limit], vectors=vectors.vectors[:limit], counts=counts
    )


def _imported(
    stream: Any,  # noqa: ANN401
    place: Path,
    ending: str,
    header: bool | None,
    limit: int | None,
) -> WordModel:
    words, vectors = read_vectors(
        stream,
        os.fstat(stream.fileno()).st_size,
        str(place),
        binary=ending == ".bin",
        header=header,
        limit=limit,
    )
    return WordModel(words=words, vectors=vectors)


def _config(folder: Path) -> dict[str, Any]:
    _, values = read_settings(folder, (FAMILY,), "word vectors")
    try:
        in_range("vocab_size", values.get("vocab_size"), 1, MOST)
        in_range("hidden_size", values.get("hidden_size"), 1, WIDEST)
        grams = values.get("grams")
        if not isinstance(grams, dict | None):
            raise ConfigError("grams is not a table", fix="fetch or save the folder again")
        made = None if grams is None else from_mapping(Grams, grams)
    except ConfigError as error:
        raise FolderError(f"{CONFIG}: {error.problem}", fix=error.fix) from None
    training = values.get("training")
    return values | {
        "grams": made,
        "lowercase": values.get("lowercase") is True,
        "training": training if isinstance(training, dict) else {},
    }


def _vocabulary(path: Path, size: int) -> tuple[tuple[str, ...], NDArray[np.int64] | None]:
    if not path.is_file():
        raise FolderError(f"there is no {VOCABULARY}", fix="fetch or save the folder again")
    if path.stat().st_size > size * (LONGEST + 24):
        raise FolderError(f"{VOCABULARY} is far too large", fix="fetch or save the folder again")
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    if len(lines) != size:
        raise FolderError(
            f"{VOCABULARY} has {len(lines):,} words, {CONFIG} says {size:,}",
            fix="fetch or save the folder again",
        )
    try:
        pairs = [line.decode().split("\t") for line in lines]
        words = tuple(word for word, _ in pairs)
        counts = np.array([int(count or -1) for _, count in pairs], np.int64)
    except (ValueError, OverflowError) as error:
        raise FolderError(f"{VOCABULARY} is broken: {error}", fix="save the folder again") from None
    if len(set(words)) < size:
        twice = next(word for word, times in Counter(words).items() if times > 1)
        raise FolderError(
            f"{VOCABULARY} has {twice!r} more than once", fix="fetch or save the folder again"
        )
    return words, counts if (counts >= 0).all() else None


def _columns(vectors: WordVectors) -> tuple[list[str], list[int | None]]:
    words = list(vectors.words)
    for word in words:
        if "\n" in word or "\t" in word:
            raise InputError(f"the word {word!r} holds a tab or newline", fix="leave it out")
    counts = [None] * len(words) if vectors.counts is None else vectors.counts.tolist()
    return words, counts


def _line(word: str, count: int | None) -> str:
    return f"{word}\t{'' if count is None else count}\n"
