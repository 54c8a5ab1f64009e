"""A folder of results: one parquet file per block, and which blocks are finished.

    vectors/
      part-000000.parquet  part-000001.parquet  …   the results of each block, in order
      progress.jsonl                                while the job runs: a line per finished part
      manifest.json                                 written last: the job and all parts

A part is written atomically, and then its line is added with the size and SHA-256 of the file. A
job that was interrupted computes the parts that have no line, or whose file or block has changed.
Any number of workers may write parts; only the process that started the job writes the two lists.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from cloze.errors import FolderError, InputError
from cloze.files import LOCK_FILE, read_json, write_json, write_text

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PROGRESS = "progress.jsonl"
MAX_LISTED = 100  # errors of a part in its line; all are in the part itself
MAX_MANIFEST = 1 << 30  # bytes


@dataclass(frozen=True, kw_only=True)
class Part:
    """A finished block: its file, and what the rows of it have become."""

    name: str
    key: str  # hash of the rows
    rows: int
    failed: int
    truncated: int  # rows that were longer than the model reads
    truncated_chars: int
    max_length: int = 0  # tokens that the model reads of a row
    errors: tuple[tuple[str, str], ...] = ()  # problem and fix of the first rows that failed
    size: int = 0  # bytes of the file
    sha256: str = ""

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Self:
        """A part from a line; raises `ValueError` if it is not one."""
        try:
            errors = tuple((str(problem), str(fix)) for problem, fix in entry.get("errors", ()))
            part = cls(**{**entry, "errors": errors})
            counts = (part.rows, part.failed, part.truncated, part.truncated_chars, part.size)
            if part.name != Path(part.name).name or not all(type(n) is int for n in counts):
                raise ValueError(entry)
        except TypeError as error:
            raise ValueError(entry) from error
        return part


def format_part_name(number: int) -> str:
    """The name of the file of a block, counted from 0."""
    return f"part-{number:06d}.parquet"


def compute_file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass
class PartFolder:
    """The folder of a job; use `open_part_folder`."""

    path: Path
    job: Mapping[str, Any]  # JSON: all that the results depend on, except the rows
    known: dict[str, Part] = field(default_factory=dict)  # of an earlier run, by name
    finished: list[Part] = field(default_factory=list)  # of this run

    def find(self, name: str, key: str) -> Part | None:
        """The part of a block that was finished before and is intact."""
        part = self.known.get(name)
        if part is None or part.key != key:
            return None
        file = self.path / name
        with suppress(OSError):
            if file.stat().st_size == part.size and compute_file_sha256(file) == part.sha256:
                return part
        return None

    def add(self, part: Part, *, is_new: bool) -> None:
        """Note a part that is finished; the file of a new one must be visible in this process."""
        file = self.path / part.name
        if is_new and (not file.is_file() or file.stat().st_size != part.size):
            raise FolderError(
                f"a worker wrote {part.name}, but it is not in {self.path} on this machine",
                fix="use a folder that all machines of the cluster share, with the same path",
            )
        if is_new:
            self._append(asdict(part))
        self.finished.append(part)

    def start(self) -> None:
        """Begin the list of finished parts, with those of an earlier run of the same job."""
        lines: list[Mapping[str, Any]] = [{"format_version": FORMAT_VERSION, "job": self.job}]
        lines += [asdict(part) for part in self.known.values()]
        write_text(self.path / PROGRESS, "".join(f"{json.dumps(line)}\n" for line in lines))
        (self.path / MANIFEST).unlink(missing_ok=True)

    def finish(self) -> None:
        """Write the manifest, and remove the files of blocks that no longer exist."""
        parts = [{**asdict(part), "errors": list(part.errors)} for part in self.finished]
        content = {"format_version": FORMAT_VERSION, "job": self.job, "parts": parts}
        write_json(self.path / MANIFEST, content)
        names = {part.name for part in self.finished}
        for file in self.path.glob("part-*.parquet"):
            if file.name not in names:
                file.unlink()
        (self.path / PROGRESS).unlink(missing_ok=True)

    def _append(self, line: Mapping[str, Any]) -> None:
        with (self.path / PROGRESS).open("ab") as file:
            file.write(f"{json.dumps(line)}\n".encode())
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def open_part_folder(path: Path, job: Mapping[str, Any], *, force: bool) -> Iterator[PartFolder]:
    """Open the folder of a job, which is locked; parts of an earlier run of it are kept.

    With `force` results of another job are removed; other files never are.
    """
    path.mkdir(parents=True, exist_ok=True)
    others = [one.name for one in path.iterdir() if not _is_own(one.name)]
    if others:
        raise InputError(
            f"{path} contains files that are not results of a job ({min(others)})",
            fix="choose a new or an empty folder",
        )
    job = json.loads(json.dumps(job))  # tuples become lists
    theirs, parts = _read_known(path)
    if theirs != job:
        if parts and not force:
            raise InputError(
                f"{path} contains results of another job: {_describe_change(theirs, job)}",
                fix="choose another folder, or overwrite the results with --force "
                "(force=True in Python)",
            )
        parts = {}
    folder = PartFolder(path, job, parts)
    folder.start()
    yield folder


def _is_own(name: str) -> bool:
    own = (MANIFEST, PROGRESS, "part-")
    return name == LOCK_FILE or name.removeprefix(".").startswith(own)  # "." for temporary files


def _read_known(path: Path) -> tuple[Any, dict[str, Part]]:
    """The job of a folder (None without one) and its finished parts; damaged lines are left out."""
    lines: list[Any] = []
    head: Any
    entries: Any
    if (path / PROGRESS).is_file():
        for line in (path / PROGRESS).read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):  # the last line of a job that was killed may be incomplete
                lines.append(json.loads(line))
        head, entries = (lines[0], lines[1:]) if lines else ({}, [])
    elif (path / MANIFEST).is_file():
        head = read_json(path / MANIFEST, max_bytes=MAX_MANIFEST)
        entries = head.get("parts", []) if isinstance(head, dict) else []
    else:
        return None, {}
    if not isinstance(head, dict) or head.get("format_version") != FORMAT_VERSION:
        return {}, {}
    parts: dict[str, Part] = {}
    for entry in entries if isinstance(entries, list) else []:
        with suppress(ValueError):
            part = Part.from_json(entry if isinstance(entry, dict) else {})
            parts[part.name] = part
    return head.get("job"), parts


def _describe_change(theirs: Any, ours: Mapping[str, Any]) -> str:  # noqa: ANN401
    if not isinstance(theirs, dict):
        return "its description is damaged"
    changed = [name for name in sorted({*theirs, *ours}) if theirs.get(name) != ours.get(name)]
    return f"{', '.join(changed)} {'differs' if len(changed) == 1 else 'differ'}"
