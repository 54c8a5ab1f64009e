"""Texts per second of embeddings on a GPU, tokenising included: cloze, transformers and others.

    python bench/embed.py --device cuda --model cloze-en --json out.json
    python bench/embed.py --device cpu --model cloze-en --gpu-rows --count 40    # a dry run

Every row embeds the same texts with the same model and mean pooling, in float32 or bfloat16:
sentences of about 28 tokens, and texts of 512 tokens. The rows take turns after a warm round, and
the best round of each counts. transformers gets batches sorted by length, padded to the longest in
the batch, with its default attention; sentence-transformers its defaults and the same batch size.
`first` is the first call after loading, in seconds: for cloze with an empty cache of kernels.
TFLOP/s: 2 · parameters of the blocks + 4 · layers · hidden size · length for each token, padding
not counted. `cosine` is the lowest to transformers in float32.
"""

import argparse
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import cloze
from cloze.data.python_docs import read_documents, split_paragraphs
from cloze.data.sources import read_rows
from cloze.plot.format import format_percent
from common import print_result, versions

Embed = Callable[[list[str]], np.ndarray]
Key = tuple[str, str, str]  # texts, dtype, library
BATCH = {"short": 256, "long": 32}


def make_texts(source: Path, model: cloze.Model, counts: dict[str, int]) -> dict[str, list[str]]:
    """Sentences of 20 to 36 tokens, and texts of nearly 512 tokens."""
    if source.exists():
        passages: Iterator[str] = (row.text for row in read_rows([source]))
    else:  # what comes with Python
        passages = (" ".join(split_paragraphs(document)) for document in read_documents())
    found: list[str] = []
    for passage in passages:
        found += [one for one in re.split(r"(?<=[.!?])\s+", passage) if len(one.split()) > 4]
        if len(found) > 12 * max(counts.values()):
            break
    lengths = [len(ids) for ids in model.tokenizer.encode_ids(found)]
    short = [one for one, n in zip(found, lengths, strict=True) if 20 <= n <= 36]
    kinds = {"short": short, "long": list(join_sentences(found, lengths, 512))}
    return {name: (kinds[name] * 20)[:count] for name, count in counts.items()}


def join_sentences(found: list[str], lengths: list[int], most: int) -> Iterator[str]:
    """Texts of as many sentences as have at most so many tokens."""
    joined: list[str] = []
    total = 2  # special tokens
    for one, count in zip(found, lengths, strict=True):
        if total + count - 2 > most and joined:
            yield " ".join(joined)
            joined, total = [], 2
        if count <= most:
            joined.append(one)
            total += count - 2


def sorted_batches(texts: list[str], size: int) -> Iterator[tuple[list[int], list[str]]]:
    order = sorted(range(len(texts)), key=lambda n: -len(texts[n]))
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        yield batch, [texts[n] for n in batch]


def run_cloze(folder: str, device: str, dtype: str, kind: str) -> Embed:  # noqa: ARG001
    model = cloze.load(folder, device=device, dtype=dtype, quiet=True)
    return lambda texts: cloze.embed(
        model, texts, pooling="mean", truncation="head", normalize=True
    )


def run_transformers(folder: str, device: str, dtype: str, kind: str) -> Embed:
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder, dtype=dtype).eval().to(device)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    @torch.inference_mode()
    def run(texts: list[str]) -> np.ndarray:
        out = np.empty((len(texts), model.config.hidden_size), np.float32)
        for numbers, batch in sorted_batches(texts, BATCH[kind]):
            given = tokenizer(
                batch, padding=True, truncation=True, max_length=512, return_tensors="pt"
            ).to(device)
            given.pop("token_type_ids", None)
            hidden = model(**given).last_hidden_state.float()
            mask = given["attention_mask"][..., None].float()
            pooled = (hidden * mask).sum(1) / mask.sum(1)
            out[numbers] = torch.nn.functional.normalize(pooled, dim=-1).cpu().numpy()
        return out

    return run


def run_sentence_transformers(folder: str, device: str, dtype: str, kind: str) -> Embed:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device=device, model_kwargs={"dtype": dtype})
    model.max_seq_length = 512
    options = {"batch_size": BATCH[kind], "convert_to_tensor": True, "show_progress_bar": False}
    return lambda texts: (
        model.encode(texts, normalize_embeddings=True, **options).float().cpu().numpy()
    )


LIBRARIES = {
    "transformers": run_transformers,
    "sentence-transformers": run_sentence_transformers,
    "cloze": run_cloze,
}


def measure_peak(device: str, size: int = 8192) -> float:
    """The rate of a bfloat16 matrix product, FLOP/s."""
    if device == "cpu":
        return float("nan")
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        a @ b
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(30):
        a @ b
    end.record()
    torch.cuda.synchronize()
    return 30 * 2 * size**3 / (start.elapsed_time(end) / 1e3)


def count_flops(model: cloze.Model, texts: list[str]) -> float:
    """What the blocks must compute for these texts."""
    blocks = sum(weight.numel() for weight in model.module.blocks.parameters() if weight.dim() > 1)
    width, layers = model.config.hidden_size, model.config.num_layers
    lengths = [min(len(ids), 512) for ids in model.tokenizer.encode_ids(texts)]
    return float(sum(n * (2 * blocks + 4 * layers * width * n) for n in lengths))


def profile(run: Embed, texts: list[str]) -> str:
    """Where the time of a run goes."""
    with torch.profiler.profile() as found:
        run(texts)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    key = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    return found.key_averages().table(sort_by=key, row_limit=18, max_name_column_width=60)


def main(given: argparse.Namespace) -> None:
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()  # the first call compiles the kernels
    reference = cloze.load(given.model, device="cpu", quiet=True)
    folder = str(reference.folder)
    counts = {"short": given.count, "long": max(4, given.count // 9)}
    texts = make_texts(given.texts, reference, counts)
    peak = measure_peak(given.device)
    ready: dict[Key, Embed] = {}
    first: dict[Key, float] = {}
    for kind, dtype, name in product(counts, ("float32", "bfloat16"), LIBRARIES):
        try:
            run = LIBRARIES[name](folder, given.device, dtype, kind)
            start = time.perf_counter()
            run(texts[kind][:64])
            first[kind, dtype, name] = time.perf_counter() - start
            run(texts[kind])  # the warm round
            ready[kind, dtype, name] = run
        except Exception as error:  # a library that fails has its error in the row
            Console().print(f"[yellow]{name} {dtype}: left out: {error!r}")
    best = dict.fromkeys(ready, float("inf"))
    vectors = {}
    for _ in range(given.rounds):
        for key, run in ready.items():
            start = time.perf_counter()
            vectors[key] = run(texts[key[0]])
            best[key] = min(best[key], time.perf_counter() - start)
    report(given, texts, reference, peak, best, first, vectors)
    if given.profile:
        for kind in counts:
            print(profile(ready[kind, "bfloat16", "cloze"], texts[kind]))


def report(given, texts, model, peak, best, first, vectors) -> None:
    """Print the table, and stages of cloze alone."""
    table = Table(
        "texts", "dtype", "", "texts/s", "× transformers", "TFLOP/s", "of peak", "first", "cosine"
    )
    results = {}
    flops = {kind: count_flops(model, some) for kind, some in texts.items()}
    for (kind, dtype, name), seconds in best.items():
        rate, tera = len(texts[kind]) / seconds, flops[kind] / seconds / 1e12
        base = best.get((kind, dtype, "transformers"), float("nan"))
        reference = vectors.get((kind, "float32", "transformers"))
        found = vectors[kind, dtype, name]
        cosine = float("nan") if reference is None else float((found * reference).sum(1).min())
        row = {
            "per_second": rate,
            "ratio": base / seconds,
            "tflops": tera,
            "of_peak": tera * 1e12 / peak,
            "first": first[kind, dtype, name],
            "cosine": cosine,
        }
        results[f"{kind} {dtype} {name}"] = row
        table.add_row(
            kind, dtype, name, f"{rate:,.0f}", f"{row['ratio']:.2f}", f"{tera:.1f}",
            format_percent(row["of_peak"]), f"{row['first']:.2f}", f"{cosine:.5f}",
        )  # fmt: skip
    start = time.perf_counter()
    model.tokenizer.encode_ids(texts["short"])
    tokenizing = len(texts["short"]) / (time.perf_counter() - start)
    tokens = {
        k: float(np.mean([len(x) for x in model.tokenizer.encode_ids(v)])) for k, v in texts.items()
    }
    print_result(
        table,
        f"peak {peak / 1e12:.0f} TFLOP/s; the tokenizer alone: {tokenizing:,.0f} sentences/s; "
        f"tokens of a text: {tokens}",
        versions("torch", "transformers", "sentence-transformers", "tokenizers"),
        results={"rows": results, "peak": peak, "tokenizer": tokenizing},
        file=given.json,
    )
