"""Read weights from safetensors files, which are checked before any memory is allocated.

The header of a file is read first, up to a maximum size, and compared with the size of the file and
the shapes that the configuration implies. Only then are tensors read. Pickled files are never
opened.
"""

import json
import math
import os
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

if TYPE_CHECKING:  # reading headers and numpy arrays does not import torch
    import torch
    from torch import Tensor

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MAX_HEADER_BYTES = 4 << 20  # the largest published encoders need a few hundred thousand
MAX_SHARDS = 1000
MAX_TENSORS = 10_000  # the largest published encoders have about a thousand
MAX_DIMS = 8  # of one tensor
MAX_DIM_SIZE = 1 << 48  # so that the number of elements is quick to compute

FLOAT8 = "F8_E4M3"  # one byte per number, without a scale
_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "U8": 1,
    "BOOL": 1,
    FLOAT8: 1,
}
_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
WEIGHT_DTYPES = ("F64", "F32", "F16", "BF16", FLOAT8)


@dataclass(frozen=True)
class LoadReport:
    """What did not match when a folder was loaded, by the names in the folder."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()  # unknown settings or classes in config.json

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.ignored)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file, as the header describes it."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int  # in bytes, from the start of the file


def list_stored_weights(folder: Path) -> dict[str, StoredTensor]:
    """The tensors in the headers of a folder's weight files, by stored name."""
    found: dict[str, StoredTensor] = {}
    for file in _find_weight_files(folder):
        for name, stored in read_header(file).items():
            if name in found:
                raise FolderError(
                    f"{name} is in {found[name].file.name} and in {file.name}",
                    fix="save the folder again; each weight must be in one shard",
                )
            found[name] = stored
        if len(found) > MAX_TENSORS:
            raise _invalid_file_error(
                file, f"the folder has {len(found):,} tensors up to this file"
            )
    return found


def read_weights(wanted: Mapping[str, StoredTensor]) -> "dict[str, Tensor]":
    """Read tensors; NaN and infinite values are an error."""
    tensors: dict[str, Tensor] = {}
    for file in sorted({stored.file for stored in wanted.values()}):
        try:
            with safe_open(file, framework="pt") as opened:
                for name, stored in wanted.items():
                    if stored.file == file:
                        tensor = opened.get_tensor(name)
                        # not every device supports float8
                        tensors[name] = _decode_float8(tensor) if stored.dtype == FLOAT8 else tensor
                        _check_finite(name, tensors[name], file)
        except (SafetensorError, OSError) as error:
            raise _invalid_file_error(file, str(error)) from None
    return tensors


def read_array(name: str, stored: StoredTensor) -> NDArray[np.float32]:
    """Read one tensor as a float32 array, without torch if numpy has its dtype."""
    if stored.dtype not in ("F64", "F32", "F16"):
        return read_weights({name: stored})[name].float().numpy()
    try:
        with safe_open(stored.file, framework="numpy") as opened:
            array: NDArray[np.floating[Any]] = opened.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise _invalid_file_error(stored.file, str(error)) from None
    if array.size:
        _check_extremes(name, float(array.min()), float(array.max()), stored.file)
    return array.astype(np.float32, copy=False)


def map_array(stored: StoredTensor) -> NDArray[Any]:
    """A tensor as a memory-mapped array, which may be larger than the memory.

    Its values are not checked.
    """
    dtype = np.dtype(_NUMPY[stored.dtype])
    if not math.prod(stored.shape):
        return np.zeros(stored.shape, dtype)
    mapped = np.memmap(stored.file, dtype, "r", stored.offset, stored.shape)
    return np.asarray(mapped)


def _decode_float8(tensor: "Tensor") -> "Tensor":
    """The numbers as float32, looked up by their bytes: on a CPU faster than `tensor.float()`."""
    import torch

    values = torch.arange(256, dtype=torch.uint8).view(tensor.dtype).float()
    return values.index_select(0, tensor.view(torch.uint8).flatten().int()).view(tensor.shape)


def _check_finite(name: str, tensor: "Tensor", file: Path) -> None:
    if not tensor.is_floating_point() or not tensor.numel():
        return
    low, high = tensor.aminmax()
    _check_extremes(name, low.item(), high.item(), file)


def _check_extremes(name: str, low: float, high: float, file: Path) -> None:
    # both are NaN if any value is; unlike isfinite of all values, they need no memory
    if not (math.isfinite(low) and math.isfinite(high)):
        raise FolderError(
            f"{file.name} contains NaN or infinite values in {name}",
            fix="download the file again, or train the model again: "
            "the file is damaged, or the training diverged",
        )


def check_tensor(name: str, stored: StoredTensor, shape: "torch.Size | tuple[int, ...]") -> None:
    """Raise unless a tensor has a float dtype and the shape that the configuration implies."""
    if stored.dtype not in WEIGHT_DTYPES:
        raise FolderError(
            f"{name} is stored as {stored.dtype}",
            fix=f"use weights in {', '.join(WEIGHT_DTYPES)}; quantized folders are not supported",
        )
    if stored.shape != tuple(shape):
        raise FolderError(
            f"{name} has the shape {_format_shape(stored.shape)} in {stored.file.name}, "
            f"but config.json implies {_format_shape(tuple(shape))}",
            fix="use config.json and weights of the same model",
        )


def _find_weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    if (folder / INDEX_FILE).is_file():
        return _find_shards(folder)
    pickled = [path.name for path in (*folder.glob("*.bin"), *folder.glob("*.pt"))]
    if pickled:
        raise FolderError(
            f"{folder} has only pickled weights ({', '.join(sorted(pickled))})",
            fix=f"if you trust the file, convert it to {WEIGHTS_FILE}; "
            "cloze opens no pickles, because they can run any code",
        )
    raise FolderError(f"{folder} has no {WEIGHTS_FILE}", fix="use the folder of a model")


def _find_shards(folder: Path) -> list[Path]:
    index = read_json(folder / INDEX_FILE)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not all(
        isinstance(name, str) for name in weight_map.values()
    ):
        raise FolderError(f"{INDEX_FILE} has no weight_map", fix="download the file again")
    names = sorted(set(weight_map.values()))
    if len(names) > MAX_SHARDS:
        raise FolderError(f"{INDEX_FILE} lists {len(names):,} shards", fix="download it again")
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise FolderError(
                f"{INDEX_FILE} lists {name!r}, which is not a safetensors file of this folder",
                fix="download the folder again from a source you trust",
            )
        if not os.path.isfile(folder / name):  # noqa: PTH113 - never raises, however long the name
            raise FolderError(f"the shard {name} is missing", fix="download all shards")
    return [folder / name for name in names]


def read_header(file: Path) -> dict[str, StoredTensor]:
    """The tensors of one file, by its header."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        start = opened.read(8)
        if len(start) < 8:  # noqa: PLR2004
            raise _invalid_file_error(file, "the header is incomplete")
        (length,) = struct.unpack("<Q", start)
        if length > min(MAX_HEADER_BYTES, size - 8):
            raise _invalid_file_error(file, f"the length of the header is {length:,} bytes")
        raw = opened.read(length)
    if (lists := raw.count(b"[") + raw.count(b"{")) > 4 * MAX_TENSORS:  # a tensor has three
        raise _invalid_file_error(file, f"the header has {lists:,} lists and objects")
    try:
        entries = json.loads(raw)
    except (ValueError, RecursionError):
        raise _invalid_file_error(file, "the header is not JSON") from None
    if not isinstance(entries, dict):
        raise _invalid_file_error(file, "the header is not a JSON object")
    entries.pop("__metadata__", None)
    if len(entries) > MAX_TENSORS:
        raise _invalid_file_error(file, f"the header lists {len(entries):,} tensors")
    return {
        name: _read_entry(file, name, entry, 8 + length, size) for name, entry in entries.items()
    }


def _read_entry(
    file: Path, name: str, entry: object, data_start: int, file_size: int
) -> StoredTensor:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]} if (
            dtype in _BYTES
            and len(shape) <= MAX_DIMS
            and all(type(size) is int and 0 <= size <= MAX_DIM_SIZE for size in shape)
        ):
            fits = 0 <= start <= end <= file_size - data_start
            fits = fits and end - start == math.prod(shape) * _BYTES[dtype]
            if not fits:
                raise _invalid_file_error(file, f"the size of {name[:80]} is wrong")
            return StoredTensor(file, dtype, tuple(shape), data_start + start)
    raise _invalid_file_error(file, f"the header's entry for {name[:80]} is not a tensor")


def _invalid_file_error(file: Path, reason: str) -> FolderError:
    return FolderError(
        f"{file.name} is not a valid safetensors file: {reason}",
        fix="download it again: it may be incomplete or damaged",
    )


def _format_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "()"
