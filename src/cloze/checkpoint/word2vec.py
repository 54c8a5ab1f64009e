"""Word vectors on disk: our folder, and the files that others read and write.  v words, d width.

A folder holds `config.json`, `model.safetensors` (`vectors`, and `grams` where there are n-grams)
and `vocabulary.tsv` (word TAB count).
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from cloze.checkpoint.contents import FolderContents, read_folder
from cloze.checkpoint.model import Model
from cloze.checkpoint.weights import SINGLE, check, read_table
from cloze.data.input_files import open_binary, split_endings
from cloze.errors import FolderError, InputError
from cloze.files import PathLike, atomic_file, expand_user
from cloze.interop.word2vec import LONGEST, WIDEST, looks_like_vectors, read_vectors
from cloze.interop.word2vec import write_vectors as write_word2vec
from cloze.models.configs.word2vec import Word2VecConfig
from cloze.models.word2vec import WordVectors

ENDINGS = (".txt", ".vec", ".bin")  # of others' files, which may be packed
VOCABULARY = "vocabulary.tsv"


def open_vectors(contents: FolderContents) -> WordVectors:
    """The word vectors of a folder."""
    config, stored = contents.config, contents.stored
    words, counts = _read_vocabulary(contents.body / VOCABULARY, config.vocab_size)
    wanted = {"vectors": (config.vocab_size, config.hidden_size)}
    if config.grams is not None:
        wanted["grams"] = (config.grams.buckets, config.hidden_size)
    for name, shape in wanted.items():
        if name not in stored:
            raise FolderError(f"{SINGLE} has no {name}", fix="fetch or save the folder again")
        check(name, stored[name], shape)
    tables = {name: read_table(name, stored[name]) for name in wanted}
    return WordVectors(
        words=words,
        vectors=tables["vectors"],
        counts=counts,
        grams=config.grams,
        gram_vectors=tables.get("grams"),
        lowercase=config.lowercase,
    )


def write_vectors(model: Model[WordVectors, Word2VecConfig], folder: Path) -> None:
    """The vectors, and the words with their counts."""
    vectors = model.module
    tensors = {"vectors": np.ascontiguousarray(vectors.vectors, np.float32)}
    if vectors.gram_vectors is not None:
        tensors["grams"] = np.ascontiguousarray(vectors.gram_vectors, np.float32)
    (folder / VOCABULARY).write_bytes("".join(map(_line, *_columns(vectors))).encode())
    save_file(tensors, folder / SINGLE, metadata={"format": "np"})


def make_model(
    vectors: WordVectors, training: Mapping[str, Any] | None = None
) -> Model[WordVectors, Word2VecConfig]:
    """Word vectors as a model, with the settings they were trained with."""
    config = Word2VecConfig(
        vocab_size=len(vectors),
        hidden_size=vectors.width,
        lowercase=vectors.lowercase,
        grams=vectors.grams,
        training=training or {},
    )
    return Model(module=vectors, config=config)


def begins_vectors(path: PathLike) -> bool:
    """Whether this is a file of word vectors: by its name, and a .txt by its first line too."""
    suffix = split_endings(path)[0]
    if suffix not in ENDINGS or not os.path.isfile(expand_user(path)):  # noqa: PTH113 - never raises
        return False
    if suffix != ".txt":
        return True
    with open_binary(expand_user(path)) as stream:
        return looks_like_vectors(stream.readline(WIDEST))


def import_vectors(
    path: PathLike,
    *,
    header: bool | None = None,
    limit: int | None = None,
) -> Model[WordVectors, Word2VecConfig]:
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
        write_word2vec(stream, vectors.words, vectors.vectors, binary=binary, header=header)
    return place


def load_vectors(
    source: PathLike, *, limit: int | None = None, header: bool | None = None
) -> Model[WordVectors, Word2VecConfig]:
    """Word vectors from a folder, or from a file of another program (see `import_vectors`)."""
    place = Path(source)
    if not place.is_dir():
        return import_vectors(place, limit=limit, header=header)
    contents = read_folder(place, kind="word_vectors")
    found = open_vectors(contents)
    if limit is not None:
        counts = None if found.counts is None else found.counts[:limit]
        found = replace(
            found, words=found.words[:limit], vectors=found.vectors[:limit], counts=counts
        )
    return make_model(found, contents.config.training)


def _imported(
    stream: Any,  # noqa: ANN401
    place: Path,
    ending: str,
    header: bool | None,
    limit: int | None,
) -> Model[WordVectors, Word2VecConfig]:
    words, vectors = read_vectors(
        stream,
        os.fstat(stream.fileno()).st_size,
        str(place),
        binary=ending == ".bin",
        header=header,
        limit=limit,
    )
    return make_model(WordVectors(words=words, vectors=vectors))


def _read_vocabulary(path: Path, size: int) -> tuple[tuple[str, ...], NDArray[np.int64] | None]:
    if not path.is_file():
        raise FolderError(f"there is no {VOCABULARY}", fix="fetch or save the folder again")
    if path.stat().st_size > size * (LONGEST + 24):
        raise FolderError(f"{VOCABULARY} is far too large", fix="fetch or save the folder again")
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    if len(lines) != size:
        raise FolderError(
            f"{VOCABULARY} has {len(lines):,} words, config.json says {size:,}",
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
