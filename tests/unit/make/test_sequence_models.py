"""Going on from a language model or a translator: its weights, its words and its shape."""

from dataclasses import replace

import pytest
import torch

import cloze
from cloze.errors import ConfigError, InputError
from grams import TEXT, text_model
from helpers import Watch, raises, tiny_model
from languages import elmo_model, neural_model
from translators import TEXTS, translator

STILL = ["optimizer.lr=1e-12", "optimizer.weight_decay=0.0"]  # so that a step moves nothing
KINDS = {
    "nnlm": lambda: neural_model("nnlm"),
    "lstm": lambda: neural_model("lstm"),
    "elmo": elmo_model,
    "transformer": lambda: translator("transformer"),
    "seq2seq": lambda: translator("bahdanau"),
}


@pytest.fixture(params=KINDS)
def base(request, tmp_path):
    return KINDS[request.param]().save(tmp_path / "base")


def on(base, out, *settings, **options):
    """A run that goes on with new text, by the door of its kind."""
    if cloze.load(base).config.family in ("nnlm", "lstm", "elmo"):
        start, small = f'model.init_from="{base}"', ["run.batch_size=4", "run.bptt_length=5"]
        lines = [[*TEXT, "a word it never saw"]]
        return cloze.pretrain(lines, out, settings=[start, *small, *settings], **options)
    return cloze.finetune("translate", base, (TEXTS, TEXTS), out, settings=settings, **options)


def weights(folder):
    return cloze.load(folder, device="cpu").module.state_dict()


def test_it_begins_with_the_weights_and_keeps_words_and_shape(base, tmp_path):
    ended = on(base, tmp_path / "on", "run.steps=1", *STILL)
    assert ended.steps == 1
    before, after = weights(base), weights(tmp_path / "on")
    for name, weight in before.items():
        torch.testing.assert_close(after[name], weight, rtol=0, atol=1e-6)
    old, new = cloze.load(base), cloze.load(tmp_path / "on")
    length = getattr(new.config, "max_trained_length", None)  # of the new text
    kept = {} if length is None else {"max_trained_length": length}
    assert new.config == replace(old.config, **kept)
    assert new.tokenizer.encode_ids(["a new word"]) == old.tokenizer.encode_ids(["a new word"])
    assert new.tokenizer.vocab_size == old.tokenizer.vocab_size
    on(base, tmp_path / "further", "run.steps=3", "optimizer.lr=0.01")
    assert any(
        not torch.equal(before[name], one) for name, one in weights(tmp_path / "further").items()
    )


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_such_a_run_that_stopped_goes_on_exactly(kind, tmp_path):
    base = KINDS[kind]().save(tmp_path / "base")
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")

    def trained(out, **options):
        settings = ["run.steps=5", "run.save_every=1", "optimizer.lr=0.01"]
        if kind == "lstm":
            settings += [f'model.init_from="{base}"', "run.batch_size=4", "run.bptt_length=5"]
            return cloze.pretrain(files[0], out, settings=settings, **options)
        return cloze.finetune("translate", base, files, out, settings=settings, **options)

    straight = trained(tmp_path / "straight")
    trained(tmp_path / "cut", callbacks=[Watch(stop_at=2)])
    resumed = cloze.resume(tmp_path / "cut")
    assert (straight.steps, resumed.steps) == (5, 5)
    one, other = weights(tmp_path / "straight"), weights(tmp_path / "cut")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_the_model_brings_is_not_asked_for(base, tmp_path):
    for setting in ("model.dropout=0.5", "vocabulary.size=300"):
        with raises(ConfigError, setting.split("=")[0]):
            on(base, tmp_path / "on", "run.steps=1", setting)
    with raises(InputError, "--out"):
        on(base, base, "run.steps=1", force=True)
    assert weights(base)


def test_models_that_cannot_go_on_say_why(tmp_path):
    grams = text_model().save(tmp_path / "ngram")
    for options in ({}, {"family": "ngram"}):
        with raises(ConfigError, "n-gram"):
            cloze.pretrain(
                [TEXT], tmp_path / "x", settings=[f'model.init_from="{grams}"'], **options
            )
    pairs = translator("transformer").save(tmp_path / "mt")
    with raises(ConfigError, "translator", fix="translate"):
        cloze.pretrain([TEXT], tmp_path / "x", settings=[f'model.init_from="{pairs}"'])
    lstm = neural_model("lstm").save(tmp_path / "lstm")
    with raises(ConfigError, "recipe", "nnlm", "recurrent"):
        cloze.pretrain([TEXT], tmp_path / "x", "nnlm", settings=[f'model.init_from="{lstm}"'])
    bert = tiny_model("mlm").save(tmp_path / "bert")
    for model in (bert, lstm):
        with raises(InputError, "translator"):
            cloze.finetune("translate", model, (TEXTS, TEXTS), tmp_path / "x")
    with raises(InputError, "folder", "Translator"):
        cloze.finetune("translate", translator("transformer"), (TEXTS, TEXTS), tmp_path / "x")
    assert not (tmp_path / "x").exists()
