"""The parts by themselves."""

import pytest
import torch

from cloze.errors import ConfigError, InputError
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.distilbert import DistilBertConfig
from cloze.nn.attention import Attention
from cloze.nn.context import AttentionContext
from cloze.nn.layout import Packed, causal_mask, expand_mask
from cloze.nn.positions import compute_sinusoids
from helpers import raises


def test_causal_mask_lets_no_one_look_ahead():
    x = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    attention = Attention(8, 2).double().eval()
    changed = x.clone()
    changed[:, 3:] += 1.0
    context = AttentionContext(max_seqlen=6, device=x.device, is_causal=True)
    before, after = attention(x, context), attention(changed, context)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])


def test_a_mask_of_queries_and_keys_is_taken_as_it_is():
    rng = torch.Generator().manual_seed(0)
    module = build(
        BertConfig(vocab_size=20, hidden_size=8, num_layers=1, num_heads=2, intermediate_size=8),
        rng=rng,
    ).eval()
    ids = torch.arange(10)[None]
    left = module(ids, causal_mask(10)[None])
    assert torch.allclose(left[:, :4], module(ids[:, :4], causal_mask(4)[None]), atol=1e-6)


def test_a_mask_of_one_dimension_is_refused():
    with raises(InputError, "mask", "1", fix="(batch, keys)"):
        expand_mask(torch.ones(4))


def test_packed_runs_join_neighbours_of_equal_length():
    packed = Packed.from_lengths([3, 3, 1, 3])
    assert packed.runs == ((0, 2, 3), (6, 1, 1), (7, 1, 3))
    assert packed.starts.tolist() == [0, 3, 6, 7]
    assert packed.position_ids.tolist() == [0, 1, 2, 0, 1, 2, 0, 0, 1, 2]


def test_sinusoids_shift_is_linear():
    """PE(pos+k) is a rotation of PE(pos), the same for every pos (Vaswani et al. 2017, §3.5)."""
    table = compute_sinusoids(50, 16).double()
    here, there = table[:40], table[7:47]
    matrix = torch.linalg.lstsq(here, there).solution
    assert (here @ matrix - there).abs().max() < 1e-4


def test_too_long_a_sequence_names_the_policies():
    rng = torch.Generator().manual_seed(0)
    shape = {
        "vocab_size": 20,
        "hidden_size": 8,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_size": 8,
        "max_positions": 4,
    }
    module = build(BertConfig(**shape), rng=rng)
    with raises(InputError, "5 tokens", "4 positions", fix=("head", "tail", "head+tail", "window")):
        module(torch.zeros(1, 5, dtype=torch.long))


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
def test_a_configuration_is_checked_once(changes, message):
    with raises(ConfigError, message):
        BertConfig(**{"vocab_size": 30, "hidden_size": 8, "num_heads": 2, **changes})


def test_a_distilbert_has_its_own_epsilon():
    with raises(ConfigError, "1e-12"):
        DistilBertConfig(vocab_size=30, norm_eps=1e-5)


def test_an_unknown_preset_or_head_suggests_the_near_one():
    with raises(ConfigError, "tiny"):
        BertConfig.preset("tinny", vocab_size=30)
    config = BertConfig(vocab_size=30, hidden_size=8, num_heads=2, num_layers=1)
    with raises(ConfigError, "span"):
        build(config, ["spam"], rng=torch.Generator())


def test_a_sinusoidal_distilbert_starts_from_sines():
    config = DistilBertConfig(
        vocab_size=30, hidden_size=8, num_heads=2, num_layers=1, sinusoidal_positions=True
    )
    module = build(config, rng=torch.Generator())
    assert torch.equal(module.embeddings.position.weight, compute_sinusoids(512, 8))
