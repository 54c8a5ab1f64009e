"""The old and new settings of ModernBERT, and unsupported values."""

import json

import pytest

import cloze
from cloze.errors import ConfigError
from cloze.interop.encoders import MODERNBERT
from cloze.models.configs.modernbert import ModernBertConfig
from helpers import files_of, raises, tiny_model

FULL, SLIDING = "full_attention", "sliding_attention"
BARE = {"model_type": "modernbert", "architectures": ["ModernBertModel"], "vocab_size": 30}


def read(**changes):
    return MODERNBERT.read_config({**BARE, **changes})


def test_defaults_are_those_of_the_published_model():
    assert read().config == ModernBertConfig(vocab_size=30)
    assert not read().ignored


def test_settings_without_effect_are_not_reported():
    assert not read(sparse_prediction=True, reference_compile=None, cls_token_id=1).ignored
    assert read(favourite_colour="blue").ignored == ("favourite_colour",)


@pytest.mark.parametrize(
    ("kinds", "every"),
    [
        ([FULL], 1),
        ([FULL] * 4, 1),
        ([FULL, SLIDING, FULL, SLIDING], 2),
        ([FULL, SLIDING, SLIDING, FULL, SLIDING], 3),
        ([FULL, SLIDING, SLIDING], 3),
    ],
)
def test_layer_types(kinds, every):
    layers = len(kinds)
    assert read(layer_types=kinds, num_hidden_layers=layers).config.global_attention_every == every
    # the new spelling has the last word, unless both say the same
    both = {"layer_types": kinds, "num_hidden_layers": layers}
    assert read(**both, global_attn_every_n_layers=77).config.is_local(0) is False
    written = MODERNBERT.write_config(read(**both).config, ())
    assert written["layer_types"] == kinds
    assert written["global_attn_every_n_layers"] == every


def test_a_period_longer_than_the_model_is_kept():
    kinds = [FULL, SLIDING]
    config = ModernBertConfig(vocab_size=30, num_layers=2, global_attention_every=7)
    written = MODERNBERT.write_config(config, ())
    assert written["layer_types"] == kinds
    assert MODERNBERT.read_config(written).config == config


@pytest.mark.parametrize(
    "kinds",
    [[SLIDING, FULL], [FULL, FULL, SLIDING], [FULL], ["dense", FULL], "all", [[FULL], FULL]],
)
def test_unsupported_layer_types(kinds):
    layers = 3 if kinds == [FULL, FULL, SLIDING] else 2
    with raises(ConfigError, "layer_types"):
        read(layer_types=kinds, num_hidden_layers=layers)


def test_old_and_new_rope_settings():
    old = read(global_rope_theta=1000.0, local_rope_theta=100.0).config
    new = read(rope_parameters={FULL: {"rope_theta": 1000.0}, SLIDING: {"rope_theta": 100.0}})
    assert (old.rope_theta, old.local_rope_theta) == (1000.0, 100.0)
    assert new.config == old
    half = read(rope_parameters={FULL: {"rope_theta": 1000.0}, SLIDING: None}).config
    assert (half.rope_theta, half.local_rope_theta) == (1000.0, 10_000.0)
    # the older library read "no local theta" as the global one
    assert read(global_rope_theta=1000.0, local_rope_theta=None).config.local_rope_theta == 1000.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
        (
            {"rope_parameters": {FULL: {"rope_type": "yarn", "factor": 2.0}}},
            "rope_parameters",
        ),
        (
            {"rope_parameters": {FULL: {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}},
            "rope_parameters",
        ),
        ({"rope_parameters": [1e4]}, "rope_parameters"),
        ({"rope_parameters": {FULL: 1e4}}, "rope_parameters"),
        ({"norm_bias": "no"}, ("norm_bias", "no")),
        ({"classifier_pooling": "max"}, ("pooling", "max")),
        ({"layer_types": [FULL], "num_hidden_layers": "x"}, ("num_hidden_layers", "x")),
    ],
)
def test_unsupported_rope_settings(changes, message):
    with raises(ConfigError, message):
        read(**changes)


def test_special_token_ids_are_written(tmp_path):
    folder = tiny_model("mlm", family="modernbert").save(tmp_path / "m")
    assert "vocab.txt" in files_of(folder)
    said = json.loads((folder / "config.json").read_text())
    names = ("cls_token_id", "bos_token_id", "sep_token_id", "eos_token_id", "pad_token_id")
    assert [said[name] for name in names] == [2, 2, 3, 3, 0]


def test_a_folder_without_architectures(tmp_path):
    folder = tiny_model("mlm", family="modernbert").save(tmp_path / "m")
    file = folder / "config.json"
    said = json.loads(file.read_text())
    del said["architectures"]
    file.write_text(json.dumps(said))
    assert cloze.load(folder).task_heads == ("mlm",)


def test_a_base_model_has_no_prefix(tmp_path):
    from safetensors.torch import load_file

    folder = tiny_model(family="modernbert").save(tmp_path / "m")
    names = set(load_file(folder / "model.safetensors"))
    assert {"embeddings.tok_embeddings.weight", "layers.1.attn.Wqkv.weight"} < names
    assert not cloze.load(folder).report
