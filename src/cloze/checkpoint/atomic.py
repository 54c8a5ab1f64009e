"""A folder appears whole or not at all."""

import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from cloze.errors import FolderError
from cloze.files import flush

_FULL = (errno.ENOSPC, errno.EDQUOT)
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


@contextmanager
def model_told(folder: Path) -> Iterator[None]:
    """Say what a full disk means while a model is written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if not disk_full(error):
            raise
        raise FolderError(
            f"the disk is full: the model was not written to {folder}",
            fix="free some space, then do it again; a run with a saved state goes on with --resume",
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
    if target.exists() and not overwrite:
        raise FolderError(
            f"{target} exists", fix="choose another name, or allow it to be overwritten (--force)"
        )
    target = Path(os.path.realpath(target))  # a link stays one
    target.parent.mkdir(parents=True, exist_ok=True)
    work = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    work.mkdir()
    try:
        yield work
        for path in sorted(work.rglob("*")):
            flush(path)
        flush(work)
        if not target.exists():
            work.rename(target)
        elif not _exchange(work, target):
            _replace(work, target)
        flush(target.parent)
    finally:
        _remove(work)  # half of the new one, or the old one


@contextmanager
def whole_files(folder: Path) -> Iterator[Path]:
    """A temporary folder, whose files go into one that holds other things, each of them whole."""
    written = folder / ".model"
    with whole_folder(written, overwrite=True) as work:
        yield work
    for path in sorted(written.rglob("*")):
        place = folder / path.relative_to(written)
        if path.is_dir():
            place.mkdir(exist_ok=True)
        else:
            path.replace(place)
    shutil.rmtree(written)
    flush(folder)


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


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
