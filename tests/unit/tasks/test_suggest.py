"""`suggest`: next words and how an n-gram model came to them."""

import math

import numpy as np
import pytest

import cloze
from cloze.decode.language import language_model
from cloze.errors import ConfigError, InputError
from grams import text_model
from helpers import raises, tiny_model


@pytest.fixture(scope="module")
def model():
    return text_model(3)


def test_likeliest_first_and_all_of_them_sum_to_one(model):
    found = cloze.suggest(model, "the cat", top=model.config.vocab_size)
    scores = [one.probability for one in found.suggestions]
    assert scores == sorted(scores, reverse=True)
    assert math.fsum(scores) + found.unk_probability == pytest.approx(1, abs=1e-6)
    words = {one.word for one in found.suggestions}
    assert words == set(language_model(model).vocabulary) - {"<s>", "<unk>"}


def test_what_follows_thou_shalt():
    lines = ["thou shalt not kill", "thou shalt not steal", "thou shalt love", "we shalt not"]
    best = cloze.suggest(text_model(3, lines), "thou shalt").suggestions[0]
    assert (best.word, best.order) == ("not", 3)
    assert [asked.context for asked in best.backoff_path] == [("thou", "shalt")]


def test_the_path_is_a_product(model):
    for one in cloze.suggest(model, "dog slept", top=10).suggestions:
        assert math.prod(a.weight for a in one.backoff_path) == pytest.approx(
            one.probability, rel=1e-5
        )
        assert one.order == len(one.backoff_path[-1].context) + 1
        assert [len(a.context) for a in one.backoff_path] == sorted(
            (len(a.context) for a in one.backoff_path), reverse=True
        )


def test_a_blank_text_begins_a_sentence(model):
    (best, *_) = cloze.suggest(model, "").suggestions
    assert best.word == "the"
    assert best.backoff_path[0].context == ("<s>",)


def test_several_texts(model):
    texts = ["the", "a dog"]
    assert cloze.suggest(model, texts, top=2) == [cloze.suggest(model, t, top=2) for t in texts]


class Net:
    """Any other language model: no <unk>, no path."""

    vocabulary = ("<s>", "no", "yes")
    unk_id = None

    def encode_prompt(self, _text):
        return [0]

    def decode_token(self, id):
        return self.vocabulary[id]

    def next_log_probs(self, _context):
        return np.log(np.array([1e-9, 0.25, 0.75], dtype=np.float32))


def test_any_language_model_will_do():
    found = cloze.suggest(Net(), "really", top=2)
    assert [(one.word, one.backoff_path, one.order) for one in found.suggestions] == [
        ("yes", (), None),
        ("no", (), None),
    ]
    assert found.unk_probability == 0


def test_what_is_no_language_model():
    with raises(InputError, "next", fix="objective.kind=causal"):
        cloze.suggest(tiny_model("mlm"), "the")


@pytest.mark.parametrize("top", [0, 1000])
def test_top_out_of_range(model, top):
    with raises(ConfigError, "top", top, fix=("1", model.config.vocab_size)):
        cloze.suggest(model, "the", top=top)
