"""The tokens that views show are those that the model reads."""

import pytest

import cloze
from cloze.decode.config import BeamConfig
from cloze.decode.language import language_model
from cloze.errors import InputError
from cloze.tasks.explain.inputs import encode_input, show_token
from cloze.tasks.source_to_target import make_translator, search_targets
from grams import text_model
from helpers import raises, tiny_model
from languages import elmo_model, neural_model
from recurrent import recurrent_encoder
from translators import translator


def test_an_encoder_reads_its_special_tokens_and_pairs():
    model = tiny_model("sequence")
    found = encode_input(model, "the cats", "a b")
    expected = model.tokenizer.encode("the cats", "a b")
    assert found.ids == expected.ids
    assert found.tokens == ["[CLS]", "the", "cat", "##s", "[SEP]", "a", "b", "[SEP]"]
    assert found.type_ids == expected.type_ids
    assert found.offsets[1:4] == [(0, 3), (4, 7), (7, 8)]
    assert found.words.words == [None, 0, 1, 1, None, 0, 1, None]
    assert (found.text, found.pair, found.target, found.note) == ("the cats", "a b", None, "")


@pytest.mark.parametrize(
    "make",
    [
        text_model,
        neural_model,
        lambda: neural_model("lstm"),
        elmo_model,
        lambda: tiny_model("lm", family="gpt2"),
        lambda: tiny_model("mlm", is_causal=True),
    ],
    ids=["ngram", "nnlm", "lstm", "elmo", "gpt2", "causal-bert"],
)
def test_a_language_model_reads_what_suggest_reads(make):
    model = make()
    text = "the cat sat the cat zebras"
    found = encode_input(model, text)
    prompt = language_model(model).encode_prompt(text)
    assert found.ids[-len(prompt) :] == prompt
    assert len(found.tokens) == len(found.ids) == len(found.offsets) == len(found.words)
    for token, (start, end) in zip(found.tokens, found.offsets, strict=True):
        if start < end and not token.startswith(("##", "[UNK]", "<unk>")):
            assert text[start:end] == token


def test_the_end_of_a_prompt_that_is_too_long_is_read():
    for model in (tiny_model("lm", family="gpt2", positions=8), tiny_model("mlm", positions=8)):
        text = "the cat sat . the cat a b c d e f"
        with pytest.warns(UserWarning, match="maximum of 8"):
            found = encode_input(model, text)
        assert len(found) == 8
        assert found.truncated_chars > 0
        assert str(found.truncated_chars) in found.note
        assert found.tokens[-1] == ("f" if model.family.name == "gpt2" else "[SEP]")


def test_a_recurrent_encoder_reads_its_tokens():
    model = recurrent_encoder()
    assert encode_input(model, "the cat").ids == model.tokenizer.encode("the cat").ids


@pytest.mark.parametrize("variety", ["transformer", "bahdanau"])
def test_a_translator_has_a_target(variety):
    model = translator(variety)
    found = encode_input(model, "ein Hund läuft")
    assert found.ids[-1] == model.tokenizer.eos_id
    assert found.tokens[:3] == ["ein", "Hund", "läuft"]
    assert found.target is not None
    search = make_translator(model)
    options = {"max_target_length": lambda ids: 2 * len(ids) + 10, "batch_tokens": 100}
    (best,) = search_targets(search, {0: found.ids}, BeamConfig(beam=1), **options)[0]
    assert found.target.ids == [*best.tokens, *([search.eos_id] if best.finished else [])]
    assert found.target.text == cloze.translate(model, "ein Hund läuft", beam=1).text
    assert len(found.target.tokens) == len(found.target.words) == len(found.target)
    given = encode_input(model, "ein Hund", target_text="die Katze .")
    assert given.target is not None
    assert "".join(given.target.tokens[:-1]) == "dieKatze."
    assert given.target.ids[-1] == model.tokenizer.eos_id
    assert given.target.offsets[0] == (0, 3)


def test_tokens_are_shown_without_signs_for_spaces():
    tokenizer = translator("transformer").tokenizer
    encoded = tokenizer.encode(" ein Café 猫")
    shown = [show_token(token, tokenizer) for token in encoded.tokens]
    assert shown[0] == "ein"
    assert not any("Ġ" in token for token in shown)
    assert "é" in "".join(shown)
    assert show_token("##s", tiny_model().tokenizer) == "##s"


def test_mistakes_are_named():
    with raises(InputError, "target", fix="translator"):
        encode_input(tiny_model("mlm"), "the cat", target_text="a")
    with raises(InputError, "pair", fix="join"):
        encode_input(translator("transformer"), "ein Hund", "die Katze")
    with raises(InputError, "target text", "empty"):
        encode_input(translator("transformer"), "ein Hund", target_text=" ")
