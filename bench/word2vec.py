"""Words per second and quality of word2vec, with cloze and with gensim in one run.

    python bench/word2vec.py [TEXT.txt.xz…] [--words 2000000] [--rounds 3] [--threads 2]
    python bench/word2vec.py TEXT.txt.xz… --quality --width 100 --epochs 5

Both train on the same sentences with the same settings (window 5, 5 negatives, sample 1e-3,
min_count 5). Words are counted before subsampling, rare ones included. The counting pass, in which
cloze also writes the words to disk, is timed separately; gensim gets lists in memory, its fastest
input. Both alternate, and the best round of each counts. `--quality` trains each once and computes
the scores on analogies, WordSim-353, SimLex-999 and RG-65, with 95 % bootstrap intervals of the
scores and of their paired difference.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from gensim.models import Word2Vec
from rich.table import Table

from cloze.data.sources import read_rows
from cloze.metrics.bootstrap import bootstrap_difference, bootstrap_interval
from cloze.metrics.regression import spearman
from cloze.metrics.word_vectors import (
    read_pairs,
    read_questions,
    score_analogies,
    score_similarities,
)
from cloze.models.configs.word2vec import Word2VecConfig
from cloze.models.word2vec import WordVectors
from cloze.train.config import Word2VecRun, Word2VecVocabulary
from cloze.train.word2vec.corpus import EncodedCorpus, encode_corpus, split_text
from cloze.train.word2vec.trainer import train_vectors
from common import DATA, print_result, versions

PAIRS = ("wordsim353-sim", "wordsim353-rel", "simlex999", "rg-65")
KINDS = ("skip-gram", "cbow")


def sentences(files: list[str], most: int | None) -> list[list[str]]:
    found, words = [], 0
    for row in read_rows(files):
        split = split_text(row.text, config=Word2VecVocabulary())
        if split:
            found.append(split)
            words += len(split)
        if most and words >= most:
            break
    return found


def settings_of(kind: str, options: argparse.Namespace, **changes) -> Word2VecRun:
    return Word2VecRun(
        kind=kind,
        epochs=options.epochs,
        threads=options.threads,
        **changes,
    )


def prepare_text(texts: list[list[str]], folder: Path) -> EncodedCorpus:
    spaced = Word2VecVocabulary(kind="spaced", lowercase=False)
    return encode_corpus(lambda: (" ".join(words) for words in texts), spaced, folder)


def gensim_model(kind: str, options: argparse.Namespace) -> Word2Vec:
    return Word2Vec(
        vector_size=options.width,
        window=5,
        negative=5,
        sample=1e-3,
        min_count=5,
        sg=int(kind == "skip-gram"),
        alpha=Word2VecRun(kind=kind).initial_lr,
        workers=options.threads,
        seed=1,
    )


def train_gensim(model: Word2Vec, texts: list[list[str]], epochs: int) -> None:
    model.train(texts, total_examples=model.corpus_count, epochs=epochs)


def measure_seconds(work, *arguments) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def speed(texts: list[list[str]], corpus: EncodedCorpus, options: argparse.Namespace) -> dict:
    raw = sum(map(len, texts)) * options.epochs
    results, config = {}, Word2VecConfig(hidden_size=options.width)
    for kind in KINDS:
        ours, theirs = [], []
        once = argparse.Namespace(**{**vars(options), "epochs": 1})
        train_vectors(corpus, settings_of(kind, once), config)
        for _ in range(options.rounds):
            ours.append(
                raw / measure_seconds(train_vectors, corpus, settings_of(kind, options), config)
            )
            model = gensim_model(kind, options)
            model.build_vocab(texts)
            theirs.append(raw / measure_seconds(train_gensim, model, texts, options.epochs))
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        results[kind] = {
            "cloze": max(ours),
            "gensim": max(theirs),
            "ratio of the best": max(ours) / max(theirs),
            "median ratio": float(np.median(ratios)),
        }
    return results


def scores(model: WordVectors, folder: Path) -> dict:
    """What each set gives the bootstrap: a value for each question, or two columns of numbers."""
    found = {
        "analogies": score_analogies(model, read_questions(folder / "questions-words.txt")).correct
    }
    for name in PAIRS:
        pairs = score_similarities(model, read_pairs(folder / f"{name}.csv"))
        found[name] = (pairs.ratings, pairs.cosines)
    return found


def metric(found):
    if isinstance(found, np.ndarray):
        return found, len(found)
    judged, cosines = found
    return (lambda chosen: spearman(judged[chosen], cosines[chosen])), len(judged)


def quality(texts: list[list[str]], corpus: EncodedCorpus, options: argparse.Namespace) -> dict:
    results, config = {}, Word2VecConfig(hidden_size=options.width)
    for kind in KINDS:
        vectors = train_vectors(corpus, settings_of(kind, options), config).vectors
        ours = WordVectors(words=corpus.vocabulary.words, vectors=vectors)
        model = gensim_model(kind, options)
        model.build_vocab(texts)
        train_gensim(model, texts, options.epochs)
        theirs = WordVectors(words=model.wv.index_to_key, vectors=model.wv.vectors)
        assert set(ours.words) == set(theirs.words), "the vocabularies differ"
        both = scores(ours, options.sets), scores(theirs, options.sets)
        for name in both[0]:
            (a, count), (b, _) = metric(both[0][name]), metric(both[1][name])
            results[f"{kind}, {name} ({count:,})"] = {
                "cloze": bootstrap_interval(a, count, rng=np.random.default_rng(0)),
                "gensim": bootstrap_interval(b, count, rng=np.random.default_rng(0)),
                "difference": bootstrap_difference(a, b, count, rng=np.random.default_rng(0)),
            }
    return results


def table(results: dict) -> Table:
    columns = list(next(iter(results.values())))
    shown = Table("", *columns)
    for name, row in results.items():
        cells = (
            f"{value:,.2f}" if isinstance(value, float) else str(value) for value in row.values()
        )
        shown.add_row(name, *cells)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", default=[str(DATA / "text" / "wiki-03.txt.xz")])
    parser.add_argument("--words", type=int, help="no more of the text than this")
    parser.add_argument("--width", default=300, type=int)
    parser.add_argument("--epochs", default=1, type=int)
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--quality", action="store_true", help="scores, not speed")
    parser.add_argument("--sets", default=DATA / "word_eval", type=Path)
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    texts = sentences(options.files, options.words)
    with tempfile.TemporaryDirectory() as folder:
        counting = measure_seconds(prepare_text, texts, Path(folder))
        corpus = prepare_text(texts, Path(folder))
        building = measure_seconds(gensim_model("cbow", options).build_vocab, texts)
        results = (quality if options.quality else speed)(texts, corpus, options)
    print_result(
        table(results),
        f"{versions('numba', 'gensim')}; {sum(map(len, texts)):,} words, "
        f"{len(corpus.vocabulary.words):,} different; width {options.width}, "
        f"{options.epochs} epochs, {options.threads} threads",
        f"counting and writing {counting:.1f} s; gensim's counting {building:.1f} s",
        results=results,
        file=options.json,
    )


if __name__ == "__main__":
    main()
