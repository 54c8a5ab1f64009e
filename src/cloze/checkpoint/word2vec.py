"""Word vectors on disk: model folders, and files of word2vec, GloVe and fastText.

v words, d dimensions. A folder has `config.json`, `model.safetensors` (`vectors`, and
`ngram_vectors` with character n-grams) and `vocabulary.tsv` (word TAB count); if training kept
snapshots, `snapshots.safetensors` has a tensor for each, by the number of words read.
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
from cloze.checkpoint.task import SNAPSHOTS_FILE
from cloze.checkpoint.weights import WEIGHTS_FILE, check_tensor, read_array, read_header
from cloze.data.input_files import open_binary, split_endings
from cloze.errors import FolderError, InputError
from cloze.files import PathLike, atomic_file, expand_user
from cloze.interop.word2vec import MAX_WORD_BYTES, looks_like_vectors, read_vectors
from cloze.interop.word2vec import write_vectors as write_word2vec
from cloze.models.configs.word2vec import Word2VecConfig
from cloze.models.word2vec import Snapshots, WordVectors
from cloze.text.word_tokenizer import WordTokenizer, read_max_length

SUFFIXES = (".txt", ".vec", ".bin")  # of files of other programs, which may be compressed
MAX_PHRASES = 5  # passes that join words
MAX_DIGITS = 19  # of the number of words that training has read
VOCABULARY_FILE = "vocabulary.tsv"
_MAX_FIRST_LINE = 1 << 16  # bytes
_AGAIN = "download or save the folder again"


def open_vectors(contents: FolderContents) -> WordVectors:
    """The word vectors of a folder."""
    config = contents.config
    words, counts = _read_vocabulary(contents.body / VOCABULARY_FILE, config.vocab_size)
    names = contents.layout.find_names(contents.description, contents.stored, ())
    shapes = {"vectors": (config.vocab_size, config.hidden_size)}
    if config.char_ngrams is not None:
        shapes["ngram_vectors"] = (config.char_ngrams.buckets, config.hidden_size)
    arrays = {}
    for name, shape in shapes.items():
        if name not in names:
            raise FolderError(f"{WEIGHTS_FILE} has no {name}", fix=_AGAIN)
        stored = contents.stored[names[name]]
        check_tensor(names[name], stored, shape)
        arrays[name] = read_array(names[name], stored)
    return WordVectors(
        words=words,
        vectors=arrays["vectors"],
        counts=counts,
        char_ngrams=config.char_ngrams,
        ngram_vectors=arrays.get("ngram_vectors"),
        lowercase=config.lowercase,
        snapshots=_read_snapshots(contents.body / SNAPSHOTS_FILE, config),
    )


def _read_snapshots(file: Path, config: Word2VecConfig) -> Snapshots | None:
    """The snapshots of a folder; None if it has none."""
    if not file.is_file():
        return None
    stored = read_header(file)
    if not stored or not all(name.isdecimal() and len(name) < MAX_DIGITS for name in stored):
        raise FolderError(f"{file.name} has tensors that are no snapshots", fix=_AGAIN)
    names = sorted(stored, key=int)
    words = stored[names[0]].shape[0] if stored[names[0]].shape else 0
    if not 1 <= words <= config.vocab_size:
        raise FolderError(f"{file.name} has vectors of {words:,} words", fix=_AGAIN)
    for name in names:
        check_tensor(name, stored[name], (words, config.hidden_size))
    return Snapshots(
        words_read=tuple(map(int, names)),
        vectors=np.stack([read_array(name, stored[name]) for name in names]),
    )


def write_vectors(model: Model[WordVectors, Word2VecConfig], folder: Path) -> None:
    """Write the vectors, and the words with their counts."""
    vectors = model.module
    tensors = {"vectors": np.ascontiguousarray(vectors.vectors, np.float32)}
    if vectors.ngram_vectors is not None:
        tensors["ngram_vectors"] = np.ascontiguousarray(vectors.ngram_vectors, np.float32)
    (folder / VOCABULARY_FILE).write_bytes(
        "".join(map(_format_line, *_make_columns(vectors))).encode()
    )
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "np"})
    if vectors.snapshots is not None:
        steps = zip(vectors.snapshots.words_read, vectors.snapshots.vectors, strict=True)
        copies = {str(read): np.ascontiguousarray(one, np.float32) for read, one in steps}
        save_file(copies, folder / SNAPSHOTS_FILE, metadata={"format": "np"})


def make_vector_model(
    vectors: WordVectors, training: Mapping[str, Any] | None = None
) -> Model[WordVectors, Word2VecConfig]:
    """A model with these word vectors; `training` are the settings that they were trained with."""
    config = Word2VecConfig(
        vocab_size=len(vectors),
        hidden_size=vectors.hidden_size,
        lowercase=vectors.lowercase,
        char_ngrams=vectors.char_ngrams,
        training=training or {},
    )
    return Model(module=vectors, config=config, tokenizer=make_tokenizer(vectors, config))


def make_tokenizer(
    vectors: WordVectors, config: Word2VecConfig, max_length: int | None = None
) -> WordTokenizer:
    """Split text as for the training of these vectors; those of a file may have phrases."""
    training = config.training.get("vocabulary", {}) if config.training else {"phrases": 2}
    settings = training if isinstance(training, Mapping) else {}
    phrases = settings.get("phrases")
    return WordTokenizer(
        vectors,
        spaced=settings.get("kind") == "spaced",
        lowercase=vectors.is_uncased,
        phrases=phrases if isinstance(phrases, int) and 0 <= phrases <= MAX_PHRASES else 0,
        max_length=max_length,
    )


def open_tokenizer(vectors: WordVectors, contents: FolderContents) -> WordTokenizer:
    """The tokenizer of the word vectors of a folder."""
    return make_tokenizer(vectors, contents.config, read_max_length(contents.body))


def is_vector_file(path: PathLike) -> bool:
    """Whether this is a file of word vectors, by its suffix; a .txt by its first line, too."""
    suffix = split_endings(path)[0]
    if suffix not in SUFFIXES or not os.path.isfile(expand_user(path)):  # noqa: PTH113 - never raises
        return False
    if suffix != ".txt":
        return True
    with open_binary(expand_user(path)) as stream:
        return looks_like_vectors(stream.readline(_MAX_FIRST_LINE))


def import_vectors(
    path: PathLike,
    *,
    header: bool | None = None,
    max_words: int | None = None,
) -> Model[WordVectors, Word2VecConfig]:
    """Read a file of word2vec, GloVe or fastText (.vec), which may be compressed.

    Args:
        path: the file; `.bin` is binary, everything else is text.
        header: whether the first line is `V D`; None detects it.
        max_words: the maximum number of words to read, from the beginning of the file, where the
            most frequent ones are.
    """
    file = expand_user(path)
    suffix, compression = split_endings(file)
    if not file.is_file():
        raise InputError(f"{file}: there is no such file or folder", fix="check the path")
    with open_binary(file) as stream:
        if not compression:
            return _read_model(stream, file, suffix, header, max_words)
        with tempfile.TemporaryFile() as decompressed:  # whose size is known
            shutil.copyfileobj(stream, decompressed)
            decompressed.seek(0)
            return _read_model(decompressed, file, suffix, header, max_words)


def export_vectors(vectors: WordVectors, path: PathLike, *, header: bool = True) -> Path:
    """Write a file in word2vec's format, binary if its name ends in `.bin`, without n-grams.

    Text without the header is GloVe's format; binary files always have a header.
    """
    file = Path(path)
    is_binary = file.suffix == ".bin"
    if is_binary and not header:
        raise InputError(
            "a binary file must have a header", fix="write text: use a name that ends in .txt"
        )
    with atomic_file(file) as stream:
        write_word2vec(stream, vectors.words, vectors.vectors, binary=is_binary, header=header)
    return file


def load_vectors(
    source: PathLike, *, max_words: int | None = None, header: bool | None = None
) -> Model[WordVectors, Word2VecConfig]:
    """Read word vectors from a folder, or from a file (see `import_vectors`)."""
    path = Path(source)
    if not path.is_dir():
        return import_vectors(path, max_words=max_words, header=header)
    contents = read_folder(path, kind="word_vectors")
    found = open_vectors(contents)
    if max_words is not None:
        counts = None if found.counts is None else found.counts[:max_words]
        found = replace(
            found, words=found.words[:max_words], vectors=found.vectors[:max_words], counts=counts
        )
    return make_vector_model(found, contents.config.training)


def _read_model(
    stream: Any,  # noqa: ANN401
    file: Path,
    suffix: str,
    header: bool | None,
    max_words: int | None,
) -> Model[WordVectors, Word2VecConfig]:
    words, vectors = read_vectors(
        stream,
        os.fstat(stream.fileno()).st_size,
        str(file),
        binary=suffix == ".bin",
        header=header,
        max_words=max_words,
    )
    return make_vector_model(WordVectors(words=words, vectors=vectors))


def _read_vocabulary(path: Path, size: int) -> tuple[tuple[str, ...], NDArray[np.int64] | None]:
    if not path.is_file():
        raise FolderError(f"{VOCABULARY_FILE} is missing", fix=_AGAIN)
    if path.stat().st_size > size * (MAX_WORD_BYTES + 24):
        raise FolderError(f"{VOCABULARY_FILE} is too large for {size:,} words", fix=_AGAIN)
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    if len(lines) != size:
        raise FolderError(
            f"{VOCABULARY_FILE} has {len(lines):,} words, config.json says {size:,}", fix=_AGAIN
        )
    try:
        pairs = [line.decode().split("\t") for line in lines]
        words = tuple(word for word, _ in pairs)
        counts = np.array([int(count or -1) for _, count in pairs], np.int64)
    except (ValueError, OverflowError) as error:
        raise FolderError(f"{VOCABULARY_FILE} is damaged: {error}", fix=_AGAIN) from None
    if len(set(words)) < size:
        duplicate = next(word for word, count in Counter(words).items() if count > 1)
        raise FolderError(f"{VOCABULARY_FILE} has {duplicate!r} more than once", fix=_AGAIN)
    return words, counts if (counts >= 0).all() else None


def _make_columns(vectors: WordVectors) -> tuple[list[str], list[int | None]]:
    words = list(vectors.words)
    for word in words:
        if "\n" in word or "\t" in word:
            raise InputError(f"the word {word!r} contains a tab or newline", fix="remove it")
    counts = [None] * len(words) if vectors.counts is None else vectors.counts.tolist()
    return words, counts


def _format_line(word: str, count: int | None) -> str:
    return f"{word}\t{'' if count is None else count}\n"
