"""Files, n-grams, scores and searches against gensim."""

import numpy as np
import pytest

from cloze.checkpoint.word2vec import export_vectors, import_vectors
from cloze.metrics.word_vectors import (
    read_pairs,
    read_questions,
    score_analogies,
    score_similarities,
)
from cloze.models.configs.word2vec import CharNGrams
from cloze.models.word2vec import WordVectors
from cloze.tasks.similar import combine, odd_one_out, similar

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning"),
    # gensim leaves a file without a header open
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
models = pytest.importorskip("gensim.models")
inner = pytest.importorskip("gensim.models.fasttext_inner")

WORDS = [*"abcdefghij", "Ab", "AB", "café", "北京", "won't"]


@pytest.fixture(scope="module")
def ours() -> WordVectors:
    table = np.random.default_rng(0).normal(size=(len(WORDS), 20)).astype(np.float32)
    return WordVectors(words=WORDS, vectors=table)


@pytest.fixture(scope="module")
def theirs(ours):
    vectors = models.KeyedVectors(vector_size=20)
    vectors.add_vectors(WORDS, ours.vectors)
    return vectors


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_reads_our_files(ours, tmp_path, binary):
    path = export_vectors(ours, tmp_path / ("words.bin" if binary else "words"))
    read = models.KeyedVectors.load_word2vec_format(str(path), binary=binary)
    assert read.index_to_key == WORDS
    assert (read.vectors == ours.vectors).all()
    few = models.KeyedVectors.load_word2vec_format(str(path), binary=binary, limit=3)
    assert (few.vectors == import_vectors(path, max_words=3).module.vectors).all()


@pytest.mark.parametrize("binary", [False, True])
def test_we_read_files_of_gensim(ours, theirs, tmp_path, binary):
    path = tmp_path / ("words.bin" if binary else "words")
    theirs.save_word2vec_format(str(path), binary=binary)
    read = import_vectors(path).module
    assert list(read.words) == WORDS
    np.testing.assert_allclose(read.vectors, ours.vectors, rtol=1e-6)


def test_glove_files_have_no_header(ours, theirs, tmp_path):
    path = tmp_path / "glove.txt"
    theirs.save_word2vec_format(str(path), write_header=False)
    np.testing.assert_allclose(import_vectors(path).module.vectors, ours.vectors, rtol=1e-6)
    export_vectors(ours, path, header=False)
    read = models.KeyedVectors.load_word2vec_format(str(path), no_header=True)
    assert (read.vectors == ours.vectors).all()


@pytest.mark.parametrize("word", ["where", "a", "café", "北京市", "won't", "e" * 20])
def test_n_grams_hash_as_in_fasttext(word):
    grams = CharNGrams(min_n=3, max_n=6, buckets=2_000_000)
    expected = [
        inner.ft_hash_bytes(gram) % 2_000_000 for gram in inner.compute_ngrams_bytes(word, 3, 6)
    ]
    assert sorted(grams.hash_ngrams(word)) == sorted(expected)


def test_searches_equal_gensim(ours, theirs):
    def same(found, expected):
        assert [near.word for near in found.words] == [word for word, _ in expected]
        scores = [score for _, score in expected]
        np.testing.assert_allclose([near.score for near in found.words], scores, atol=1e-5)

    same(similar(ours, "a", top=5), theirs.most_similar("a", topn=5))
    same(
        combine(ours, ["b", "c"], ["a"], top=5),
        theirs.most_similar(positive=["b", "c"], negative=["a"], topn=5),
    )
    product = combine(ours, ["b", "c"], ["a"], top=5, product=True)
    expected = theirs.most_similar_cosmul(positive=["b", "c"], negative=["a"], topn=5)
    assert [near.word for near in product.words] == [word for word, _ in expected]
    asked = ["a", "b", "c", "d"]
    assert odd_one_out(ours, asked).word == theirs.doesnt_match(asked)


@pytest.fixture(scope="module")
def both(data_dir):
    """Random vectors of half the words that the sets ask for."""
    folder = data_dir / "word_eval"
    asked = {
        word.lower() for q in read_questions(folder / "questions-words.txt") for word in q.words
    }
    for name in ("wordsim353-sim", "simlex999"):
        asked |= {word.lower() for a, b, _ in read_pairs(folder / f"{name}.csv") for word in (a, b)}
    words = sorted(asked)[::2]
    rng = np.random.default_rng(0)
    table = rng.normal(size=(len(words), 10)).astype(np.float32)
    theirs = models.KeyedVectors(vector_size=10)
    theirs.add_vectors(words, table)
    return folder, WordVectors(words=words, vectors=table), theirs


@pytest.mark.data
def test_analogies_equal_gensim(both, tmp_path):
    folder, ours, theirs = both
    lines = (folder / "questions-words.txt").read_text().splitlines()
    few = tmp_path / "questions.txt"  # gensim asks one by one
    few.write_text("\n".join([lines[0], *lines[1::10]]) + "\n")
    accuracy, sections = theirs.evaluate_word_analogies(str(few))
    found = score_analogies(ours, read_questions(few))
    assert found.accuracy == pytest.approx(accuracy)
    total = sections[-1]
    assert len(found.correct) == len(total["correct"]) + len(total["incorrect"])


@pytest.mark.data
@pytest.mark.parametrize("name", ["wordsim353-sim", "simlex999"])
def test_similarities_equal_gensim(both, tmp_path, name):
    folder, ours, theirs = both
    pairs = read_pairs(folder / f"{name}.csv")
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{a}\t{b}\t{number}\n" for a, b, number in pairs))
    pearson, spearman, unknown = theirs.evaluate_word_pairs(str(table))
    found = score_similarities(ours, pairs)
    assert found.pearson == pytest.approx(pearson[0], abs=1e-5)
    assert found.spearman == pytest.approx(spearman[0], abs=1e-5)
    assert found.unknown == round(unknown / 100 * len(pairs))
