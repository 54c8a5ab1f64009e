"""Search on Cranfield: nDCG@10, recall@100 and MRR@10 of BM25, models, hybrid search and reranking.

    python bench/cranfield.py [--model FOLDER]… [--rerank FOLDER]… [--out results.json]

1,400 abstracts with titles, 225 queries (cranqrel: documents with the codes 1 to 4 are relevant,
and in the graded metric have the gains 4 to 1; those with -1 are not). A document is one chunk
unless it is longer than --chunk-tokens. Intervals are 95 % bootstrap intervals over queries.
"""

import argparse
import lzma
import re
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from rich.table import Table

import cloze
from cloze.metrics.ranking import compute_ndcg, compute_recall, compute_reciprocal_rank
from cloze.retrieval.bm25 import BM25, find_terms
from common import DATA, minilm, print_result, versions

DEPTH = 100
METRICS = {
    "nDCG@10": lambda ranking, relevance: compute_ndcg(ranking, dict.fromkeys(relevance, 1), 10),
    "graded nDCG@10": lambda ranking, relevance: compute_ndcg(ranking, relevance, 10),
    "recall@100": lambda ranking, relevance: compute_recall(ranking, relevance, DEPTH),
    "MRR@10": lambda ranking, relevance: compute_reciprocal_rank(ranking, relevance, 10),
}


def parse_smart(text):
    """The records of a SMART file: {number: {field: text}}."""
    records = {}
    for part in re.split(r"^\.I ", text, flags=re.MULTILINE)[1:]:
        number, _, rest = part.partition("\n")
        fields = re.split(r"^\.([TABW])\n", rest, flags=re.MULTILINE)[1:]
        records[number.strip()] = dict(zip(fields[::2], fields[1::2], strict=True))
    return records


def read_cranfield(folder):
    """Documents, queries, and the relevance of documents to each query."""
    with lzma.open(folder / "cran.all.1400.xz", "rt", encoding="utf-8") as file:
        records = parse_smart(file.read())
    documents = []
    for number, fields in records.items():
        title = " ".join(fields["T"].split())
        documents.append({"id": number, "title": title, "text": " ".join(fields["W"].split())})
    queries = parse_smart((folder / "cran.qry").read_text("utf-8"))
    texts = [" ".join(fields["W"].split()) for fields in queries.values()]
    relevance = defaultdict(dict)
    for line in (folder / "cranqrel").read_text("utf-8").splitlines():
        query, document, code = line.split()
        if int(code) > 0:  # from 1, a complete answer, to 4, of minimum interest
            relevance[int(query) - 1][document] = 5 - int(code)
    return documents, texts, [relevance[n] for n in range(len(texts))]


def evaluate(rankings, relevance):
    """The metrics of each query."""
    pairs = list(zip(rankings, relevance, strict=True))
    return {name: [metric(*pair) for pair in pairs] for name, metric in METRICS.items()}


def interval(values, seed=0):
    """Mean and 95 % bootstrap interval."""
    rng = np.random.default_rng(seed)
    values = np.array(values)
    means = values[rng.integers(0, len(values), (2000, len(values)))].mean(1)
    return float(values.mean()), *(float(one) for one in np.quantile(means, [0.025, 0.975]))


def rank_bm25(documents, queries):
    found = BM25.from_texts(f"{one['title']} {one['text']}" for one in documents)
    for query in queries:
        _, rows = found.search(find_terms(query), DEPTH)
        yield [documents[row]["id"] for row in rows]


def rank_bm25s(documents, queries):
    """bm25s with our terms, and with its own tokenizer."""
    import bm25s

    peer = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
    peer.index([find_terms(f"{o['title']} {o['text']}") for o in documents], show_progress=False)
    asked = [list(dict.fromkeys(find_terms(query))) for query in queries]
    found, _ = peer.retrieve(asked, k=DEPTH, show_progress=False)
    return [[documents[row]["id"] for row in rows] for rows in found]


def rank_bm25s_defaults(documents, queries):
    import bm25s

    peer = bm25s.BM25()
    texts = [f"{one['title']} {one['text']}" for one in documents]
    peer.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    found, _ = peer.retrieve(
        bm25s.tokenize(queries, show_progress=False), k=DEPTH, show_progress=False
    )
    return [[documents[row]["id"] for row in rows] for rows in found]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", action="append")
    parser.add_argument("--rerank", action="append", default=[])
    parser.add_argument("--store", default="exact")
    parser.add_argument("--chunk-tokens", type=int)
    parser.add_argument("--data", type=Path, default=DATA / "cranfield")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    documents, queries, relevance = read_cranfield(options.data)
    results = {}

    def add(name, rankings, seconds=None):
        results[name] = {
            "seconds": seconds,
            **{key: interval(values) for key, values in evaluate(rankings, relevance).items()},
        }
        print(name, *(f"{key} {results[name][key][0]:.4f}" for key in METRICS), flush=True)

    add("BM25", list(rank_bm25(documents, queries)))
    try:
        add("bm25s, same terms", rank_bm25s(documents, queries))
        add("bm25s, its defaults", rank_bm25s_defaults(documents, queries))
    except ImportError:
        print("bm25s is not installed")
    for source in options.model or ["cloze-en", str(minilm())]:
        name = "all-MiniLM-L6-v2" if source == str(minilm()) else Path(source).name
        with tempfile.TemporaryDirectory() as folder:
            made = cloze.index(
                source,
                documents,
                Path(folder) / "index",
                store=options.store,
                chunk_tokens=options.chunk_tokens,
            )
            print(f"{name}: {made.num_chunks:,} chunks in {made.seconds:.0f} s")
            with cloze.open_index(Path(folder) / "index") as opened:
                runs = [(mode, None) for mode in ("dense", "hybrid")]
                runs += [("hybrid", one) for one in options.rerank]
                for mode, second in runs:
                    start = time.perf_counter()
                    model = None if second is None else cloze.load(second)
                    found = opened.search(queries, k=DEPTH, mode=mode, rerank=model)
                    label = f"{name}, {mode}" + (f", rerank {Path(second).name}" if second else "")
                    rankings = [[hit.id for hit in one.hits] for one in found]
                    add(label, rankings, (time.perf_counter() - start) / len(queries))
    table = Table(title="Cranfield: 1,400 documents, 225 queries")
    for column in ("system", *METRICS):
        table.add_column(column)
    for name, row in results.items():
        cells = (f"{m:.3f} ({low:.3f}–{high:.3f})" for m, low, high in (row[k] for k in METRICS))
        table.add_row(name, *cells)
    print_result(table, versions("torch", "bm25s"), results=results, file=options.out)


if __name__ == "__main__":
    main()
