"""One way to write files, whole or not at all, and one to read small ones, under a cap."""

import json
import math
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cloze.errors import FolderError

CAP = 16 << 20  # bytes; far more than any file of settings has
_AGAIN = "fetch or write the file again, or mend it"


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream to a file that takes its name when all is written and the disk holds it.

    Until then, and after a failure, what was there before is there. A link stays one, and what is
    no file, such as a pipe or /dev/null, is written to as it is.
    """
    named = Path(path)
    if named.exists() and not named.is_file() and not named.is_dir():
        with named.open("wb") as stream:
            yield stream
        return
    place = Path(os.path.realpath(named))
    place.parent.mkdir(parents=True, exist_ok=True)
    work = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        with work.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        work.replace(place)
        flush(place.parent)
    finally:
        work.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """The whole of the data under this name, or what was there before."""
    with whole_file(path) as file:
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


def sound(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
    """The same with None for every number that is none (NaN, infinite): JSON knows no such."""
    if isinstance(value, dict):
        return {name: sound(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [sound(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_text(path: Path, *, cap: int = CAP, fix: str = _AGAIN) -> str:
    """A small file of UTF-8 with every line end as a newline, or an error that names it."""
    try:
        size = path.stat().st_size
        if size > cap:
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


def read_json(path: Path, *, cap: int = CAP, fix: str = _AGAIN) -> Any:  # noqa: ANN401
    """What a small JSON file holds, which is not to be trusted, or an error that names it."""
    text = read_text(path, cap=cap, fix=fix)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path} is not JSON: {error}", fix=fix) from None


def flush(path: Path) -> None:
    """Have the disk itself hold what was written to a file, or a folder's list of names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
