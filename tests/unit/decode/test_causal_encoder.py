"""A causal BERT as a language model: `suggest`, `generate`, perplexity."""

import math

import numpy as np
import pytest
import torch

import cloze
from cloze.decode.language import language_model
from cloze.errors import InputError, TruncationWarning
from cloze.metrics.perplexity import score_language_model
from helpers import PIECES, SPECIAL, raises, tiny_model

LONG = "a b c the cats sat . a , j i h g f e d"


@pytest.fixture(scope="module")
def model():
    # with rows that no piece has
    return tiny_model("mlm", positions=9, is_causal=True, vocab_size=len(PIECES) + 2)


def log_p(model, context, id_):
    """As the module says it."""
    with torch.no_grad():
        vectors = model.module(torch.tensor([context]))
        return model.module.logits("mlm", vectors[0, -1]).log_softmax(-1)[id_].item()


def test_every_piece_is_told_from_those_before_it(model):
    language = language_model(model)
    sequences = language.encode_texts(["the cats sat", "", "a"])
    assert sequences[0] == model.tokenizer.encode("the cats sat").ids
    for ids, found in zip(sequences, language.log_probs(sequences), strict=True):
        expected = [log_p(model, ids[:at], ids[at]) for at in range(1, len(ids))]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert language.next_log_probs(ids[:-1])[ids[-1]] == pytest.approx(found[-1], abs=1e-5)


def test_of_a_long_text_as_much_is_read_as_there_are_positions(model):
    """Nine, [CLS] among them."""
    language = language_model(model)
    context = language.encode_prompt(LONG)
    wanted = log_p(model, [context[0], *context[-8:]], 7)
    assert language.next_log_probs(context)[7] == pytest.approx(wanted, abs=1e-5)


def test_long_prompt_is_truncated_with_one_warning_or_an_error(model):
    read = " ".join(LONG.split()[-8:])
    left_out = len(LONG.removesuffix(read).strip())
    with pytest.warns(TruncationWarning) as told:
        suggested = cloze.suggest(model, [LONG, "a"], top=3)
    assert len(told) == 1
    assert f"{left_out} characters" in str(told[0].message)
    assert told[0].filename == __file__
    assert [one.truncated_chars for one in suggested] == [left_out, 0]
    probabilities = [one.probability for one in suggested[0].suggestions]
    expected = [one.probability for one in cloze.suggest(model, read, top=3).suggestions]
    assert probabilities == pytest.approx(expected, rel=1e-4)
    with pytest.warns(TruncationWarning):
        made = cloze.generate(model, LONG, max_new_tokens=2)
    assert made.to_dict()["truncated_chars"] == left_out
    assert cloze.generate(model, LONG, max_new_tokens=2, truncation="tail") == made
    for function in (cloze.suggest, cloze.generate):
        with raises(InputError, "text 2", "9", fix="tail"):
            function(model, ["a", LONG], truncation="error")


def test_words_are_suggested(model):
    found = cloze.suggest(model, "the cat", top=len(PIECES))
    words = {one.word for one in found.suggestions}
    assert words == {*PIECES[len(SPECIAL) :], "[SEP]"}
    total = sum(one.probability for one in found.suggestions) + found.unk_probability
    assert 0.5 < total < 1
    best = found.suggestions[0]
    ids = model.tokenizer.encode("the cat").ids[:-1]
    assert math.log(best.probability) == pytest.approx(log_p(model, ids, best.id), abs=1e-5)
    assert best.backoff_path == ()


def test_a_text_goes_on_beyond_the_positions(model):
    found = cloze.generate(model, "the cat", max_new_tokens=20, samples=3, stop=False, seed=3)
    for one in found:
        assert len(one.tokens) == 20
        assert not {"[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]"} & set(one.tokens)
        assert "##" not in one.continuation
        assert one.full_text.startswith("the cat")
    (alone,) = cloze.generate(model, "the cat", max_new_tokens=20, stop=False, seed=3)
    assert alone.tokens == found[0].tokens
    assert alone.log_probability == pytest.approx(found[0].log_probability, abs=1e-4)


def test_a_piece_joins_the_word_it_goes_on_with(model):
    language = language_model(model)
    ids = language.encode_prompt("the cat")
    assert (
        language.decode([*ids, model.tokenizer.token_to_id("##s"), language.eos_id]) == "the cats"
    )


def test_its_perplexity(model):
    texts = ["the cats sat.", LONG]
    language = language_model(model)
    told = np.concatenate(list(language.log_probs(language.encode_texts(texts))))
    found = score_language_model(language, texts)
    assert found.tokens == len(told)
    assert found.perplexity == pytest.approx(math.exp(-told.mean()), rel=1e-5)


def test_one_that_classifies_says_no_words():
    model = tiny_model("sequence", is_causal=True)
    with raises(InputError, "head", "sequence", fix="--family ngram"):
        cloze.suggest(model, "the cat")
