"""Train a cross-encoder without Cranfield, and rerank the documents of Cranfield's queries with it.

    python bench/rerank.py --data ../shared/data --model FOLDER --out runs/cross-encoder
    python bench/rerank.py --data ../shared/data --rehearse          # a minute on a CPU

Training pairs are questions of SQuAD 1.1 (train) with their paragraphs, and sentences of
`wiki-short` with the rest of their paragraphs (inverse cloze); the title comes first, as in an
index. Negatives are drawn from the best 30 of hybrid search (vectors of --model and BM25) over all
paragraphs; left out are those that contain the answer, and those whose cosine is more than 0.95
times that of the positive. `cloze finetune classify` learns to tell positives from negatives.

The pairs of Cranfield are scored once; a row "N" is ordered by these scores down to rank N of the
first search, and as before below it. "fused": reciprocal rank fusion of both rankings of these N.
The same rows on SQuAD (dev questions, paragraphs of train and dev) show what to choose without
looking at Cranfield. Intervals are 95 % bootstrap intervals over queries; `difference` is that of
nDCG@10 to the first search, query by query. --cross-encoder FOLDER skips the training.
"""

import argparse
import json
import lzma
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cranfield import METRICS, evaluate, interval, read_cranfield
from rich.table import Table

import cloze
from cloze.checkpoint.model import Model
from cloze.data.documents import Document
from cloze.data.made_pairs import make_pair_examples, read_documents
from cloze.retrieval.bm25 import BM25, find_terms
from cloze.retrieval.exact import search_exact
from cloze.retrieval.fusion import fuse_rankings
from cloze.tasks.chunk_embedder import ChunkEmbedder, embed_chunks, make_chunk_text
from cloze.tasks.index import CHUNK_TOKENS, OVERLAP
from common import DATA, minilm, print_result, versions

MODES = ("dense", "hybrid")
DEPTH = 100
MINED, MARGIN = 30, 0.05


@dataclass(frozen=True)
class Question:
    """A query, the number of its passage, and answers that no negative contains."""

    text: str
    passage: int
    answers: tuple[str, ...] = ()


class Collection:
    """Passages, their vectors and their terms."""

    def __init__(self, model: Model, passages: Sequence[str]) -> None:
        self.passages, self.model = passages, model
        self.vectors = torch.from_numpy(embed_chunks(model, list(passages)))
        self.bm25 = BM25.from_texts(passages)

    def search(self, queries: list[str], depth: int) -> Iterator[dict[str, dict[int, float]]]:
        """Of each query: the numbers of passages and their scores, best first, by mode."""
        vectors = torch.from_numpy(embed_chunks(self.model, queries))
        where = self.model.device
        found = search_exact(vectors.to(where), self.vectors.to(where), depth)
        for query, scores, rows in zip(queries, *(one.tolist() for one in found), strict=True):
            _, by_terms = self.bm25.search(find_terms(query), depth)
            fused = fuse_rankings([rows, by_terms.tolist()])
            dense = dict(zip(rows, scores, strict=True))
            yield {"dense": dense, "hybrid": dict(islice(fused.items(), depth))}


def read_squad(path: Path, count: int | None) -> tuple[list[str], list[Question]]:
    """Paragraphs with the title of their article, and questions."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    passages, questions = [], []
    for article in articles:
        title = article["title"].replace("_", " ")
        for paragraph in article["paragraphs"]:
            for one in paragraph["qas"]:
                answers = tuple({answer["text"].lower() for answer in one["answers"]})
                questions.append(Question(one["question"].strip(), len(passages), answers))
            passages.append(make_chunk_text(title, paragraph["context"]))
            if count is not None and len(questions) >= count:
                return passages, questions
    return passages, questions


def read_wiki(paths: list[Path], count: int) -> tuple[list[str], list[Question]]:
    """Paragraphs without one of their sentences, which is the query."""
    passages, questions = [], []
    for document in read_documents([str(path) for path in paths]):
        pairs = make_pair_examples(iter([document]), ["inverse-cloze"], max_per_document=4)
        for pair in pairs:
            questions.append(Question(pair.text, len(passages)))
            passages.append(make_chunk_text(document[0], pair.positive or ""))
        if len(passages) >= count:
            break
    return passages, questions


def make_pairs(
    collection: Collection, questions: list[Question], negatives: int, seed: int
) -> Iterator[dict[str, str]]:
    """Rows of query, passage and label: each question with its passage and with negatives."""
    rng = np.random.default_rng(seed)
    passages = collection.passages
    found = collection.search([one.text for one in questions], MINED)
    for one, lists in zip(questions, found, strict=True):
        limit = find_limit(one, lists["dense"])
        usable = [
            row
            for row in lists["hybrid"]
            if row != one.passage
            and lists["dense"].get(row, -1.0) <= limit
            and not any(answer in passages[row].lower() for answer in one.answers)
        ]
        chosen = rng.permutation(len(usable))[:negatives].tolist()
        yield {"query": one.text, "passage": passages[one.passage], "label": "1"}
        for place in chosen:
            yield {"query": one.text, "passage": passages[usable[place]], "label": "0"}


def find_limit(question: Question, dense: dict[int, float]) -> float:
    """The largest cosine of a negative."""
    if question.answers:
        return 1.0  # the answers say what is relevant
    return (1 - MARGIN) * dense.get(question.passage, min(dense.values()))


def train(args: argparse.Namespace, model: Model) -> Path:
    """Make pairs, write them, and fine-tune; the folder of the cross-encoder."""
    rows: list[dict[str, str]] = []
    wiki = sorted((args.data / "text").glob("wiki-short-0*"))
    sets = {
        "SQuAD": read_squad(args.data / "squad/train-v1.1.json.xz", args.questions),
        "Wikipedia": read_wiki(wiki, args.wiki),
    }
    for name, (passages, questions) in sets.items():
        start = time.perf_counter()
        made = list(make_pairs(Collection(model, passages), questions, args.negatives, args.seed))
        rows += made
        print(
            f"{name}: {len(questions):,} queries, {len(passages):,} passages, {len(made):,} pairs "
            f"in {time.perf_counter() - start:.1f} s",
            flush=True,
        )
    order = np.random.default_rng(args.seed).permutation(len(rows))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    pairs = args.out.with_suffix(".jsonl")
    with pairs.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(rows[n], ensure_ascii=False) + "\n" for n in order)
    dev = args.out.with_name(args.out.name + "-dev.jsonl")
    passages, questions = read_squad(args.data / "squad/dev-v1.1.json.xz", args.questions)
    made = list(make_pairs(Collection(model, passages), questions[::2], args.negatives, args.seed))
    dev.write_text("\n".join(json.dumps(one) for one in made), "utf-8")
    is_gpu = args.device.startswith("cuda")
    result = cloze.finetune(
        "classify",
        args.model,
        pairs,
        args.out,
        dev=dev,
        text_column="query",
        pair_column="passage",
        label_column="label",
        max_length=args.max_length,
        batch_size=args.batch_size,
        lr=args.lr,
        seed=args.seed,
        dtype="bfloat16" if is_gpu else "float32",
        device=args.device,
        force=True,
        settings=["run.save_minutes=1000"],
        **({"minutes": args.minutes} if args.minutes else {"epochs": args.epochs}),
    )
    print(
        f"{result.steps:,} steps, {result.tokens:,} tokens in {result.seconds:.1f} s of training, "
        f"dev {dict(result.scores)}",
        flush=True,
    )
    return args.out


@dataclass(frozen=True)
class TestSet:
    """Passages of documents, queries, and the relevant documents of each."""

    passages: list[str]
    documents: list[Any]  # the document of each passage
    queries: list[str]
    relevance: list[dict[Any, int]]


def read_cranfield_chunks(model: Model, folder: Path, count: int | None) -> TestSet:
    """Cranfield in chunks, as an index has it; of some queries, ten documents for each."""
    documents, queries, relevance = read_cranfield(folder)
    if count is not None:
        documents = documents[: 10 * count]
    splitter = ChunkEmbedder(model=model, chunk_tokens=CHUNK_TOKENS, overlap=OVERLAP)
    some = [Document(id=o["id"], title=o["title"], text=o["text"]) for o in documents]
    split = splitter.embed(model, some).chunks
    passages, numbers = [], []
    for document, chunks in zip(some, split, strict=True):
        passages += [make_chunk_text(document.title, chunk.text) for chunk in chunks]
        numbers += [document.id] * len(chunks)
    return TestSet(passages, numbers, queries[:count], relevance[:count])


def read_squad_test(folder: Path, count: int, *, small: bool) -> TestSet:
    """Every second dev question, and the paragraphs of train and dev."""
    most = 4 * count if small else None
    passages, questions = read_squad(folder / "dev-v1.1.json.xz", most)
    others, _ = read_squad(folder / "train-v1.1.json.xz", most)
    asked = questions[1::2][:count]
    return TestSet(
        passages + others,
        list(range(len(passages) + len(others))),
        [one.text for one in asked],
        [{one.passage: 1} for one in asked],
    )


def rank_documents(test: TestSet, rows: Sequence[int]) -> list[Any]:
    """The documents of ranked passages, each once."""
    return list(dict.fromkeys(test.documents[row] for row in rows))


def score_test(
    test: TestSet, model: Model, second: Model, depths: Sequence[int]
) -> dict[str, dict[str, list[float]]]:
    """The metrics of each query of every system."""
    collection = Collection(model, test.passages)
    found = list(collection.search(test.queries, 2 * DEPTH))
    names = [(mode, depth) for mode in MODES for depth in depths]
    rankings: dict[str, list[list[Any]]] = {mode: [] for mode in MODES}
    rankings |= {f"{mode}, {way}": [] for mode in MODES for way in list_ways(depths)}
    most = max(depths)
    candidates = [
        list(dict.fromkeys(row for one in lists.values() for row in islice(one, most)))
        for lists in found
    ]
    start = time.perf_counter()
    ranked = cloze.rerank(
        second,
        test.queries,
        [[test.passages[row] for row in rows] for rows in candidates],
        truncation="head",
        progress=False,
    )
    seconds = time.perf_counter() - start
    print(f"{sum(map(len, candidates)):,} pairs in {seconds:.1f} s", flush=True)
    for lists, rows, one in zip(found, candidates, ranked, strict=True):
        score = {rows[hit.index]: hit.score for hit in one.documents}
        for mode in MODES:
            rankings[mode].append(rank_documents(test, list(lists[mode])))
        for mode, depth in names:
            first = list(lists[mode])
            best = sorted(first[:depth], key=lambda row: -score[row])
            rest = first[depth:]
            rankings[f"{mode}, rerank {depth}"].append(rank_documents(test, best + rest))
            fused = list(fuse_rankings([first[:depth], best]))
            rankings[f"{mode}, rerank {depth}, fused"].append(rank_documents(test, fused + rest))
    return {
        name: evaluate([one[:DEPTH] for one in some], test.relevance)
        for name, some in rankings.items()
    }


def list_ways(depths: Sequence[int]) -> list[str]:
    return [f"rerank {depth}{way}" for depth in depths for way in ("", ", fused")]


def summarize(scores: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Means and intervals, and the difference of each row to its first search."""
    rows: dict[str, Any] = {}
    for name, metrics in scores.items():
        rows[name] = {key: interval(values) for key, values in metrics.items()}
        base = np.array(scores[name.split(", ")[0]]["nDCG@10"])
        rows[name]["difference"] = interval(np.array(metrics["nDCG@10"]) - base)
    return rows


def make_table(title: str, rows: dict[str, Any]) -> Table:
    table = Table("system", *METRICS, "difference", title=title)
    for name, row in rows.items():
        cells = [f"{m:.3f} ({low:.3f}–{high:.3f})" for m, low, high in (row[k] for k in METRICS)]
        mean, low, high = row["difference"]
        table.add_row(name, *cells, f"{mean:+.3f} ({low:+.3f}–{high:+.3f})")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", help="folder of the model (default: all-MiniLM-L6-v2)")
    parser.add_argument("--cross-encoder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/cross-encoder"))
    parser.add_argument("--questions", type=int, help="of SQuAD (default: all)")
    parser.add_argument("--wiki", type=int, default=6000, help="paragraphs of wiki-short")
    parser.add_argument("--squad-queries", type=int, default=400, help="of the test on SQuAD")
    parser.add_argument("--negatives", type=int, default=4)
    parser.add_argument("--minutes", type=float, help="of training, in place of --epochs")
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--depths", type=int, nargs="+", default=[20, 50, 100])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rehearse", action="store_true", help="tiny, to see that it runs")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.model = args.model or str(minilm())
    with tempfile.TemporaryDirectory() as temporary:
        if args.rehearse:
            args.questions, args.wiki, args.epochs, args.depths = 24, 12, 1.0, [5]
            args.max_length, args.batch_size, args.out = 32, 16, Path(temporary) / "run"
            args.minutes = None
        run(args, small=6 if args.rehearse else None)


def run(args: argparse.Namespace, *, small: int | None) -> None:
    """Train, and score both sets."""
    print(versions("torch", "tokenizers", "safetensors"), flush=True)
    start = time.perf_counter()
    model = cloze.load(args.model, device=args.device)
    folder = args.cross_encoder or train(args, model)
    second = cloze.load(folder, device=args.device)
    squad = args.data / "squad"
    tests = {
        "Cranfield": read_cranfield_chunks(model, args.data / "cranfield", small),
        "SQuAD dev": read_squad_test(squad, small or args.squad_queries, small=bool(small)),
    }
    results = {}
    for name, test in tests.items():
        results[name] = summarize(score_test(test, model, second, args.depths))
        count, passages = len(test.queries), len(test.passages)
        title = f"{name}: {count:,} queries, {passages:,} passages, {args.device}"
        print_result(make_table(title, results[name]), results=results, file=args.json)
        print(f"{time.perf_counter() - start:.0f} s until here", flush=True)


if __name__ == "__main__":
    main()
