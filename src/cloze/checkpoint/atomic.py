"""A folder appears whole or not at all."""

import ctypes
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from cloze.checkpoint.source import UNPLACED
from cloze.checkpoint.weights import SINGLE
from cloze.errors import FolderError
from cloze.files import remove, sync_to_disk, temporary_name, temporary_sibling

_FULL = (errno.ENOSPC, errno.EDQUOT)
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


@contextmanager
def model_told(folder: Path) -> Iterator[None]:
    """Say what a full disk, or another refusal of the system, means while a model is written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if disk_full(error):
            raise FolderError(
                f"the disk is full: the model was not written to {folder}",
                fix="free some space, then do it again; "
                "a run with a saved state goes on with --resume",
            ) from error
        raise FolderError(
            f"the model was not written to {folder}: {getattr(error, 'strerror', None) or error}",
            fix="mend this, or name another place; a run with a saved state goes on with --resume",
        ) from error


def disk_full(error: Exception) -> bool:
    """Whether that is why something was not written."""
    # safetensors tells the kind of a failure in words only
    return getattr(error, "errno", None) in _FULL or any(
        f"os error {number}" in str(error) for number in _FULL
    )


@contextmanager
def whole_folder(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder beside `target` that takes its name when all went well.

    Every file is flushed to the disk before the name changes hands, and the parent after. Where the
    system can swap two names at once, as Linux does on its own disks, a crash leaves the old folder
    or the new one. Elsewhere the old one is moved aside first, and moved back if the new one cannot
    take its place; a crash just between the two leaves it beside, as `.NAME.….old`.
    """
    if target.exists() and not overwrite and not _is_empty(target):
        raise FolderError(
            f"{target} exists", fix="choose another name, or allow it to be overwritten (--force)"
        )
    named, target = target, Path(os.path.realpath(target))  # a link stays one
    try:
        with temporary_sibling(target, folder=True) as work:
            yield work
            files = sorted(work.rglob("*"))
            _as_umask(work, files)
            for path in (*files, work):
                sync_to_disk(path)
            if not target.exists():
                work.rename(target)
            elif not _exchange(work, target):
                _replace(work, target)
            sync_to_disk(target.parent)
    except OSError as error:
        hiding = f"{target.parent}/.{target.name}."
        if error.filename is None or str(error.filename).startswith(hiding):
            error.filename = os.fspath(named)
        raise


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


@contextmanager
def whole_files(folder: Path, optional: Iterable[str] = ()) -> Iterator[Path]:
    """A temporary folder, whose files go into one that holds other things: all of them or none.

    What is written becomes a whole folder inside, `.model`, and stays one until each of its files
    has its place and the `optional` ones it does not have are gone: until then, even if that never
    comes, the model is to be read where `model_in` says. The next saving replaces it. The old
    weights go first and the new ones come last, so that whoever does not know of this finds no
    model in between, rather than one model's labels on another's weights.
    """
    written = folder / UNPLACED
    with whole_folder(written, overwrite=True) as work:
        yield work
    files = [path.relative_to(written) for path in sorted(written.rglob("*")) if path.is_file()]
    for name in (SINGLE, *(name for name in optional if not (written / name).exists())):
        (folder / name).unlink(missing_ok=True)
    for file in sorted(files, key=lambda file: file.name == SINGLE):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        _link(written / file, folder / file)
    for place in {(folder / file).parent for file in files} | {folder}:
        sync_to_disk(place)
    done = written.rename(temporary_name(written))  # at once, and only then piece by piece
    sync_to_disk(folder)
    remove(done)


def _link(path: Path, place: Path) -> None:
    place.unlink(missing_ok=True)
    try:
        place.hardlink_to(path)
    except OSError:  # a disk without such links
        shutil.copyfile(path, place)
        sync_to_disk(place)


def _as_umask(folder: Path, inside: Iterable[Path]) -> None:
    """Let in whom the umask does, as it did for the folder: safetensors lets in the owner only."""
    mode = folder.stat().st_mode & 0o666
    for path in inside:
        if path.is_file():
            path.chmod(mode)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names at once; False where the system or the disk cannot."""
    try:
        call = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    return call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


def _replace(work: Path, target: Path) -> None:
    """Let `work` take the place of `target`, and be what was there."""
    aside = work.with_name(f"{work.name}.old")
    target.rename(aside)
    try:
        work.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    aside.rename(work)
