"""Write folders atomically: all files of a folder appear together, or none of them; locks."""

import ctypes
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from safetensors import SafetensorError

from cloze.checkpoint.source import PENDING_MODEL
from cloze.checkpoint.weights import WEIGHTS_FILE
from cloze.errors import FolderError
from cloze.files import LOCK_FILE, make_temporary_name, remove_path, sync_to_disk, temporary_sibling

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # constants of Linux


@contextmanager
def translate_write_errors(folder: Path) -> Iterator[None]:
    """Raise a `FolderError` with a fix if writing a model fails, such as on a full disk."""
    resume = "a run with a saved state continues with --resume"
    try:
        yield
    except (OSError, SafetensorError) as error:
        if is_disk_full(error):
            raise FolderError(
                f"the disk is full: the model was not written to {folder}",
                fix=f"free some space, then try again; {resume}",
            ) from error
        raise FolderError(
            f"the model was not written to {folder}: {getattr(error, 'strerror', None) or error}",
            fix=f"solve this problem or choose another folder; {resume}",
        ) from error


def is_disk_full(error: Exception) -> bool:
    """Whether an error means that the disk is full."""
    # safetensors reports the error number in its message only
    return getattr(error, "errno", None) in _DISK_FULL or any(
        f"os error {number}" in str(error) for number in _DISK_FULL
    )


@contextmanager
def atomic_folder(target: Path, *, force: bool = False) -> Iterator[Path]:
    """A temporary folder next to `target`, renamed to `target` at the end if nothing failed.

    Every file is flushed to the disk before the renaming, and the parent folder after it. If the
    system can exchange two names in one step, as Linux does on its own file systems, a crash leaves
    either the old folder or the new one. Elsewhere the old folder is renamed first, and renamed
    back if the new one cannot be moved to `target`; a crash between these two steps leaves the old
    folder next to it, as `.NAME.….old`.
    """
    if target.exists() and not force and not _is_empty(target):
        raise FolderError(
            f"{target} already exists",
            fix="choose another name, or overwrite it with --force (force=True in Python)",
        )
    given, target = target, Path(os.path.realpath(target))  # a symbolic link is kept
    try:
        with temporary_sibling(target, folder=True) as work:
            yield work
            files = sorted(work.rglob("*"))
            _apply_umask(work, files)
            for path in (*files, work):
                sync_to_disk(path)
            if not target.exists():
                work.rename(target)
            elif not _exchange(work, target):
                _replace(work, target)
            sync_to_disk(target.parent)
    except OSError as error:
        temporary = f"{target.parent}/.{target.name}."
        if error.filename is None or str(error.filename).startswith(temporary):
            error.filename = os.fspath(given)
        raise


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


@contextmanager
def atomic_files(folder: Path, optional: Iterable[str] = ()) -> Iterator[Path]:
    """A temporary folder whose files are moved into `folder`, which may have other files, too.

    The files are first written to `folder/.model`, atomically. Then each gets a hard link in
    `folder`, and the `optional` files that the new model does not have are removed; only then
    `.model` is removed. If this is interrupted, `find_saved_model` returns `.model`, which is
    complete, and the next save replaces it. The old weights are removed first and the new ones
    added last, so that programs that ignore `.model` find no model in between, and never the labels
    of one model with the weights of another.
    """
    pending = folder / PENDING_MODEL
    with atomic_folder(pending, force=True) as work:
        yield work
    files = [path.relative_to(pending) for path in sorted(pending.rglob("*")) if path.is_file()]
    for name in (WEIGHTS_FILE, *(name for name in optional if not (pending / name).exists())):
        (folder / name).unlink(missing_ok=True)
    for file in sorted(files, key=lambda file: file.name == WEIGHTS_FILE):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        _link(pending / file, folder / file)
    for parent in {(folder / file).parent for file in files} | {folder}:
        sync_to_disk(parent)
    # renaming is one step; removing the files takes several
    done = pending.rename(make_temporary_name(pending))
    sync_to_disk(folder)
    remove_path(done)


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)
        sync_to_disk(target)


def _apply_umask(folder: Path, files: Iterable[Path]) -> None:
    """Give files the permissions that the umask allows; safetensors allows the owner only."""
    mode = folder.stat().st_mode & 0o666
    for path in files:
        if path.is_file():
            path.chmod(mode)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False if the system or the file system cannot."""
    try:
        call = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    return call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


def _replace(work: Path, target: Path) -> None:
    """Exchange `work` and `target` in several steps."""
    aside = work.with_name(f"{work.name}.old")
    target.rename(aside)
    try:
        work.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    aside.rename(work)


@contextmanager
def lock_folder(folder: Path, *, work: str = "training in") -> Iterator[None]:
    """Keep other processes from training in a folder, which is created if necessary.

    The kernel releases the lock when the process ends, however it ends. Where locks are not
    supported (Windows, some network file systems) nothing is locked. A folder that was created
    here and stays empty is removed again.
    """
    folder = Path(os.path.realpath(folder))  # the target of a link may not exist yet
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    lock = _acquire_lock(folder, work)
    try:
        yield
    finally:
        if lock is not None:
            (folder / LOCK_FILE).unlink(missing_ok=True)  # while it is held
            lock.close()
        with suppress(OSError):
            for path in created:
                path.rmdir()


def _acquire_lock(folder: Path, work: str) -> IO[str] | None:
    """The folder's lock; None where locks are not supported."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    while True:
        file = (folder / LOCK_FILE).open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise FolderError(
                f"another process is {work} {folder}",
                fix="wait until it has ended, or choose another --out",
            ) from None
        except OSError:  # a file system without locks
            return file
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), (folder / LOCK_FILE).stat()):
                return file
        file.close()  # of a process that has just ended and removed its lock
