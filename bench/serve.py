"""Throughput and latency of `cloze serve`, beside other servers and the offline function.

    python bench/serve.py                                  # cloze-en and MiniLM
    python bench/serve.py --seconds 2 --models minilm      # quicker
    python bench/serve.py --infinity ENV/bin/python        # with infinity-emb

Clients are on the same machine and share its cores with the server. All servers get the same
sentences as requests to /v1/embeddings (base64) with the same model in float32, from a client that
needs little CPU time (bench/serve_client.py). Offline is `cloze.embed` of a list of the sentences.

- `1 text`, `32 texts`: sentences per second with so many texts in a request, and the part of the
  offline throughput; the best number of connections counts.
- `p50`, `p99`: milliseconds of a request with one text, one connection.
- `FastAPI loop`: around sentence-transformers, with batches (bench/serve_baseline.py).
- `at equal p99`: sentences per second with one text in a request, at the largest number of
  connections with which the p99 is not above that of the FastAPI loop at its best throughput.
- `CPU ms`: CPU time of the server for a text, one text in a request, most connections; less than
  the others, it does not depend on what else the machine does. Offline: below the table.
- `cold start`: seconds from starting the process to the first answer. `memory`: MB, proportional
  set size of the server's processes after the load.

Curves of p50 and p99 against the load are written as SVG.
"""

import argparse
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from rich.table import Table
from serve_client import Load, make_request, run_load

from cloze.plot.format import format_percent
from common import TEXT, minilm, print_result, versions

HERE = Path(__file__).resolve().parent
CONNECTIONS = (1, 2, 4, 8, 16, 24, 32, 64)
OFFLINE = """
import json, sys, time
import cloze
texts = json.loads(sys.stdin.read())
model = cloze.load(sys.argv[1], device="cpu", quiet=True)
cloze.embed(model, texts[:64])
best, cpu = 0.0, 0.0
for _ in range(int(sys.argv[2])):
    since, cpu_since = time.perf_counter(), time.process_time()
    cloze.embed(model, texts)
    best = max(best, len(texts) / (time.perf_counter() - since))
    cpu = 1000 * (time.process_time() - cpu_since) / len(texts)
print(best, cpu)
"""


@dataclass
class Row:
    """The measurements of one server."""

    model: str
    server: str
    cold_start: float = 0.0
    memory: float = 0.0  # MB
    cpu: float = 0.0  # milliseconds for a text, one text a request, most connections
    offline: float = 0.0  # sentences per second
    single: dict[int, Load] = field(default_factory=dict)  # by connections, one text a request
    many: dict[int, Load] = field(default_factory=dict)  # 32 texts a request

    def best(self, loads: dict[int, Load]) -> float:
        return max((load.rate for load in loads.values()), default=0.0)

    def at_p99(self, limit: float) -> float:
        """The highest throughput with a p99 of at most so many milliseconds."""
        found = [load.rate for load in self.single.values() if load.quantile(0.99) <= limit]
        return max(found, default=0.0)


def find_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def read_sentences(source: Path, count: int) -> list[str]:
    from cloze.data.sources import read_rows

    found: list[str] = []
    for row in read_rows([source]):
        found += [part for part in re.split(r"(?<=[.!?])\s+", row.text) if len(part.split()) >= 3]
        if len(found) > 20 * count:
            break
    random.Random(0).shuffle(found)
    return found[:count]


def list_commands(args: argparse.Namespace, model: str, source: str) -> dict[str, list[str]]:
    """The command line of each server; PORT stands for its port."""
    python = sys.executable
    cloze = [python, "-m", "cloze", "serve", f"{model}={source}", "--log", "none", "--port", "PORT"]
    found = {"cloze serve": cloze}
    if args.workers > 1:
        found[f"cloze serve, {args.workers} workers"] = [*cloze, "--workers", str(args.workers)]
    if model == "minilm" and not args.only_cloze:
        if args.infinity:
            found["infinity-emb"] = [
                *(args.infinity, "-c", "from infinity_emb.cli import cli; cli()", "v2"),
                *("--model-id", source, "--served-model-name", model, "--url-prefix", "/v1"),
                *("--engine", "torch", "--device", "cpu", "--dtype", "float32", "--port", "PORT"),
                *("--no-bettertransformer", "--log-level", "error"),
            ]
        baseline = str(HERE / "serve_baseline.py")
        found["FastAPI loop"] = [python, baseline, source, "PORT"]
    return found


@contextmanager
def run_server(command: list[str], model: str) -> Iterator[tuple[str, float, int]]:
    """Address, seconds until the first answer, and process id of a server."""
    port = find_port()
    since = time.perf_counter()
    process = subprocess.Popen(
        [str(port) if part == "PORT" else part for part in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"INFINITY_ANONYMOUS_USAGE_STATS": "0", "DO_NOT_TRACK": "1"},
    )
    host = f"127.0.0.1:{port}"
    request = make_request("/v1/embeddings", make_body(model, ["first"]), host)
    try:
        while True:
            if process.poll() is not None:
                raise SystemExit(f"{command[:4]} ended with status {process.returncode}")
            try:
                if run_load(host, [(request, 1)], connections=1).statuses == {200: 1}:
                    break
            except OSError:
                pass
            time.sleep(0.02)
        yield host, time.perf_counter() - since, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def make_body(model: str, texts: list[str]) -> dict[str, object]:
    return {"model": model, "input": texts, "encoding_format": "base64"}


def list_processes(pid: int) -> list[int]:
    """A process and its children."""
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [pid, *(found for child in children for found in list_processes(child))]


def measure_memory(pid: int) -> float:
    """MB of a process and its children; pages that they share count once."""
    rollups = [Path(f"/proc/{one}/smaps_rollup").read_text() for one in list_processes(pid)]
    return sum(int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1]) for text in rollups) / 1024


def measure_cpu(pid: int) -> float:
    """CPU seconds of a process and its children."""
    found = [Path(f"/proc/{one}/stat").read_text() for one in list_processes(pid)]
    ticks = [text.rpartition(")")[2].split()[11:13] for text in found]
    return sum(int(one) for pair in ticks for one in pair) / os.sysconf("SC_CLK_TCK")


def measure_offline(source: str, texts: list[str], rounds: int) -> tuple[float, float]:
    """Sentences per second, and milliseconds of CPU time for a sentence."""
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, source, str(rounds)],
        input=json.dumps(texts), capture_output=True, text=True, check=True,
    )  # fmt: skip
    rate, cpu = map(float, done.stdout.split())
    return rate, cpu


def measure_server(
    row: Row, command: list[str], texts: list[str], args: argparse.Namespace
) -> None:
    with run_server(command, row.model) as (host, row.cold_start, pid):

        def make_requests(size: int) -> list[tuple[bytes, int]]:
            groups = [texts[n : n + size] for n in range(0, len(texts), size)]
            return [
                (make_request("/v1/embeddings", make_body(row.model, some), host), len(some))
                for some in groups
            ]

        single, many = make_requests(1), make_requests(32)
        run_load(host, many, connections=2, seconds=args.seconds / 2)  # warm
        for connections in args.connections:
            before = measure_cpu(pid)
            load = run_load(host, single, connections=connections, seconds=args.seconds)
            row.single[connections] = load
            row.cpu = 1000 * (measure_cpu(pid) - before) / load.texts
        for connections in (2, 4, 8):
            row.many[connections] = run_load(
                host, many, connections=connections, seconds=args.seconds
            )
        row.memory = measure_memory(pid)
    wrong = {
        status
        for load in (*row.single.values(), *row.many.values())
        for status in load.statuses
        if status != 200
    }
    if wrong:
        raise SystemExit(f"{row.server} answered with {wrong}")


def make_table(rows: list[Row]) -> Table:
    table = Table(title="/v1/embeddings, sentences per second; client on the same cores")
    for name in (
        *("model", "server", "1 text", "of offline", "32 texts", "of offline", "p50 ms"),
        *("p99 ms", "at equal p99", "CPU ms", "cold start s", "memory MB"),
    ):
        table.add_column(name, justify="left" if name in ("model", "server") else "right")
    for row in rows:
        limit = find_p99_limit(rows, row.model)
        one = row.single[min(row.single)]
        single, many = row.best(row.single), row.best(row.many)
        table.add_row(
            row.model,
            row.server,
            f"{single:,.0f}",
            format_percent(single / row.offline, 0),
            f"{many:,.0f}",
            format_percent(many / row.offline, 0),
            f"{one.quantile(0.5):.1f}",
            f"{one.quantile(0.99):.1f}",
            "" if limit is None else f"{row.at_p99(limit):,.0f}",
            f"{row.cpu:.1f}",
            f"{row.cold_start:.1f}",
            f"{row.memory:,.0f}",
        )
    return table


def find_p99_limit(rows: list[Row], model: str) -> float | None:
    """The p99 of the loop around sentence-transformers at its best throughput."""
    for row in rows:
        if row.model == model and row.server == "FastAPI loop":
            best = max(row.single.values(), key=lambda load: load.rate)
            return best.quantile(0.99)
    return None


def draw_curves(rows: list[Row], folder: Path) -> list[Path]:
    """Latency against load, for each model."""
    from cloze.plot.line_chart import LineChart, Series

    written = []
    for model in dict.fromkeys(row.model for row in rows):
        series = []
        for color, row in enumerate(one for one in rows if one.model == model):
            loads = sorted(row.single.values(), key=lambda load: load.rate)
            rates = [load.rate for load in loads]
            for name, q, style in (("p50", 0.5, "faint"), ("p99", 0.99, "line")):
                values = [load.quantile(q) for load in loads]
                series.append(
                    Series(
                        name=f"{row.server}, {name}", x=rates, y=values, style=style, color=color
                    )
                )
        chart = LineChart(
            title=f"{model}: latency against load, one text in a request",
            series=series,
            x_label="sentences per second",
            y_label="milliseconds",
            log=True,
        )
        path = folder / f"serve-{model}.svg"
        chart.save(path)
        written.append(path)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["minilm", "cloze-en"])
    parser.add_argument("--texts", type=Path, default=TEXT, help="running text")
    parser.add_argument("--count", type=int, default=2000, help="sentences")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of the offline function")
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS)
    parser.add_argument("--workers", type=int, default=2, help="also with so many workers; 1: not")
    parser.add_argument("--infinity", help="Python with infinity-emb")
    parser.add_argument("--only-cloze", action="store_true", help="no other servers")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the curves")
    parser.add_argument("--json", type=Path, help="file of all measurements")
    args = parser.parse_args()
    texts = read_sentences(args.texts, args.count)
    rows: list[Row] = []
    cpus: dict[str, float] = {}
    for model in args.models:
        source = str(minilm()) if model == "minilm" else model
        offline = measure_offline(source, texts, args.rounds)
        cpus[model] = offline[1]
        for server, command in list_commands(args, model, source).items():
            row = Row(model, server)
            measure_server(row, command, texts, args)
            rows.append(row)
            print(f"{model}, {server}: measured", file=sys.stderr)
        again = measure_offline(source, texts, args.rounds)
        for row in rows:
            if row.model == model:
                row.offline = max(offline[0], again[0])
    curves = draw_curves(rows, args.out)
    limits = {row.model: find_p99_limit(rows, row.model) for row in rows}
    offlines = {row.model: row.offline for row in rows}
    print_result(
        make_table(rows),
        "offline, cloze.embed: "
        + ", ".join(f"{k} {v:,.0f} ({cpus[k]:.1f} CPU ms)" for k, v in offlines.items()),
        "equal p99: " + ", ".join(f"{k} {v:.0f} ms" for k, v in limits.items() if v is not None),
        f"{len(texts):,} sentences, {sum(map(len, texts)) / len(texts):.0f} characters each; "
        f"{os.cpu_count()} cores; {versions('torch', 'sentence-transformers', 'infinity-emb')}",
        "curves: " + ", ".join(map(str, curves)),
        results=rows,
        file=args.json,
    )


if __name__ == "__main__":
    main()
