"""Weights on disk: safetensors only, checked before anything is allocated.

A header says what a file claims to hold. It is read first, under a cap, and held against the
file's size and the shapes that the configuration implies; only then is a tensor read. Pickled
files are never opened.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from cloze.errors import FolderError
from cloze.files import read_json

if TYPE_CHECKING:  # what only looks at headers and tables starts without torch
    import torch
    from torch import Tensor

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
HEADER_CAP = 4 << 20  # bytes; the largest published encoders need a few hundred thousand
MOST_SHARDS = 1000
MOST_TENSORS = 10_000  # the largest published encoders have about a thousand
MOST_SIDES = 8  # of one tensor
LONGEST_SIDE = 1 << 48  # so that the product of all sides is soon done

EIGHT_BITS = "F8_E4M3"  # one byte a number, without a scale
_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "U8": 1,
    "BOOL": 1,
    EIGHT_BITS: 1,
}
_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
WEIGHT_KINDS = ("F64", "F32", "F16", "BF16", EIGHT_BITS)


@dataclass(frozen=True)
class LoadReport:
    """What did not match when a folder was loaded, by the names in the folder."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()  # unknown settings of config.json, or a class that it names

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.ignored)


@dataclass(frozen=True)
class Stored:
    """One tensor on disk, as its header describes it."""

    file: Path
    kind: str
    shape: tuple[int, ...]
    offset: int  # in bytes, from the start of the file


def stored_weights(folder: Path) -> dict[str, Stored]:
    """What a folder's weight files claim to hold, by stored name."""
    found: dict[str, Stored] = {}
    for file in _files(folder):
        for name, stored in file_weights(file).items():
            if name in found:
                raise FolderError(
                    f"{name} is in {found[name].file.name} and in {file.name}",
                    fix="each weight belongs in one shard; save the folder anew",
                )
            found[name] = stored
        if len(found) > MOST_TENSORS:
            raise _broken(file, f"with it there are {len(found):,} tensors")
    return found


def read_weights(wanted: Mapping[str, Stored]) -> "dict[str, Tensor]":
    """The tensors themselves, file by file; NaN and infinite values are an error."""
    tensors: dict[str, Tensor] = {}
    for file in sorted({stored.file for stored in wanted.values()}):
        try:
            with safe_open(file, framework="pt") as opened:
                for name, stored in wanted.items():
                    if stored.file == file:
                        tensor = opened.get_tensor(name)
                        # not every device knows what to do with eight bits
                        tensors[name] = tensor.float() if stored.kind == EIGHT_BITS else tensor
                        _check_finite(name, tensors[name], file)
        except (SafetensorError, OSError) as error:
            raise _broken(file, str(error)) from None
    return tensors


def read_table(name: str, stored: Stored) -> NDArray[np.float32]:
    """The same of one tensor for numpy, in float32; without torch where numpy knows its kind."""
    if stored.kind not in ("F64", "F32", "F16"):
        return read_weights({name: stored})[name].float().numpy()
    try:
        with safe_open(stored.file, framework="numpy") as opened:
            table: NDArray[np.floating[Any]] = opened.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise _broken(stored.file, str(error)) from None
    if table.size:
        _check_ends(name, float(table.min()), float(table.max()), stored.file)
    return table.astype(np.float32, copy=False)


def map_table(stored: Stored) -> NDArray[Any]:
    """A tensor as an array that is mapped into memory: it may be larger. Values are not checked."""
    dtype = np.dtype(_NUMPY[stored.kind])
    if not math.prod(stored.shape):
        return np.zeros(stored.shape, dtype)
    mapped = np.memmap(stored.file, dtype, "r", stored.offset, stored.shape)
    return np.asarray(mapped)


def _check_finite(name: str, tensor: "Tensor", file: Path) -> None:
    if not tensor.is_floating_point() or not tensor.numel():
        return
    least, most = tensor.aminmax()
    _check_ends(name, least.item(), most.item(), file)


def _check_ends(name: str, least: float, most: float, file: Path) -> None:
    # a NaN is both of them; unlike isfinite of all, they need no memory
    if not (math.isfinite(most) and math.isfinite(least)):
        raise FolderError(
            f"{name} in {file.name} holds numbers that are none (NaN or infinite)",
            fix="its training may have gone astray, or the file is damaged; "
            "fetch it again, or make the model anew",
        )


def check(name: str, stored: Stored, shape: "torch.Size | tuple[int, ...]") -> None:
    """Refuse a tensor that is not what the configuration implies."""
    if stored.kind not in WEIGHT_KINDS:
        raise FolderError(
            f"{name} is stored as {stored.kind}",
            fix=f"weights are {', '.join(WEIGHT_KINDS)}; a quantised folder is not read here",
        )
    if stored.shape != tuple(shape):
        raise FolderError(
            f"{name} is {_shape(stored.shape)} in {stored.file.name}, "
            f"but config.json implies {_shape(tuple(shape))}",
            fix="config.json and the weights are not of one model; take both from one folder",
        )


def _files(folder: Path) -> list[Path]:
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return _shards(folder)
    pickled = [path.name for path in (*folder.glob("*.bin"), *folder.glob("*.pt"))]
    if pickled:
        raise FolderError(
            f"{folder} holds only pickled weights ({', '.join(sorted(pickled))})",
            fix="a pickle can run any code when opened, so cloze never does; "
            f"convert it to {SINGLE} where you trust it",
        )
    raise FolderError(f"{folder} has no {SINGLE}", fix="is this the folder of a model?")


def _shards(folder: Path) -> list[Path]:
    index = read_json(folder / INDEX)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise FolderError(f"{INDEX} has no weight_map", fix="fetch the file again")
    names = sorted(set(places.values()))
    if len(names) > MOST_SHARDS:
        raise FolderError(f"{INDEX} names {len(names):,} shards", fix="fetch the file again")
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise FolderError(
                f"{INDEX} names {name!r}, which is not a safetensors file of this folder",
                fix="the folder is broken or hostile; fetch it again from a source you trust",
            )
        if not (folder / name).is_file():
            raise FolderError(f"the shard {name} is missing", fix="fetch all shards of the model")
    return [folder / name for name in names]


def file_weights(file: Path) -> dict[str, Stored]:
    """What one file claims to hold, by its header."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        start = opened.read(8)
        if len(start) < 8:  # noqa: PLR2004
            raise _broken(file, "it is shorter than a header")
        (length,) = struct.unpack("<Q", start)
        if length > min(HEADER_CAP, size - 8):
            raise _broken(file, f"its header claims {length:,} bytes")
        raw = opened.read(length)
    if (lists := raw.count(b"[") + raw.count(b"{")) > 4 * MOST_TENSORS:  # a tensor has three
        raise _broken(file, f"its header has {lists:,} lists and tables")
    try:
        entries = json.loads(raw)
    except (ValueError, RecursionError):
        raise _broken(file, "its header is not JSON") from None
    if not isinstance(entries, dict):
        raise _broken(file, "its header is not a table of tensors")
    entries.pop("__metadata__", None)
    if len(entries) > MOST_TENSORS:
        raise _broken(file, f"its header lists {len(entries):,} tensors")
    return {
        name: _read_entry(file, name, entry, 8 + length, size) for name, entry in entries.items()
    }


def _read_entry(file: Path, name: str, entry: object, begin: int, size: int) -> Stored:
    match entry:
        case {"dtype": str(kind), "shape": [*shape], "data_offsets": [int(start), int(end)]} if (
            kind in _BYTES
            and len(shape) <= MOST_SIDES
            and all(type(side) is int and 0 <= side <= LONGEST_SIDE for side in shape)
        ):
            fits = 0 <= start <= end <= size - begin
            fits = fits and end - start == math.prod(shape) * _BYTES[kind]
            if not fits:
                raise _broken(file, f"{name[:80]} does not fit the bytes it claims")
            return Stored(file, kind, tuple(shape), begin + start)
    raise _broken(file, f"its entry for {name[:80]} is not a tensor's")


def _broken(file: Path, why: str) -> FolderError:
    return FolderError(
        f"{file.name} is not a sound safetensors file: {why}",
        fix="it may be cut off or damaged; fetch it again",
    )


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a single number"
