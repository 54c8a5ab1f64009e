"""Sentences per second of `cloze.embed` and of other libraries, in one run.

    make bench                                    # or, for other texts and a file of the numbers:
    python bench/embed.py --texts FILE --json out.json
    python bench/embed.py --device cuda --count 9000        # on a GPU: see bench/embed_gpu.py

Every row embeds the same sentences with the same model (all-MiniLM-L6-v2). The other libraries are
used as their documentation recommends: batches sorted by length, padded to the longest in the
batch. The rows alternate for several rounds, and the best round of each counts. `differs` is the
largest absolute difference of any number from the vectors of sentence-transformers, `cosine` the
mean cosine to them (all vectors have length 1). `per CPU second` counts the time of all threads, so
that other processes on the cores change it less; with `--threads 1` no thread waits for another.
"""

import argparse
import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import cloze
from cloze.data.sources import read_rows
from cloze.plot.format import format_percent
from common import TEXT, minilm, print_result, versions

LIMIT = 256
Embed = Callable[[list[str]], np.ndarray]


def sentences(source: Path, count: int) -> list[str]:
    """Sentences of running text, drawn at random with a fixed seed."""
    found: list[str] = []
    for row in read_rows([source]):
        found += [part for part in re.split(r"(?<=[.!?])\s+", row.text) if len(part.split()) >= 3]
        if len(found) > 50 * count:
            break
    random.Random(0).shuffle(found)
    return found[:count]


def sorted_batches(texts: list[str], size: int) -> Iterator[tuple[list[int], list[str]]]:
    order = sorted(range(len(texts)), key=lambda n: -len(texts[n]))
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        yield batch, [texts[n] for n in batch]


def mean_normalised(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    summed = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return summed / np.linalg.norm(summed, axis=1, keepdims=True)


def run_cloze(dtype: str) -> Embed:
    model = cloze.load(minilm(), device="cpu", dtype=dtype, quiet=True)
    return lambda texts: cloze.embed(model, texts)


def sentence_transformers(dtype: str = "float32") -> Embed:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(minilm()), device="cpu", model_kwargs={"dtype": dtype})
    return lambda texts: model.encode(texts, convert_to_tensor=True).float().numpy()


def transformers_plain(size: int = 32) -> Embed:
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = (
        AutoModel.from_pretrained(minilm()).eval(),
        AutoTokenizer.from_pretrained(minilm()),
    )

    @torch.inference_mode()
    def run(texts: list[str]) -> np.ndarray:
        out = np.empty((len(texts), model.config.hidden_size), np.float32)
        for numbers, batch in sorted_batches(texts, size):
            given = tokenizer(
                batch, padding=True, truncation=True, max_length=LIMIT, return_tensors="pt"
            )
            hidden = model(**given).last_hidden_state.numpy()
            out[numbers] = mean_normalised(hidden, given["attention_mask"].numpy())
        return out

    return run


def onnx(int8: bool, size: int = 32) -> Embed:
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic
    from transformers import AutoModel, AutoTokenizer

    folder = Path(tempfile.mkdtemp())
    file = folder / "model.onnx"
    model = AutoModel.from_pretrained(minilm(), attn_implementation="eager").eval()

    class Named(torch.nn.Module):
        """Converts the positional inputs of the exporter to keyword arguments."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor
        ) -> torch.Tensor:
            given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
            return self.model(**given).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = tuple(torch.ones(2, 8, dtype=torch.long) for _ in names)
    shapes = {place: {0: "batch", 1: "tokens"} for place in ("ids", "mask", "types")}
    torch.onnx.export(
        Named().eval(),
        example,
        file,
        input_names=names,
        output_names=["hidden"],
        dynamic_shapes=shapes,
        dynamo=True,
        verbose=False,
    )
    if int8:
        quantize_dynamic(file, folder / "int8.onnx")
        file = folder / "int8.onnx"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    tokenizer = AutoTokenizer.from_pretrained(minilm())

    def run(texts: list[str]) -> np.ndarray:
        out = np.empty((len(texts), model.config.hidden_size), np.float32)
        for numbers, batch in sorted_batches(texts, size):
            given = tokenizer(
                batch, padding=True, truncation=True, max_length=LIMIT, return_tensors="np"
            )
            hidden = session.run(["hidden"], {name: given[name] for name in names})[0]
            out[numbers] = mean_normalised(hidden, given["attention_mask"])
        return out

    return run


def ctranslate2(kind: str, size: int = 32) -> Embed:
    import ctranslate2
    from transformers import AutoTokenizer

    folder = Path(tempfile.mkdtemp()) / "model"
    ctranslate2.converters.TransformersConverter(str(minilm())).convert(str(folder))
    encoder = ctranslate2.Encoder(
        str(folder), intra_threads=torch.get_num_threads(), compute_type=kind
    )
    tokenizer = AutoTokenizer.from_pretrained(minilm())

    def run(texts: list[str]) -> np.ndarray:
        out = np.empty((len(texts), 384), np.float32)
        for numbers, batch in sorted_batches(texts, size):
            ids = tokenizer(batch, truncation=True, max_length=LIMIT)["input_ids"]
            hidden = np.array(encoder.forward_batch(ids).last_hidden_state, dtype=np.float32)
            mask = np.arange(hidden.shape[1]) < np.array([len(row) for row in ids])[:, None]
            out[numbers] = mean_normalised(hidden, mask)
        return out

    return run


ROWS: dict[str, Callable[[], Embed]] = {
    "sentence-transformers float32": sentence_transformers,
    "transformers float32": transformers_plain,
    "onnxruntime float32": lambda: onnx(int8=False),
    "ctranslate2 float32": lambda: ctranslate2("float32"),
    "cloze float32": lambda: run_cloze("float32"),
    "sentence-transformers bfloat16": lambda: sentence_transformers("bfloat16"),
    "cloze bfloat16": lambda: run_cloze("bfloat16"),
    "onnxruntime int8": lambda: onnx(int8=True),
    "ctranslate2 int8": lambda: ctranslate2("int8"),
    "cloze int8": lambda: run_cloze("int8"),
}
PACKAGES = (
    "cloze",
    "torch",
    "transformers",
    "sentence-transformers",
    "onnxruntime",
    "ctranslate2",
)
BASELINE = "sentence-transformers float32"


def padding_fraction(texts: list[str], size: int = 32) -> float:
    """The fraction of padding in the sorted batches of the other libraries."""
    tokenizer = cloze.Tokenizer.load(minilm())
    lengths = [min(len(ids), LIMIT) for ids in tokenizer.encode_ids(texts)]
    order = sorted(range(len(texts)), key=lambda n: -len(texts[n]))
    batches = [[lengths[n] for n in order[i : i + size]] for i in range(0, len(order), size)]
    return 1 - sum(lengths) / sum(max(batch) * len(batch) for batch in batches)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--texts", type=Path, default=TEXT, help="running text to take sentences from"
    )
    parser.add_argument("--count", type=int, default=1000, help="sentences")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; each row keeps its best")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="*", default=list(ROWS), help="rows to run")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--device", default="cpu", help="cuda: the rows of bench/embed_gpu.py")
    parser.add_argument("--gpu-rows", action="store_true", help="those rows on any device")
    parser.add_argument("--model", default="cloze-en", help="of the rows for a GPU")
    parser.add_argument(
        "--seconds", type=float, default=90, help="of the rows for a GPU: no round starts later"
    )
    parser.add_argument("--profile", action="store_true", help="profile cloze on a GPU")
    given = parser.parse_args()
    if given.device != "cpu" or given.gpu_rows:
        import embed_gpu

        embed_gpu.main(given)
        return
    torch.set_num_threads(given.threads)
    texts = sentences(given.texts, given.count)
    ready: dict[str, Embed] = {}
    for name in given.only:
        try:
            ready[name] = ROWS[name]()
            ready[name](texts[:64])  # warm
        except Exception as error:  # a library that is missing or fails has its error in the row
            Console().print(f"[yellow]{name}: left out, {type(error).__name__}: {error}")
    best, busy = dict.fromkeys(ready, float("inf")), dict.fromkeys(ready, float("inf"))
    vectors: dict[str, np.ndarray] = {}
    for _ in range(given.rounds):
        for name, run in ready.items():
            start, used = time.perf_counter(), time.process_time()
            vectors[name] = run(texts)
            best[name] = min(best[name], time.perf_counter() - start)
            busy[name] = min(busy[name], time.process_time() - used)
    table = Table(
        "",
        "sentences/s",
        "× baseline",
        "per CPU second",
        "differs",
        "cosine",
        title=f"{len(texts)} sentences of {given.texts.name}",
    )
    results = {}
    for name, seconds in best.items():
        differs = (
            float(np.abs(vectors[name] - vectors[BASELINE]).max())
            if BASELINE in vectors
            else float("nan")
        )
        cosine = (
            float((vectors[name] * vectors[BASELINE]).sum(1).mean())
            if BASELINE in vectors
            else float("nan")
        )
        ratio = best.get(BASELINE, float("nan")) / seconds
        results[name] = {"per_second": len(texts) / seconds, "ratio": ratio, "differs": differs}
        results[name] |= {"cosine": cosine, "per_cpu_second": len(texts) / busy[name]}
        table.add_row(
            name,
            f"{len(texts) / seconds:.0f}",
            f"{ratio:.2f}",
            f"{len(texts) / busy[name]:.0f}",
            f"{differs:.1e}",
            f"{cosine:.5f}",
        )
    padding = padding_fraction(texts)
    print_result(
        table,
        f"padding in the peers' batches: {format_percent(padding)}; cloze: none (packed)",
        f"{versions(*PACKAGES)}, {given.threads} threads",
        results={"rows": results, "padding": padding},
        file=given.json,
    )


if __name__ == "__main__":
    main()
