"""A folder appears whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloze.errors import FolderError


@contextmanager
def whole_folder(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder beside `target` that takes its name when all went well.

    Every file is flushed to the disk before the name changes hands, and the parent after, so that
    a crash leaves the old folder or the new one. What was there before is moved aside first and
    removed last.
    """
    if target.exists() and not overwrite:
        raise FolderError(
            f"{target} exists", fix="choose another name, or allow it to be overwritten (--force)"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        work.chmod(0o777 & ~_umask())  # mkdtemp is for secrets; a model folder is shared
        yield work
        for path in sorted(work.rglob("*")):
            flush(path)
        flush(work)
        aside = work.with_name(f"{work.name}.old")
        if target.exists():
            target.rename(aside)
        work.rename(target)
        flush(target.parent)
        if aside.exists():
            shutil.rmtree(aside) if aside.is_dir() else aside.unlink()
    finally:
        shutil.rmtree(work, ignore_errors=True)


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


def flush(path: Path) -> None:
    """Have the disk itself hold what was written to a file, or a folder's list of names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
