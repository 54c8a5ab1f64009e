"""The dtype that models are loaded in."""

import numpy as np
import pytest
import torch

import cloze
from cloze.decode.language import language_model
from cloze.decode.translators import pad_sequences
from cloze.errors import ConfigError, InputError
from cloze.text.joint_bpe import encode_sentences
from grams import TEXT, text_model
from helpers import raises, word_model
from languages import VARIETIES as LANGUAGE
from languages import neural_model
from translators import TEXTS, translator
from translators import VARIETIES as TRANSLATORS

HALVES = ["bf16", "float16"]
CLOSE = 0.05  # of scores up to 16, of which bfloat16 keeps 8 binary digits
WORDS = word_model(words=("a", "b"), vectors=np.eye(2, dtype=np.float32))


@pytest.mark.parametrize("variety", LANGUAGE)
@pytest.mark.parametrize("dtype", HALVES)
def test_language_models_in_half_precision(variety, dtype, tmp_path):
    folder = neural_model(variety).save(tmp_path / "m")
    whole, half = (cloze.load(folder, device="cpu", dtype=one) for one in ("float32", dtype))
    assert {one.dtype for one in whole.module.parameters()} == {torch.float32}
    assert {one.itemsize for one in half.module.parameters()} == {2}
    ours, theirs = (
        np.concatenate([*one.log_probs(one.encode_texts(TEXT))])
        for one in map(language_model, (half, whole))
    )
    assert ours.dtype == np.float32
    assert np.abs(ours - theirs).max() <= CLOSE
    told, right = (cloze.suggest(one, "the cat", top=3).suggestions for one in (half, whole))
    assert told[0].probability == pytest.approx(right[0].probability, abs=CLOSE)
    assert len(cloze.generate(half, "the", max_new_tokens=4, stop=False)[0].tokens) == 4
    score = cloze.evaluate(half, [TEXT]).scores["bits_per_byte"]
    assert score == pytest.approx(cloze.evaluate(whole, [TEXT]).scores["bits_per_byte"], abs=CLOSE)


@pytest.mark.parametrize("variety", TRANSLATORS)
@pytest.mark.parametrize("dtype", HALVES)
@torch.no_grad()
def test_translators_in_half_precision(variety, dtype, tmp_path):
    folder = translator(variety, scale=0.2).save(tmp_path / "m")
    whole, half = (cloze.load(folder, device="cpu", dtype=one) for one in ("float32", dtype))
    assert {one.itemsize for one in half.module.parameters()} == {2}
    source, real = pad_sequences(encode_sentences(whole.tokenizer, TEXTS[:6]), whole.device)
    first = torch.zeros(6, dtype=torch.long)
    ours, theirs = (
        one.module.step(first, one.module.init_state(source, real))[0] for one in (half, whole)
    )
    assert ours.dtype == torch.float32  # what is added up over a sentence
    assert (ours.exp() - theirs.exp()).abs().max() <= CLOSE
    found = cloze.translate(half, TEXTS[:3], beam=2, align=not variety.startswith("plain"))
    assert all(one.candidates for one in found)


def test_ngram_models_and_word_vectors_are_float32_only(tmp_path):
    folders = {
        "an n-gram model": text_model(2).save(tmp_path / "ngram"),
        "word vectors": WORDS.save(tmp_path / "words"),
    }
    arpa = cloze.export("arpa", text_model(2), tmp_path / "x.arpa")
    vectors = cloze.export("word2vec", WORDS, tmp_path / "x.txt")
    named = [*folders.items(), ("an n-gram model", arpa), ("word vectors", vectors)]
    for name, place in named:
        cloze.load(place, dtype="float32")
        with raises(InputError, name, "bfloat16", fix="float32"):
            cloze.load(place, dtype="bf16")


def test_an_unknown_dtype_is_an_error_for_all_models(tmp_path):
    for model in (neural_model("lstm"), translator("bahdanau"), text_model(2)):
        folder = model.save(tmp_path / model.family.name)
        with raises(ConfigError, "dtype", "nonsense"):
            cloze.load(folder, dtype="nonsense")
