"""Files of text by name: what an ending says, what folders and globs hold, where to write."""

import glob
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from cloze.errors import InputError

PathLike: TypeAlias = str | os.PathLike[str]

# What a name's ending says about the rows inside.
TEXT_ENDINGS: Mapping[str, str] = {
    ".txt": "lines",
    ".text": "lines",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}

# Endings of packed files; `cloze.data.unpack` knows how each is read.
PACKINGS = (".gz", ".xz", ".bz2", ".zst")

LOCK = ".lock"  # the file by which a process keeps others out of a folder


def absolute(path: PathLike) -> str:
    """The same path or glob from wherever it is asked for; `-` stays what it is."""
    name = os.fspath(path)
    # Path would keep the dots and eat a glob's "./"
    return name if name == "-" else os.path.abspath(os.path.expanduser(name))  # noqa: PTH100, PTH111


def endings(path: PathLike) -> tuple[str, str]:
    """The data's own ending and the packing's, lower-case: `(".txt", ".gz")` of `a.txt.gz`."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    packing = suffixes.pop() if suffixes and suffixes[-1] in PACKINGS else ""
    return (suffixes[-1] if suffixes else ""), packing


def kind(path: PathLike, kinds: Mapping[str, str] = TEXT_ENDINGS) -> str:
    """How to read a file, told by its name; a pipe, which has no ending, is as a .txt file.

    An ending "*" of `kinds` stands for all others.
    """
    ending, _ = endings(path)
    if ending in kinds:
        return kinds[ending]
    if "*" in kinds:
        return kinds["*"]
    if ".txt" in kinds and Path(path).is_fifo():
        return kinds[".txt"]
    raise InputError(
        f"{path}: files that end in {ending!r} are not read"
        if ending
        else f"{path}: the name has no ending that says what is inside",
        fix=f"rename it to end in one of {' '.join(kinds)} "
        f"(each may be followed by {' '.join(PACKINGS)})"
        + (", or pipe plain text in and read -" if kinds is TEXT_ENDINGS else ""),
    )


def find(
    sources: PathLike | Iterable[PathLike], kinds: Mapping[str, str] = TEXT_ENDINGS
) -> list[Path]:
    """The files that paths, folders and globs stand for, in an order that never changes.

    A folder gives what lies in it at any depth, sorted, hidden files and other endings left out. A
    file that is named, or matched by a glob, must have an ending of `kinds`.
    """
    listed = [sources] if isinstance(sources, str | os.PathLike) else sources
    found: list[Path] = []
    for source in listed:
        try:
            name = os.path.expanduser(os.fspath(source))  # noqa: PTH111 - Path would eat a glob's "./"
            found += _found(name, kinds)
        except OSError as error:  # a folder we may not list, a name too long to be one
            raise InputError(
                f"{str(source)[:200]}: {error.strerror}", fix="check the path and who may read it"
            ) from error
    return found


def _found(source: str, kinds: Mapping[str, str]) -> list[Path]:
    path = Path(source)
    if path.exists():
        return _files(path, kinds)
    if not glob.has_magic(source):
        raise InputError(
            f"{source}: there is no such file or folder",
            fix=f"check the spelling; relative paths start at {Path.cwd()}",
        )
    matched = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - Path.glob refuses absolute ones
    if not matched:
        raise InputError(f"{source}: no file matches", fix="check the pattern, ** crosses folders")
    return [path for match in matched for path in _files(Path(match), kinds)]


def _files(path: Path, kinds: Mapping[str, str]) -> list[Path]:
    if not path.is_dir():
        kind(path, kinds)
        return [path]
    inside = list(_inside(path, kinds, above=()))
    if not inside:
        raise InputError(
            f"{path}: no file in this folder ends in {' '.join(kinds)}",
            fix=f"point at files of these kinds, plain or packed ({' '.join(PACKINGS)})",
        )
    return inside


def _inside(folder: Path, kinds: Mapping[str, str], above: tuple[Path, ...]) -> Iterator[Path]:
    here = folder.resolve()
    if here in above:  # a link back to a folder we are in
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _inside(path, kinds, (*above, here))
        elif endings(path)[0] in kinds:
            yield path


def fresh_path(path: PathLike, force: bool = False, *, file: bool = False) -> Path:
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
        return any(path.name != LOCK for path in place.iterdir()), file
    return place.exists(), place.exists() and not file


def _check_writable(place: Path) -> None:
    """Try to write where the place is or will be; rights alone do not tell, as of /proc."""
    above = nearest_folder(place)
    if not above.is_dir():
        raise InputError(f"{place}: {above} is a file", fix="choose a place in a folder")
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise _unwritable(place, error) from error


def nearest_folder(place: Path) -> Path:
    """The folder itself, or what exists of the path above it; of a file the folder it is in."""
    real = Path(os.path.realpath(place))  # a link is followed when it is written to
    inside = real.parent if real.is_file() else real
    return next(path for path in (inside, *inside.parents) if path.exists())


def _unwritable(place: Path, error: OSError) -> InputError:
    return InputError(
        f"{str(place)[:200]} cannot be written: {error.strerror}",
        fix="choose another place, or get leave to write there",
    )
