"""Folders of NNLMs and LSTMs."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch

import cloze
from cloze.decode.language import language_model
from cloze.errors import FolderError, InputError
from cloze.models.configs.ngram import BOS, EOS
from cloze.text.tokenizer_training import train_tokenizer
from grams import TEXT, text_model
from helpers import raises
from languages import VARIETIES, neural_model
from translators import translator


@pytest.mark.parametrize("variety", VARIETIES)
def test_saved_and_loaded(variety, tmp_path):
    model = neural_model(variety)
    opened = cloze.load(model.save(tmp_path / "model"), device="cpu")
    assert opened.config == model.config
    one, other = language_model(opened), language_model(model)
    assert one.vocabulary == other.vocabulary
    context = one.encode_prompt("the cat sat")
    both = zip(opened.module.parameters(), model.module.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in both)
    assert np.allclose(one.next_log_probs(context), other.next_log_probs(context), atol=1e-5)


@pytest.mark.parametrize("variety", VARIETIES)
def test_the_scores_of_a_text_are_those_of_its_next_tokens(variety):
    model = language_model(neural_model(variety))
    (sequence,) = model.encode_texts(["the cat sat on the mat"])
    assert sequence[-1] == EOS == model.eos_id
    assert sequence[0] == (BOS if variety in ("nnlm", "direct") else EOS)
    (found,) = model.log_probs([sequence])
    for at in range(1, len(sequence)):
        wanted = model.next_log_probs(sequence[:at])[sequence[at]]
        assert found[at - 1] == pytest.approx(wanted, abs=1e-5)


def test_an_nnlm_scores_texts_independently_and_an_lstm_keeps_its_state():
    lines = ["the cat sat", "a dog slept on the mat"]
    for variety, alone in (("nnlm", True), ("lstm", False)):
        model = language_model(neural_model(variety))
        both = list(model.log_probs(model.encode_texts(lines)))
        (second,) = model.log_probs(model.encode_texts(lines[1:]))
        assert np.allclose(both[1], second, atol=1e-6) == alone
        whole = [*model.encode_texts(lines)[0], *model.encode_texts(lines)[1][1:]]
        if not alone:
            assert np.allclose(np.concatenate(both), *model.log_probs([whole]), atol=1e-5)
        assert not list(model.log_probs([]))


@torch.inference_mode()
def test_an_lstm_keeps_its_state_through_a_long_text(monkeypatch):
    monkeypatch.setattr("cloze.decode.neural._LSTM_SLICE", 1100)
    model = language_model(neural_model("lstm"))
    sequences = model.encode_texts(TEXT * 100)  # more than are computed at once
    state, wanted = model.module.init_state(1), []
    for sequence in sequences:
        for word, then in pairwise(sequence):
            logs, state = model.module.step(torch.tensor([word]), state)
            wanted.append(logs[0, then])
    found = list(model.log_probs(iter(sequences)))
    assert [len(one) for one in found] == [len(one) - 1 for one in sequences]
    assert np.allclose(np.concatenate(found), torch.stack(wanted), atol=1e-4)


def test_subwords_represent_any_text():
    tokenizer = train_tokenizer(TEXT, kind="bpe", vocab_size=280)
    model = language_model(neural_model("lstm", tokenizer))
    ids = model.encode_prompt("a zebra Café 猫")[1:]
    assert model.unk_id not in ids
    assert model.decode(ids) == "a zebra Café 猫"


def test_unknown_words_stay_unknown():
    model = language_model(neural_model("nnlm"))
    assert model.decode(model.encode_prompt("the aardvark sat")) == "the <unk> sat"
    assert model.decode_token(model.encode_prompt("cat")[-1]) == "cat"


def _changed(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format_version": 9}, ("config.json", "format_version", "9")),
        ({"vocab_size": 99}, ("13", "config.json", "99")),
        ({"hidden_size": 11}, "hidden.weight"),
        ({"order": "x"}, ("config.json", "order", "x")),
        ({"order": 1}, ("config.json", "order", "1")),
        ({"direct_connections": True}, ("config.json", "direct.weight")),
    ],
)
def test_inconsistent_folders(changes, said, tmp_path):
    model = neural_model("nnlm")
    folder = model.save(tmp_path / "model")
    _changed(folder, **changes)
    with raises(FolderError, said):
        cloze.load(folder)


def test_a_missing_setting(tmp_path):
    folder = neural_model("lstm").save(tmp_path / "model")
    values = json.loads((folder / "config.json").read_text())
    del values["vocab_size"]
    (folder / "config.json").write_text(json.dumps(values))
    with raises(FolderError, "config.json", "vocab_size"):
        cloze.load(folder)


def test_errors_of_other_functions_list_the_capabilities(tmp_path):
    folder = text_model(2).save(tmp_path / "ngram")
    with raises(InputError, "n-gram", "encoder", fix=("suggest", "generate", "evaluate")):
        cloze.load(folder, kind="encoder")
    for model in (neural_model("nnlm"), neural_model("lstm")):
        for verb in (cloze.fill, cloze.classify, cloze.tag):
            with raises(InputError, verb.__name__):
                verb(model, "a")
    with raises(InputError, "embed"):
        cloze.embed(neural_model("nnlm"), "a")
    with raises(InputError, "translator", "generate"):
        cloze.generate(translator("transformer"), "a")


def test_weights_with_nan_or_infinite_values(tmp_path):
    model = neural_model("lstm")
    name, weight = next(iter(model.module.named_parameters()))
    with torch.no_grad():
        weight.view(-1)[0] = float("nan")
    with raises(FolderError, name, "model.safetensors"):
        cloze.load(model.save(tmp_path / "lstm"))
