"""RETRO with and without retrieval: held-out loss, size of the database, RETROfit, leakage.

    python bench/retro.py --data data/text --out runs/retro --minutes 9
    python bench/retro.py --data ../shared/data/text --out /tmp/retro --minutes 3 --preset tiny \
        --characters 300000 --vocabulary 1000 --batch-tokens 2056        # a rehearsal on a CPU

One command for one machine. It needs torch, numpy, safetensors, tokenizers, rich and typer, and the
files of --text and --more-text in --data. It

1. builds a database of --text, and a second one of --text and --more-text, twice as large,
2. trains a RETRO on --text with the first one, for a part of the --minutes that are left,
3. trains a GPT-2 of the same size for as many steps, on the same batches,
4. adds retrieval to that GPT-2 with frozen weights (RETROfit) for a quarter of the steps,
5. computes the loss of the held-out documents, which no database contains, for each model and
   database, and again for tokens whose neighbors share no long run of tokens with what is to be
   predicted (near-duplicates leak).

Learning rates fall to zero in each run. The loss is in nats per token. "first chunk" are the tokens
that nothing can be retrieved for; the last column leaves them out.
"""

import argparse
import json
import lzma
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# Compiling the baseline takes a minute and changes no loss.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table
from torch import Tensor

import cloze
from cloze.data.batch import IGNORE_INDEX
from cloze.data.chunks import ChunkTable
from cloze.data.prepare import prepare_corpus
from cloze.device import resolve_device
from cloze.files import read_json
from cloze.make.build_database import build_text_database
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.pretrain.retro import RetroSetup
from cloze.make.pretrain.setup import open_setup
from cloze.make.recipe.complete import complete_pretraining, recipe
from cloze.metrics.neighbor_overlap import compute_overlaps
from cloze.nn.utils import eval_mode
from cloze.objectives.pretraining import make_layout, make_next_token_targets
from cloze.objectives.retro import CorpusNeighbors
from cloze.retrieval.chunk_database import ChunkDatabase
from cloze.retrieval.exact import search_exact
from cloze.tasks.chunk_retriever import embed_chunks
from cloze.train.callbacks import CallbackList
from cloze.train.distributed import distributed_context
from cloze.train.forward_context import autocast
from cloze.train.result import RunResult
from common import print_result, versions

LEAKS = (1 / 8, 1 / 4, 1 / 2, 1.0)  # overlaps up to which tokens are counted
RETRO_SHARE, FIT_STEPS = 0.4, 0.25  # of the time that is left, of the steps
LOGITS = 4096  # tokens whose logits are in memory at once


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the files of text")
    parser.add_argument("--text", nargs="+", default=["wiki-00.txt.xz", "wiki-01.txt.xz"])
    parser.add_argument("--more-text", nargs="+", default=["wiki-02.txt.xz", "wiki-03.txt.xz"])
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--minutes", type=float, default=9.0, help="for everything")
    parser.add_argument("--preset", default="medium", help="size of the decoder")
    parser.add_argument("--encoder", default="cloze-en", help="model of the keys")
    parser.add_argument("--characters", type=int, help="of each file that are read")
    parser.add_argument("--vocabulary", type=int, default=16_000)
    parser.add_argument("--batch-tokens", type=int, default=32_896)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--eval-batches", type=int, default=16)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    return parser.parse_args()


@dataclass(frozen=True)
class Losses:
    """The loss of every predicted token of the held-out documents."""

    values: NDArray[np.float64]
    chunks: NDArray[np.int64]  # the chunk of the corpus that each token reads; −1: none

    def mean(self, chosen: NDArray[np.bool_] | None = None) -> float:
        return float((self.values if chosen is None else self.values[chosen]).mean())


class Bench:
    """The runs, one after another, within the time that was given."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.began = given, time.monotonic()
        self.device = resolve_device(None)
        self.dtype = "bfloat16" if self.device.type == "cuda" else "float32"
        given.out.mkdir(parents=True, exist_ok=True)
        self.files = [self._copy(name) for name in given.text]
        self.more = [self._copy(name) for name in given.more_text]

    def log(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.0f} s  {text}", flush=True)

    @property
    def minutes_left(self) -> float:
        return self.given.minutes - (time.monotonic() - self.began) / 60

    def _copy(self, name: str) -> Path:
        """A file of text without compression, up to the number of characters."""
        path = self.given.out / name.removesuffix(".xz")
        with lzma.open(self.given.data / name, "rt", encoding="utf-8") as file:
            text = file.read(self.given.characters or -1)
        path.write_text(text.rpartition("\n\n")[0], "utf-8")
        return path

    def train(self, name: str, **budget: Any) -> RunResult:
        """Train the model of a name in a folder of that name, unless it is there."""
        given, out = self.given, self.given.out / name
        settings = {
            "sampling.max_length": 514,
            "run.batch_tokens": given.batch_tokens,
            "run.dtype": self.dtype,
            "run.eval_batches": 2,
            "run.eval_every": 1 << 30,
            "run.log_every": 20,
            "data.folder": str(given.out / "corpus"),
            "optimizer.lr": given.lr,
            "schedule.shape": "cosine",
            **{f"run.{key}": value for key, value in budget.items()},
        }
        new = {"model.preset": given.preset, "model.max_positions": 514}
        if name == "gpt":
            settings |= new | {"sampling.chunk_length": 64}
            settings["vocabulary.folder"] = str(given.out / "retro")
            made = complete_pretraining("gpt", settings=settings)
        else:
            settings["retrieval.encoder"] = given.encoder
            if name == "retro":
                settings |= new | {"vocabulary.size": given.vocabulary}
            else:
                settings["model.init_from"] = str(given.out / "gpt")
                settings["retrieval.database"] = str(given.out / "retro" / "database")
            made = complete_pretraining("retro", settings=settings)
        self.log(f"training {name}")
        result = pretrain(self.files, out, made, force=True, progress=False)
        self.log(f"{name}: {result.steps:,} steps")
        return result

    def double_database(self, first: ChunkDatabase) -> ChunkDatabase:
        """A database of all text, with the vocabulary and the encoder of the first one."""
        out, info = self.given.out, first.info
        self.log("building the second database")
        model = cloze.load(out / "retro", device="cpu", quiet=True)
        corpus = prepare_corpus([*self.files, *self.more], model.tokenizer, out / "corpus-2")
        encoder = cloze.load(info.encoder, device=str(self.device), quiet=True)
        chunks = ChunkTable(corpus, info.chunk_length)
        return build_text_database(out / "database-2", chunks, model, encoder, name=info.encoder)


class HeldOut:
    """The held-out documents of the run of RETRO, as batches with neighbors of any database."""

    def __init__(self, bench: Bench) -> None:
        self.bench, out = bench, bench.given.out / "retro"
        made = recipe(out / "recipe.toml")
        made = replace(made, run=replace(made.run, eval_batches=bench.given.eval_batches))
        digest = read_json(out / "corpus.json")["digest"]
        with distributed_context(made.run.device) as distributed:
            setup = open_setup(
                [],
                out,
                made,
                distributed=distributed,
                callbacks=CallbackList(),
                corpus_digest=digest,
            )
        assert isinstance(setup, RetroSetup)
        assert setup.neighbors is not None
        self.setup, self.own = setup, setup.neighbors
        chunks = self.own.chunks
        self.rows = np.flatnonzero(~chunks.is_train)
        database = ChunkDatabase.open(out)
        self.encoder = cloze.load(database.info.encoder, device=str(bench.device), quiet=True)
        texts = [chunks.read_chunk(n) for n in self.rows.tolist()]
        self.queries = torch.from_numpy(embed_chunks(self.encoder, setup.tokenizer, texts))

    def find(self, database: ChunkDatabase, fraction: float = 1.0) -> CorpusNeighbors:
        """The neighbors of the held-out chunks in a database, or in some of its documents."""
        device, chunks = self.bench.device, self.own.chunks
        documents = database.documents
        allowed = None
        if fraction < 1:
            allowed = (documents % 1000).abs() < 1000 * fraction  # the documents are hashes
        _, found = search_exact(
            self.queries.to(device),
            database.load_keys(device),
            self.own.numbers.shape[1],
            exclude=(torch.from_numpy(chunks.digests[self.rows]), documents),
            allowed=allowed,
        )
        numbers = np.full_like(self.own.numbers, -1)
        numbers[self.rows] = found.cpu().numpy()
        return CorpusNeighbors(chunks, database, numbers)

    @torch.inference_mode()
    def score(self, name: str, neighbors: CorpusNeighbors | None) -> Losses:
        """The losses of a model with these neighbors, or without any."""
        bench = self.bench
        module = cloze.load(bench.given.out / name, device=str(bench.device), quiet=True).module
        setup = replace(self.setup, neighbors=neighbors)
        values, places = [], []
        for batch in setup.held_out_resident():
            row, device = batch.gather_tokens(), bench.device
            layout = make_layout(batch, row, varlen=module.supports_varlen)
            with eval_mode(module), autocast(bench.dtype, device):
                inputs = (row.ids, layout)
                if neighbors is not None:
                    inputs += (None, batch.read_neighbors(device))
                hidden = module(*inputs)
                losses = torch.cat(list(_compute_losses(module, hidden, row)))
            targets = make_next_token_targets(row)
            values.append(losses[targets != IGNORE_INDEX].double().cpu().numpy())
            places.append(self._find_reading(batch))
        return Losses(np.concatenate(values), np.concatenate(places))

    def _find_reading(self, batch: Any) -> NDArray[np.int64]:
        """The chunk whose neighbors each predicted token of a batch reads."""
        chunks = self.own.chunks
        first, _ = chunks.find_spans(batch.a)
        found = []
        for start, length in zip(first.tolist(), batch.lengths.tolist(), strict=True):
            number = np.arange(length - 1) // chunks.chunk_length - 1
            found.append(np.where(number >= 0, start + number, -1))
        return np.concatenate(found)

    def measure_overlap(self, neighbors: CorpusNeighbors) -> NDArray[np.float64]:
        """For every chunk, how much of what follows it its neighbors contain; NaN if unknown."""
        chunks = self.own.chunks
        rows = self.rows[
            chunks.starts[self.rows] + 2 * chunks.chunk_length <= chunks.ends[self.rows]
        ]
        found = np.full(len(chunks), np.nan)
        _, found[rows] = compute_overlaps(chunks, neighbors.database, neighbors.numbers, rows)
        return found


def _compute_losses(module: Any, hidden: Tensor, row: Any) -> Iterator[Tensor]:
    targets = make_next_token_targets(row)
    for first in range(0, len(hidden), LOGITS):
        some = slice(first, first + LOGITS)
        logits = module.logits("lm", hidden[some]).float()
        yield torch.nn.functional.cross_entropy(
            logits, targets[some], reduction="none", ignore_index=IGNORE_INDEX
        )


def compare(bench: Bench) -> dict[str, Any]:
    """Train, build and evaluate."""
    bench.train("retro", steps=1)  # tokenizer, corpus, database and neighbors
    database = ChunkDatabase.open(bench.given.out / "retro")
    double = bench.double_database(database)
    trained = bench.train("retro", minutes=max(0.05, RETRO_SHARE * bench.minutes_left))
    bench.train("gpt", steps=trained.steps)
    fitted = bench.train("retrofit", steps=max(1, round(FIT_STEPS * trained.steps)))
    bench.log("evaluating")
    held_out = HeldOut(bench)
    own = held_out.find(database)
    sources = {
        "none": None,
        "half": held_out.find(database, 0.5),
        "text": own,
        "doubled": held_out.find(double),
    }
    rows = [("gpt", "none"), *(("retro", one) for one in sources)]
    rows += [("retrofit", one) for one in ("none", "text", "doubled")]
    losses = {row: held_out.score(row[0], sources[row[1]]) for row in rows}
    sizes = {
        name: sum(
            weight.numel() for weight in cloze.load(bench.given.out / name).module.parameters()
        )
        for name in ("gpt", "retro", "retrofit")
    }
    reads = losses["gpt", "none"].chunks >= 0
    overlap = held_out.measure_overlap(own)[losses["gpt", "none"].chunks]
    overlap = np.where(reads, overlap, np.nan)
    shown = (("gpt", "none"), ("retro", "text"), ("retrofit", "text"))
    leaks = []
    for most in LEAKS:
        chosen = overlap <= most  # False where it is not known
        values = (
            {name: losses[name, one].mean(chosen) for name, one in shown} if chosen.any() else {}
        )
        leaks.append({"overlap": most, "tokens": int(chosen.sum()), **values})
    return {
        "steps": trained.steps,
        "fit_steps": fitted.steps,
        "tokens": len(reads),
        "chunks": {"text": len(database), "doubled": len(double)},
        "parameters": sizes,
        "losses": [
            {
                "model": name,
                "database": one,
                "loss": losses[name, one].mean(),
                "first chunk": losses[name, one].mean(~reads),
                "after it": losses[name, one].mean(reads),
            }
            for name, one in rows
        ],
        "leakage": leaks,
        "overlap": read_json(bench.given.out / "retro" / "retrieval.json")["overlap"],
    }


def make_tables(found: dict[str, Any]) -> tuple[Table, Table]:
    steps = f"{found['steps']:,} steps, RETROfit {found['fit_steps']:,} more"
    main = Table(title=f"Held-out loss, {found['tokens']:,} tokens; {steps}")
    for name in ("model", "parameters", "database", "chunks", "loss", "first chunk", "after it"):
        main.add_column(name, justify="left" if name in ("model", "database") else "right")
    text, doubled = found["chunks"]["text"], found["chunks"]["doubled"]
    counts = {
        "none": "–",
        "half": f"~{text // 2:,}",
        "text": f"{text:,}",
        "doubled": f"{doubled:,}",
    }
    for row in found["losses"]:
        main.add_row(
            row["model"],
            f"{found['parameters'][row['model']]:,}",
            row["database"],
            counts[row["database"]],
            *(f"{row[name]:.4f}" for name in ("loss", "first chunk", "after it")),
        )
    leakage = Table(title="Loss of tokens whose neighbors share at most this part of their chunk")
    for name in ("overlap up to", "tokens", "gpt", "retro", "retrofit"):
        leakage.add_column(name, justify="right")
    for row in found["leakage"]:
        values = [
            f"{row[name]:.4f}" if name in row else "–" for name in ("gpt", "retro", "retrofit")
        ]
        leakage.add_row(f"{row['overlap']:.3g}", f"{row['tokens']:,}", *values)
    return main, leakage


def main(arguments: Sequence[str] | None = None) -> None:
    del arguments
    given = parse_arguments()
    bench = Bench(given)
    found = compare(bench)
    tables = make_tables(found)
    bench.log("done")
    (given.out / "results.json").write_text(json.dumps(found, indent=1), "utf-8")
    where = torch.cuda.get_device_name() if bench.device.type == "cuda" else "CPU"
    print_result(
        tables[0],
        f"{where}, {bench.dtype}, {versions('torch')}; overlap of neighbors: {found['overlap']}",
    )
    print_result(tables[1], results=found, file=given.json)


if __name__ == "__main__":
    main()
