"""Shards, the files of a corpus: token ids, word starts, sentence and document lengths.

A shard is a safetensors file. It is written atomically and contains a digest of its contents.
Arrays (n tokens, s sentences, d documents):

    ids        n          uint16, or uint32 if the vocabulary is larger than 65,536
    words      ⌈n / 8⌉    uint8, one bit per token: whether it starts a word (lowest bit first)
    sentences  s          tokens in each sentence, in the smallest unsigned dtype
    documents  d          sentences in each document, in the smallest unsigned dtype
"""

import errno
import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from cloze.errors import FolderError
from cloze.files import write_bytes

Array: TypeAlias = NDArray[Any]

_DTYPES = {"U8": "<u1", "U16": "<u2", "U32": "<u4", "U64": "<u8"}
_MAX_HEADER_BYTES = 2**16
RUN_AGAIN = "run the same command again; intact shards are reused"


@dataclass(frozen=True, kw_only=True)
class EncodedDocuments:
    """Encoded documents, before they are written."""

    ids: Array
    word_starts: Array  # bool
    sentences: Array  # tokens in each
    documents: Array  # sentences in each
    num_unknown: int  # tokens that are [UNK]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A shard on disk; its arrays are memory-mapped."""

    path: Path
    ids: Array
    words: Array
    sentences: Array
    documents: Array
    num_unknown: int
    digest: str

    def word_starts(self, first: int, last: int) -> NDArray[np.bool_]:
        """Whether each of the tokens from `first` up to `last` starts a word."""
        low = first // 8
        bits = np.unpackbits(self.words[low : (last + 7) // 8], bitorder="little")
        return bits[first - 8 * low : last - 8 * low].view(np.bool_)

    def is_intact(self) -> bool:
        """Whether the contents have the digest that was written; reads the whole file."""
        return self.digest == _compute_digest(self.ids, self.words, self.sentences, self.documents)


def write_shard(path: Path, encoded: EncodedDocuments) -> None:
    """Write a shard atomically."""
    arrays = {
        "ids": encoded.ids,
        "words": np.packbits(encoded.word_starts, bitorder="little"),
        "sentences": to_smallest_dtype(encoded.sentences),
        "documents": to_smallest_dtype(encoded.documents),
    }
    metadata = {"unknown": encoded.num_unknown, "digest": _compute_digest(*arrays.values())}
    # one entry, because the library writes several in an order that differs between runs
    write_bytes(path, safetensors.numpy.save(arrays, {"cloze": json.dumps(metadata)}))


def read_shard(path: Path) -> Shard:
    """Open a shard without reading its tokens; raise `FolderError` if it is damaged."""
    arrays, metadata = read_arrays(path)
    try:
        shard = Shard(
            path=path,
            **arrays,
            num_unknown=int(metadata["unknown"]),
            digest=str(metadata["digest"]),
        )
        is_consistent = len(shard.words) == (len(shard.ids) + 7) // 8
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"{path} is not a shard of a corpus ({error})", fix=RUN_AGAIN) from error
    if not is_consistent:
        raise FolderError(f"{path} is damaged: its arrays have inconsistent lengths", fix=RUN_AGAIN)
    return shard


def read_arrays(path: Path) -> tuple[dict[str, Array], Mapping[str, Any]]:
    """Memory-map the arrays of a safetensors file, and read its metadata."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(_MAX_HEADER_BYTES, size - 8):
                raise FolderError(f"{path} is truncated or damaged", fix=RUN_AGAIN)
            header = json.loads(file.read(length))
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        metadata = json.loads(header.pop("__metadata__", {}).get("cloze", "{}"))
        arrays = {name: _map_array(mapped, 8 + length, **entry) for name, entry in header.items()}
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}", fix=RUN_AGAIN) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FolderError(f"{path} is truncated or damaged ({error})", fix=RUN_AGAIN) from error
    return arrays, metadata


def to_smallest_dtype(numbers: Array) -> Array:
    """Convert non-negative numbers to the smallest unsigned dtype that can represent them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def convert_write_error(folder: Path, error: OSError) -> FolderError:
    """The `FolderError` for an error while writing a corpus."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FolderError(
            f"{folder}: the disk is full",
            fix="free some space and run the same command again; finished shards are kept",
        )
    return FolderError(
        f"{folder} cannot be written: {error.strerror} ({error.filename})",
        fix="check the path and its permissions",
    )


def _map_array(mapped: mmap.mmap, base: int, *, dtype: str, **entry: list[int]) -> Array:
    (count,), (first, last) = entry["shape"], entry["data_offsets"]
    kind = np.dtype(_DTYPES[dtype])
    if last - first != count * kind.itemsize or not 0 <= first <= last <= len(mapped) - base:
        raise ValueError("an array is outside the file")
    return np.frombuffer(mapped, kind, count, base + first)


def _compute_digest(*arrays: Array) -> str:
    digest = blake2b(digest_size=16)
    for array in arrays:
        digest.update(len(array).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return digest.hexdigest()
