"""Files in the folder of a training run: their names, and how metrics.jsonl is written and read."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cloze.files import replace_non_finite, write_bytes

RECIPE, STATE, METRICS_FILE, REPORT = "recipe.toml", "state", "metrics.jsonl", "report.html"
CORPUS_FACTS, DATA_FACTS = "corpus.json", "data.json"  # counts of raw text, of labelled data
FILLS, NEIGHBOURS, SAMPLES = "fills.json", "neighbours.json", "samples.json"  # example outputs
TRIALS = "trials.json"  # the finished ones of several runs
VOCABULARY = "vocabulary"  # folder of the tokenizer that was learned for the run


def append_metrics(path: Path, row: Mapping[str, Any]) -> None:
    """Append one row to a metrics file."""
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
