"""One way to write files, whole or not at all, and one to read small ones, under a cap."""

import io
import json
import math
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from cloze.errors import FolderError, InputError

fcntl: Any
try:
    import fcntl
except ImportError:  # a system without such locks
    fcntl = None

PathLike: TypeAlias = str | os.PathLike[str]

LOCK_FILE = ".lock"  # locked by the process that writes to a folder
MAX_BYTES = 16 << 20  # bytes; far more than any file of settings has
_AGAIN = "fetch or write the file again, or mend it"


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream to a file that takes its name when all is written and the disk holds it.

    Until then, and after a failure, what was there before is there. A link stays one, and what is
    no file, such as a pipe or /dev/null, is written to as it is.
    """
    named = Path(path)
    if named.exists() and not named.is_file() and not named.is_dir():
        with open_for_writing(named) as stream:
            yield stream
        return
    place = Path(os.path.realpath(named))
    with temporary_sibling(place) as work:
        with open_for_writing(work, name=named) as file:
            yield file
            file.flush()
            with name_in_errors(named):
                os.fsync(file.fileno())
        work.replace(place)
        sync_to_disk(place.parent)


@contextmanager
def temporary_sibling(place: Path, *, folder: bool = False) -> Iterator[Path]:
    """A new file or folder beside a place, hidden, to write in; what is left of it is removed.

    Whoever writes there holds a lock on it, which the system takes back when the process ends, in
    whatever way. So a file or folder of such a name that nobody holds was left by a process that
    was killed, and goes. Where a disk knows no locks, what was left stays.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(place)
    while True:
        work = temporary_name(place)
        work.mkdir() if folder else work.touch(exist_ok=False)
        with suppress(FileNotFoundError):  # another process swept before we held it
            handle = os.open(work, os.O_RDONLY)
            _lock(handle)
            if work.exists():
                break
            os.close(handle)
    try:
        yield work
    finally:
        remove(work)
        os.close(handle)


def temporary_name(place: Path) -> Path:
    """A name beside a place that its next writing sweeps away, if it is left."""
    return place.with_name(f".{place.name}.{secrets.token_hex(4)}.new")


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _remove_leftovers(place: Path) -> None:
    if fcntl is None:
        return
    ours = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{8}}\.new")
    with suppress(OSError):  # a folder that may be written to but not listed
        for left in [path for path in place.parent.iterdir() if ours.fullmatch(path.name)]:
            with suppress(OSError):  # someone is at work in it, or it is not ours to remove
                handle = os.open(left, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(left)
                finally:
                    os.close(handle)


def _lock(handle: int) -> None:
    if fcntl is not None:
        with suppress(OSError):  # a disk without locks
            fcntl.flock(handle, fcntl.LOCK_EX)


@contextmanager
def name_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say of a failure which file it was about; the system does so only of opening one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


class _NamedFile(io.FileIO):
    """A file whose failures name it."""

    def __init__(self, file: Path | int, name: str | os.PathLike[str]) -> None:
        super().__init__(file, "wb", closefd=not isinstance(file, int))
        self._shown = name

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # noqa: ANN401
        with name_in_errors(self._shown):
            return super().write(data)


def open_for_writing(
    file: Path | int, *, name: str | os.PathLike[str] | None = None
) -> io.BufferedWriter:
    """A file, or what is open already, to write to; what goes wrong is told of it by this name."""
    return io.BufferedWriter(_NamedFile(file, str(file) if name is None else name))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """The whole of the data under this name, or what was there before."""
    with atomic_file(path) as file:
        file.write(data)
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """The same of a text, as UTF-8 and with its line ends as they are."""
    return write_bytes(path, text.encode())


def write_json(path: str | os.PathLike[str], value: object, *, indent: int | None = 1) -> Path:
    """The same of what JSON can say."""
    text = json.dumps(value, indent=indent, ensure_ascii=False) + "\n"
    # half a surrogate pair, as in a file's name that is not UTF-8, has no bytes but an escape
    return write_bytes(path, text.encode(errors="backslashreplace"))


def replace_non_finite(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
    """The same with None for every number that is none (NaN, infinite): JSON knows no such."""
    if isinstance(value, dict):
        return {name: replace_non_finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_text(path: Path, *, max_bytes: int = MAX_BYTES, fix: str = _AGAIN) -> str:
    """A small file of UTF-8 with every line end as a newline, or an error that names it."""
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise FolderError(
                f"{path} has {size:,} bytes, far more than such a file needs", fix=fix
            )
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FolderError(
            f"{path} is not UTF-8 (at byte {error.start:,})", fix="save it as UTF-8"
        ) from None
    except FileNotFoundError:
        raise FolderError(f"there is no file {path}", fix="check the path") from None
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}", fix=fix) from None


def read_json(path: Path, *, max_bytes: int = MAX_BYTES, fix: str = _AGAIN) -> Any:  # noqa: ANN401
    """What a small JSON file holds, which is not to be trusted, or an error that names it."""
    text = read_text(path, max_bytes=max_bytes, fix=fix)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path} is not JSON: {error}", fix=fix) from None


def expand_user(path: str | os.PathLike[str]) -> Path:
    """The path with the home folder for its ~; that of a user who is not here stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path's own raises a RuntimeError


def sync_to_disk(path: Path) -> None:
    """Have the disk itself hold what was written to a file, or a folder's list of names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def absolute_path(path: PathLike) -> str:
    """The same path or glob from wherever it is asked for; `-` stays what it is."""
    name = os.fspath(path)
    # Path would keep the dots and eat a glob's "./"
    return name if name == "-" else os.path.abspath(os.path.expanduser(name))  # noqa: PTH100, PTH111


def check_output_path(path: PathLike, force: bool = False, *, file: bool = False) -> Path:
    """A place to write a folder, or a file, that overwrites nothing unless told to.

    What stands in the way is told now, before the work that would be lost.
    """
    place = Path(path)
    try:
        taken, other = _taken(place, file)
    except OSError as error:  # a name too long, a folder we may not look into
        raise _unwritable(place, error) from error
    if other:
        what, wanted = ("folder", "file") if file else ("file", "folder")
        raise InputError(
            f"{place} is a {what}, and a {wanted} is to be written", fix="choose another name"
        )
    if taken and not force:
        raise InputError(
            f"{place} exists already",
            fix="choose another place, or overwrite it with --force (force=True in Python)",
        )
    if not file or place.is_file() or not place.exists():  # not a pipe, nor /dev/null
        _check_writable(place)
    return place


def _taken(place: Path, file: bool) -> tuple[bool, bool]:
    """Whether something is there, and whether it is of another kind than is to be written."""
    if place.is_dir():
        return any(path.name != LOCK_FILE for path in place.iterdir()), file
    return place.exists(), place.exists() and not file


def _check_writable(place: Path) -> None:
    """Try to write where the place is or will be; rights alone do not tell, as of /proc."""
    above = nearest_existing_folder(place)
    if not above.is_dir():
        raise InputError(f"{place}: {above} is a file", fix="choose a place in a folder")
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise _unwritable(place, error) from error


def nearest_existing_folder(place: Path) -> Path:
    """The folder itself, or what exists of the path above it; of a file the folder it is in."""
    real = Path(os.path.realpath(place))  # a link is followed when it is written to
    inside = real.parent if real.is_file() else real
    return next(path for path in (inside, *inside.parents) if path.exists())


def _unwritable(place: Path, error: OSError) -> InputError:
    return InputError(
        f"{str(place)[:200]} cannot be written: {error.strerror}",
        fix="choose another place, or get leave to write there",
    )
