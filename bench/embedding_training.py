"""Train the built-in model contrastively on Wikipedia and books, and score it before and after.

    python bench/embedding_training.py --data ../shared/data --minutes 10 --out runs/cloze-en-embed
    python bench/embedding_training.py --data ../shared/data --rehearse    # a minute on a CPU

Pairs are made from the raw text of --text (title and paragraph, neighbouring sentences, a sentence
and the rest of its paragraph, two random spans of a paragraph, a sentence twice with dropout); no
labelled data and no test split is trained on.
The masked-LM loss is kept (--mlm-weight). On a GPU the training runs in bfloat16 and is compiled;
time for reading text and compiling is not in the budget. The rows:

    STS-B dev          Spearman correlation of cosines and ratings
    SQuAD questions    nDCG@10 of the paragraph of each question of the training split
    Cranfield          nDCG@10 with binary relevance, one vector for title and text of a document
    MLM accuracy       of text that is not trained on (--held-out)
    SST-2 features     accuracy of a logistic regression on the mean vectors, of dev sentences

Settings are chosen by the first two rows; Cranfield is only reported. The folder --data has the
layout of ../shared/data: text/, glue/STS-B, squad/, cranfield/, sst2/. What is missing is left out.
--model may be another folder, --scores-only prints its scores.
"""

import argparse
import json
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cranfield import read_cranfield

import cloze
from cloze.checkpoint.model import Model
from cloze.data.labelled.questions import read_question_examples
from cloze.data.labelled.tables import read_text_examples
from cloze.data.made_pairs import read_documents
from cloze.data.retrieval_set import RetrievalSet
from cloze.data.text_pairs import load_text_pairs
from cloze.make.finetune.embedding_evaluation import (
    embed_texts,
    score_retrieval,
    score_similarities,
)
from common import DATA, versions

TEXTS = ["wiki-0[0-2]*", "wiki-short-0*", "books-0[0-2]*"]
HELD_OUT = "wiki-03*"
KINDS = ["title", "neighbours", "inverse-cloze", "random-spans", "simcse"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default="cloze-en")
    parser.add_argument("--out", type=Path, default=Path("runs/cloze-en-embed"))
    parser.add_argument("--text", nargs="+", default=TEXTS, help="names or globs in DATA/text")
    parser.add_argument("--held-out", default=HELD_OUT, help="text for MLM accuracy")
    parser.add_argument("--held-out-documents", type=int, default=200)
    parser.add_argument("--make-pairs", nargs="+", default=KINDS)
    parser.add_argument("--pairs-per-document", type=int, default=256)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--steps", type=int, help="budget in steps instead of minutes")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--part-tokens", type=int, default=131_072)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--scale", type=float, default=20.0)
    parser.add_argument("--mlm-weight", type=float, default=1.0)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--batch-by-kind", action="store_true")
    parser.add_argument("--same-document-pairs", type=int, default=1)
    parser.add_argument("--symmetric", action="store_true")
    parser.add_argument("--hard-negatives", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", nargs="*", default=[], help="further settings of the recipe")
    parser.add_argument("--scores-only", action="store_true")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--rehearse", action="store_true", help="tiny, to see that it runs")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(versions("torch", "tokenizers", "safetensors", "scikit-learn"), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        if args.rehearse:
            reduce(args, Path(temporary))
        tests = Tests(args.data, args.held_out, args.held_out_documents, small=args.rehearse)
        model = cloze.load(args.model, device=args.device)
        args.longest = min(512, model.module.max_positions)
        before = tests.score(model)
        report("before", before)
        rows: dict[str, Any] = {"before": before}
        if not args.scores_only:
            rows |= train(args, tests)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), "utf-8")


def train(args: argparse.Namespace, tests: "Tests") -> dict[str, Any]:
    """Train, score the result, and print both."""
    texts = [str(path) for name in args.text for path in sorted((args.data / "text").glob(name))]
    if not texts:
        sys.exit(f"there is no text {args.text} in {args.data / 'text'}")
    is_gpu = args.device.startswith("cuda")
    settings = [
        f"data.pairs_per_document={args.pairs_per_document}",
        f"embedding.max_length={args.longest}",
        "run.eval_every=250",
        "run.save_minutes=1000",
        *(["run.dtype=bfloat16", "run.eval_batch_tokens=65536"] if is_gpu else []),
        *args.set,
    ]
    since = time.monotonic()
    result = cloze.finetune(
        "embed",
        args.model,
        texts,
        args.out,
        settings=settings,
        force=args.force,
        make_pairs=args.make_pairs,
        **({"steps": args.steps} if args.steps else {"minutes": args.minutes}),
        batch_size=args.batch_size,
        part_tokens=args.part_tokens if is_gpu else min(args.part_tokens, 4096),
        max_length=min(args.max_length, args.longest),
        lr=args.lr,
        scale=args.scale,
        mlm_weight=args.mlm_weight,
        dropout=args.dropout,
        batch_by_kind=args.batch_by_kind,
        same_document_pairs=args.same_document_pairs,
        symmetric=args.symmetric,
        hard_negatives=args.hard_negatives,
        device=args.device,
    )
    wall = time.monotonic() - since
    after = tests.score(cloze.load(args.out, device=args.device))
    report("after", after)
    speed = result.tokens / max(result.seconds, 1e-9)
    print(
        f"{result.steps:,} steps, {result.tokens:,} tokens in {result.seconds:.0f} s of training "
        f"({speed:,.0f} tokens/s; {wall:.0f} s in all), dev MRR {result.scores}"
    )
    return {"after": after, "steps": result.steps, "tokens": result.tokens, "wall": wall}


def report(when: str, scores: dict[str, float]) -> None:
    print(when + "".join(f" · {name} {value:.4f}" for name, value in scores.items()), flush=True)


class Tests:
    """The sets that a model is scored on; those that are missing are left out."""

    def __init__(self, data: Path, held_out: str, documents: int, *, small: bool) -> None:
        most = 40 if small else None
        sts = data / "glue/STS-B/dev.tsv"
        self.sts = load_text_pairs([sts]) if sts.is_file() else None
        if self.sts is not None and most:
            self.sts = self.sts.select(np.arange(most))
        cranfield = data / "cranfield"
        self.cranfield = make_retrieval_set(cranfield, most) if cranfield.is_dir() else None
        squad = data / "squad/train-v1.1.json.xz"
        self.squad = make_question_set(squad, most) if squad.is_file() else None
        texts = sorted((data / "text").glob(held_out))
        lines = islice(read_documents([str(path) for path in texts]), most or documents)
        self.held_out = "\n\n".join("\n".join(document) for document in lines) if texts else ""
        self.sst2 = {
            name: list(islice(read_text_examples(data / f"sst2/{name}.tsv"), most))
            for name in ("train", "dev")
            if (data / f"sst2/{name}.tsv").is_file()
        }

    def score(self, model: Model) -> dict[str, float]:
        """The scores by name."""
        found: dict[str, float] = {}
        if self.sts is not None:
            vectors = embed_texts(model, list(self.sts.texts))
            found["STS-B dev"] = score_similarities(vectors, self.sts)["spearman"]
        if self.squad is not None:
            found["SQuAD questions"] = score_retrieval(model, self.squad)
        if self.cranfield is not None:
            found["Cranfield"] = score_retrieval(model, self.cranfield)
        if self.held_out:
            found["MLM accuracy"] = score_masked(model, self.held_out)
        if len(self.sst2) == 2:
            found["SST-2 features"] = score_features(model, self.sst2)
        return found


def score_masked(model: Model, text: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        path.write_text(text, "utf-8")
        return float(cloze.evaluate(replace(model, pooling=None), path).scores["mlm_accuracy"])


def score_features(model: Model, data: dict[str, list[Any]]) -> float:
    from sklearn.linear_model import LogisticRegression

    vectors = {
        name: cloze.embed(model, [one.text for one in rows], pooling="mean", normalize=False)
        for name, rows in data.items()
    }
    labels = {name: [str(one.label) for one in rows] for name, rows in data.items()}
    mean, std = vectors["train"].mean(0), vectors["train"].std(0) + 1e-6
    classifier = LogisticRegression(max_iter=1000, C=0.05)
    classifier.fit((vectors["train"] - mean) / std, labels["train"])
    return float(classifier.score((vectors["dev"] - mean) / std, labels["dev"]))


def make_retrieval_set(folder: Path, most: int | None) -> RetrievalSet:
    """Cranfield with binary relevance, as `bench/cranfield.py` reads it."""
    documents, queries, relevance = read_cranfield(folder)
    texts = {one["id"]: f"{one['title']} {one['text']}" for one in documents[:most]}
    judgments = {
        str(number): {name: 1.0 for name in found if name in texts}
        for number, found in enumerate(relevance)
    }
    judgments = {number: found for number, found in judgments.items() if found}
    asked = {number: queries[int(number)] for number in judgments}
    return RetrievalSet(documents=texts, queries=asked, judgments=judgments)


def make_question_set(path: Path, most: int | None) -> RetrievalSet:
    """The questions of a SQuAD file, whose answers are in one paragraph each."""
    examples = list(islice(read_question_examples([path]), most))
    numbers = {text: str(n) for n, text in enumerate(dict.fromkeys(e.context for e in examples))}
    return RetrievalSet(
        documents={number: text for text, number in numbers.items()},
        queries={str(n): one.question for n, one in enumerate(examples)},
        judgments={str(n): {numbers[one.context]: 1.0} for n, one in enumerate(examples)},
    )


def reduce(args: argparse.Namespace, folder: Path) -> None:
    """A few documents of text, and a few steps."""
    text = folder / "text"
    text.mkdir()
    for name, source in (("train", args.text[0]), ("wiki-03", args.held_out)):
        paths = sorted((args.data / "text").glob(source))
        documents = islice(read_documents([str(paths[0])]), 8)
        content = "\n\n".join("\n".join(one[:6]) for one in documents)
        (text / f"{name}.txt").write_text(content, "utf-8")
    for name in ("glue", "cranfield", "sst2", "squad"):
        (folder / name).symlink_to((args.data / name).resolve())
    args.data, args.text, args.out = folder, ["train.txt"], folder / "run"
    args.minutes, args.batch_size, args.max_length = 0.2, 16, 32


if __name__ == "__main__":
    main()
