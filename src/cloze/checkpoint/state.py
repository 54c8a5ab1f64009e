"""A training state on disk: tensors and facts in a folder that is whole, or is not there at all.

    state/
      000007-step-14000/
        model.safetensors  optimizer.safetensors  …   named tensors
        facts.json                                    everything else
        manifest.json                                 size and SHA-256 of each file, written last

The number in front counts the savings, so that no saving ever replaces another. Reading checks
every byte; what is damaged is passed over, with a warning.
"""

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cloze.checkpoint.atomic import disk_full, whole_folder
from cloze.errors import FolderError
from cloze.files import read_json, sync_to_disk

FORMAT = 1
MANIFEST = "manifest.json"
FACTS = "facts.json"
_NAME = re.compile(r"(\d{6,})-step-(\d+)")
_LEFTOVER = re.compile(r"\.\d{6,}-step-\d+\..*")  # of a process that was killed while saving


class DamagedStateWarning(UserWarning):
    """A saved state was passed over because it is not what was written."""


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """A state, whoever made it: tensors by file and name, and facts that JSON can hold."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    facts: Mapping[str, Any]


def save_state(folder: Path, state: SavedState, *, keep: int = 2) -> Path:
    """Write the state as the newest in `folder`, and remove all but the newest `keep`.

    The older ones go only once the new one has been read back and found whole. One process may
    save in a folder at a time.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync_to_disk(folder.parent)
        _sweep(folder)
        serial = max((number for number, _ in _states(folder)), default=0) + 1
        target = folder / state_name(serial, state.step)
        with whole_folder(target) as work:
            _write(work, state)
    except (OSError, SafetensorError) as error:
        raise _not_saved(folder, state.step, error) from error
    verify(target)
    for _, old in sorted(_states(folder))[: -max(keep, 1)]:
        shutil.rmtree(old, ignore_errors=True)  # what stays for now goes at the next saving
    return target


def newest_state(folder: Path) -> Path | None:
    """The newest state in which every byte is as it was written; None when there is none."""
    for _, path in sorted(_states(folder), reverse=True):
        try:
            verify(path)
        except (FolderError, OSError) as error:
            why = error.problem if isinstance(error, FolderError) else f"{path}: {error}"
            warnings.warn(f"passed over a state: {why}", DamagedStateWarning, stacklevel=2)
        else:
            return path
    return None


def read_state(path: Path) -> SavedState:
    """A state that was saved, every byte checked first."""
    files = verify(path)
    try:
        tensors = {
            name.removesuffix(".safetensors"): load_file(path / name)
            for name in files
            if name.endswith(".safetensors")
        }
    except (OSError, SafetensorError) as error:
        raise _damaged(path, str(error)) from error
    facts = read_json(path / FACTS)
    return SavedState(step=facts.pop("step"), tensors=tensors, facts=facts)


def verify(path: Path) -> list[str]:
    """The names of a state's files, or an error that says which is not as it was written."""
    if not (path / MANIFEST).is_file():
        raise _damaged(path, f"it has no {MANIFEST}")
    files = _listed(path)
    for name, (size, digest) in files.items():
        file = path / name
        if not file.is_file():
            raise _damaged(path, f"{name} is missing")
        if file.stat().st_size != size:
            raise _damaged(path, f"{name} is {file.stat().st_size:,} bytes instead of {size:,}")
        if _sha256(file) != digest:
            raise _damaged(path, f"{name} is not as it was written")
    return list(files)


def state_name(serial: int, step: int) -> str:
    """The name of the folder with the state of a step, and with the number of its saving."""
    return f"{serial:06d}-step-{step}"


def state_number(path: Path) -> tuple[int, int]:
    """The number of the saving and the step that a state's name tells."""
    found = _NAME.fullmatch(path.name)
    assert found, path
    return int(found[1]), int(found[2])


def _write(work: Path, state: SavedState) -> None:
    for name, tensors in state.tensors.items():
        save_file(dict(tensors), work / f"{name}.safetensors")
    (work / FACTS).write_bytes(_text({"step": state.step, **state.facts}))
    written = sorted(path for path in work.iterdir())
    for path in written:
        sync_to_disk(path)
    files = {path.name: [path.stat().st_size, _sha256(path)] for path in written}
    (work / MANIFEST).write_bytes(_text(_manifest(files)))


def _listed(path: Path) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of each file, if the manifest itself is as it was written."""
    manifest = path / MANIFEST
    match read_json(manifest):
        case {"format_version": int(version)} if version > FORMAT:
            raise FolderError(
                f"{path} was saved by a later version of cloze", fix="resume with that version"
            )
        case {"files": dict(files)} if _text(_manifest(files)) == manifest.read_bytes():
            if all(_is_entry(name, entry) for name, entry in files.items()):
                return {name: (size, digest) for name, (size, digest) in files.items()}
    raise _damaged(path, f"{MANIFEST} is not as it was written")


def _is_entry(name: str, entry: object) -> bool:
    match entry:
        case [int(), str()]:
            return Path(name).name == name  # in this folder and nowhere else
    return False


def _manifest(files: Mapping[str, Any]) -> dict[str, Any]:
    """With a digest of its own, so that no flipped bit in it goes unseen either."""
    digest = hashlib.sha256(_text(files)).hexdigest()
    return {"format_version": FORMAT, "files": files, "sha256": digest}


def _text(content: object) -> bytes:
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _states(folder: Path) -> Iterator[tuple[int, Path]]:
    """The states in a folder, damaged ones too, with the number of their saving."""
    if folder.is_dir():
        for path in folder.iterdir():
            if _NAME.fullmatch(path.name):
                yield state_number(path)[0], path


def _sweep(folder: Path) -> None:
    for path in folder.iterdir():
        if _LEFTOVER.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _damaged(path: Path, why: str) -> FolderError:
    return FolderError(f"{path} is damaged: {why}", fix="resume from an earlier state")


def _not_saved(folder: Path, step: int, error: Exception) -> FolderError:
    full = disk_full(error)
    problem = f"step {step} was not saved in {folder}"
    cure = "free some space" if full else "mend this"
    return FolderError(
        f"the disk is full: {problem}" if full else f"{problem}: {error}",
        fix=f"the states saved before are whole: {cure}, then resume"
        if any(_states(folder))
        else f"{cure}, then start the run again: no state of it was saved before",
    )
