"""Generation with cloze, transformers and CTranslate2 with the same weights: tokens per second.

    python bench/generate.py --batches 1 8 --new 64
    python bench/generate.py --device cuda --shapes 124M 1.5B --new 128

A GPT-2 with random weights is written in Hugging Face's layout, and loaded or converted by each
library. All continue the same prompts greedily, without an end, from ids to ids, in turns; the best
of several rounds counts. A step reads every weight once (the table of positions excepted) and the
keys and values of all tokens before it, so its speed is limited by the memory: the last column is
what it reads per second, as a share of the bandwidth that a sum or a copy of a large tensor
reaches on the same machine. On a GPU there is no CTranslate2; --compile adds transformers with a
static cache, which it compiles; the rows of cloze are a CUDA graph with our kernels, one with those
of torch, and no graph.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from rich.table import Table

import cloze
from cloze.decode.config import SamplingOptions
from cloze.decode.language import language_model
from cloze.decode.prompts import start_rows
from cloze.decode.sampling import sample
from cloze.nn import fused_step, graph_step
from cloze.plot.format import format_percent
from common import print_result, versions

SHAPES = {  # width, layers, heads
    "tiny": (64, 2, 2),
    "124M": (768, 12, 12),
    "355M": (1024, 24, 16),
    "774M": (1280, 36, 20),
    "1.5B": (1600, 48, 25),
}
EOS = 50_256
Ids = list[list[int]]
Side = Callable[[Ids, int], Ids]
_CTRANSLATE2: dict[str, Any] = {}  # generators of this process, and the names of their ids


@dataclass
class Row:
    """A library in one precision."""

    name: str
    run: Side
    bytes: float  # of a weight; of a cached number for cloze and transformers

    def __post_init__(self) -> None:
        self.times: list[float] = []
        self.found: Ids = []


def write_model(folder: Path, shape: str, device: str, dtype: torch.dtype) -> int:
    """A GPT-2 with random weights; the number of weights that a step reads."""
    width, layers, heads = SHAPES[shape]
    config = transformers.GPT2Config(n_embd=width, n_layer=layers, n_head=heads)
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.GPT2LMHeadModel(config)
    model.to(dtype).save_pretrained(folder)
    names = [chr(0x100 + n) if n < 256 else f"t{n}" for n in range(EOS)] + ["<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({name: n for n, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    positions = model.transformer.wpe.weight.numel()
    return sum(weight.numel() for weight in model.parameters()) - positions


def run_cloze(
    folder: Path, device: str, dtype: str, *, graphs: bool = True, kernels: bool = True
) -> Side:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        language: Any = language_model(cloze.load(folder, device=device, dtype=dtype))

    def run(prompts: Ids, new: int) -> Ids:
        graph_step.DEVICES = {"cuda"} if graphs else set()
        fused_step.DEVICES = {"cuda"} if kernels else set()
        tokens, state = start_rows(language, prompts, range(len(prompts)), max_new_tokens=new)
        found = sample(
            language,
            state,
            tokens,
            SamplingOptions(temperature=0),
            draws=torch.zeros(len(prompts), new, dtype=torch.float64),
            eos_id=None,
            banned_ids=[EOS],
        )
        return [list(one.tokens) for one in found]

    return run


def run_transformers(folder: Path, device: str, dtype: torch.dtype, **options: Any) -> Side:
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=dtype).to(device).eval()

    @torch.inference_mode()
    def run(prompts: Ids, new: int) -> Ids:
        ids = torch.tensor(prompts, device=device)
        found = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            pad_token_id=EOS,
            **options,
        )
        return found[:, ids.shape[1] :].tolist()

    return run


def run_ctranslate2(folder: Path, kind: str, threads: int, *, own_process: bool) -> Side:
    """In a process of its own its threads take no time from those of torch."""
    from ctranslate2.converters import TransformersConverter

    converted = folder / "ctranslate2"
    if not converted.exists():
        TransformersConverter(str(folder)).convert(str(converted))
    names = json.loads((folder / "vocab.json").read_text())
    by_id = {n: name for name, n in names.items()}
    if not own_process:
        _open_ctranslate2(converted, kind, threads, by_id)
        return partial(_run_ctranslate2, kind)
    pool = ProcessPoolExecutor(
        1,
        mp_context=get_context("spawn"),
        initializer=_open_ctranslate2,
        initargs=(converted, kind, threads, by_id),
    )
    return lambda prompts, new: pool.submit(_run_ctranslate2, kind, prompts, new).result()


def _open_ctranslate2(folder: Path, kind: str, threads: int, by_id: dict[int, str]) -> None:
    import ctranslate2

    generator = ctranslate2.Generator(
        str(folder), device="cpu", compute_type=kind, inter_threads=1, intra_threads=threads
    )
    _CTRANSLATE2[kind] = generator, by_id


def _run_ctranslate2(kind: str, prompts: Ids, new: int) -> Ids:
    generator, by_id = _CTRANSLATE2[kind]
    found = generator.generate_batch(
        [[by_id[id_] for id_ in ids] for ids in prompts],
        max_length=new,
        min_length=new,
        sampling_topk=1,
        include_prompt_in_result=False,
    )
    return [one.sequences_ids[0] for one in found]


def measure_bandwidth(given: argparse.Namespace, *, size: int) -> float:
    """Bytes per second of a sum (reads) or a copy (reads and writes), whichever is more."""
    device, clock = given.device, time.process_time if given.cpu_time else time.perf_counter
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)

    def seconds(call: Callable[[], object]) -> float:
        call()
        times = []
        for _ in range(5):
            synchronize(device)
            began = clock()
            call()
            synchronize(device)
            times.append(clock() - began)
        return min(times)

    return max(size / seconds(source.sum), 2 * size / seconds(lambda: target.copy_(source)))


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def make_rows(folder: Path, given: argparse.Namespace, shape: str) -> list[Row]:
    device = given.device
    if device == "cuda":
        rows = [
            Row("transformers bfloat16", run_transformers(folder, device, torch.bfloat16), 2),
            Row("cloze bfloat16", run_cloze(folder, device, "bfloat16"), 2),
            Row(
                "cloze bfloat16, torch's kernels",
                run_cloze(folder, device, "bfloat16", kernels=False),
                2,
            ),
            Row("cloze bfloat16, no graph", run_cloze(folder, device, "bfloat16", graphs=False), 2),
        ]
        if shape != "1.5B":
            rows += [
                Row("transformers float32", run_transformers(folder, device, torch.float32), 4),
                Row("cloze float32", run_cloze(folder, device, "float32"), 4),
            ]
        if given.compile and shape != "1.5B":
            static = run_transformers(folder, device, torch.bfloat16, cache_implementation="static")
            rows.append(Row("transformers bfloat16, static cache, compiled", static, 2))
        return rows
    rows = [
        Row("transformers float32", run_transformers(folder, device, torch.float32), 4),
        Row("cloze float32", run_cloze(folder, device, "float32"), 4),
        Row("transformers bfloat16", run_transformers(folder, device, torch.bfloat16), 2),
        Row("cloze bfloat16", run_cloze(folder, device, "bfloat16"), 2),
    ]
    try:
        for kind, size in (("float32", 4), ("int8", 1)):
            apart = not given.cpu_time  # which counts this process only
            side = run_ctranslate2(folder, kind, given.threads, own_process=apart)
            rows.append(Row(f"CTranslate2 {kind}", side, size))
    except ImportError:
        print("CTranslate2 is not installed: pip install ctranslate2")
    return rows


def measure(rows: Sequence[Row], prompts: Ids, new: int, given: argparse.Namespace) -> None:
    """In turns, so that what else the machine does meets all of them."""
    clock = time.process_time if given.cpu_time else time.perf_counter
    for row in rows:
        row.times.clear()
        began = time.perf_counter()
        try:
            row.found = row.run(prompts, new)  # what is done only once
        except Exception as error:
            print(f"{row.name}: {type(error).__name__}: {str(error)[:300]}")
            continue
        print(f"{row.name}: first run {time.perf_counter() - began:.1f} s", flush=True)
    for _ in range(given.rounds):
        for row in rows:
            if not row.found:
                continue
            synchronize(given.device)
            began = clock()
            row.found = row.run(prompts, new)
            synchronize(given.device)
            row.times.append(clock() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--shapes", nargs="+", choices=[*SHAPES], default=["124M"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--prompt", type=int, default=32, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=64, help="tokens to generate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="transformers, compiled (a minute)")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="count the processor's time instead of the clock's, for a busy machine and one thread",
    )
    parser.add_argument("--rehearse", action="store_true", help="a tiny model and few tokens")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.rehearse:
        given.shapes, given.new, given.rounds = ["tiny"], 20, 1
    torch.set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    size = 1 << (26 if given.rehearse else 32 if given.device == "cuda" else 29)
    bandwidth = measure_bandwidth(given, size=size)
    title = f"prompt of {given.prompt} tokens, {given.new} new, greedy, {given.device}"
    title += f", {given.threads} threads" if given.device == "cpu" else ""
    title += ", processor time" if given.cpu_time else ""
    shown = Table(title=title)
    for column in ("shape", "batch", "", "tokens/s", "ratio", "bandwidth", "same tokens"):
        shown.add_column(column, justify="right" if column else "left")
    results: list[dict[str, Any]] = []
    for shape in given.shapes:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            dtype = torch.bfloat16 if shape == "1.5B" else torch.float32
            weights = write_model(folder, shape, given.device, dtype)
            rows = make_rows(folder, given, shape)
            for batch in given.batches:
                rng = torch.Generator().manual_seed(batch)
                prompts = torch.randint(EOS, (batch, given.prompt), generator=rng).tolist()
                measure(rows, prompts, given.new, given)
                width, layers, _ = SHAPES[shape]
                cached = batch * layers * 2 * width * (given.prompt + given.new / 2)
                for row in rows:
                    if not row.times:
                        continue
                    fastest = min(row.times)
                    pairs = zip(chain(*row.found), chain(*rows[0].found), strict=True)
                    result = {
                        "shape": shape,
                        "batch": batch,
                        "name": row.name,
                        "tokens_per_second": batch * given.new / fastest,
                        "ratio": min(rows[0].times) / fastest,
                        "bytes_per_second": (weights + cached) * row.bytes * given.new / fastest,
                        "same_tokens": sum(a == b for a, b in pairs) / (batch * given.new),
                    }
                    results.append(result)
            del rows
    bandwidth = max(bandwidth, measure_bandwidth(given, size=size))
    for result in results:
        result["bandwidth_share"] = result["bytes_per_second"] / bandwidth
        shown.add_row(
            *(result["shape"], str(result["batch"]), result["name"]),
            *(f"{result['tokens_per_second']:.1f}", f"{result['ratio']:.2f}"),
            *(format_percent(result["bandwidth_share"]), format_percent(result["same_tokens"])),
        )
    print_result(
        shown,
        f"ratio: to the first row. measured bandwidth: {bandwidth / 1e9:.1f} GB/s",
        versions("torch", "transformers", "ctranslate2"),
        results={"bandwidth": bandwidth, "results": results},
        file=given.json,
    )


if __name__ == "__main__":
    main()
