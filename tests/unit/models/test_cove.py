"""The encoders of translators as sources of contextual vectors (CoVe)."""

import numpy as np
import pytest
import torch

import cloze
from cloze.decode.translators import pad_sequences
from cloze.errors import InputError
from cloze.text.joint_bpe import encode_sentences
from helpers import raises
from translators import TEXTS, translator

VARIETIES = ["transformer", "pre-norm", "learned", "separate", "bahdanau", "one-way", "plain-lstm"]
SENTENCES = ["ein Hund läuft", "die Katze", "der Hund und die Katze !", "猫"]


@pytest.mark.parametrize("variety", VARIETIES)
def test_the_last_layer_is_what_the_decoder_attends_to(variety):
    model = translator(variety)
    ids = encode_sentences(model.tokenizer, SENTENCES)
    source, real = pad_sequences(ids, model.device)
    with torch.inference_mode():
        if hasattr(model.module, "encode"):
            states = model.module.encode(source, real)
        else:
            states = model.module.init_state(source, real).encoder_states
    vectors = cloze.embed(model, SENTENCES, pooling="none")
    for row, one, tokens in zip(states, vectors, ids, strict=True):
        assert one.encoding.ids == tokens[:-1]  # without the end token
        np.testing.assert_allclose(one.vectors, row[: len(tokens) - 1], atol=1e-5)
    means = [one.vectors.mean(0) for one in vectors]
    np.testing.assert_allclose(cloze.embed(model, SENTENCES), means, atol=1e-5)
    assert vectors[0].encoding.offsets[0][0] == 0


def test_layers_one_and_two(tmp_path):
    model = translator("plain-lstm")  # embeddings of 8, layers of 16
    sizes = [cloze.embed(model, "ein Hund", layers=layer).shape[0] for layer in ("0", "1", "2")]
    assert sizes == [8, 16, 16]
    both = cloze.embed(model, SENTENCES, layers="1,2")
    one, two = (cloze.embed(model, SENTENCES, layers=layer) for layer in (1, 2))
    np.testing.assert_allclose(both, np.concatenate([one, two], -1), atol=1e-6)
    assert np.abs(one - two).max() > 1e-3
    with raises(InputError, "layer 0 has 8", fix="concatenate"):
        tune(model, tmp_path / "run", layers="scalar-mix")


def tune(model, out, **options):
    rows = [(text, "dog" if "Hund" in text else "none") for text in TEXTS]
    return cloze.finetune(
        "classify", model, rows, out, recipe="features", dev=rows, progress=False, **options
    )


@pytest.mark.parametrize("variety", ["transformer", "bahdanau"])
def test_a_classifier_on_the_encoder(variety, tmp_path):
    model = translator(variety)
    run = tune(model, tmp_path / "run", settings={"transfer.l2_penalty": 0.01})
    assert run.score > 0.9
    found = cloze.classify(tmp_path / "run", TEXTS)
    right = [(one.label == "dog") == ("Hund" in one.text) for one in found]
    assert np.mean(right) == pytest.approx(run.score)
    assert cloze.load(tmp_path / "run").labels == ("dog", "none")
    text = "ein Hund"
    assert cloze.translate(tmp_path / "run", text).text == cloze.translate(model, text).text
