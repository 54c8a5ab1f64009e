"""`score` and `score_pairs`: log-probabilities of texts, and minimal pairs."""

import json
import math
from functools import partial

import numpy as np
import pytest
import torch

import cloze
from cloze.decode.language import language_model
from cloze.errors import ConfigError, InputError
from cloze.tasks.pseudo_likelihood import mask_tokens
from grams import text_model
from helpers import PIECES, raises, tiny_model
from languages import VARIETIES, neural_model

CAUSAL = {
    "ngram": partial(text_model, 3),
    **{name: partial(neural_model, name) for name in VARIETIES},
    "bert": partial(tiny_model, "mlm", is_causal=True),
}
TEXTS = ["the cat sat on the mat", "", "a dog", "the unseen cat sat", "the"]


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_model_scores_each_token_given_those_before_it(name):
    model = language_model(CAUSAL[name]())
    for text, found in zip(TEXTS, cloze.score(model, iter(TEXTS)), strict=True):
        (ids,) = model.encode_texts([text])
        expected = [model.next_log_probs(ids[:n])[ids[n]] for n in range(1, len(ids))]
        assert found.text == text
        assert [one.id for one in found.tokens] == ids[1:]
        np.testing.assert_allclose(
            [one.log_probability for one in found.tokens], expected, atol=1e-5
        )
        assert found.log_probability == pytest.approx(sum(expected), abs=1e-4)
        assert found.perplexity == pytest.approx(math.exp(-np.mean(expected)), rel=1e-4)
        assert found.unknown == ids.count(model.unk_id)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_text_does_not_depend_on_the_others(name):
    model = CAUSAL[name]()
    together = cloze.score(model, TEXTS * 3)
    for text, found in zip(TEXTS * 3, together, strict=True):
        alone = cloze.score(model, text)
        assert [one.id for one in found.tokens] == [one.id for one in alone.tokens]
        assert found.log_probability == pytest.approx(alone.log_probability, abs=1e-4)


def test_a_long_text_is_read_in_slices(monkeypatch):
    model, text = neural_model("lstm"), "the cat sat on the mat " * 20
    expected = cloze.score(model, text).log_probability
    monkeypatch.setattr("cloze.decode.neural._LSTM_SLICE", 50)
    found = cloze.score(model, ["the cat", text, "a dog"])
    assert found[1].log_probability == pytest.approx(expected, rel=1e-5)
    assert [len(one.tokens) for one in found] == [3, 121, 3]


def test_without_the_end():
    with_end, without = (cloze.score(text_model(3), "the cat", include_eos=eos) for eos in (1, 0))
    assert with_end.tokens[:-1] == without.tokens
    assert with_end.tokens[-1].token == "</s>"
    empty = cloze.score(text_model(3), "", include_eos=False)
    assert (empty.tokens, empty.log_probability) == ((), 0.0)
    assert math.isnan(empty.perplexity)


@pytest.mark.parametrize("batch_tokens", [1, 30, None])
def test_a_masked_model_predicts_each_token_from_all_others(batch_tokens):
    model = tiny_model("mlm")
    texts = ["the cats sat", "", "a b c", "the cat, the cat."]
    found = cloze.score(model, iter(texts), batch_tokens=batch_tokens)
    for text, ours in zip(texts, found, strict=True):
        ids = model.tokenizer.encode(text).ids
        expected = []
        for position in range(1, len(ids) - 1):
            masked = torch.tensor([ids])
            masked[0, position] = model.tokenizer.mask_id
            with torch.no_grad():
                logits = model.module.logits("mlm", model.module(masked)[0, position])
            expected.append(logits.log_softmax(-1)[ids[position]].item())
        assert [one.id for one in ours.tokens] == ids[1:-1]
        assert [one.log_probability for one in ours.tokens] == pytest.approx(expected, abs=1e-5)


def test_later_tokens_of_a_word_are_masked():
    model = tiny_model("mlm")
    tokenizer = model.tokenizer
    options = {"mask_id": tokenizer.mask_id, "limit": 24}

    def masked(whole_words):
        copies = mask_tokens(0, tokenizer.encode("the cats"), **options, whole_words=whole_words)
        return [[tokenizer.id_to_token(id_) for id_ in copy.ids[1:-1]] for copy in copies]

    single = [["[MASK]", "cat", "##s"], ["the", "[MASK]", "##s"], ["the", "cat", "[MASK]"]]
    assert masked(False) == single
    assert masked(True) == [single[0], ["the", "[MASK]", "[MASK]"], single[2]]


def test_a_long_text_is_read_around_each_token():
    model = tiny_model("mlm", positions=7)
    text = "a b c d e f g h i j"
    found = cloze.score(model, text)
    assert len(found.tokens) == 10
    copies = list(
        mask_tokens(
            0, model.tokenizer.encode(text), model.tokenizer.mask_id, limit=7, whole_words=False
        )
    )
    shown = [" ".join(PIECES[id_] for id_ in copy.ids) for copy in copies]
    assert shown[0] == "[CLS] [MASK] b c d e [SEP]"
    assert shown[5] == "[CLS] d e [MASK] g h [SEP]"
    assert shown[9] == "[CLS] f g h i [MASK] [SEP]"
    assert all(copy.ids[copy.position] == model.tokenizer.mask_id for copy in copies)


def test_the_json_object():
    found = cloze.score(text_model(3), "the cat").to_dict()
    assert list(found) == [
        *("text", "tokens", "log_probability", "mean_log_probability", "perplexity", "unknown")
    ]
    assert list(found["tokens"][0]) == ["token", "id", "log_probability"]
    json.dumps(found)


def test_what_cannot_be_scored():
    with raises(InputError, "head", "sequence", fix=("masked", "classify")):
        cloze.score(tiny_model("sequence"), "a")
    with raises(InputError, "mask", "text 2", fix="fill"):
        cloze.score(tiny_model("mlm"), ["a", "a [MASK]"])
    with raises(InputError, "pll_metric", fix="leave"):
        cloze.score(text_model(2), "a", pll_metric="original")
    with raises(ConfigError, "pll_metric", "sideways"):
        cloze.score(tiny_model("mlm"), "a", pll_metric="sideways")


PAIRS = [("the cat sat on the mat", "the mat on sat"), ("dog a", "a dog"), ("the", "the")]


def test_minimal_pairs():
    model = text_model(3)
    found = cloze.score_pairs(model, PAIRS)
    for (good, bad), pair in zip(PAIRS, found.pairs, strict=True):
        assert (pair.good, pair.bad) == (good, bad)
        assert pair.good_score == cloze.score(model, good).log_probability
        assert pair.difference == pair.good_score - cloze.score(model, bad).log_probability
        assert pair.is_correct == (pair.difference > 0)
    assert not found.pairs[2].is_correct  # equal scores
    assert found.accuracy.value == np.mean([pair.is_correct for pair in found.pairs])
    assert 0 <= found.accuracy.low <= found.accuracy.value <= found.accuracy.high <= 1
    assert found.to_dict()["pairs"][1]["difference"] == found.pairs[1].difference
    mean = cloze.score_pairs(model, PAIRS, reduction="mean")
    assert mean.pairs[0].good_score == cloze.score(model, PAIRS[0][0]).mean_log_probability
    assert cloze.score_pairs(model, PAIRS, seed=0) == found


def test_minimal_pairs_of_a_file(tmp_path):
    model = tiny_model("mlm")
    file = tmp_path / "blimp.jsonl"
    rows = [{"UID": "x", "sentence_bad": bad, "sentence_good": good} for good, bad in PAIRS]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = cloze.score_pairs(model, PAIRS)
    assert cloze.score_pairs(model, file) == expected
    assert cloze.score_pairs(model, [str(file)]) == expected
    assert cloze.score_pairs(model, rows) == expected


def test_what_is_no_minimal_pair():
    model = text_model(2)
    with raises(InputError, "no minimal pairs"):
        cloze.score_pairs(model, [])
    with raises(InputError, "pair 2", fix="tuples"):
        cloze.score_pairs(model, [("a", "b"), ("a", "b", "c")])
    with raises(ConfigError, "reduction", "max"):
        cloze.score_pairs(model, PAIRS, reduction="max")
