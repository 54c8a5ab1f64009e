"""Files in the folder of a training run: their names, and how metrics.jsonl is written and read."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cloze.errors import FolderError, InputError
from cloze.files import PathLike, check_output_path, replace_non_finite, write_bytes

RECIPE, STATE, METRICS_FILE, REPORT = "recipe.toml", "state", "metrics.jsonl", "report.html"
CORPUS_FACTS, DATA_FACTS = "corpus.json", "data.json"  # counts of raw text, of labelled data
FILLS, NEIGHBOURS, SAMPLES = "fills.json", "neighbours.json", "samples.json"  # example outputs
EXAMPLES = "examples.json"  # confusion matrix and examples of labelled dev data
TRIALS = "trials.json"  # the finished ones of several runs
FINISHED = "finished.json"  # in the folder of a stage of a run that has ended: its scores
# of a run of RETRO: the database of its text, the neighbors of its chunks, and their figures
DATABASE, NEIGHBOR_FOLDER, RETRIEVAL_FACTS = "database", "neighbors", "retrieval.json"
VOCABULARY = "vocabulary"  # folder of the tokenizer that was learned for the run


def check_run_path(path: PathLike, force: bool = False) -> Path:
    """Check that a new run can be written to a folder, which must not exist unless `force`.

    If it contains a run that can be resumed, the error says how.
    """
    try:
        return check_output_path(path, force)
    except InputError:
        folder = Path(path)
        if force or not ((folder / STATE).is_dir() or (folder / TRIALS).is_file()):
            raise
    raise InputError(
        f"{folder} already exists and contains a training run",
        fix="to continue it, append --resume (cloze.resume(folder) in Python); else choose another "
        "path, or overwrite it with --force (force=True in Python)",
    )


class FolderWatch:
    """Notices that the folder of a run was deleted, moved or replaced while it was running.

    Writing into it would create it again, with a part of the run's files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._identity = _identify(folder)

    def check(self) -> None:
        """Raise unless it is still the same folder."""
        if _identify(self._folder) != self._identity:
            raise FolderError(
                f"{self._folder} was deleted, moved or replaced during the run",
                fix="move it back and resume the run in it with --resume, or start again with "
                "another --out",
            )


def _identify(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def append_metrics(path: Path, row: Mapping[str, Any]) -> None:
    """Append one row to a metrics file; it replaces a row of the same kind and step.

    A run that was killed may have written it already.
    """
    lines = list(read_metrics(path)) if path.exists() else []
    key = (row.get("kind"), row.get("step"))
    kept = [line for line, old in lines if (old.get("kind"), old.get("step")) != key]
    if len(kept) < len(lines):
        write_bytes(path, b"".join(kept) + metrics_line(row).encode())
        return
    with path.open("a", encoding="utf-8") as file:
        file.write(metrics_line(row))


def truncate_metrics(path: Path, after: int) -> None:
    """Remove the rows after step `after`, and a last line that is incomplete."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return
    lines = list(read_metrics(path))
    kept = [line for line, row in lines if line.endswith(b"\n") and _step_of(row) <= after]
    if len(kept) < len(lines):
        write_bytes(path, b"".join(kept))


def read_metrics(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each line of a metrics file and its row, which is empty if the line is not a JSON object."""
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        yield line, row if isinstance(row, dict) else {}


def metrics_line(row: Mapping[str, Any]) -> str:
    """A row as one line of JSON; NaN and infinity become null."""
    return json.dumps(replace_non_finite(dict(row)), allow_nan=False) + "\n"


def _step_of(row: Mapping[str, Any]) -> float:
    step = row.get("step")
    return step if isinstance(step, int | float) else math.inf
