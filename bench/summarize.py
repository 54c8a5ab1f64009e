"""Summarize BBC articles: pre-trained and new models, by number of training articles.

    python bench/summarize.py --out OUT             # all of it: about 20 minutes on one H200
    python bench/summarize.py --out OUT --only decoder/all gpt/all gpt/100 --jobs 2
    python bench/summarize.py --out OUT --hidden-size 256 --layers 6 --epoch-scale 0.4  # on a CPU
    python bench/summarize.py --out OUT --rehearse  # tiny models on a CPU

| run | model |
|---|---|
| decoder/N | a new decoder-only model, trained on N articles |
| gpt/N | a GPT that was pre-trained on Wikipedia as a language model |
| gpt-lead/N | the same GPT, then trained to write the leads of Wikipedia articles |
| transformer/N | a new encoder–decoder of about as many parameters |
| transformer-lead/N | the encoder–decoder, pre-trained on the leads |

Articles are split by a hash of their first paragraph, so that an article that occurs twice is in
one part. All models share the vocabulary of the GPT, which is pre-trained first unless OUT/gpt is
there. The best epoch is chosen by ROUGE-L on dev with greedy search; test is summarized once, with
beam size 4. ROUGE F1 with bootstrap intervals is printed beside lead-3, the first three sentences.
A run that has a result is not repeated.
"""

import argparse
import hashlib
import json
import lzma
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

import cloze
from cloze.data.parallel_text import ParallelText
from cloze.metrics.bootstrap import bootstrap_interval
from cloze.metrics.rouge import NAMES
from cloze.tasks.evaluate_summarizer import SummaryScores, score_summarizer
from common import DATA, print_result, versions

SIZES = ("100", "400", "all")
MODELS = ("decoder", "gpt", "gpt-lead", "transformer", "transformer-lead")
EPOCHS = {"100": 30.0, "400": 20.0, "all": 12.0}
TINY = {"model.hidden_size": 32, "model.num_layers": 2, "model.num_heads": 2}
TINY["model.intermediate_size"] = 64
BATCH_TOKENS = {"cuda": 16_384, "cpu": 4096}
PRETRAINING = {
    "cuda": {"run.batch_tokens": 65_536},
    # few tokens are read: many small steps, most of them with short sequences
    "cpu": {
        "run.batch_tokens": 1024,
        "sampling.phase1_max_length": 128,
        "sampling.phase1_fraction": 0.8,
    },
}


def print_event(**what: Any) -> None:
    print(json.dumps(what, ensure_ascii=False), flush=True)


# --- the data ---------------------------------------------------------------------------------


def read_articles(data: Path) -> dict[str, list[dict[str, str]]]:
    """The articles as train, dev and test: 80, 10 and 10 percent."""
    parts: dict[str, list[dict[str, str]]] = {"train": [], "dev": [], "test": []}
    with lzma.open(data / "news/bbc_news_summary.jsonl.xz", "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            digest = hashlib.sha256(row["paragraphs"][0].encode()).digest()
            place = int.from_bytes(digest[:4], "big") % 10
            part = "test" if place == 0 else "dev" if place == 1 else "train"
            text = "\n".join(row["paragraphs"])
            parts[part].append({"text": text, "summary": row["summary"]})
    for rows in parts.values():  # the first N are a sample, not one category
        rows.sort(key=lambda row: hashlib.sha256(row["text"].encode()).digest())
    return parts


def write_parts(given: argparse.Namespace) -> None:
    folder = given.out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in read_articles(given.data).items():
        chosen = rows[:24] if given.rehearse else rows
        lines = [json.dumps(row, ensure_ascii=False) for row in chosen]
        (folder / f"{part}.jsonl").write_text("\n".join(lines), "utf-8")
        print_event(part=part, articles=len(chosen))
    for name in dict.fromkeys([*given.text, *given.lead_text]):
        with lzma.open(given.data / "text" / f"{name}.txt.xz", "rt", encoding="utf-8") as file:
            text = file.read(2_000_000 if given.rehearse else -1)
        (folder / f"{name}.txt").write_text(text[:100_000] if given.rehearse else text, "utf-8")


def take_articles(given: argparse.Namespace, size: str) -> Path:
    """The first N training articles."""
    whole = given.out / "data" / "train.jsonl"
    if size == "all":
        return whole
    lines = whole.read_text("utf-8").splitlines()[: int(size)]
    path = given.out / "data" / f"train-{size}.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    return path


# --- training ------------------------------------------------------------------------------------


def run_settings(given: argparse.Namespace, epochs: float | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"run.device": given.device, "run.seed": given.seed}
    settings["run.dtype"] = given.dtype
    if given.rehearse:
        return settings | {"run.steps": 3, "run.eval_every": 3, "run.batch_tokens": 2048}
    settings["run.batch_tokens"] = BATCH_TOKENS[given.device]
    if epochs:
        epochs *= given.epoch_scale
        settings |= {"run.epochs": epochs, "run.evals_per_epoch": given.evaluations / epochs}
    return settings


def shape_settings(given: argparse.Namespace, model: str) -> dict[str, Any]:
    """The sizes of a new model, and the vocabulary of the GPT."""
    shape = decoder_shape(given) if model == "decoder" else transformer_shape(given)
    return shape | {"vocabulary.folder": str(given.out / "gpt")}


def decoder_shape(given: argparse.Namespace) -> dict[str, Any]:
    size = given.hidden_size
    shape: dict[str, Any] = {
        "model.hidden_size": size,
        "model.num_layers": given.layers,
        "model.num_heads": size // 64,
        "model.intermediate_size": 4 * size,
        "model.max_positions": 1024,
    }
    return shape | (TINY if given.rehearse else {})


def transformer_shape(given: argparse.Namespace) -> dict[str, Any]:
    """Half the layers of a decoder on each side, whose feed-forward networks are smaller."""
    shape = decoder_shape(given)
    del shape["model.max_positions"]
    if not given.rehearse:
        shape["model.num_layers"] = given.layers // 2
        shape["model.intermediate_size"] = 3 * given.hidden_size
    return shape | {"model.dropout": 0.1}


def pretrain_gpt(given: argparse.Namespace) -> None:
    folder = given.out / "gpt"
    if (folder / "config.json").is_file():
        return
    began = time.perf_counter()
    budget: dict[str, Any] = {"steps": 3} if given.rehearse else {"minutes": given.pretrain_minutes}
    found = cloze.pretrain(
        [given.out / "data" / f"{name}.txt" for name in given.text],
        folder,
        "gpt",
        settings={
            **decoder_shape(given),
            "sampling.max_length": 1024,
            "vocabulary.size": 1000 if given.rehearse else 8000,
            "run.device": given.device,
            **PRETRAINING[given.device],
            "run.dtype": given.dtype,
        },
        progress=False,
        force=True,
        **budget,
    )
    print_event(pretrained="gpt", seconds=round(time.perf_counter() - began), scores=found.scores)


def train_on_leads(given: argparse.Namespace, model: str) -> None:
    """Train to write the lead of Wikipedia articles: labels for free."""
    folder = given.out / f"{model}-lead"
    if (folder / "config.json").is_file():
        return
    settings = run_settings(given, None) | {"data.max_length": 384}
    if not given.rehearse:
        settings |= {"run.minutes": given.lead_minutes}
    settings |= {"optimizer.lr": 3e-4} if model == "gpt" else shape_settings(given, model)
    began = time.perf_counter()
    cloze.finetune(
        "summarize",
        given.out / "gpt" if model == "gpt" else None,
        [given.out / "data" / f"{name}.txt" for name in given.lead_text],
        folder,
        "decoder" if model == "gpt" else "transformer",
        settings=settings,
        lead_as_summary=True,
        progress=False,
        force=True,
    )
    print_event(pretrained=f"{model}-lead", seconds=round(time.perf_counter() - began))


def worker(name: str, given: argparse.Namespace) -> None:
    """Train one model on one number of articles, and leave result.json."""
    if given.device == "cuda":
        torch.set_float32_matmul_precision("high")
    model, _, size = name.partition("/")
    folder = given.out / "runs" / name
    settings = run_settings(given, EPOCHS[size]) | {"data.max_length": 384}
    base: Path | None = None
    if model in ("decoder", "transformer"):
        settings |= shape_settings(given, model)
    else:
        base = given.out / model
        settings["optimizer.lr"] = 5e-4 if model == "transformer-lead" else 3e-4
    recipe = {"decoder": "decoder-summarize"}.get(model, "decoder")
    if model.startswith("transformer"):
        recipe = "transformer"
    ended = cloze.finetune(
        "summarize",
        base,
        take_articles(given, size),
        folder,
        recipe,
        dev=given.out / "data" / "dev.jsonl",
        settings=settings,
        progress=False,
        force=True,
    )
    loaded = cloze.load(folder, device=given.device)
    rows = [
        json.loads(line)
        for line in (given.out / "data" / "test.jsonl").read_text("utf-8").splitlines()
    ]
    pairs = ParallelText(
        source=[row["text"] for row in rows], target=[row["summary"] for row in rows]
    )
    found = score_summarizer(
        loaded, pairs, beam=1 if given.rehearse else 4, truncation="head", progress=None
    )
    result = {
        "run": name,
        "articles": len(take_articles(given, size).read_text("utf-8").splitlines()),
        "left_out": ended.left_out,
        "parameters": loaded.num_parameters,
        "steps": ended.steps,
        "best_step": ended.best_step,
        "train_seconds": round(ended.seconds, 1),
        "test_seconds": round(found.seconds, 1),
        "dev_rouge_l": ended.score,
        "test": intervals(found),
        "lead_3": {name: found.lead.scores[name] for name in NAMES},
    }
    (folder / "result.json").write_text(json.dumps(result, indent=1), "utf-8")
    print_event(**result)


def intervals(found: SummaryScores) -> dict[str, list[float]]:
    """Each score with its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    scored = {
        name: bootstrap_interval(found.rouge.f1[name], found.count, rng=rng) for name in NAMES
    }
    return {name: [one.value, one.low, one.high] for name, one in scored.items()}


def launch(name: str, given: argparse.Namespace) -> dict[str, Any]:
    place = given.out / "runs" / name / "result.json"
    if not place.is_file():
        log = given.out / "logs" / f"{name.replace('/', '-')}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as errors:
            ended = subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], "--worker", name],
                stderr=errors,
                check=False,
                env=os.environ | {"OMP_NUM_THREADS": "4" if given.device == "cuda" else "1"},
            )
        if ended.returncode:
            end = log.read_text("utf-8").strip().splitlines()[-3:]
            print_event(run=name, failed=end)
            return {"run": name, "failed": end}
    return json.loads(place.read_text("utf-8"))


def show(results: list[dict[str, Any]], given: argparse.Namespace) -> None:
    table = Table(title="BBC articles, test part; F1 in percent, 95 % bootstrap intervals; beam 4")
    for column in ("run", "articles", "ROUGE-1", "ROUGE-2", "ROUGE-L", "weights", "train"):
        table.add_column(column, justify="left" if column == "run" else "right")
    lead = next((one["lead_3"] for one in results if "lead_3" in one), None)
    if lead:
        table.add_row("lead-3", "0", *(f"{100 * lead[name]:.1f}" for name in NAMES[:3]), "", "")
    for one in results:
        if "failed" in one:
            table.add_row(one["run"], "failed")
            continue
        cells = [
            "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * value for value in one["test"][name]))
            for name in NAMES[:3]
        ]
        weights = f"{one['parameters'] / 1e6:.1f} M"
        table.add_row(
            one["run"], str(one["articles"]), *cells, weights, f"{one['train_seconds']:.0f} s"
        )
    print_result(
        table, versions("torch", "numpy"), results=results, file=given.out / "results.json"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--text",
        nargs="*",
        default=["wiki-short-00", "wiki-short-01"],
        help="to pre-train on; none if OUT/gpt is there",
    )
    parser.add_argument(
        "--lead-text",
        nargs="*",
        default=["wiki-short-00", "wiki-short-01"],
        help="articles whose leads are summaries; none if there is no such run",
    )
    parser.add_argument("--only", nargs="+", default=[], help="runs whose names begin so")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--pretrain-minutes", type=float, default=4.0)
    parser.add_argument("--lead-minutes", type=float, default=1.5)
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--epoch-scale", type=float, default=1.0, help="of fine-tuning")
    parser.add_argument("--evaluations", type=int, default=4, help="of a run, on dev")
    parser.add_argument("--dtype", help="(default bfloat16 on a GPU)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rehearse", action="store_true", help="tiny models on a CPU")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    on_gpu = torch.cuda.is_available() and not given.rehearse
    given.device = "cuda" if on_gpu else "cpu"
    given.dtype = given.dtype or ("bfloat16" if on_gpu else "float32")
    return given


def main() -> None:
    given = arguments()
    if given.worker:
        worker(given.worker, given)
        return
    chosen = [
        name
        for size in reversed(SIZES)
        for name in (f"{model}/{size}" for model in MODELS)
        if not given.only or name.startswith(tuple(given.only))
    ]
    if not (given.out / "data" / "test.jsonl").is_file():
        write_parts(given)
    pretrain_gpt(given)  # its vocabulary is that of all models
    for model in ("gpt", "transformer"):
        if any(name.startswith(f"{model}-lead/") for name in chosen):
            train_on_leads(given, model)
    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(lambda name: launch(name, given), chosen))
    show(results, given)
    sys.exit(any("failed" in one for one in results))


if __name__ == "__main__":
    main()
