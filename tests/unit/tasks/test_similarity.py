"""`similarity` and `rerank`: cosines are those of the embeddings, rankings those of the scores."""

from dataclasses import replace

import numpy as np
import pytest

import cloze
from cloze.checkpoint.task import Task
from cloze.errors import ConfigError, InputError, TruncationWarning
from helpers import raises, tiny_model, word_model

TEXTS = ["the cat sat", "a b c", "the cats", "j"]
LONG = "a b c d e f g h i j " * 8


def cosines(model, texts, others, **options):
    first, second = (
        cloze.embed(model, some, normalize=True, **options) for some in (texts, others)
    )
    return first @ second.T


def test_two_texts_have_one_score_and_several_a_matrix():
    model = tiny_model()
    one = cloze.similarity(model, TEXTS[0], TEXTS[1])
    assert one.to_dict().keys() == {"text", "pair", "score", "truncated_chars"}
    assert one.score == pytest.approx(cosines(model, TEXTS[:1], TEXTS[1:2])[0, 0], abs=1e-6)
    among = cloze.similarity(model, TEXTS)
    assert among.scores == pytest.approx(cosines(model, TEXTS, TEXTS), abs=1e-6)
    assert np.diag(among.scores) == pytest.approx(np.ones(4))
    with_others = cloze.similarity(model, TEXTS[0], TEXTS[1:])
    assert with_others.scores == pytest.approx(among.scores[:1, 1:], abs=1e-6)
    assert with_others.to_dict()["pairs"] == TEXTS[1:]
    assert len(with_others.to_records()) == 3
    assert model.similarity(TEXTS[0], TEXTS[1]) == one


def test_pooling_and_layers_are_those_of_embed():
    model = tiny_model()
    options = {"pooling": "max", "layers": "embeddings"}
    found = cloze.similarity(model, TEXTS, **options)
    assert found.scores == pytest.approx(cosines(model, TEXTS, TEXTS, **options), abs=1e-6)


def test_a_text_without_known_words_has_similarity_zero():
    table = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    model = word_model(words=["cat", "dog"], vectors=table)
    assert cloze.similarity(model, "cat", "unknown").score == 0


def test_long_texts_are_truncated_as_in_embed():
    model = tiny_model()
    with pytest.warns(TruncationWarning, match="1 of 2"):
        found = cloze.similarity(model, LONG, "a")
    assert found.truncated_chars > 0
    with raises(InputError, "text 1"):
        cloze.similarity(model, LONG, "a", truncation="error")
    with pytest.warns(TruncationWarning, match="1 of 1"):
        assert cloze.rerank(model, "a", [LONG, "b"]).truncated_chars > 0
    with raises(InputError, "classify"):
        cloze.rerank(model, "a", ["b"], by="pairs")


def test_embeddings_rank_by_cosine():
    model = tiny_model()
    found = cloze.rerank(model, TEXTS[0], TEXTS[1:])
    scores = cosines(model, TEXTS[:1], TEXTS[1:])[0]
    assert [one.index for one in found.documents] == np.argsort(-scores).tolist()
    assert [one.score for one in found.documents] == pytest.approx(sorted(scores, reverse=True))
    assert [one.text for one in found.documents] == [TEXTS[1:][n] for n in np.argsort(-scores)]
    assert found.kind == "cosine"
    assert cloze.rerank(model, TEXTS[0], TEXTS[1:], top=2).documents == found.documents[:2]
    assert model.rerank(TEXTS[0], TEXTS[1:]) == found


def test_several_queries_share_documents_or_have_their_own():
    model = tiny_model()
    shared = cloze.rerank(model, TEXTS[:2], TEXTS[2:])
    own = cloze.rerank(model, TEXTS[:2], [TEXTS[2:], TEXTS[:1]])
    assert [one.query for one in shared] == TEXTS[:2]
    assert [one.index for one in own[0].documents] == [one.index for one in shared[0].documents]
    assert [one.text for one in own[1].documents] == TEXTS[:1]
    with raises(InputError, "2 queries", "1 list"):
        cloze.rerank(model, TEXTS[:2], [TEXTS])
    with raises(InputError, "documents", fix="list"):
        cloze.rerank(model, TEXTS[0], TEXTS[1])


def test_a_classifier_ranks_by_the_probability_of_a_label():
    model = tiny_model("sequence", labels=("no", "yes"), task=Task(name="classify"))
    found = cloze.rerank(model, "a b", TEXTS)
    scores = [cloze.classify(model, "a b", pair=text).scores["yes"] for text in TEXTS]
    assert found.kind == "probability"
    assert {one.index: one.score for one in found.documents} == pytest.approx(
        dict(enumerate(scores)), abs=1e-6
    )
    assert [one.score for one in found.documents] == sorted(
        (one.score for one in found.documents), reverse=True
    )
    other = cloze.rerank(model, "a b", TEXTS, label="no")
    assert [one.index for one in other.documents] == [one.index for one in found.documents][::-1]
    assert cloze.rerank(model, "a b", TEXTS, by="embeddings").kind == "cosine"
    with raises(ConfigError, "pooling", fix="pooling"):
        cloze.rerank(model, "a b", TEXTS, pooling="max")
    with raises(ConfigError, "label"):
        cloze.rerank(model, "a b", TEXTS, label="maybe")


def test_a_regression_model_ranks_by_its_number():
    model = tiny_model("sequence", labels=("score",), task=Task(name="classify"))
    model = replace(model, config=replace(model.config, problem_type="regression"))
    found = cloze.rerank(model, "a b", TEXTS)
    numbers = [cloze.classify(model, "a b", pair=text).score for text in TEXTS]
    assert found.kind == "number"
    assert [one.index for one in found.documents] == np.argsort(-np.array(numbers)).tolist()


def test_labels_that_do_not_say_what_fits_must_be_named():
    model = tiny_model("sequence", labels=("x", "y"), task=Task(name="classify"))
    with raises(InputError, "x, y", fix="label"):
        cloze.rerank(model, "a b", TEXTS)
    assert cloze.rerank(model, "a b", TEXTS, label="y").kind == "probability"
