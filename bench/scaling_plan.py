"""Plans for a terabyte of text and a billion vectors, from what was measured here.

    python bench/scaling_plan.py [--gpu-price 4] [--core-price 0.04] [--storage-price 0.08]
    python bench/scaling_plan.py --update docs/scaling.md

It prints the tables of docs/scaling.md: every number is a measurement (`MEASURED`, with its source)
times stated factors (`FACTORS`), so that the page follows when a measurement changes. A test
compares them.
"""

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from cloze.plot.format import format_percent


class Measured(NamedTuple):
    """A number, what it is, and where it was measured."""

    value: float
    unit: str
    source: str


# Measured on the machines of docs/results: two cores of an AMD EPYC, and one H200.
SPEED = "[results](results/speed.md)"
HERE = "below"
MEASURED = {
    "text bytes per token": Measured(
        371e6 / 82_219_758, "bytes", f"{SPEED}: preparing a corpus, all English text"
    ),
    "preparation, one core": Measured(
        371 / 86.8, "MB/s", f"{SPEED}: preparing a corpus, 371 MB in 86.8 s of CPU time"
    ),
    "corpus bytes per token": Measured(2.35, "bytes", f"{SPEED}: preparing a corpus"),
    "reading rows, one core": Measured(111.7, "MB/s", f"{HERE}: plain text, in chunks"),
    "reading rows of .xz, one core": Measured(35.2, "MB/s", f"{HERE}: decompression included"),
    "making batches, one core": Measured(
        2.6e6, "tokens/s", f"{HERE}: pairs of length 128, masked, 25 MB of wiki-03"
    ),
    "BERT-base, training, length 128": Measured(855e3, "tokens/s", f"{SPEED}: one H200, text"),
    "BERT-base, training, length 512": Measured(752e3, "tokens/s", f"{SPEED}: one H200, text"),
    "BERT-small, training, length 128": Measured(4248e3, "tokens/s", f"{SPEED}: one H200, text"),
    "GPT-2 base, training, length 1024": Measured(512e3, "tokens/s", f"{SPEED}: one H200"),
    "tokens of a step": Measured(131_072, "tokens", f"{SPEED}: one H200"),
    "MiniLM, one core, float32": Measured(223 / 2, "sentences/s", f"{SPEED}: two cores / 2"),
    "MiniLM, one core, bfloat16": Measured(409 / 2, "sentences/s", f"{SPEED}: two cores / 2"),
    "cloze-en, one core, float32": Measured(
        78.3, "sentences/s", f"{HERE}: CPU time, Parquet written"
    ),
    "tokens of a sentence": Measured(30.05, "tokens", f"{HERE}: sentences of wiki-03"),
    "bytes of a sentence": Measured(128.9, "bytes", f"{HERE}: sentences of wiki-03"),
    "Parquet bytes of a row, 320 numbers": Measured(1377, "bytes", f"{HERE}: text and vector"),
    "reading memory, two cores": Measured(40.2, "GB/s", f"{SPEED}: generating text"),
    "copying memory, one H200": Measured(4317, "GB/s", f"{SPEED}: generating text"),
}

# Not measured here: what each is based on is said beside it.
FACTORS = {
    "ray": (0.85, "throughput of Ray workers, relative to as many processes without it"),
    "scaling": (0.9, "8 GPUs of one machine reach 0.9 of 8 × one: not measured here"),
    "forward": (3.0, "a forward pass computes a third of a training step (2 of 6 FLOPs)"),
    "network": (50e9 / 8, "50 Gbit/s between machines, in bytes per second"),
    "base parameters": (110e6, "weights of BERT-base, whose gradients are 4 bytes each"),
    "GPU memory": (130e9, "bytes of an H200 for token ids of 2 bytes, beside the model"),
    "dimension": (384, "numbers of a vector, as MiniLM has them, in float32"),
}

TEXT_BYTES, VECTORS = 1e12, 1e9
HOUR = 3600.0


def get(name: str) -> float:
    return MEASURED[name].value


def factor(name: str) -> float:
    return FACTORS[name][0]


def format_number(value: float) -> str:
    """Three significant digits."""
    if value >= 100:
        return f"{round(value, 2 - len(str(int(value))) + 1):,.0f}"
    return f"{value:.3g}"


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def line(cells: Sequence[object]) -> str:
        shown = (format_number(c) if isinstance(c, float) else str(c) for c in cells)
        return f"| {' | '.join(shown)} |"

    return "\n".join([line(header), f"|{'---|' * len(header)}", *map(line, rows)])


def plan_text(gpu_price: float, core_price: float, storage_price: float) -> str:
    """One terabyte of text: corpus, and one pass of training."""
    tokens = TEXT_BYTES / get("text bytes per token")
    cores, gpus = 64, 8
    core_hours = TEXT_BYTES / 1e6 / get("preparation, one core") / factor("ray") / HOUR
    reading_hours = TEXT_BYTES / 1e6 / get("reading rows, one core") / HOUR
    preparing = max(core_hours / cores, reading_hours)
    corpus_gb = tokens * get("corpus bytes per token") / 1e9
    rows: list[tuple[object, ...]] = [
        (
            f"prepare {tokens / 1e9:.0f} G tokens (`--engine ray`)",
            f"{cores} cores",
            preparing,
            preparing * cores * core_price,
            "the one process that reads the rows"
            if reading_hours > core_hours / cores
            else "tokenization",
        ),
        ("store the corpus", f"{corpus_gb:,.0f} GB", "–", corpus_gb * storage_price, "per month"),
    ]
    for name in (
        "BERT-small, training, length 128",
        "BERT-base, training, length 128",
        "BERT-base, training, length 512",
        "GPT-2 base, training, length 1024",
    ):
        alone = tokens / get(name) / HOUR
        hours = alone / gpus / factor("scaling")
        model = name.replace(", training", "")
        parts = -(-2 * tokens // factor("GPU memory"))
        fits = f"matrix products; the ids fit on the GPU in {parts:.0f} parts"
        feeding = get(name) / get("making batches, one core")
        fed = f"matrix products; {feeding:.1f} cores per GPU make the batches"
        rows += [
            (f"one pass: {model}", "1 H200", alone, alone * gpu_price, fits),
            (f"one pass: {model}", f"{gpus} H200", hours, hours * gpus * gpu_price, fed),
        ]
    return format_table(("step", "on", "hours", "cost, $", "bottleneck"), rows)


def plan_network() -> str:
    """How long a step computes and how long its gradients take between machines."""
    rows = []
    sent = 2 * 4 * factor("base parameters")  # all-reduce: each byte is sent about twice
    for micro in (1, 4, 16):
        computing = micro * get("tokens of a step") / get("BERT-base, training, length 128")
        sending = sent / factor("network")
        share = computing / (computing + sending)
        rows.append((f"{micro}", computing * 1000, sending * 1000, format_percent(share, 0)))
    header = ("micro-batches per step and GPU", "computing, ms", "gradients, ms", "of full speed")
    return format_table(header, rows)


def plan_vectors(gpu_price: float, core_price: float, storage_price: float) -> str:
    """A billion sentences as vectors."""
    ray = factor("ray")
    rows: list[tuple[object, ...]] = []
    for name in (
        "cloze-en, one core, float32",
        "MiniLM, one core, float32",
        "MiniLM, one core, bfloat16",
    ):
        core_hours = VECTORS / get(name) / ray / HOUR
        model = name.replace(", one core", "")
        rows.append(
            (f"embed: {model}", "256 cores", core_hours / 256, core_hours * core_price, "the model")
        )
    speed = get("BERT-base, training, length 128") * factor("forward") / get("tokens of a sentence")
    hours = VECTORS / speed / HOUR
    tokenizing = speed * get("bytes of a sentence") / 1e6 / get("preparation, one core")
    rows.append(
        (
            "embed: BERT-base, bfloat16",
            "1 H200",
            hours,
            hours * (gpu_price + tokenizing * core_price),
            f"tokenization: {tokenizing:.0f} cores keep up with one GPU",
        )
    )
    size = 4 * factor("dimension")
    overhead = get("Parquet bytes of a row, 320 numbers") - 4 * 320
    for name, bytes_ in (("float32", size), ("float16", size / 2), ("int8", size / 4)):
        total = VECTORS * bytes_ / 1e9
        rows.append(
            (f"store vectors, {name}", f"{total:,.0f} GB", "–", total * storage_price, "per month")
        )
    text = VECTORS * overhead / 1e9
    rows.append(
        ("store text beside them", f"{text:,.0f} GB", "–", text * storage_price, "per month")
    )
    return format_table(("step", "on", "hours", "cost, $", "bottleneck"), rows)


def plan_search() -> str:
    """Exact search: each query, or batch of queries, reads every vector once."""
    rows = []
    for name, bytes_ in (("float32", 4), ("float16", 2), ("int8", 1)):
        total = VECTORS * bytes_ * factor("dimension") / 1e9
        cpu = total / get("reading memory, two cores")
        # a copy reads and writes: half of its bytes are read
        gpus = -(-total // 130)
        gpu = total / (get("copying memory, one H200") / 2) / gpus
        rows.append((name, total, cpu, f"{gpus:.0f}", gpu * 1000))
    header = ("vectors", "GB", "two cores, s", "H200s whose memory holds them", "on these, ms")
    return format_table(header, rows)


def measured_table() -> str:
    rows = ((name, one.value, one.unit, one.source) for name, one in MEASURED.items())
    return format_table(("measured", "value", "unit", "source"), rows)


def make_tables(gpu: float = 4.0, core: float = 0.04, storage: float = 0.08) -> dict[str, str]:
    """The tables by the name of their marker in docs/scaling.md."""
    return {
        "text": plan_text(gpu, core, storage),
        "network": plan_network(),
        "vectors": plan_vectors(gpu, core, storage),
        "search": plan_search(),
        "measured": measured_table(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu-price", type=float, default=4.0, help="$ per hour of an H200")
    parser.add_argument("--core-price", type=float, default=0.04, help="$ per hour of a CPU core")
    parser.add_argument("--storage-price", type=float, default=0.08, help="$ per GB and month")
    parser.add_argument("--update", type=Path, help="page whose tables are replaced")
    options = parser.parse_args()
    tables = make_tables(options.gpu_price, options.core_price, options.storage_price)
    if options.update:
        page = options.update.read_text("utf-8")
        for name, table in tables.items():
            block = f"<!-- {name} -->\n\n{table}\n\n<!-- end -->"
            page = re.sub(rf"<!-- {name} -->.*?<!-- end -->", lambda _: block, page, flags=re.S)  # noqa: B023
        options.update.write_text(page, "utf-8")
        return
    for name, table in tables.items():
        print(f"<!-- {name} -->\n{table}\n")
    for name, (value, reason) in FACTORS.items():
        print(f"factor {name} = {value:g}: {reason}")


if __name__ == "__main__":
    main()
