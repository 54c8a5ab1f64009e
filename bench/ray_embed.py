"""Throughput of `process_files` in one process and with Ray, side by side.

    python bench/ray_embed.py [--texts FILE] [--rows 4000] [--workers 2] [--rounds 3]
    taskset -c 0,1 python bench/ray_embed.py                    # on two cores of a larger machine

Both embed the same sentences with the same model (cloze-en) on the same cores, and write the same
Parquet parts; the vectors of the first round are compared. The single process has a thread for each
core, the workers of Ray share the cores. Each round starts Ray and its workers anew, as the command
does. What counts is the time from when every worker has finished a block, so that its model is
loaded, until the last part is written, and the rows computed in it; of a block that was begun
before, the part of its rows that is in this time. The rounds alternate, so that other work on the
machine affects both; the ratio is the median of the ratios of the rounds. CPU seconds are those of
the functions in the workers, and of all else in the process that reads, sends and writes, without
loading the model; they are less affected by other work than rows per second.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from embed import sentences
from rich.table import Table

from cloze.data.map_blocks import ExecutorOptions, map_blocks
from cloze.data.result_files import open_result_file
from cloze.data.sources import Row
from cloze.tasks.block_functions import BlockFunction, Computed
from common import TEXT, print_result, versions

CORES = len(os.sched_getaffinity(0))


class TimedBlock(NamedTuple):
    """The result of a block, and when (by the clock of the machine) and where it was computed."""

    computed: Computed
    process: int
    start: float
    end: float
    cpu_seconds: float


@dataclass(frozen=True)
class TimedFunction:
    """A function that measures each block."""

    function: BlockFunction

    def __call__(self) -> Callable[[Sequence[Row]], TimedBlock]:
        compute = self.function()

        def apply(block: Sequence[Row]) -> TimedBlock:
            start, cpu = time.monotonic(), time.process_time()
            found = compute(block)
            used = time.process_time() - cpu
            return TimedBlock(found, os.getpid(), start, time.monotonic(), used)

        return apply


class Measured(NamedTuple):
    """A round of one engine."""

    rows_per_second: float
    cpu_seconds: float  # of 1,000 rows
    vectors: np.ndarray


def embed_rows(
    function: BlockFunction, blocks: list[list[Row]], where: ExecutorOptions, out: Path
) -> Measured:
    """Embed all blocks, and write the parts."""
    found: list[TimedBlock] = []
    began = 0.0  # CPU seconds of this process when the model was loaded
    for number, one in enumerate(map_blocks(TimedFunction(function), iter(blocks), where)):
        with open_result_file(out / f"part-{number:06d}.parquet", function.kind) as write:
            write(one.computed.records)
        found.append(one)
        began = began or time.process_time()
    end = time.monotonic()
    total = sum(map(len, blocks))
    used = (time.process_time() - began) / (total - len(blocks[0]))
    if where.engine == "ray":  # else the functions are computed in this process
        used += sum(one.cpu_seconds for one in found) / total
    first: dict[int, float] = {}
    for one in sorted(found, key=lambda one: one.end):
        first.setdefault(one.process, one.end)
    if len(first) < (where.workers or 1):
        raise SystemExit("a worker has not computed a block: use more --rows")
    begin = max(first.values())
    rows = sum(
        len(one.computed.records) * (one.end - max(one.start, begin)) / (one.end - one.start)
        for one in found
        if one.end > begin
    )
    vectors = np.stack([row.vectors for one in found for row in one.computed.records])
    return Measured(rows / (end - begin), 1000 * used, vectors)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=Path, default=TEXT)
    parser.add_argument("--model", default="cloze-en")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--block-rows", type=int, default=250)
    parser.add_argument("--workers", type=int, default=CORES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    import torch

    torch.set_num_threads(CORES // options.workers * options.workers)
    texts = [Row(text, "bench", n) for n, text in enumerate(sentences(options.texts, options.rows))]
    size = options.block_rows
    blocks = [texts[at : at + size] for at in range(0, len(texts), size)]
    function = BlockFunction(
        name="embed", model=options.model, device="cpu", options={"batch_tokens": 2048}
    )
    engines = {
        "one process": ExecutorOptions(),
        "Ray": ExecutorOptions(engine="ray", workers=options.workers, use_gpu=False),
    }
    found: dict[str, list[Measured]] = {name: [] for name in engines}
    for number in range(options.rounds):
        for name, where in engines.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(embed_rows(function, blocks, where, Path(folder)))
            print(f"round {number + 1}, {name}: {found[name][-1].rows_per_second:.0f} rows/s")
    one, ray = found.values()
    difference = float(np.abs(one[0].vectors - ray[0].vectors).max())
    ratios = [b.rows_per_second / a.rows_per_second for a, b in zip(one, ray, strict=True)]
    title = f"{options.model}, {len(texts):,} rows, {CORES} cores, {options.workers} workers"
    table = Table("", "rows/s, each round", "best", "CPU seconds per 1,000 rows", title=title)
    for name, rounds in found.items():
        speeds = [r.rows_per_second for r in rounds]
        cpu = statistics.median(r.cpu_seconds for r in rounds)
        listed = "  ".join(f"{speed:.0f}" for speed in speeds)
        table.add_row(name, listed, f"{max(speeds):.0f}", f"{cpu:.2f}")
    median = statistics.median(ratios)
    print_result(
        table,
        f"Ray / one process, median of {options.rounds} rounds: {median:.2f}; largest difference "
        f"of a value: {difference:.1e}",
        versions("ray", "torch", "pyarrow"),
        results={
            "rows_per_second": {name: [r[0] for r in rounds] for name, rounds in found.items()},
            "cpu_seconds": {name: [r[1] for r in rounds] for name, rounds in found.items()},
            "ratio": median,
            "difference": difference,
        },
        file=options.json,
    )


if __name__ == "__main__":
    main()
