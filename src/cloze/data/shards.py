"""One file of a corpus: the ids of a run of documents, where their words start and sentences end.

A shard is an ordinary safetensors file, so any tool can look into it. It is written whole or not at
all, and carries a digest of its own contents. Arrays (n tokens, s sentences, d documents):

    ids        n          uint16, or uint32 when the vocabulary does not fit
    words      ⌈n / 8⌉    uint8, one bit a token: a word starts here (lowest bit first)
    sentences  s          tokens in each sentence, in the smallest type that holds them
    documents  d          sentences in each document, likewise
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
_PREPARE_AGAIN = "prepare the corpus again: whatever is whole will be kept"


@dataclass(frozen=True, kw_only=True)
class EncodedDocuments:
    """Documents as ids, before they are written."""

    ids: Array
    word_starts: Array  # bool: a word starts here
    sentences: Array
    documents: Array
    num_unknown: int


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A written shard: its arrays are windows on the file, read as they are touched."""

    path: Path
    ids: Array
    words: Array
    sentences: Array
    documents: Array
    num_unknown: int
    digest: str

    def word_starts(self, first: int, last: int) -> NDArray[np.bool_]:
        """Where words start among tokens first … last."""
        low = first // 8
        bits = np.unpackbits(self.words[low : (last + 7) // 8], bitorder="little")
        return bits[first - 8 * low : last - 8 * low].view(np.bool_)

    def is_intact(self) -> bool:
        """Whether every byte is as it was written; reads them all."""
        return self.digest == _compute_digest(self.ids, self.words, self.sentences, self.documents)


def write_shard(path: Path, encoded: EncodedDocuments) -> None:
    """Write a shard: whole, or not at all."""
    arrays = {
        "ids": encoded.ids,
        "words": np.packbits(encoded.word_starts, bitorder="little"),
        "sentences": to_smallest_dtype(encoded.sentences),
        "documents": to_smallest_dtype(encoded.documents),
    }
    notes = {"unknown": encoded.num_unknown, "digest": _compute_digest(*arrays.values())}
    # One note, for the library writes several in an order that differs from run to run.
    write_bytes(path, safetensors.numpy.save(arrays, {"cloze": json.dumps(notes)}))


def read_shard(path: Path) -> Shard:
    """Open a shard without reading its tokens; a damaged one raises `FolderError`."""
    arrays, notes = read_arrays(path)
    try:
        shard = Shard(
            path=path, **arrays, num_unknown=int(notes["unknown"]), digest=str(notes["digest"])
        )
        fits = len(shard.words) == (len(shard.ids) + 7) // 8
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(
            f"{path} is not a shard of a corpus ({error})", fix=_PREPARE_AGAIN
        ) from error
    if not fits:
        raise FolderError(f"{path}: its arrays do not fit together", fix=_PREPARE_AGAIN)
    return shard


def read_arrays(path: Path) -> tuple[dict[str, Array], Mapping[str, Any]]:
    """The arrays of a safetensors file as windows on it, and its notes."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(_MAX_HEADER_BYTES, size - 8):
                raise FolderError(f"{path} is cut short or damaged", fix=_PREPARE_AGAIN)
            header = json.loads(file.read(length))
            window = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        notes = json.loads(header.pop("__metadata__", {}).get("cloze", "{}"))
        arrays = {
            name: _map_array(window, 8 + length, **described) for name, described in header.items()
        }
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}", fix=_PREPARE_AGAIN) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FolderError(
            f"{path} is cut short or damaged ({error})", fix=_PREPARE_AGAIN
        ) from error
    return arrays, notes


def to_smallest_dtype(numbers: Array) -> Array:
    """The same numbers, none below zero, in the smallest type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def convert_write_error(folder: Path, error: OSError) -> FolderError:
    """What to tell a user whose disk refused; worker processes hand over the bare `OSError`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FolderError(
            f"{folder}: the disk is full",
            fix="free some space and run the same again: finished shards are kept",
        )
    return FolderError(
        f"{folder} cannot be written to: {error.strerror} ({error.filename})",
        fix="check what is there and who may write to it",
    )


def _map_array(window: mmap.mmap, base: int, *, dtype: str, **where: list[int]) -> Array:
    (count,), (first, last) = where["shape"], where["data_offsets"]
    kind = np.dtype(_DTYPES[dtype])
    if last - first != count * kind.itemsize or not 0 <= first <= last <= len(window) - base:
        raise ValueError("an array lies outside the file")
    return np.frombuffer(window, kind, count, base + first)


def _compute_digest(*arrays: Array) -> str:
    digest = blake2b(digest_size=16)
    for array in arrays:
        digest.update(len(array).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return digest.hexdigest()
