"""`generate`: texts that go on."""

import math

import pytest

import cloze
from cloze.decode.continuation import ContinuationText
from cloze.decode.language import language_model
from cloze.errors import ConfigError, InputError
from cloze.text.tokenizer_training import train_tokenizer
from grams import TEXT, text_model
from helpers import raises, tiny_model
from languages import VARIETIES, neural_model

MODELS = {"ngram": lambda: text_model(3)} | {
    name: (lambda name=name: neural_model(name)) for name in VARIETIES
}


@pytest.mark.parametrize("name", MODELS)
def test_a_text_goes_on(name):
    model = MODELS[name]()
    (one,) = cloze.generate(model, "the cat", max_new_tokens=6, stop=False)
    assert len(one.tokens) == 6
    assert not one.finished
    assert one.full_text == "the cat " + " ".join(one.tokens)
    again = cloze.generate(model, "the cat", max_new_tokens=6, stop=False, samples=3)
    assert again[0].tokens == one.tokens
    assert again[0].log_probability == pytest.approx(one.log_probability, abs=1e-5)
    assert len({each.continuation for each in again}) > 1
    assert "<unk>" not in {token for each in again for token in each.tokens}
    assert cloze.generate(model, ["the cat"], max_new_tokens=6, stop=False)[0].continuations == (
        one,
    )


@pytest.mark.parametrize("name", MODELS)
def test_greedy_takes_what_suggest_shows_first(name):
    model = MODELS[name]()
    (one,) = cloze.generate(model, "a dog", max_new_tokens=4, temperature=0.0, stop=False)
    text, total = "a dog", 0.0
    for token in one.tokens:
        top = cloze.suggest(model, text, top=3).suggestions
        best = next(each for each in top if each.word != "</s>")
        assert token == best.word
        total += math.log(best.probability)
        text += f" {token}"
    assert one.log_probability == pytest.approx(total, abs=1e-4)


def test_the_end_of_a_sentence_ends_it():
    model = text_model(3)
    found = cloze.generate(model, "the dog slept", samples=20, max_new_tokens=30)
    assert any(one.finished for one in found)
    assert all("</s>" not in one.tokens for one in found)
    assert any(one.finished and one.full_text == "the dog slept" for one in found)


def test_nothing_begins_a_sentence():
    (one,) = cloze.generate(text_model(3), "", temperature=0.0, max_new_tokens=3)
    assert one.full_text.startswith("the ")
    (one,) = cloze.generate(text_model(3), "the cat ", temperature=0.0, max_new_tokens=2)
    assert one.full_text.startswith("the cat ")
    assert "  " not in one.full_text


def test_pieces_know_whether_a_space_is_theirs():
    model = language_model(neural_model("lstm", train_tokenizer(TEXT, kind="bpe", vocab_size=290)))
    context = model.encode_prompt("the cat")
    for more in (" mat", "s and", " 猫"):
        ids = model.encode_prompt(f"the cat{more}")
        assert ids[: len(context)] == context
        assert ContinuationText(model, "the cat", context).decode(ids[len(context) :]) == more


def test_what_is_wrong():
    model = text_model(2)
    with raises(ConfigError, "max_new_tokens", "0"):
        cloze.generate(model, "the", max_new_tokens=0)
    with raises(ConfigError, "samples", "0"):
        cloze.generate(model, "the", samples=0)
    with raises(InputError, "next", fix="objective.kind=causal"):
        cloze.generate(tiny_model("mlm"), "the")
