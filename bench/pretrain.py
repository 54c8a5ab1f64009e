"""Non-padding tokens per second of pre-training on the CPU, with cloze and with transformers.

    python bench/pretrain.py --sizes mini base --json out.json

Both use the same sampled and masked sequences (next-sentence pairs of text, length 128), the same
weights, loss and AdamW, in float32; bfloat16 autocast has its own rows. transformers runs
`BertForPreTraining` as its documentation recommends: batches of equal numbers of sequences, padded
to the longest in the batch, labels of -100 at other positions. Padding is not counted as tokens;
its fraction is printed. Both alternate step by step for several rounds, and the best round of each
counts.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from cloze.checkpoint.model import Model
from cloze.data.batch import PackedBatch
from cloze.data.config import Batching
from cloze.data.corpus import Corpus
from cloze.data.packing import PackedBatches
from cloze.data.prepare import prepare_corpus
from cloze.data.samples import Sampling
from cloze.data.sources import read_rows
from cloze.models.configs.bert import BertConfig
from cloze.objectives.masking import Masking, mask_batch
from cloze.objectives.pretraining import pretraining_objective
from cloze.plot.format import format_percent
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer
from common import TEXT, print_result, versions

ROWS = 30_000  # lines of text that the corpus is made of
IGNORED = -100


def corpus_of(source: Path, vocabulary: int, folder: Path) -> tuple[Corpus, Tokenizer]:
    file = folder / "text.txt"
    with file.open("w", encoding="utf-8") as out:
        for number, row in enumerate(read_rows([source])):
            if number == ROWS:
                break
            out.write(row.text + "\n")
    tokenizer = train_tokenizer((row.text for row in read_rows([file])), vocab_size=vocabulary)
    return prepare_corpus([file], tokenizer, folder / "corpus"), tokenizer


def run_cloze(
    model: Model, batches: list[PackedBatch], dtype: torch.dtype | None
) -> Callable[[], float]:
    module = model.module.train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-5, fused=True)

    def round_of() -> float:
        loss = torch.zeros(())
        for batch in batches:
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                terms = pretraining_objective(module, batch)
            loss = terms["mlm"] / len(batch.masked_positions) + terms["nsp"] / len(batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return round_of


def run_transformers(
    folder: Path, batches: list[dict[str, torch.Tensor]], dtype: torch.dtype | None
) -> Callable[[], float]:
    from transformers import BertForPreTraining

    module = BertForPreTraining.from_pretrained(folder).train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-5, fused=True)

    def round_of() -> float:
        loss = torch.zeros(())
        for batch in batches:
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                loss = module(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return round_of


def pad_batches(sequences: list[PackedBatch], size: int) -> list[dict[str, torch.Tensor]]:
    """The same sequences in batches of `size`, padded to the longest, for transformers."""
    found = []
    for first in range(0, len(sequences), size):
        group = sequences[first : first + size]
        longest = max(len(one.input_ids) for one in group)
        shape = (len(group), longest)
        batch = {
            "input_ids": np.zeros(shape, np.int64),
            "token_type_ids": np.zeros(shape, np.int64),
            "attention_mask": np.zeros(shape, np.int64),
            "labels": np.full(shape, IGNORED, np.int64),
        }
        for row, one in enumerate(group):
            length = len(one.input_ids)
            batch["input_ids"][row, :length] = one.input_ids
            batch["token_type_ids"][row, :length] = one.token_type_ids
            batch["attention_mask"][row, :length] = 1
            batch["labels"][row, one.masked_positions] = one.targets
        tensors = {name: torch.from_numpy(values) for name, values in batch.items()}
        labels = np.concatenate([one.labels for one in group])
        found.append({**tensors, "next_sentence_label": torch.from_numpy(labels)})
    return found


def measure(size: str, given: argparse.Namespace, folder: Path) -> list[dict[str, object]]:
    corpus, tokenizer = corpus_of(given.text, given.vocabulary, folder / size)
    sampling = Sampling(pairs="nsp", max_length=given.max_length)
    batches = PackedBatches(corpus.train, tokenizer, sampling, Batching(tokens=given.tokens))
    masking = Masking.from_tokenizer(tokenizer)
    packed = [mask_batch(batches.batch(n), masking, seed=0) for n in range(given.steps)]
    singles = [one for batch in packed for one in batch.split(10**6)]
    tokens = sum(len(one.input_ids) for one in singles)
    np.random.default_rng(0).shuffle(singles)  # transformers does not sort during training
    peer_batches = pad_batches(singles, round(len(singles) / given.steps))
    places = sum(batch["input_ids"].numel() for batch in peer_batches)
    config = BertConfig.preset(size, vocab_size=tokenizer.vocab_size)
    model = Model.from_config(
        config, tokenizer, ("mlm", "nsp"), rng=torch.Generator().manual_seed(0)
    )
    saved = model.save(folder / size / "model")
    sides: dict[str, Callable[[], float]] = {
        "transformers float32": run_transformers(saved, peer_batches, None),
        "cloze float32": run_cloze(model, packed, None),
    }
    if not given.no_bf16:
        again = Model.from_config(
            config, tokenizer, ("mlm", "nsp"), rng=torch.Generator().manual_seed(0)
        )
        sides["transformers bfloat16"] = run_transformers(saved, peer_batches, torch.bfloat16)
        sides["cloze bfloat16"] = run_cloze(again, packed, torch.bfloat16)
    best = dict.fromkeys(sides, float("inf"))
    for turn in range(given.rounds + 1):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            if turn:  # the first round warms up
                best[name] = min(best[name], time.perf_counter() - start)
    base = best["transformers float32"]
    return [
        {
            "size": size,
            "row": name,
            "tokens_per_second": tokens / seconds,
            "ratio": base / seconds,
            "padding": 1 - tokens / (places if "transformers" in name else tokens),
        }
        for name, seconds in best.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", nargs="*", default=["mini", "base"])
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--vocabulary", type=int, default=30_000)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=4096, help="positions in a packed batch")
    parser.add_argument("--steps", type=int, default=2, help="batches in a round")
    parser.add_argument("--rounds", type=int, default=3, help="each row keeps its best")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--no-bf16", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for size in given.sizes:
            (Path(folder) / size).mkdir()
            results += measure(size, given, Path(folder))
    table = Table(
        "size",
        "",
        "real tokens/s",
        "× transformers float32",
        "padding",
        title=f"pre-training, {given.text.name}",
    )
    for row in results:
        table.add_row(
            str(row["size"]),
            str(row["row"]),
            f"{row['tokens_per_second']:,.0f}",
            f"{row['ratio']:.2f}",
            format_percent(row["padding"]),
        )
    print_result(
        table,
        f"{versions('cloze', 'torch', 'transformers')}, {given.threads} threads, "
        f"length {given.max_length}, vocabulary {given.vocabulary:,}",
        results=results,
        file=given.json,
    )


if __name__ == "__main__":
    main()
