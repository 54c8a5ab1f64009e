"""Training states on disk: tensors and metadata, in folders that are written atomically.

    state/
      000007-step-14000/
        model.safetensors  optimizer.safetensors  …   named tensors
        metadata.json                                 everything else
        manifest.json                                 size and SHA-256 of each file, written last

The first number is a serial number, so that no state overwrites another. Reading verifies every
byte; damaged states are skipped with a warning.

If the tensors are distributed over several processes (FSDP), each writes the rows that it has:
`model-00001-of-00004.safetensors`. They are read as one, by any number of processes.
"""

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from cloze.checkpoint.atomic import atomic_folder, is_disk_full
from cloze.errors import FolderError
from cloze.files import compute_sha256, read_json, sync_to_disk

FORMAT_VERSION = 2
MANIFEST = "manifest.json"
METADATA = "metadata.json"
_NAME = re.compile(r"(\d{6,})-step-(\d+)")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_LEFTOVER = re.compile(r"\.\d{6,}-step-\d+\..*")  # of a process that was killed while saving


FileEntry = list[int | str]  # size and SHA-256


class DamagedStateWarning(UserWarning):
    """A saved state was skipped because its files are damaged."""


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """A state: tensors by file and name, and metadata that can be stored as JSON."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class NewState:
    """A state that is being written: `work` becomes `target` when all files are there."""

    work: Path
    target: Path


def save_state(folder: Path, state: SavedState, *, keep: int = 2) -> Path:
    """Write the state as the newest in `folder`, and remove all but the newest `keep`.

    Older states are removed only after the new one has been read back and verified. Only one
    process may save in a folder at a time.
    """
    with open_new_state(folder, state.step) as new:
        files = write_tensor_files(new.work, state.tensors)
        write_manifest(new.work, state, files)
    verify_state(new.target)
    remove_old_states(folder, keep=keep)
    return new.target


@contextmanager
def open_new_state(folder: Path, step: int) -> Iterator[NewState]:
    """A temporary folder for the newest state; it gets its name at the end if nothing failed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync_to_disk(folder.parent)
        _remove_leftovers(folder)
        serial = max((number for number, _ in _list_states(folder)), default=0) + 1
        target = folder / format_state_name(serial, step)
        with atomic_folder(target) as work:
            yield NewState(work, target)
    except (OSError, SafetensorError) as error:
        raise make_save_error(folder, step, error) from error


def remove_old_states(folder: Path, *, keep: int) -> None:
    """Remove all but the newest `keep` states."""
    for _, old in sorted(_list_states(folder))[: -max(keep, 1)]:
        shutil.rmtree(old, ignore_errors=True)  # what remains is removed at the next save


def find_newest_state(folder: Path) -> Path | None:
    """The newest state that is not damaged; None if there is none."""
    for _, path in sorted(_list_states(folder), reverse=True):
        try:
            verify_state(path)
        except (FolderError, OSError) as error:
            reason = error.problem if isinstance(error, FolderError) else f"{path}: {error}"
            warnings.warn(f"a saved state is skipped: {reason}", DamagedStateWarning, stacklevel=2)
        else:
            return path
    return None


def read_state(path: Path, *, is_verified: bool = False) -> SavedState:
    """Read a state, after verifying every byte unless that was done already.

    Tensors of several files are read one at a time, when they are used.
    """
    files = list(_read_manifest(path)) if is_verified else verify_state(path)
    parts: dict[str, list[Path]] = {}
    for name in sorted(files):
        if name.endswith(".safetensors"):
            kind = _SHARD.sub("", name.removesuffix(".safetensors"))
            parts.setdefault(kind, []).append(path / name)
    try:
        tensors: dict[str, Mapping[str, Tensor]] = {
            kind: load_file(paths[0]) if len(paths) == 1 else ShardedTensors(paths)
            for kind, paths in parts.items()
        }
    except (OSError, SafetensorError) as error:
        raise _damaged_state_error(path, str(error)) from error
    metadata = read_json(path / METADATA, fix=_fix_damage(path))
    return SavedState(step=metadata.pop("step"), tensors=tensors, metadata=metadata)


class ShardedTensors(Mapping[str, Tensor]):
    """Tensors whose rows are in several files, in their order; each is read when it is used."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files: list[Any] = [safe_open(path, framework="pt") for path in paths]
        self._names: dict[str, list[int]] = {}  # files that contain rows of it
        for number, file in enumerate(self._files):
            for name in file.keys():  # noqa: SIM118 - not a mapping
                self._names.setdefault(name, []).append(number)

    def __getitem__(self, name: str) -> Tensor:
        rows = [self._files[number].get_tensor(name) for number in self._names[name]]
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def verify_state(path: Path) -> list[str]:
    """The names of a state's files; raises if one is missing or has changed."""
    if not (path / MANIFEST).is_file():
        raise _damaged_state_error(path, f"it has no {MANIFEST}")
    files = _read_manifest(path)
    for name, (size, digest) in files.items():
        file = path / name
        if not file.is_file():
            raise _damaged_state_error(path, f"{name} is missing")
        if file.stat().st_size != size:
            raise _damaged_state_error(
                path, f"{name} is {file.stat().st_size:,} bytes instead of {size:,}"
            )
        if compute_sha256(file) != digest:
            raise _damaged_state_error(path, f"the SHA-256 of {name} is wrong")
    return list(files)


def format_state_name(serial: int, step: int) -> str:
    """The name of a state's folder, from its serial number and step."""
    return f"{serial:06d}-step-{step}"


def parse_state_name(path: Path) -> tuple[int, int]:
    """The serial number and step in the name of a state's folder."""
    found = _NAME.fullmatch(path.name)
    assert found, path
    return int(found[1]), int(found[2])


def write_tensor_files(
    work: Path, tensors: Mapping[str, Mapping[str, Tensor]], shard: tuple[int, int] | None = None
) -> dict[str, FileEntry]:
    """Write the tensors of each kind to a file; returns size and SHA-256 of each.

    `shard` is the number of this process, from 0, and of all processes.
    """
    suffix = "" if shard is None else f"-{shard[0] + 1:05d}-of-{shard[1]:05d}"
    files: dict[str, FileEntry] = {}
    for name, values in tensors.items():
        path = work / f"{name}{suffix}.safetensors"
        save_file(dict(values), path)
        sync_to_disk(path)
        files[path.name] = [path.stat().st_size, compute_sha256(path)]
    return files


def write_manifest(work: Path, state: SavedState, files: Mapping[str, FileEntry]) -> None:
    """Write the metadata, then the manifest of all files."""
    # not sorted, so that a resumed run prints its scores in the same order
    metadata = _encode_json({"step": state.step, **state.metadata}, sort_keys=False)
    path = work / METADATA
    path.write_bytes(metadata)
    sync_to_disk(path)
    entry = [path.stat().st_size, compute_sha256(path)]
    (work / MANIFEST).write_bytes(_encode_json(_make_manifest({**files, METADATA: entry})))


def _read_manifest(path: Path) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of each file, after verifying the manifest itself."""
    manifest = path / MANIFEST
    match read_json(manifest, fix=_fix_damage(path)):
        case {"format_version": int(version)} if version != FORMAT_VERSION:
            raise FolderError(
                f"{path} was saved by another version of cloze", fix="resume with that version"
            )
        case {"files": dict(files)} if _encode_json(_make_manifest(files)) == manifest.read_bytes():
            if all(_is_entry(name, entry) for name, entry in files.items()):
                return {name: (size, digest) for name, (size, digest) in files.items()}
    raise _damaged_state_error(path, f"{MANIFEST} has changed")


def _is_entry(name: str, entry: object) -> bool:
    match entry:
        case [int(), str()]:
            return Path(name).name == name  # not in another folder
    return False


def _make_manifest(files: Mapping[str, Any]) -> dict[str, Any]:
    """With a digest of itself, so that damage to the manifest is detected, too."""
    digest = hashlib.sha256(_encode_json(files)).hexdigest()
    return {"format_version": FORMAT_VERSION, "files": files, "sha256": digest}


def _encode_json(content: object, *, sort_keys: bool = True) -> bytes:
    text = json.dumps(content, indent=1, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _list_states(folder: Path) -> Iterator[tuple[int, Path]]:
    """The states in a folder, damaged ones included, with their serial numbers."""
    if folder.is_dir():
        for path in folder.iterdir():
            if _NAME.fullmatch(path.name):
                yield parse_state_name(path)[0], path


def _remove_leftovers(folder: Path) -> None:
    for path in folder.iterdir():
        if _LEFTOVER.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _fix_damage(path: Path) -> str:
    return f"delete the folder {path}, then run the command again with --resume"


def _damaged_state_error(path: Path, reason: str) -> FolderError:
    return FolderError(f"{path} is damaged: {reason}", fix=_fix_damage(path))


def make_save_error(folder: Path, step: int, error: Exception) -> FolderError:
    """The error of a state that could not be saved."""
    is_full = is_disk_full(error)
    problem = f"step {step} was not saved in {folder}"
    action = "free some space" if is_full else "solve this problem"
    then = (
        "the checkpoints saved earlier are intact"
        if any(_list_states(folder))
        else "it starts from the beginning, because nothing was saved yet"
    )
    return FolderError(
        f"the disk is full: {problem}" if is_full else f"{problem}: {error}",
        fix=f"{action}, then resume the run with --resume --out {folder.parent}: {then}",
    )
