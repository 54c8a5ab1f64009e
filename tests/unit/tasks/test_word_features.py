"""Word vectors as features: `embed`, similarity, classifiers and taggers on them."""

from itertools import pairwise

import numpy as np
import pytest

import cloze
from cloze.checkpoint.word2vec import export_vectors, make_vector_model
from cloze.data.labelled.examples import TaggedExample
from cloze.errors import InputError
from cloze.models.configs.word2vec import CharNGrams
from cloze.models.word2vec import WordVectors
from cloze.text.words import join_words
from cloze.train.config import Word2VecVocabulary
from cloze.train.word2vec.corpus import split_text
from helpers import raises

WORDS = (*"abcdefgh", "new_york", "don't", "猫")


def make_vectors(**changes):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(len(WORDS), 6)).astype(np.float32)
    return WordVectors(words=WORDS, vectors=vectors, **changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("vectors") / "model"
    return make_vector_model(make_vectors()).save(out)


def make_texts(count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list("abcdefgh"), 6)) for _ in range(count)]


def test_a_text_is_the_mean_of_its_known_words(folder):
    vectors = make_vectors()
    found = cloze.embed(folder, ["A b, zzz!", "猫don't", "in New York", "", "zzz"])
    expected = [
        (vectors["a"] + vectors["b"]) / 2,
        (vectors["猫"] + vectors["don't"]) / 2,
        vectors["new_york"],
        np.zeros(6),
        np.zeros(6),
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    many = cloze.embed(folder, "a zzz b", pooling="max")
    np.testing.assert_allclose(many, np.maximum(vectors["a"], vectors["b"]), rtol=1e-6)


def test_pooling_none_gives_a_vector_for_every_word(folder):
    one = cloze.embed(folder, "A zzz, New York", pooling="none")
    assert one.encoding.tokens == ["a", "zzz", ",", "new_york"]
    assert [("A zzz, New York"[a:b]) for a, b in one.encoding.offsets][-1] == "New York"
    vectors = make_vectors()
    expected = [vectors["a"], np.zeros(6), np.zeros(6), vectors["new_york"]]
    np.testing.assert_array_equal(one.vectors, np.array(expected, np.float32))
    assert cloze.embed(folder, "", pooling="none").vectors.shape == (0, 6)


def test_words_are_those_of_the_trainer():
    text = "Don't — the 2nd 猫's New York, l’été_x a/b"
    words = set(split_text(text, config=Word2VecVocabulary()))
    known = WordVectors(words=tuple(words), vectors=np.ones((len(words), 2), np.float32))
    tokens = cloze.embed(known, text, pooling="none").encoding.tokens
    assert [token for token in tokens if token in words] == split_text(
        text, config=Word2VecVocabulary()
    )


def test_unknown_words_have_the_vector_of_their_ngrams():
    grams = CharNGrams(buckets=50)
    table = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)
    vectors = make_vectors(char_ngrams=grams, ngram_vectors=table)
    found = cloze.embed(vectors, "abcd, a", pooling="none").vectors
    np.testing.assert_allclose(found, [vectors["abcd"], np.zeros(6), vectors["a"]], rtol=1e-6)
    mean = (vectors["abcd"] + vectors["a"]) / 2
    np.testing.assert_allclose(cloze.embed(vectors, "abcd, a"), mean, rtol=1e-6)


def test_files_of_other_programs_have_the_same_vectors(folder, tmp_path):
    for name in ("vectors.txt", "vectors.bin"):
        file = export_vectors(make_vectors(), tmp_path / name)
        np.testing.assert_allclose(
            cloze.embed(file, ["a b", "New York"]), cloze.embed(folder, ["a b", "New York"]), 1e-5
        )


@pytest.mark.parametrize("classifier", ["linear", "cnn"])
def test_texts_by_word_vectors(folder, tmp_path, classifier):
    texts = make_texts(150)
    rows = [(text, "yes" if "a" in text else "no") for text in texts]
    options = {} if classifier == "linear" else {"epochs": 15, "lr": 1e-2}
    run = cloze.finetune(
        "classify",
        folder,
        rows,
        tmp_path / "run",
        recipe="features",
        dev=rows,
        classifier=classifier,
        settings={"transfer.hidden_size": 16},
        progress=False,
        **options,
    )
    assert run.score > 0.85
    found = cloze.classify(tmp_path / "run", ["a a b", "b c", "unknown", ""])
    assert [one.label for one in found[:2]] == ["yes", "no"]
    assert cloze.evaluate(tmp_path / "run", rows).scores["accuracy"] == pytest.approx(run.score)
    info = cloze.info(tmp_path / "run")
    assert info.labels == ("no", "yes")
    assert "classify" in info.capabilities
    compared = cloze.compare({"one": tmp_path / "run", "two": tmp_path / "run"}, rows, resamples=5)
    assert compared.entries[1].difference.value == 0


def test_the_longest_text_is_stored(folder, tmp_path):
    rows = [("a b c d", "yes"), ("e f g h", "no")] * 10
    cloze.finetune(
        "classify", folder, rows, tmp_path / "run", recipe="features", max_length=3, progress=False
    )
    model = cloze.load(tmp_path / "run")
    assert model.max_length == 3
    one, other = (cloze.classify(model, text, truncation="head") for text in ("a b c", "a b c h"))
    assert (one.score, other.truncated_chars) == (other.score, 1)


def test_words_by_word_vectors(folder, tmp_path):
    examples = []
    for text in make_texts(80):
        words = [*text.split(), "."]
        text, spans = join_words(words)
        tags = tuple("X" if word in "ab" else "O" for word in words)
        examples.append(TaggedExample(text=text, words=spans, tags=tags))
    run = cloze.finetune(
        "tag",
        folder,
        examples,
        tmp_path / "run",
        recipe="features",
        dev=examples,
        epochs=12,
        lr=2e-2,
        settings={"transfer.hidden_size": 16, "transfer.num_layers": 1},
        progress=False,
    )
    assert run.score > 0.9
    found = cloze.tag(tmp_path / "run", [one.text.replace(" .", ".") for one in examples])
    pairs = zip(found, examples, strict=True)
    right = np.array(
        [a == b for one, gold in pairs for a, b in zip(one.tags, gold.tags, strict=True)]
    )
    assert right.mean() == pytest.approx(run.score)


def test_similarity_of_texts(folder):
    texts = make_texts(30)
    rows = [
        {"sentence1": one, "sentence2": other, "score": len(set(one.split()) & set(other.split()))}
        for one, other in pairwise(texts)
    ]
    found = cloze.evaluate(folder, rows)
    assert found.kind == "similarity"
    assert found.scores["spearman"] > 0.2
    same = cloze.compare({"one": folder, "two": "cloze-en"}, rows, resamples=5)
    assert same.entries[0].evaluation.scores == found.scores


def test_what_word_vectors_do_not_have(folder):
    with raises(InputError, "cls", "[CLS]", fix="mean"):
        cloze.embed(folder, "a", pooling="cls")
    with raises(InputError, "1", "0 layers", fix="0"):
        cloze.embed(folder, "a", layers=1)
    with raises(InputError, "word vectors", "finetune", fix="encoder"):
        cloze.finetune("classify", folder, [("a", "x"), ("b", "y")], folder / "x", progress=False)
