"""Throughput of `process_files` in one process and with Ray, side by side.

    python bench/ray_embed.py [--texts FILE] [--rows 4000] [--workers 2] [--rounds 3]

Both embed the same sentences with the same model (cloze-en) and write the same Parquet parts. The
single process has as many threads as there are workers; each worker of Ray has one. Ray is started
once, and its workers load the model in a first round that does not count, as a long job would.
The rounds alternate, so that other work on the machine affects both; the ratio is the median of
the ratios of the rounds. CPU seconds are of the process and its workers.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from embed import sentences
from rich.table import Table

from cloze.data.map_blocks import ExecutorOptions, map_blocks
from cloze.data.result_files import open_result_file
from cloze.data.sources import Row
from cloze.tasks.block_functions import BlockFunction
from common import TEXT, print_result, versions


def embed_rows(
    function: BlockFunction, blocks: list[list[Row]], where: ExecutorOptions, out: Path
) -> tuple[float, int]:
    """Seconds from the first finished block to the last, and the rows of these blocks."""
    begin, rows = 0.0, 0
    for number, computed in enumerate(map_blocks(function, iter(blocks), where)):
        with open_result_file(out / f"part-{number:06d}.parquet", function.kind) as write:
            write(computed.records)
        if number < (where.workers or 1):  # the model was loaded before
            begin = time.perf_counter()
        else:
            rows += len(computed.records)
    return time.perf_counter() - begin, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=Path, default=TEXT)
    parser.add_argument("--model", default="cloze-en")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--block-rows", type=int, default=250)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    import torch

    torch.set_num_threads(options.workers)
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
    found: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(options.rounds):
        for name, where in engines.items():
            with tempfile.TemporaryDirectory() as folder:
                seconds, rows = embed_rows(function, blocks, where, Path(folder))
            found[name].append(rows / seconds)
    ratios = [ray / one for one, ray in zip(found["one process"], found["Ray"], strict=True)]
    table = Table("", "rows/s, each round", "best", title=f"{options.model}, {len(texts):,} rows")
    for name, speeds in found.items():
        table.add_row(name, "  ".join(f"{one:.0f}" for one in speeds), f"{max(speeds):.0f}")
    median = statistics.median(ratios)
    print_result(
        table,
        f"Ray / one process, median of {options.rounds} rounds: {median:.2f}",
        versions("ray", "torch", "pyarrow"),
        results={"rows_per_second": found, "ratio": median},
        file=options.json,
    )


if __name__ == "__main__":
    main()
