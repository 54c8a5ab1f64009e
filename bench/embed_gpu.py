"""Texts per second of embeddings on a GPU, tokenising included: cloze, transformers and others.

    python bench/embed.py --device cuda --model cloze-en --count 9000 --seconds 90
    python bench/embed.py --device cpu --gpu-rows --count 40 --rounds 1          # a dry run

Every row embeds the same texts with the same model and mean pooling, in float32 or bfloat16:
sentences of about 28 tokens, and texts of 512 tokens. The rows take turns after a warm round, and
the best round of each counts. transformers gets batches sorted by length, padded to the longest in
the batch, with its default attention; sentence-transformers its defaults and the same batch size.
Rows "ids" do not tokenise: the ids are there already; a number is that of `batch_tokens`.
`first` is the first call with such texts in seconds; that of the first row is the first one after
loading, with an empty cache of kernels and before other libraries are imported. TFLOP/s: 2 ·
parameters of the blocks + 4 · layers · hidden size · length for each token, padding not counted.
`cosine` is the lowest to transformers in float32, `differs` the largest difference of any number
(all vectors have length 1). No round starts after `--seconds`.
"""

import argparse
import os
import re
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import torch
from rich.table import Table

import cloze
from cloze.data.python_docs import read_documents, split_paragraphs
from cloze.data.sources import read_rows
from cloze.plot.format import format_percent
from common import print_result, versions

START = time.perf_counter()
Embed = Callable[[list[str]], np.ndarray]
Texts = dict[str, list[str]]
Tokens = dict[str, torch.Tensor]
Rows = Iterator[tuple[str, dict[str, Embed]]]  # name, and what embeds each kind of texts
Key = tuple[str, str, str]  # texts, dtype, name
BATCH = {"short": 256, "long": 32}
SIZES = (8192, 32_768, 65_536)  # of batches, beside the default


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


class GivenIds:
    """A tokenizer whose ids of some texts are there already."""

    def __init__(self, tokenizer: Any, texts: dict[str, list[str]]) -> None:
        self._tokenizer = tokenizer
        self._ids: dict[str, list[int]] = {}
        for some in texts.values():
            self._ids |= zip(some, tokenizer.encode_ids(some), strict=True)

    def encode_ids(self, texts: list[str], **_: object) -> list[list[int]]:
        return [self._ids[text] for text in texts]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def embed_with_cloze(model: cloze.Model, batch_tokens: int | None = None) -> Embed:
    return lambda texts: cloze.embed(
        model, texts, pooling="mean", truncation="head", normalize=True, batch_tokens=batch_tokens
    )


def run_cloze(folder: str, device: str, dtype: str, texts: Texts) -> Rows:
    model = cloze.load(folder, device=device, dtype=dtype, quiet=True)
    yield "cloze", dict.fromkeys(texts, embed_with_cloze(model))
    given = replace(model, tokenizer=GivenIds(model.tokenizer, texts))
    for size in (None, *SIZES):
        name = "cloze ids" if size is None else f"cloze ids {size}"
        if size is None or dtype == "bfloat16":
            yield name, dict.fromkeys(texts, embed_with_cloze(given, size))


def run_transformers(folder: str, device: str, dtype: str, texts: Texts) -> Rows:
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder, dtype=dtype).eval().to(device)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def tokenize(some: list[str], size: int) -> Iterator[tuple[list[int], Tokens]]:
        for numbers, batch in sorted_batches(some, size):
            given = tokenizer(
                batch, padding=True, truncation=True, max_length=512, return_tensors="pt"
            )
            given.pop("token_type_ids", None)
            yield numbers, given

    @torch.inference_mode()
    def run(count: int, batches: Iterable[tuple[list[int], Tokens]]) -> np.ndarray:
        out = np.empty((count, model.config.hidden_size), np.float32)
        for numbers, tokens in batches:
            given = {name: one.to(device, non_blocking=True) for name, one in tokens.items()}
            hidden = model(**given).last_hidden_state.float()
            mask = given["attention_mask"][..., None].float()
            pooled = (hidden * mask).sum(1) / mask.sum(1)
            out[numbers] = torch.nn.functional.normalize(pooled, dim=-1).cpu().numpy()
        return out

    def make(kind: str) -> Embed:
        return lambda some: run(len(some), tokenize(some, BATCH[kind]))

    def make_given(kind: str) -> Embed:
        batches = list(tokenize(texts[kind], BATCH[kind]))
        return lambda some: run(len(some), batches)

    yield "transformers", {kind: make(kind) for kind in texts}
    yield "transformers ids", {kind: make_given(kind) for kind in texts}


def run_sentence_transformers(folder: str, device: str, dtype: str, texts: Texts) -> Rows:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device=device, model_kwargs={"dtype": dtype})
    model.max_seq_length = 512

    def make(size: int) -> Embed:
        options = {"batch_size": size, "convert_to_tensor": True, "show_progress_bar": False}
        return lambda some: (
            model.encode(some, normalize_embeddings=True, **options).float().cpu().numpy()
        )

    yield "sentence-transformers", {kind: make(BATCH[kind]) for kind in texts}


LIBRARIES = (  # cloze first: other libraries import a lot that it would use, too
    (run_cloze, "bfloat16"),
    (run_cloze, "float32"),
    (run_transformers, "float32"),
    (run_transformers, "bfloat16"),
    (run_sentence_transformers, "float32"),
    (run_sentence_transformers, "bfloat16"),
)


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


def prepare(
    run: Callable[[str, str, str, Texts], Rows], dtype: str, given: Any, folder: str, texts: Texts
) -> Iterator[tuple[Key, Embed, float]]:
    """The rows of a library, and the seconds of the first call of each.

    If one fails, its traceback is printed. That cloze computes without CUDA graphs is a failure at
    first; then it may.
    """
    try:
        for name, embeds in run(folder, given.device, dtype, texts):
            for kind, embed in embeds.items():
                for action in ("error", "default"):
                    try:
                        with warnings.catch_warnings():
                            warnings.filterwarnings(action, "inference without CUDA graphs")
                            start = time.perf_counter()
                            embed(texts[kind])  # the warm round
                            first = time.perf_counter() - start
                        print_progress(f"{kind} {dtype} {name}: first call {first:.2f} s")
                        yield (kind, dtype, name), embed, first
                        break
                    except Exception:  # what fails is no row
                        print_progress(f"{kind} {dtype} {name} failed:")
                        traceback.print_exc()
    except Exception:
        print_progress(f"{run.__name__} {dtype} failed:")
        traceback.print_exc()


def print_progress(message: str) -> None:
    print(f"{time.perf_counter() - START:6.1f} s  {message}", flush=True)


def take_turns(
    ready: dict[Key, Embed], texts: Texts, rounds: int, seconds: float
) -> tuple[dict[Key, float], dict[Key, np.ndarray]]:
    """The seconds of the fastest round of each row, and the vectors."""
    best, vectors = dict.fromkeys(ready, float("inf")), {}
    for number in range(rounds):
        for key, embed in ready.items():
            if number and time.perf_counter() - START > seconds:
                return best, vectors
            start = time.perf_counter()
            vectors[key] = embed(texts[key[0]])
            best[key] = min(best[key], time.perf_counter() - start)
        print_progress(f"round {number + 1}")
    return best, vectors


def main(given: argparse.Namespace) -> None:
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()  # the first call compiles the kernels
    torch.set_num_threads(given.threads)
    reference = cloze.load(given.model, device="cpu", quiet=True)
    folder = str(reference.folder)
    counts = {"short": given.count, "long": max(4, given.count // 9)}
    texts = make_texts(given.texts, reference, counts)
    print_progress("texts are ready")
    ready: dict[Key, Embed] = {}
    first: dict[Key, float] = {}
    for run, dtype in LIBRARIES:
        for key, embed, seconds in prepare(run, dtype, given, folder, texts):
            ready[key], first[key] = embed, seconds
    peak = measure_peak(given.device)
    best, vectors = take_turns(ready, texts, given.rounds, given.seconds)
    report(given, texts, reference, peak, best, first, vectors)
    if given.profile:
        for (kind, dtype, name), embed in ready.items():
            if (dtype, name) == ("bfloat16", "cloze ids"):
                print(profile(embed, texts[kind]), flush=True)


def report(given, texts, model, peak, best, first, vectors) -> None:
    """Print the table, and stages of cloze alone."""
    table = Table(
        *("texts", "dtype", "", "texts/s", "× transformers", "TFLOP/s", "of peak", "first"),
        *("cosine", "differs"),
    )
    results = {}
    flops = {kind: count_flops(model, some) for kind, some in texts.items()}
    for (kind, dtype, name), seconds in sorted(best.items(), reverse=True):
        rate, tera = len(texts[kind]) / seconds, flops[kind] / seconds / 1e12
        other = "transformers ids" if "ids" in name else "transformers"
        base = best.get((kind, dtype, other), float("nan"))
        reference = vectors.get((kind, "float32", "transformers"))
        found = vectors[kind, dtype, name]
        cosine = differs = float("nan")
        if reference is not None:
            cosine = float((found * reference).sum(1).min())
            differs = float(np.abs(found - reference).max())
        row = {
            "per_second": rate,
            "ratio": base / seconds,
            "tflops": tera,
            "of_peak": tera * 1e12 / peak,
            "first": first[kind, dtype, name],
            "cosine": cosine,
            "differs": differs,
        }
        results[f"{kind} {dtype} {name}"] = row
        table.add_row(
            kind, dtype, name, f"{rate:,.0f}", f"{row['ratio']:.2f}", f"{tera:.1f}",
            format_percent(row["of_peak"]), f"{row['first']:.2f}", f"{cosine:.5f}",
            f"{differs:.1e}",
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
