"""Vocabulary, phrases, the corpus on disk, what the kernel looks up, and whole runs."""

import builtins
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cloze.errors import ConfigError, InputError, MissingExtraError
from cloze.models.configs.word2vec import CharNGrams, Word2VecConfig
from cloze.train.config import Word2VecRun, Word2VecVocabulary
from cloze.train.word2vec.corpus import (
    count_words,
    encode_corpus,
    find_phrases,
    join_phrases,
    split_text,
)
from cloze.train.word2vec.lookup_tables import (
    build_alias_table,
    build_huffman_paths,
    compute_keep_thresholds,
    compute_ngram_rows,
    compute_noise_distribution,
)
from helpers import raises

LINES = ["the cat sat on the mat", "the dog sat on the log", "a cat and a dog"] * 40
SMALL = Word2VecRun(epochs=2, threads=1, window=2, subsampling_threshold=0)
SIZE = Word2VecConfig(hidden_size=12)


@pytest.fixture
def corpus(tmp_path):
    return encode_corpus(lambda: iter(LINES), Word2VecVocabulary(min_count=1), tmp_path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("The cat's 2 toys, won't-they?", ["the", "cat's", "2", "toys", "won't", "they"]),
        ("rock'n'roll 'quoted' under_score", ["rock'n'roll", "quoted", "under", "score"]),
        ("Ein Café in 北京!", ["ein", "café", "in", "北", "京"]),
        ("isn’t", ["isn’t"]),
        ("", []),
    ],
)
def test_words_of_a_line(line, words):
    assert split_text(line, config=Word2VecVocabulary()) == words


def test_plain_lines_split_as_others_do():
    line = "It's 3,000 don't 'x' a_b C3PO's"
    assert (
        split_text(line, config=Word2VecVocabulary())
        == split_text(line + " é", config=Word2VecVocabulary())[:-1]
    )


def test_text_that_is_split_already_is_taken_as_it_is():
    text = Word2VecVocabulary(kind="spaced", lowercase=False)
    assert split_text("New_York  U.S.", config=text) == ["New_York", "U.S."]


def test_phrases_join_from_the_left():
    assert join_phrases(["a", "b", "a", "b", "c"], frozenset({"a b", "b c"})) == ["a_b", "a_b", "c"]
    assert join_phrases(["a", "a", "a"], frozenset({"a a"})) == ["a_a", "a"]
    assert join_phrases([], frozenset({"a a"})) == []


def test_phrases_are_pairs_far_above_chance():
    # new york: (50 − 5) · 1000 / (50 · 60) = 15; of the: (100 − 5) · 1000 / (300 · 400) < 1
    counts = Counter({"new": 50, "york": 60, "of": 300, "the": 400, "x": 190})
    counts |= Counter({"new york": 50, "of the": 100, "x x": 2})
    assert find_phrases(counts, Word2VecVocabulary(phrase_threshold=14.9)) == {"new york"}
    assert find_phrases(counts, Word2VecVocabulary(phrase_threshold=15.1)) == frozenset()


def test_two_passes_make_phrases_of_three(tmp_path):
    lines = ["new york times wrote", "other words here", "more and more of it"] * 30
    text = Word2VecVocabulary(phrases=2, min_count=5, phrase_threshold=1)
    made = encode_corpus(lambda: iter(lines), text, tmp_path)
    assert "new_york_times_wrote" in made.vocabulary.words


def test_words_come_by_falling_count_then_by_name(corpus):
    words = corpus.vocabulary.words
    assert words[:5] == ("the", "a", "cat", "dog", "on")
    assert list(corpus.vocabulary.counts[:3]) == [160, 80, 80]


def test_rare_words_and_those_beyond_the_most_are_left_out(tmp_path):
    made = count_words(lambda: iter(LINES), Word2VecVocabulary(min_count=80, size=3))
    assert made.words == ("the", "a", "cat")
    corpus = encode_corpus(lambda: iter(LINES), Word2VecVocabulary(min_count=80, size=3), tmp_path)
    ids, ends = corpus.read(0, 3)
    assert ids.tolist() == [0, 2, 0, 0, 0, 1, 2, 1]
    assert ends.tolist() == [3, 5, 8]


def test_too_little_text_is_told(tmp_path):
    with raises(InputError, "0", "words", "1000", fix="min_count"):
        encode_corpus(lambda: iter(LINES), Word2VecVocabulary(min_count=1000), tmp_path)


def test_chunks_are_whole_sentences_and_leave_none_out(corpus):
    for size in (1, 7, 50, 10**6):
        spans = list(corpus.chunks(size))
        assert spans[0][0] == 0
        assert spans[-1][1] == len(corpus.ends)
        assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
        read = np.concatenate([corpus.read(*span)[0] for span in spans])
        assert (read == corpus.ids).all()


def test_a_text_that_changes_between_readings_is_told(tmp_path):
    readings = iter([LINES, LINES[:1]])
    with raises(InputError, "changed"):
        encode_corpus(lambda: iter(next(readings)), Word2VecVocabulary(min_count=1), tmp_path)


def test_subsampling_follows_word2vec():
    counts = np.array([900, 90, 10])
    shares = counts / 1000
    expected = np.minimum((np.sqrt(shares / 0.05) + 1) * 0.05 / shares, 1)
    np.testing.assert_allclose(compute_keep_thresholds(counts, 0.05) / 2**32, expected, atol=1e-9)
    assert (compute_keep_thresholds(counts, 0) == 2**32 - 1).all()


def test_the_alias_table_draws_by_the_noise():
    chances = compute_noise_distribution(np.array([1000, 100, 10, 1, 1]), 0.75)
    bars, aliases = build_alias_table(chances)
    drawn = np.zeros(5)
    for word, (bar, alias) in enumerate(zip(bars / (2**32 - 1), aliases, strict=True)):
        drawn[word] += bar / 5
        drawn[alias] += (1 - bar) / 5
    np.testing.assert_allclose(drawn, chances, atol=1e-8)


def test_huffman_gives_frequent_words_short_paths():
    starts, nodes, labels = build_huffman_paths(np.array([8, 4, 2, 1, 1]))
    assert np.diff(starts).tolist() == [1, 2, 3, 4, 4]
    assert nodes[starts[:-1]].tolist() == [3] * 5  # all begin at the root
    paths = {tuple(labels[a:b]) for a, b in itertools.pairwise(starts)}
    assert len(paths) == 5


def test_rows_of_n_grams_lie_behind_the_words():
    grams = CharNGrams(min_n=3, max_n=3, buckets=7)
    starts, rows = compute_ngram_rows(["ab", "c"], grams)
    assert starts.tolist() == [0, 2, 3]
    assert rows.tolist() == [2 + row for row in [*grams.hash_ngrams("ab"), *grams.hash_ngrams("c")]]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"kind": "glove"}, ("kind", "glove")),
        ({"objective": "softmax"}, ("objective", "softmax")),
        ({"window": 0}, ("window", "0")),
        ({"threads": True}, ("threads", "True")),
        ({"subsampling_threshold": -1.0}, ("subsampling_threshold", "-1.0")),
        ({"lr": 0.01, "min_lr": 0.1}, ("0.01", "min_lr", "0.1")),
    ],
)
def test_settings_that_cannot_be(changes, wrong):
    with raises(ConfigError, wrong):
        Word2VecRun(**changes)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"kind": "letters"}, ("kind", "letters")),
        ({"min_count": 0}, ("min_count", "0")),
        ({"size": 1}, ("size", "1")),
        ({"phrases": 9}, ("phrases", "9")),
    ],
)
def test_texts_that_cannot_be(changes, wrong):
    with raises(ConfigError, wrong):
        Word2VecVocabulary(**changes)


def test_the_learning_rate_falls_linearly_with_the_words_read(corpus, monkeypatch):
    pytest.importorskip("numba")
    from cloze.train.word2vec.trainer import train_vectors

    seen = []
    monkeypatch.setattr(
        "cloze.train.word2vec.kernel.train_sentences", lambda *given: seen.append(given[4]) or 0
    )
    settings = replace(SMALL, epochs=4, lr=0.1, min_lr=0.02)
    train_vectors(corpus, settings, Word2VecConfig(hidden_size=4))
    assert seen == pytest.approx([0.1, 0.08, 0.06, 0.04]), "0.02 is reached after the last epoch"


def test_rates_by_kind():
    assert Word2VecRun().initial_lr == 0.025
    assert Word2VecRun(kind="cbow").initial_lr == 0.05
    assert Word2VecRun(kind="cbow", lr=0.1).initial_lr == 0.1


@pytest.mark.parametrize("objective", ["negative", "hierarchical", "nce"])
@pytest.mark.parametrize("kind", ["skip-gram", "cbow"])
@pytest.mark.parametrize("grams", [None, CharNGrams(buckets=50)])
def test_one_thread_learns_the_same_bit_for_bit(corpus, kind, objective, grams):
    pytest.importorskip("numba")
    from cloze.train.word2vec.trainer import train_vectors

    settings, config = (
        replace(SMALL, kind=kind, objective=objective),
        replace(SIZE, char_ngrams=grams),
    )
    first, second = train_vectors(corpus, settings, config), train_vectors(corpus, settings, config)
    assert (first.vectors == second.vectors).all()
    assert np.isfinite(first.vectors).all()
    assert first.trained == 2 * len(corpus.ids)
    other = train_vectors(corpus, replace(settings, seed=1), config)
    assert (first.vectors != other.vectors).any()


@pytest.mark.parametrize("kind", ["skip-gram", "cbow"])
def test_words_of_the_same_company_become_alike(tmp_path, kind):
    pytest.importorskip("numba")
    from cloze.train.word2vec.trainer import train_vectors

    # x and y are said of the same things, z of others
    rng = np.random.default_rng(0)
    company = {"x": "abcde", "y": "abcde", "z": "fghij"}
    lines = [
        " ".join([word, *rng.choice(list(said), 4)])
        for word, said in company.items()
        for _ in range(1000)
    ]
    rng.shuffle(lines)
    corpus = encode_corpus(lambda: iter(lines), Word2VecVocabulary(min_count=1), tmp_path)
    told = []
    vectors = train_vectors(
        corpus,
        replace(SMALL, kind=kind, threads=2, epochs=5),
        SIZE,
        lambda *seen: told.append(seen),
    ).vectors
    x, y, z = (vectors[corpus.vocabulary.words.index(word)] for word in "xyz")
    cosine = lambda a, b: a @ b / np.sqrt((a @ a) * (b @ b))  # noqa: E731
    assert cosine(x, y) > cosine(x, z) + 0.3
    assert told[-1] == ("words trained on", 5 * 15_000, 5 * 15_000)


def test_vectors_that_grew_beyond_numbers_are_told(corpus):
    pytest.importorskip("numba")
    from cloze.train.word2vec.trainer import train_vectors

    with raises(InputError, "vectors", fix="--lr"):
        fast = replace(SMALL, kind="cbow", objective="hierarchical", lr=10.0, epochs=200)
        train_vectors(corpus, fast, SIZE)


def test_what_goes_wrong_in_a_thread_is_told(corpus):
    pytest.importorskip("numba")
    from cloze.train.word2vec.trainer import train_vectors

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_vectors(corpus, replace(SMALL, threads=2), SIZE, stop)


def test_without_numba_it_says_what_to_install(corpus, monkeypatch):
    from cloze.train.word2vec.trainer import train_vectors

    real = builtins.__import__

    def missing(name, *arguments, **others):
        if name.split(".")[0] == "numba":
            raise ImportError(name)
        return real(name, *arguments, **others)

    monkeypatch.setattr(builtins, "__import__", missing)
    with raises(MissingExtraError, "word vectors", fix="cloze[words]"):
        train_vectors(corpus, SMALL, SIZE)
