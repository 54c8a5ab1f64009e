"""Train word vectors on an encoded corpus with several threads.  v words, d vector size."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cloze.errors import InputError, MissingExtraError
from cloze.models.configs.word2vec import Word2VecConfig
from cloze.models.word2vec import Snapshots
from cloze.progress import ProgressCallback
from cloze.train.config import Word2VecRun
from cloze.train.word2vec.corpus import EncodedCorpus
from cloze.train.word2vec.lookup_tables import (
    build_alias_table,
    build_huffman_paths,
    compute_keep_thresholds,
    compute_ngram_rows,
    compute_noise_distribution,
)

if TYPE_CHECKING:
    from cloze.train.word2vec.kernel import LookupTables, Tables, WindowSettings

SNAPSHOT_WORDS = 20_000  # the most frequent words, whose vectors are kept in snapshots


@dataclass(frozen=True, kw_only=True)
class TrainedVectors:
    """The embeddings; the context vectors are discarded."""

    vectors: NDArray[np.float32]  # v d
    gram_vectors: NDArray[np.float32] | None  # buckets d
    trained: int  # words trained on, without those that subsampling dropped
    snapshots: Snapshots | None = None


def train_vectors(
    corpus: EncodedCorpus,
    settings: Word2VecRun,
    config: Word2VecConfig,
    progress: ProgressCallback | None = None,
) -> TrainedVectors:
    """Train on the corpus in its order, in chunks that are assigned to idle threads.

    The learning rate decreases with the words read. Random numbers are keyed by (seed, epoch,
    chunk), so one thread is deterministic; several threads may overwrite each other's updates.
    """
    run = _Run(corpus, settings, config, progress)
    threads = [threading.Thread(target=run.work) for _ in range(settings.threads)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        run.stop()
        raise
    if run.failure is not None:
        raise run.failure
    rows = len(corpus.vocabulary.words)
    table = run.tables.inputs
    if not np.isfinite(table).all():
        raise InputError("training diverged: the vectors are not finite", fix="use a lower --lr")
    vectors = _compose_vectors(table, run.lookup) if config.char_ngrams else table
    return TrainedVectors(
        vectors=vectors,
        gram_vectors=table[rows:] if config.char_ngrams else None,
        trained=run.trained,
        snapshots=run.make_snapshots(),
    )


def require_numba() -> None:
    """Raise early if numba is not installed."""
    try:
        import numba  # noqa: F401
    except ImportError:
        raise MissingExtraError("training word vectors", extra="words") from None


class _Run:
    """The state that the threads share."""

    def __init__(
        self,
        corpus: EncodedCorpus,
        settings: Word2VecRun,
        config: Word2VecConfig,
        progress: ProgressCallback | None,
    ) -> None:
        self.corpus, self.settings, self.progress = corpus, settings, progress
        self.lookup, self.window = build_lookup_tables(corpus, settings, config)
        self.tables = init_tables(corpus, settings, config)
        self.trained = 0
        self.failure: BaseException | None = None
        self._seen = 0
        self._config = config
        # before the end, half of the training, a quarter …: neighbors change most at the beginning
        self._due = [0.5**power for power in range(1, settings.snapshots + 1)]
        self._snapshots: list[tuple[int, NDArray[np.float32]]] = []
        self._lock = threading.Lock()
        self._chunks = self._all_chunks()

    def _all_chunks(self) -> Iterator[tuple[int, int, int, int]]:
        for epoch in range(self.settings.epochs):
            for number, (first, last) in enumerate(self.corpus.chunks()):
                yield epoch, number, first, last

    def stop(self) -> None:
        with self._lock:
            self._chunks = iter(())

    def work(self) -> None:
        """Train on chunks until there are none left."""
        try:
            while self._train_chunk():
                pass
        except BaseException as error:  # raised by the main thread
            self.failure = error
            self.stop()

    def _train_chunk(self) -> bool:
        from cloze.train.word2vec import kernel

        settings = self.settings
        total = settings.epochs * len(self.corpus.ids)
        with self._lock:
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            epoch, number, first, last = chunk
            ids, ends = self.corpus.read(first, last)
            done = self._seen / total
            if self._due and done >= self._due[-1]:
                self._take_snapshot(done)
            self._seen += len(ids)
            if self.progress:
                self.progress("words trained on", self._seen, total)
        lr = settings.initial_lr + (settings.min_lr - settings.initial_lr) * done
        (seed,) = np.random.SeedSequence([settings.seed, epoch, number]).generate_state(
            1, np.uint64
        )
        trained = kernel.train_sentences(
            kernel.Corpus(ids, ends),
            self.tables,
            self.lookup,
            self.window,
            np.float32(lr),
            seed | np.uint64(1),  # zero is a fixed point of the generator
        )
        with self._lock:
            self.trained += int(trained)
        return True

    def _take_snapshot(self, done: float) -> None:
        """Copy the vectors of the most frequent words; other threads may be changing them."""
        while self._due and done >= self._due[-1]:
            self._due.pop()
        self._snapshots.append((self._seen, self._copy_vectors()))

    def _copy_vectors(self) -> NDArray[np.float32]:
        count = min(len(self.corpus.vocabulary.words), SNAPSHOT_WORDS)
        if self._config.char_ngrams:
            return _compose_vectors(self.tables.inputs, self.lookup, count).astype(np.float32)
        return self.tables.inputs[:count].copy()

    def make_snapshots(self) -> Snapshots | None:
        """The snapshots and, as the last one, the trained vectors; None if none were wanted."""
        if not self.settings.snapshots:
            return None
        found = [*self._snapshots, (self._seen, self._copy_vectors())]
        return Snapshots(
            words_read=tuple(words for words, _ in found),
            vectors=np.stack([vectors for _, vectors in found]),
        )


def build_lookup_tables(
    corpus: EncodedCorpus, settings: Word2VecRun, config: Word2VecConfig
) -> "tuple[LookupTables, WindowSettings]":
    """The lookup tables of the kernel, and the settings of its windows."""
    require_numba()
    from cloze.train.word2vec.kernel import LookupTables, WindowSettings

    counts, words = corpus.vocabulary.counts, corpus.vocabulary.words
    none = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
    tree = settings.objective == "hierarchical"
    paths = build_huffman_paths(counts) if tree else none
    alias_table = none[1].astype(np.uint32), none[1]
    if not tree:
        alias_table = build_alias_table(
            compute_noise_distribution(counts, settings.negative_exponent)
        )
    starts, nodes, labels = paths
    lookup = LookupTables(
        compute_keep_thresholds(counts, settings.subsampling_threshold),
        *alias_table,
        starts,
        nodes,
        labels,
        *compute_ngram_rows(words, config.char_ngrams),
    )
    window = WindowSettings(
        window=settings.window,
        negatives=0 if tree else settings.num_negatives,
        max_targets=int(np.diff(paths[0]).max()) if tree else settings.num_negatives + 1,
        cbow=settings.kind == "cbow",
        nce=settings.objective == "nce",
    )
    return lookup, window


def init_tables(corpus: EncodedCorpus, settings: Word2VecRun, config: Word2VecConfig) -> "Tables":
    """Inputs uniform in ±1/2d, outputs zero, as in word2vec.c.

    For NCE (Gutmann and Hyvärinen 2010; Mnih and Teh 2012) the score of a word has a bias b, at
    first the log of its frequency p(w), and is compared with the noise: σ(v'·v + b − log k q(w)).
    """
    from cloze.train.word2vec.kernel import Tables

    counts = corpus.vocabulary.counts
    rows = len(counts) + (config.char_ngrams.buckets if config.char_ngrams else 0)
    inputs = np.empty((rows, config.hidden_size), np.float32)
    np.random.default_rng(settings.seed).random(out=inputs, dtype=np.float32)
    inputs -= 0.5
    inputs /= config.hidden_size
    shifts = np.zeros(len(counts), np.float32)
    if settings.objective == "nce":
        expected = settings.num_negatives * compute_noise_distribution(
            counts, settings.negative_exponent
        )
        shifts += np.log(expected) - np.log(counts / counts.sum())
    return Tables(inputs, np.zeros((len(counts), config.hidden_size), np.float32), shifts)


def _compose_vectors(
    table: NDArray[np.float32], lookup: "LookupTables", count: int | None = None
) -> NDArray[np.float32]:
    """The vector of each of the first words: the mean of its own row and those of its n-grams."""
    starts, rows = lookup.gram_starts, lookup.gram_rows
    starts = starts if count is None else starts[: count + 1]
    return np.stack(
        [
            (table[word] + table[rows[first:last]].sum(0)) / (1 + last - first)
            for word, (first, last) in enumerate(pairwise(starts))
        ]
    )
