"""A database of chunks on disk: key = vector of a chunk, value = the chunk and its continuation.

Borgeaud et al. 2021, §2.1. The folder contains `database.json`, which is written last, and files
whose names contain a fingerprint of text, tokenizer and encoder:

    tokens-FINGERPRINT.safetensors        ids of documents; start, end, document of each chunk
    keys-FINGERPRINT-00000.safetensors    the keys of 8,192 chunks, in half precision

So finished parts are reused after an interruption, and a database that is replaced stays usable
until the new one is complete. c chunks, m tokens of a chunk, l = 2m, d size of a key.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.checkpoint.atomic import translate_write_errors
from cloze.config import in_range
from cloze.data.shards import read_arrays, to_smallest_dtype
from cloze.errors import ConfigError, FolderError, InputError
from cloze.files import PathLike, read_json, write_bytes, write_json
from cloze.retrieval.exact import search_exact

FORMAT, FORMAT_VERSION = "cloze chunk database", 1
DESCRIPTION = "database.json"
PART = 8192  # chunks whose keys are in one file
MAX_DIMENSION = 1 << 15
AGAIN = "build the database again; parts that are intact are reused"

Array = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, eq=False)
class DatabaseText:
    """The documents that a database is built from, as tokens."""

    ids: Array  # n, of all documents
    starts: Ints  # c: the first token of each chunk
    ends: Ints  # c: the token after its document
    documents: Ints  # c: a hash of its document

    def read_chunk(self, number: int, chunk_length: int) -> Ints:
        """The tokens of a chunk."""
        first = int(self.starts[number])
        return self.ids[first : first + chunk_length].astype(np.int64)

    def digest(self, *others: object) -> str:
        """A hash of the text and of what else a database depends on."""
        found = blake2b(json.dumps(others).encode(), digest_size=8)
        for array in (self.ids, self.starts, self.ends):
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()


@dataclass(frozen=True, kw_only=True)
class DatabaseInfo:
    """The settings of a database, as `database.json` has them."""

    fingerprint: str
    chunk_length: int
    vocab_size: int
    tokenizer: str  # a hash of the tokenizer whose ids it contains
    encoder: str  # the model that computed the keys: a folder or a built-in model
    encoder_digest: str  # of its weights
    dimension: int  # d
    chunks: int
    tokens: int

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if type(value) is not one.type:
                raise ConfigError(f"{one.name} is {value!r}", fix=AGAIN)
        in_range("chunk_length", self.chunk_length, 2, 1 << 12)
        in_range("dimension", self.dimension, 1, MAX_DIMENSION)
        in_range("chunks", self.chunks, 1, 1 << 40)
        if not self.fingerprint.isalnum():
            raise ConfigError(f"fingerprint is {self.fingerprint!r}", fix=AGAIN)


class ChunkDatabase:
    """An open database: its tokens are memory-mapped, its keys are read when they are needed."""

    def __init__(self, folder: Path, info: DatabaseInfo) -> None:
        """Use `ChunkDatabase.open`."""
        self.folder, self.info = folder, info
        found, _ = read_arrays(folder / _tokens_name(info.fingerprint))
        self.text = DatabaseText(
            ids=found["ids"],
            starts=found["starts"].astype(np.int64),
            ends=found["ends"].astype(np.int64),
            documents=found["documents"].view(np.int64),
        )
        text, length = self.text, info.chunk_length
        if len({info.chunks, len(text.starts), len(text.ends), len(text.documents)}) != 1:
            raise ValueError("the numbers of chunks differ")
        if (text.starts + length > text.ends).any() or (text.ends > len(text.ids)).any():
            raise ValueError("a chunk is outside of the text")
        for number in range(-(-info.chunks // PART)):
            self._map_keys(number)

    @classmethod
    def open(cls, folder: PathLike) -> "ChunkDatabase":
        """Open a folder, or the folder `database` inside of that of a run."""
        path = Path(folder)
        if not (path / DESCRIPTION).is_file() and (path / "database" / DESCRIPTION).is_file():
            path = path / "database"
        if not (path / DESCRIPTION).is_file():
            is_partial = path.is_dir() and any(path.glob("keys-*.safetensors"))
            raise FolderError(
                f"{path} is an incomplete database of chunks"
                if is_partial
                else f"{path} is not a database of chunks",
                fix=AGAIN
                if is_partial
                else "name the folder of a run of the recipe retro, or the folder `database` in it",
            )
        values = read_json(path / DESCRIPTION, fix=AGAIN)
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            raise FolderError(f"{path} is not a database of chunks", fix="check the path")
        if (version := values.pop("format_version", None)) != FORMAT_VERSION:
            raise FolderError(
                f"{path} has database format {version}, but this version reads {FORMAT_VERSION}",
                fix="build it again, or use the version that wrote it",
            )
        try:
            return cls(path, DatabaseInfo(**values))
        except (KeyError, TypeError, ValueError, ConfigError) as error:
            raise FolderError(f"{path} is a damaged database ({error})", fix=AGAIN) from error

    def __len__(self) -> int:
        return self.info.chunks

    def read_values(self, numbers: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Tokens of chunks and of their continuations (… l), and where there are tokens.

        A number of −1 stands for a neighbor that is missing.
        """
        text, length = self.text, 2 * self.info.chunk_length
        known = numbers.clip(0)
        positions = text.starts[known][..., None] + np.arange(length)
        mask = (positions < text.ends[known][..., None]) & (numbers >= 0)[..., None]
        ids = text.ids[np.where(mask, positions, 0)].astype(np.int64)
        if len(ids) and ids.max() >= self.info.vocab_size:
            raise FolderError(f"{self.folder}: a token is outside of the vocabulary", fix=AGAIN)
        return np.where(mask, ids, 0), mask

    def load_keys(self, device: torch.device) -> Tensor:
        """All keys, in the memory of a device: c d."""
        keys = torch.empty(self.info.chunks, self.info.dimension, dtype=torch.float16)
        for number in range(-(-len(keys) // PART)):
            keys[number * PART : (number + 1) * PART] = torch.from_numpy(self._map_keys(number))
        if not keys.isfinite().all():
            raise FolderError(f"{self.folder}: a key is not a finite number", fix=AGAIN)
        return keys.to(device)

    @cached_property
    def documents(self) -> Tensor:
        """A hash of the document of each chunk: c."""
        return torch.from_numpy(self.text.documents.copy())

    def _map_keys(self, number: int) -> Floats:
        path = self.folder / _keys_name(self.info.fingerprint, number)
        count = min(PART, self.info.chunks - number * PART)
        keys = read_keys(path, self.info.dimension)
        if len(keys) != count:
            raise ValueError(f"{path.name} has {len(keys):,} of {count:,} keys")
        return keys.copy()


class KeySearch:
    """Exact search among the keys of a database, which are in the memory of a device."""

    def __init__(self, database: ChunkDatabase, device: torch.device) -> None:
        self.keys, self._documents = database.load_keys(device), database.documents.to(device)

    def find(self, queries: Tensor, k: int, documents: Ints | None = None) -> tuple[Array, Ints]:
        """Scores and numbers (q k) of the nearest chunks; −1 where there are fewer.

        Chunks of the document of a query, given by its hash, are left out.
        """
        exclude = None
        if documents is not None:
            exclude = torch.from_numpy(np.array(documents)), self._documents
        scores, numbers = search_exact(
            queries.to(self.keys.device, torch.float32), self.keys, k, exclude=exclude
        )
        missing = k - scores.shape[1]
        scores = torch.nn.functional.pad(scores, (0, missing), value=-torch.inf)
        numbers = torch.nn.functional.pad(numbers, (0, missing), value=-1)
        return scores.cpu().numpy(), numbers.cpu().numpy()


def build_database(
    folder: Path,
    text: DatabaseText,
    embed: Callable[[Sequence[Ints]], Floats],
    settings: Mapping[str, Any],
    *,
    progress: Progress | None = None,
) -> ChunkDatabase:
    """Write a database, or open the one that is there if it is the same.

    Args:
        folder: what is there is replaced when the new database is complete.
        text: the documents.
        embed: computes the keys of chunks.
        settings: the fields of `DatabaseInfo` that neither text nor keys decide.
        progress: called with a stage, the number of chunks done and their total.
    """
    if not len(text.starts):
        raise InputError(
            f"no document has {settings['chunk_length']} tokens, the length of a chunk",
            fix="give longer documents, separated by blank lines, or a smaller chunk_length",
        )
    fingerprint = text.digest(sorted(settings.items()))
    if (found := find_database(folder, fingerprint)) is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    total, chunk_length, dimension = len(text.starts), int(settings["chunk_length"]), 0
    with translate_write_errors(folder):
        _write_tokens(folder / _tokens_name(fingerprint), text)
        for number, first in enumerate(range(0, total, PART)):
            path = folder / _keys_name(fingerprint, number)
            count = min(PART, total - first)
            size = find_key_size(path, count)
            if size is None:
                chunks = [text.read_chunk(n, chunk_length) for n in range(first, first + count)]
                keys = embed(chunks)
                size = keys.shape[1]
                write_keys(path, keys)
            dimension = size
            if progress:
                progress("chunks embedded", first + count, total)
        info = DatabaseInfo(
            fingerprint=fingerprint,
            dimension=dimension,
            chunks=total,
            tokens=len(text.ids),
            **settings,
        )
        write_json(
            folder / DESCRIPTION,
            {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(info)},
        )
    for path in [*folder.glob("tokens-*.safetensors"), *folder.glob("keys-*.safetensors")]:
        if fingerprint not in path.name:
            path.unlink()
    return ChunkDatabase.open(folder)


def find_database(folder: Path, fingerprint: str) -> ChunkDatabase | None:
    """The complete and intact database of this fingerprint in a folder, if there is one."""
    try:
        found = ChunkDatabase.open(folder)
    except FolderError:
        return None
    return found if found.info.fingerprint == fingerprint else None


def write_keys(path: Path, keys: Floats) -> None:
    """Write keys (c d) in half precision, with a digest of their bytes."""
    halves = np.ascontiguousarray(keys, np.float16)
    metadata = {"dimension": keys.shape[1], "digest": _digest(halves)}
    flat = {"keys": halves.reshape(-1).view(np.uint16)}
    write_bytes(path, safetensors.numpy.save(flat, {"cloze": json.dumps(metadata)}))


def read_keys(path: Path, dimension: int) -> Floats:
    """Memory-map the keys of a file: c d."""
    arrays, _ = read_arrays(path)
    return arrays["keys"].view(np.float16).reshape(-1, dimension)


def find_key_size(path: Path, count: int) -> int | None:
    """The size of the keys of a part that is complete and intact; None if it must be made."""
    try:
        arrays, metadata = read_arrays(path)
        size = int(metadata["dimension"])
        keys = arrays["keys"].view(np.float16).reshape(-1, size)
    except (FolderError, KeyError, TypeError, ValueError):
        return None
    return size if len(keys) == count and metadata.get("digest") == _digest(keys) else None


def _write_tokens(path: Path, text: DatabaseText) -> None:
    arrays = {
        "ids": text.ids,
        "starts": to_smallest_dtype(text.starts),
        "ends": to_smallest_dtype(text.ends),
        "documents": np.ascontiguousarray(text.documents).view(np.uint64),
    }
    write_bytes(path, safetensors.numpy.save(arrays, {"cloze": "{}"}))


def _digest(array: Array) -> str:
    return blake2b(np.ascontiguousarray(array).data, digest_size=16).hexdigest()


def _tokens_name(fingerprint: str) -> str:
    return f"tokens-{fingerprint}.safetensors"


def _keys_name(fingerprint: str, number: int) -> str:
    return f"keys-{fingerprint}-{number:05d}.safetensors"
