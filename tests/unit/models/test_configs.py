"""Configurations of BERT and DistilBERT: presets, checks, suggestions."""

import pytest
import torch

from cloze.errors import ConfigError
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.distilbert import DistilBertConfig
from cloze.nn.positions import compute_sinusoids
from helpers import raises


@pytest.mark.parametrize("name", BertConfig.PRESETS)
def test_presets_have_the_published_sizes(name):
    millions = {
        "tiny": 4.4,
        "mini": 11.2,
        "small": 28.8,
        "medium": 41.4,
        "base": 109.5,
        "large": 335.1,
    }
    with torch.device("meta"):
        from cloze.models.bert import Bert

        module = Bert(BertConfig.preset(name, vocab_size=30522))
    count = sum(weight.numel() for weight in module.parameters()) / 1e6
    assert count == pytest.approx(millions[name], abs=0.06)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"hidden_size": 10, "num_heads": 3},
            ("10", "3"),
        ),
        ({"num_layers": 0}, ("num_layers", "0", "1", "512")),
        ({"num_layers": 10**9}, ("num_layers", "1000000000")),
        ({"num_layers": True}, "num_layers"),
        ({"vocab_size": "30522"}, ("vocab_size", "30522")),
        ({"dropout": 1.5}, ("dropout", "1.5", "0", "1")),
        ({"dropout": float("nan")}, ("dropout", "nan")),
        ({"activation": "gelo"}, ("activation", "gelo", "gelu")),
        ({"pad_id": 99}, ("pad_id", "99")),
        ({"labels": ()}, "0"),
        ({"type_vocab_size": 0}, ("type_vocab_size", "0")),
        ({"classifier_dropout": -1}, ("classifier_dropout", "-1")),
        ({"problem_type": "rank"}, ("problem_type", "rank")),
    ],
)
def test_invalid_configurations_are_errors(changes, message):
    with raises(ConfigError, message):
        BertConfig(**{"vocab_size": 30, "hidden_size": 8, "num_heads": 2, **changes})


def test_the_epsilon_of_distilbert_is_fixed():
    with raises(ConfigError, "1e-12"):
        DistilBertConfig(vocab_size=30, norm_eps=1e-5)


def test_errors_for_unknown_presets_and_heads_suggest_a_name():
    with raises(ConfigError, "tiny"):
        BertConfig.preset("tinny", vocab_size=30)
    config = BertConfig(vocab_size=30, hidden_size=8, num_heads=2, num_layers=1)
    with raises(ConfigError, "span"):
        build(config, ["spam"], rng=torch.Generator())


def test_positions_of_distilbert_start_as_sinusoids():
    config = DistilBertConfig(
        vocab_size=30, hidden_size=8, num_heads=2, num_layers=1, sinusoidal_positions=True
    )
    module = build(config, rng=torch.Generator())
    assert torch.equal(module.embeddings.position.weight, compute_sinusoids(512, 8))
