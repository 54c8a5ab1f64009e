"""Properties of word vectors: files, Huffman trees, alias tables, n-grams."""

import io
import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cloze.errors import InputError
from cloze.interop.word2vec import read_vectors, write_vectors
from cloze.models.configs.word2vec import CharNGrams
from cloze.train.config import Word2VecVocabulary
from cloze.train.word2vec.corpus import join_phrases, split_text
from cloze.train.word2vec.lookup_tables import (
    build_alias_table,
    build_huffman_paths,
    compute_noise_distribution,
)

COUNTS = st.lists(st.integers(1, 10**9), min_size=2, max_size=60).map(
    lambda counts: np.array(sorted(counts, reverse=True), np.int64)
)
WORD = st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1, max_size=8).filter(
    lambda word: len(word.split()) == 1
)
TABLES = st.tuples(st.integers(1, 6), st.integers(2, 5)).flatmap(
    lambda shape: st.tuples(
        st.lists(WORD, min_size=shape[0], max_size=shape[0]),
        arrays.arrays(
            np.float32, shape, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
        ),
    )
)


@given(TABLES, st.booleans())
def test_files_preserve_every_bit(made, binary):
    words, table = made
    stream = io.BytesIO()
    write_vectors(stream, words, table, binary=binary)
    size = stream.tell()
    stream.seek(0)
    again, read = read_vectors(stream, size, "x", binary=binary)
    assert again == words
    assert (read == table).all()


@given(TABLES, st.data())
def test_a_truncated_binary_file_is_an_error(made, data):
    stream = io.BytesIO()
    write_vectors(stream, *made, binary=True)
    whole = stream.getvalue()[:-1]  # the last newline says nothing
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        read_vectors(io.BytesIO(cut), len(cut), "x", binary=True)
    except InputError:
        return
    raise AssertionError("it was read")


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_crash_the_reader(data, binary):
    try:
        words, table = read_vectors(io.BytesIO(data), len(data), "x", binary=binary)
    except InputError:
        return
    assert len(words) == len(table)
    assert np.isfinite(table).all()


@given(COUNTS)
def test_huffman_codes_are_prefix_free_and_optimal(counts):
    starts, nodes, labels = build_huffman_paths(counts)
    codes = ["".join(str(int(x)) for x in labels[a:b]) for a, b in itertools.pairwise(starts)]
    assert len(set(codes)) == len(counts)
    ordered = sorted(codes)
    assert not any(b.startswith(a) for a, b in itertools.pairwise(ordered))
    assert sum(2.0 ** -len(code) for code in codes) == 1
    assert 0 <= nodes.min() <= nodes.max() == len(counts) - 2
    shares = counts / counts.sum()
    entropy = -(shares * np.log2(shares)).sum()
    mean = sum(share * len(code) for share, code in zip(shares, codes, strict=True))
    assert entropy - 1e-9 <= mean <= entropy + 1


@given(COUNTS, st.floats(-1, 2))
def test_an_alias_table_has_the_probability_of_each_word(counts, power):
    chances = compute_noise_distribution(counts, power)
    bars, aliases = build_alias_table(chances)
    drawn = np.zeros(len(counts))
    np.add.at(drawn, np.arange(len(counts)), bars / (2**32 - 1))
    np.add.at(drawn, aliases, 1 - bars / (2**32 - 1))
    np.testing.assert_allclose(drawn / len(counts), chances, atol=1e-6)


@given(st.text(max_size=30), st.integers(1, 4), st.integers(0, 3), st.integers(1, 1000))
def test_the_number_of_ngrams(word, shortest, more, buckets):
    grams = CharNGrams(min_n=shortest, max_n=shortest + more, buckets=buckets)
    length = len(word) + 2
    expected = sum(max(length - n + 1, 0) for n in range(shortest, shortest + more + 1))
    if shortest == 1:
        expected -= 2  # < and > alone are none
    found = grams.hash_ngrams(word)
    assert len(found) == expected
    assert all(0 <= row < buckets for row in found)


@given(st.text(max_size=60))
def test_words_have_no_whitespace_and_are_split_into_themselves(line):
    words = split_text(line, config=Word2VecVocabulary())
    assert all(len(word.split()) == 1 for word in words)
    assert split_text(" ".join(words), config=Word2VecVocabulary(lowercase=False)) == words


@given(
    st.lists(st.sampled_from("abc"), max_size=12), st.sets(st.sampled_from(["a b", "b c", "c c"]))
)
def test_joining_phrases_keeps_every_word(words, pairs):
    joined = join_phrases(words, frozenset(pairs))
    assert "_".join(joined).split("_") == (words or [""])
    assert all(word.count("_") <= 1 for word in joined)
