"""Time, memory and disk space of preparing a corpus with cloze and with `datasets.map`.

    python bench/prepare.py TEXT.txt.xz… [--vocab vocab.txt] [--workers 2] [--json out.json]

Both use the same tokenizer. Every row is a new process, timed from start to end; memory is the
maximum of the sum over the process and its children (shared pages counted once), sampled five times
a second. The rows alternate for several rounds; the best time and the largest memory of each count.
CPU time is listed because other work on the machine affects wall time. `datasets` is used as its
documentation recommends: batched, several processes, without the text column. It stores ids only;
cloze also splits sentences and stores where sentences, documents and words begin. `again` repeats
the row before it: the time to find that nothing changed.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from rich.table import Table

from cloze.data.prepare import prepare_corpus
from cloze.text.tokenizer import Tokenizer
from common import DATA, print_result, versions


def run_cloze(files: list[str], vocab: str, folder: Path, workers: int) -> dict[str, int]:
    corpus = prepare_corpus(files, Tokenizer.load(vocab), folder / "corpus", workers=workers)
    return {"tokens": corpus.summary.tokens, "disk": corpus.summary.bytes}


def datasets_map(files: list[str], vocab: str, folder: Path, workers: int) -> dict[str, int]:
    import datasets

    datasets.disable_progress_bars()
    backend = Tokenizer.load(vocab).backend

    def ids(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        encoded = backend.encode_batch(batch["text"], add_special_tokens=False)
        return {"input_ids": [encoding.ids for encoding in encoded]}

    lines = datasets.load_dataset(
        "text", data_files=files, split="train", cache_dir=str(folder / "cache")
    )
    done = lines.map(ids, batched=True, num_proc=workers, remove_columns=["text"])
    written = sum(Path(file["filename"]).stat().st_size for file in done.cache_files)
    lengths = done.with_format("arrow")
    tokens = sum(len(part["input_ids"].combine_chunks().flatten()) for part in lengths.iter(10_000))
    return {"tokens": tokens, "disk": written}


ROWS: dict[str, Callable[..., dict[str, int]]] = {"cloze": run_cloze, "datasets.map": datasets_map}


def children(root: int) -> list[int]:
    """A process and all that it started."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            found.setdefault(parent, []).append(int(entry.name))
    family = [root]
    for member in family:
        family += found.get(member, [])
    return family


def memory(process: int) -> int:
    """Bytes of a process; a shared page is divided by the number of processes that share it."""
    try:
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    return 1024 * next(int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:")


def cpu_seconds() -> float:
    """Of all processes that ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_process(arguments: list[str]) -> dict[str, float]:
    """Run one row in a process of its own, and watch it."""
    started, before = time.perf_counter(), cpu_seconds()
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE)
    peak, over = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.2):
            peak = max(peak, sum(map(memory, children(process.pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    seconds, cpu = time.perf_counter() - started, cpu_seconds() - before
    over.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed")
    return {"seconds": seconds, "cpu": cpu, "peak": peak, **json.loads(output.splitlines()[-1])}


def make_table(results: dict[str, dict[str, float]], size: int) -> Table:
    table = Table(title=f"preparing {size / 1e6:,.0f} MB of text")
    columns = ("", "seconds", "CPU s", "MB/s", "peak MiB", "tokens", "bytes a token")
    for column in columns:
        table.add_column(column, justify="left" if not column else "right")
    for name, row in results.items():
        table.add_row(
            name,
            f"{row['seconds']:.1f}",
            f"{row['cpu']:.1f}",
            f"{size / 1e6 / row['seconds']:.1f}",
            f"{row['peak'] / 2**20:,.0f}",
            f"{row['tokens']:,.0f}",
            f"{row['disk'] / row['tokens']:.2f}",
        )
    return table


def text_size(files: list[str]) -> int:
    from cloze.data.sources import read_rows

    return sum(len(row.text.encode()) + 1 for row in read_rows(list(files)))


def round_of_rows(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, float]]]:
    for name in ROWS:
        if name == "datasets.map" and find_spec("datasets") is None:
            continue
        for workers in sorted({1, options.workers}):
            folder = Path(tempfile.mkdtemp(prefix="bench-"))
            row = [*options.files, "--vocab", str(options.vocab), "--folder", str(folder)]
            row += ["--row", name, "--workers", str(workers)]
            label = f"{name}, {workers} process{'es' * (workers > 1)}"
            yield label, measure_process(row)
            if workers == options.workers:
                yield f"{label}, again", measure_process(row)
            shutil.rmtree(folder)


def compare(options: argparse.Namespace) -> None:
    if find_spec("datasets") is None:
        print("datasets is not installed: its rows are left out (pip install datasets)")
    results: dict[str, dict[str, float]] = {}
    for _ in range(options.rounds):
        for label, row in round_of_rows(options):
            before = results.get(label, row)
            results[label] = {
                **row,
                "seconds": min(row["seconds"], before["seconds"]),
                "cpu": min(row["cpu"], before["cpu"]),
                "peak": max(row["peak"], before["peak"]),
            }
    print_result(
        make_table(results, text_size(options.files)),
        f"{versions('numpy', 'tokenizers', 'datasets')}, {os.cpu_count()} cores, "
        f"{options.rounds} rounds",
        results=results,
        file=options.json,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = [str(DATA / "text" / "wiki-00.txt.xz")]
    parser.add_argument("files", nargs="*", default=default)
    vocab = DATA / "vocab" / "bert-base-uncased-vocab.txt"
    parser.add_argument("--vocab", default=vocab, type=Path)
    parser.add_argument("--workers", default=2, type=int)
    parser.add_argument("--rounds", default=2, type=int)
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.row:
        compare(options)
        return
    done = ROWS[options.row](options.files, options.vocab, options.folder, options.workers)
    print(json.dumps(done))


if __name__ == "__main__":
    main()
