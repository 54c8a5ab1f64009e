"""Fine-tuning with cloze and with the Trainer of transformers: scores and time.

    python bench/finetune.py --tasks sst2 mrpc sts-b conll --seeds 3 --json out.json

Both start from the same folder and use the same data, batch size, learning rate, epochs, warm-up,
weight decay, clipping, dropout and precision, with the same number of seeds, alternately; the order
of the examples differs, as it does between seeds. Both are evaluated on dev after every epoch by
the same code, and the best epoch counts. The Trainer is used as its documentation recommends:
dynamic padding, fast tokenizer, fused AdamW. Time is the wall time of a whole run, with
tokenization.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import numpy as np
import torch
from rich.table import Table

import cloze
from cloze.data.labelled.tables import read_text_examples
from cloze.data.labelled.tags import read_tagged_examples
from cloze.make.finetune.dispatch import finetune
from cloze.make.recipe.complete import complete_finetuning
from cloze.metrics.scorer import compute_scores as measured
from cloze.plot.format import format_percent
from common import DATA, minilm, print_result, versions

IGNORED = -100
NUMBER = ["number"]  # the label of a regression model
TASKS = {
    # task, files, columns, what is scored
    "sst2": ("classify", "sst2", {}, ("accuracy",)),
    "mrpc": ("classify", "glue/MRPC", {}, ("accuracy", "f1")),
    "sts-b": ("classify", "glue/STS-B", {"number": True}, ("pearson", "spearman")),
    "conll": ("tag", "conll2003", {}, ("f1",)),
}
PARTS = {"conll": ("eng.train", "eng.testa")}


def files(data: Path, name: str) -> tuple[Path, Path]:
    folder = data / TASKS[name][1]
    stems = PARTS.get(name, ("train.tsv", "dev.tsv"))
    found = [next(p for p in (folder / s, folder / f"{s}.xz") if p.exists()) for s in stems]
    return found[0], found[1]


def read(data: Path, name: str, part: int, most: int | None) -> list[Any]:
    task, _, columns, _ = TASKS[name]
    reader = read_tagged_examples if task == "tag" else read_text_examples
    return list(reader(files(data, name)[part], **columns))[:most]


def run_cloze(
    model: cloze.Model, train: list[Any], dev: list[Any], name: str, given: argparse.Namespace
) -> Callable[[int], tuple[float, float]]:
    task = TASKS[name][0]
    recipe = complete_finetuning(
        "finetune",
        task=task,
        settings=[
            f"run.batch_size={given.batch_size}",
            f"run.epochs={float(given.epochs)}",
            f"optimizer.lr={given.lr}",
            "optimizer.eps=1e-8",
            f"run.dtype={given.dtype}",
            f"data.max_length={given.max_length}",
            *(["run.device=cpu"] if given.cpu else []),
        ],
    )

    def run(seed: int) -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            ended = finetune(
                task, model, train, Path(folder) / "m", recipe.with_run(seed=seed), dev=dev
            )
            return mean_of(ended.scores, name), time.perf_counter() - start

    return run


def mean_of(scores: dict[str, float], name: str) -> float:
    return statistics.fmean(scores[measure] for measure in TASKS[name][3])


def run_trainer(
    folder: Path, train: list[Any], dev: list[Any], name: str, given: argparse.Namespace
) -> Callable[[int], tuple[float, float]]:
    import transformers
    from transformers import AutoTokenizer, Trainer

    transformers.logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    task, _, columns, _ = TASKS[name]
    number = bool(columns.get("number"))
    labels = (
        sorted({tag for one in train for tag in one.tags})
        if task == "tag"
        else (NUMBER if number else sorted({one.label for one in train}))
    )
    classes = (
        transformers.AutoModelForTokenClassification
        if task == "tag"
        else transformers.AutoModelForSequenceClassification
    )
    collator = (
        transformers.DataCollatorForTokenClassification(tokenizer)
        if task == "tag"
        else transformers.DataCollatorWithPadding(tokenizer)
    )

    def rows(examples: list[Any]) -> list[dict[str, Any]]:
        if task == "tag":
            return tagged_rows(tokenizer, examples, labels, given.max_length)
        texts, pairs = [one.text for one in examples], [one.pair for one in examples]
        both = (texts,) if pairs[0] is None else (texts, pairs)
        encoded = tokenizer(*both, truncation=True, max_length=given.max_length)
        targets = [one.label if number else labels.index(one.label) for one in examples]
        return [
            {**{key: encoded[key][n] for key in encoded}, "labels": target}
            for n, target in enumerate(targets)
        ]

    def run(seed: int) -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as out, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.perf_counter()
            transformers.set_seed(seed)
            module = classes.from_pretrained(folder, num_labels=len(labels))
            trainer = Trainer(
                model=module,
                args=trainer_arguments(out, seed, given),
                train_dataset=rows(train),
                eval_dataset=rows(dev),
                data_collator=collator,
                compute_metrics=partial(score_trainer, task, labels),
            )
            trainer.train()
            found = [row for row in trainer.state.log_history if "eval_loss" in row]
            best = max(
                mean_of({k.removeprefix("eval_"): v for k, v in row.items()}, name) for row in found
            )
            return best, time.perf_counter() - start

    return run


def score_trainer(task: str, labels: list[str], prediction: Any) -> dict[str, float]:
    """The scores of a `Trainer`'s predictions by our measures; numbers have no labels."""
    said, gold = prediction.predictions, prediction.label_ids
    if task == "tag":
        keep = gold != IGNORED
        best = said.argmax(-1)
        found = [[labels[t] for t in row[k]] for row, k in zip(best, keep, strict=True)]
        wanted = [[labels[t] for t in row[k]] for row, k in zip(gold, keep, strict=True)]
        return measured("tag", wanted, found)
    if labels == NUMBER:
        return measured("regression", gold.tolist(), said.squeeze(-1).tolist())
    return measured(
        "classify",
        [labels[n] for n in gold],
        [labels[n] for n in said.argmax(-1)],
        labels=labels,
    )


def trainer_arguments(out: str, seed: int, given: argparse.Namespace) -> Any:
    """Settings of the `Trainer`: learning rate, batch size, epochs and weight decay of cloze."""
    from transformers import TrainingArguments

    return TrainingArguments(
        output_dir=out,
        per_device_train_batch_size=given.batch_size,
        per_device_eval_batch_size=64,
        learning_rate=given.lr,
        num_train_epochs=given.epochs,
        **{"warmup_steps" if version("transformers") >= "5" else "warmup_ratio": 0.1},
        weight_decay=0.01,
        max_grad_norm=1.0,
        adam_epsilon=1e-8,
        optim="adamw_torch_fused",
        eval_strategy="epoch",
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=seed,
        bf16=given.dtype == "bf16",
        use_cpu=given.cpu,
        dataloader_num_workers=0,
    )


def tagged_rows(
    tokenizer: Any, examples: Sequence[Any], labels: list[str], length: int
) -> list[dict[str, Any]]:
    """As in transformers' guide to token classification: a word's first token has its tag."""
    words = [[one.text[a:b] for a, b in one.words] for one in examples]
    encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=length)
    found = []
    for n, one in enumerate(examples):
        before, targets = None, []
        for word in encoded.word_ids(n):
            first = word is not None and word != before
            targets.append(labels.index(one.tags[word]) if first else IGNORED)
            before = word
        found.append({**{key: encoded[key][n] for key in encoded}, "labels": targets})
    return found


def padding_fraction(train: list[Any], tokenizer: Any, batch: int) -> float:
    """The fraction of padding in the batches of the Trainer."""
    lengths = [
        len(tokenizer.encode(one.text, getattr(one, "pair", None)).ids) for one in train[:2000]
    ]
    order = np.random.default_rng(0).permutation(len(lengths))
    groups = [order[n : n + batch] for n in range(0, len(order), batch)]
    places = sum(len(g) * max(lengths[n] for n in g) for g in groups)
    return 1 - sum(lengths) / places


def compare(name: str, model: cloze.Model, given: argparse.Namespace) -> dict[str, Any]:
    train = read(given.data, name, 0, given.examples)
    dev = read(given.data, name, 1, given.examples)
    sides = {
        "transformers": run_trainer(given.model, train, dev, name, given),
        "cloze": run_cloze(model, train, dev, name, given),
    }
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for seed in range(given.seeds):
        for side, run in sides.items():
            found[side].append(run(seed))
    row: dict[str, Any] = {"task": name, "train": len(train), "dev": len(dev)}
    for side, runs in found.items():
        scores, seconds = [score for score, _ in runs], [took for _, took in runs]
        row[side] = {
            "mean": statistics.fmean(scores),
            "deviation": statistics.stdev(scores) if len(scores) > 1 else 0.0,
            "scores": scores,
            "seconds": min(seconds),
        }
    row["faster"] = row["transformers"]["seconds"] / row["cloze"]["seconds"]
    row["padding"] = padding_fraction(train, model.tokenizer, given.batch_size)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "model", type=Path, nargs="?", help="a model folder (default: all-MiniLM-L6-v2)"
    )
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--dtype", choices=["float32", "bf16"], default="float32")
    parser.add_argument("--examples", type=int, help="number of examples, for a dry run")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    given.model = given.model or minilm()
    model = cloze.load(given.model, device="cpu", quiet=True)
    table = Table(
        *("task", "measure", "transformers", "cloze", "Trainer s", "cloze s", "×", "padding"),
        title="fine-tuning, best epoch on dev, mean ± deviation of the seeds",
    )
    results = []
    for name in given.tasks:
        row = compare(name, model, given)
        results.append(row)
        peer, own = row["transformers"], row["cloze"]
        table.add_row(
            name,
            " and ".join(TASKS[name][3]),
            f"{peer['mean']:.4f} ± {peer['deviation']:.4f}",
            f"{own['mean']:.4f} ± {own['deviation']:.4f}",
            f"{peer['seconds']:.1f}",
            f"{own['seconds']:.1f}",
            f"{row['faster']:.2f}",
            format_percent(row["padding"]),
        )
        if given.json:
            given.json.write_text(json.dumps(results, indent=1))
    where = torch.cuda.get_device_name() if torch.cuda.is_available() and not given.cpu else "CPU"
    print_result(
        table,
        f"{where}, {torch.get_num_threads()} threads, {versions('torch', 'transformers')}, "
        f"{given.dtype}, batch size {given.batch_size}, lr {given.lr}, {given.epochs} epochs, "
        f"{given.seeds} seeds",
    )


if __name__ == "__main__":
    main()
