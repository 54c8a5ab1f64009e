"""Atomic writing of files, reading of small files with a size limit, and output paths."""

import hashlib
import io
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from cloze.errors import FolderError, InputError

fcntl: Any
try:
    import fcntl
except ImportError:  # not available on Windows
    fcntl = None

PathLike: TypeAlias = str | os.PathLike[str]

ARGUMENT = "TEXT"  # in place of the file, for a text given on the command line
LOCK_FILE = ".lock"  # locked by the process that writes to a folder
MAX_BYTES = 16 << 20  # far more than any configuration file has
# of data files, which are easily mistaken for texts
_DATA_ENDINGS = {
    *(".txt", ".tsv", ".csv", ".json", ".jsonl", ".parquet", ".conll"),
    *(".gz", ".xz", ".zst"),
}
_MAX_SCANNED = 300  # entries of a folder that are compared with a mistyped name
_FIX = "download or write the file again, or fix it"


def is_data_file(text: str) -> bool:
    """Whether a text is the name of a data file, which was probably to be read."""
    ending = os.path.splitext(text)[1]  # noqa: PTH122 - pathlib is slow
    return ending in _DATA_ENDINGS and os.path.isfile(text)  # noqa: PTH113


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under its name when it is complete and synced to disk.

    Until then, and after a failure, the old file is unchanged. Symbolic links are followed, and
    special files such as pipes or /dev/null are written to directly.
    """
    given = Path(path)
    if given.exists() and not given.is_file() and not given.is_dir():
        with open_for_writing(given) as stream:
            yield stream
        return
    target = Path(os.path.realpath(given))
    with temporary_sibling(target) as temporary:
        with open_for_writing(temporary, name=given) as file:
            yield file
            file.flush()
            with name_in_errors(given):
                os.fsync(file.fileno())
        temporary.replace(target)
        sync_to_disk(target.parent)


@contextmanager
def temporary_sibling(target: Path, *, folder: bool = False) -> Iterator[Path]:
    """Create a hidden temporary file or folder next to a path; it is removed at the end.

    The process holds a lock on it, which the system releases when the process ends. Temporary files
    without a lock were left by a killed process and are removed. On file systems without locks they
    stay.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    while True:
        work = make_temporary_name(target)
        work.mkdir() if folder else work.touch(exist_ok=False)
        with suppress(FileNotFoundError):  # another process removed it before it was locked
            handle = os.open(work, os.O_RDONLY)
            _lock(handle)
            if work.exists():
                break
            os.close(handle)
    try:
        yield work
    finally:
        remove_path(work)
        os.close(handle)


def make_temporary_name(target: Path) -> Path:
    """A hidden name next to a path; leftovers are removed when the path is written again."""
    return target.with_name(f".{target.name}.{os.urandom(4).hex()}.new")


def remove_path(path: Path) -> None:
    """Remove a file or a folder with its contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _remove_leftovers(target: Path) -> None:
    for leftover in find_leftovers(target):
        remove_path(leftover)


def find_leftovers(target: Path) -> Iterator[Path]:
    """Temporary files and folders of `target` that a killed process left; each is locked."""
    if fcntl is None:
        return
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.new")
    with suppress(OSError):  # a folder that may be written but not listed
        for leftover in [path for path in target.parent.iterdir() if pattern.fullmatch(path.name)]:
            with suppress(OSError):  # in use, or no permission to remove it
                handle = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield leftover
                finally:
                    os.close(handle)


def _lock(handle: int) -> None:
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)


@contextmanager
def name_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the file name to errors; the system does so only when opening files."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


class _NamedFile(io.FileIO):
    """A file whose errors contain its name."""

    def __init__(self, file: Path | int, name: str | os.PathLike[str]) -> None:
        super().__init__(file, "wb", closefd=not isinstance(file, int))
        self._name_in_errors = name

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # noqa: ANN401
        with name_in_errors(self._name_in_errors):
            return super().write(data)


def open_for_writing(
    file: Path | int, *, name: str | os.PathLike[str] | None = None
) -> io.BufferedWriter:
    """Open a file (or a file descriptor) for writing; errors contain this name."""
    return io.BufferedWriter(_NamedFile(file, str(file) if name is None else name))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write bytes atomically."""
    with atomic_file(path) as file:
        file.write(data)
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text atomically, as UTF-8 and with its line ends unchanged."""
    return write_bytes(path, text.encode())


def write_json(path: str | os.PathLike[str], value: object, *, indent: int | None = 1) -> Path:
    """Write a value as JSON atomically."""
    text = json.dumps(value, indent=indent, ensure_ascii=False) + "\n"
    # a lone surrogate, as in a file name that is not UTF-8, can only be written as an escape
    return write_bytes(path, text.encode(errors="backslashreplace"))


def replace_non_finite(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The same value with None for NaN and infinity, which JSON cannot represent."""
    if isinstance(value, dict):
        return {name: replace_non_finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_text(path: Path, *, max_bytes: int = MAX_BYTES, fix: str = _FIX) -> str:
    """Read a small UTF-8 file, with newlines as line ends; errors name the file."""
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise FolderError(
                f"{path} has {size:,} bytes, more than the limit of {max_bytes:,}", fix=fix
            )
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FolderError(
            f"{path} is not valid UTF-8 (at byte {error.start:,})",
            fix="save it as UTF-8" if fix == _FIX else fix,
        ) from None
    except FileNotFoundError:
        raise FolderError(f"{path} does not exist", fix="check the path") from None
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}", fix=fix) from None


def read_json(path: Path, *, max_bytes: int = MAX_BYTES, fix: str = _FIX) -> Any:  # noqa: ANN401
    """Read a small, untrusted JSON file; errors name the file."""
    text = read_text(path, max_bytes=max_bytes, fix=fix)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path} is not valid JSON: {error}", fix=fix) from None


def expand_user(path: str | os.PathLike[str]) -> Path:
    """Replace ~ by the home folder; ~user of an unknown user is unchanged."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises RuntimeError


def sync_to_disk(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def absolute_path(path: PathLike) -> str:
    """The absolute path or glob; `-` is unchanged."""
    name = os.fspath(path)
    # Path would keep the dots and remove "./" from a glob
    return name if name == "-" else os.path.abspath(os.path.expanduser(name))  # noqa: PTH100, PTH111


def check_output_path(path: PathLike, force: bool = False, *, file: bool = False) -> Path:
    """Check that a folder (or file) can be written, and that it does not exist unless `force`.

    Problems are reported before the work, not after it.
    """
    target = Path(path)
    try:
        exists, is_other_kind = _check_existing(target, file)
    except OSError as error:  # a name that is too long, a folder without permission
        raise _write_error(target, error) from error
    if is_other_kind:
        what, wanted = ("folder", "file") if file else ("file", "folder")
        raise InputError(
            f"{target} is a {what}, but a {wanted} will be written", fix="choose another name"
        )
    if exists and not force:
        raise InputError(
            f"{target} already exists",
            fix="choose another path, or overwrite it with --force (force=True in Python)",
        )
    if not file or target.is_file() or not target.exists():  # not a pipe, nor /dev/null
        _check_writable(target)
    return target


def _check_existing(target: Path, file: bool) -> tuple[bool, bool]:
    """Whether something exists, and whether it is of another kind than will be written."""
    if target.is_dir():
        return any(path.name != LOCK_FILE for path in target.iterdir()), file
    return target.exists(), target.exists() and not file


def _check_writable(target: Path) -> None:
    """Try to write a temporary file: permissions alone are not sufficient, as in /proc."""
    above = find_existing_folder(target)
    if not above.is_dir():
        raise InputError(f"{target}: {above} is a file", fix="choose a path inside a folder")
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise _write_error(target, error) from error


def find_existing_folder(target: Path) -> Path:
    """The folder itself or its nearest existing parent; of a file, the folder that contains it."""
    real = Path(os.path.realpath(target))  # symbolic links are followed when writing
    inside = real.parent if real.is_file() else real
    return next(path for path in (inside, *inside.parents) if path.exists())


def _write_error(target: Path, error: OSError) -> InputError:
    return InputError(
        f"{str(target)[:200]} cannot be written: {error.strerror}",
        fix="choose another path, or change the permissions",
    )


def is_model_folder(path: Path) -> bool:
    """Whether a folder contains a model: config.json and weights, or modules.json."""
    try:
        if (path / "modules.json").is_file() or (path / ".model").is_dir():
            return True
        return (path / "config.json").is_file() and any(path.glob("*.safetensors*"))
    except OSError:  # it may not be read
        return False


def list_model_folders(folder: Path, *, depth: int = 2) -> list[Path]:
    """The model folders below a folder, for messages; at most a few hundred entries are checked."""
    found: list[Path] = []
    level = [folder]
    for _ in range(depth):
        inside: list[Path] = []
        for parent in level:
            with suppress(OSError), os.scandir(parent) as entries:
                inside += [
                    parent / entry.name
                    for entry in islice(entries, _MAX_SCANNED)
                    if entry.is_dir() and not entry.name.startswith(".")
                ]
        level = []
        for path in sorted(inside)[:_MAX_SCANNED]:
            (found if is_model_folder(path) else level).append(path)
    return found


def list_siblings(path: PathLike) -> list[str]:
    """The names in the folder of a path, written like the path, for messages."""
    parent, _ = os.path.split(path)
    with suppress(OSError), os.scandir(parent or ".") as entries:
        names = sorted(entry.name for entry in islice(entries, _MAX_SCANNED))
        return [os.path.join(parent, name) for name in names if not name.startswith(".")]  # noqa: PTH118 - Path would remove "./"
    return []


def compute_sha256(path: Path) -> str:
    """The checksum of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
