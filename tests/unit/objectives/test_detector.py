"""A model with a generator: shared embeddings, and no change to the model itself."""

import pytest
import torch
from torch.nn import functional as F

from cloze.errors import ConfigError
from cloze.models.build import build
from cloze.models.registry import FAMILIES
from cloze.nn.layout import Packed
from cloze.objectives.detector import build_detector
from cloze.train.config import OptimizerConfig
from cloze.train.optim import build_optimizer
from helpers import raises, scramble

IDS = torch.tensor([2, 7, 8, 9, 3])


def encoder(family="modernbert", heads=("mlm",), **changes):
    shape = {
        "hidden_size": 16,
        "num_layers": 4,
        "num_heads": 4,
        "intermediate_size": 32,
        "max_positions": 16,
    } | changes
    config = FAMILIES[family].config_class(vocab_size=30, **shape)
    return build(config, heads, rng=torch.Generator().manual_seed(0))


def made(family="modernbert", layers=2, width=None, seed=1, **changes):
    model = encoder(family, **changes)
    return build_detector(
        model, num_layers=layers, hidden_size=width, rng=torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
@pytest.mark.parametrize("width", [None, 8])
def test_the_shared_embeddings_have_the_gradients_of_both_models(family, width):
    both = made(family, width=width)
    table = both.model.embeddings.word.weight
    assert both.generator.embeddings.word.weight is table
    tables = [weight for weight in both.parameters() if weight.shape[0] == 30 and weight.ndim == 2]
    assert [id(weight) for weight in tables] == [id(table)]
    row = Packed.from_lengths([5])
    vectors, scored, bias = both.generator.lm_head_operands(both.generator(IDS, row))
    assert scored is table
    assert (vectors.shape, bias.shape) == ((5, 16), (30,))
    (vectors @ scored.T).logsumexp(-1).sum().backward()
    assert table.grad.abs().sum() > 0
    assert all(weight.grad is None for weight in both.model.blocks.parameters())
    assert len(both.generator.blocks) == 2
    assert both.generator.blocks[0].attention.qkv.in_features == (width or 16)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_the_head_has_a_logit_for_every_vector(family):
    both = scramble(made(family))
    vectors = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    part = both.transform
    inner = F.gelu(F.linear(vectors, part.dense.weight, part.dense.bias))
    inner = F.layer_norm(inner, (16,), part.norm.weight, part.norm.bias, part.norm.eps)
    by_hand = inner @ both.head.weight[0] + both.head.bias
    torch.testing.assert_close(both.discriminator_logits(vectors), by_hand)


def test_the_heads_of_a_modernbert_share_one_transform():
    both = made()
    assert both.transform is both.model.transform
    plain = made("bert")
    own = {id(weight) for weight in plain.transform.parameters()}
    assert own.isdisjoint(id(weight) for weight in plain.model.parameters())


def test_the_model_itself_is_unchanged():
    model = encoder()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    build_detector(model, num_layers=1, hidden_size=8, rng=torch.Generator())
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_new_weights_depend_on_rng_alone():
    torch.manual_seed(0)
    outside = torch.random.get_rng_state()
    first, same, other = (made(width=8, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), outside)
    assert all(torch.equal(first[name], same[name]) for name in first)
    for name in (
        "head.weight",
        "generator.embeddings.narrow.weight",
        "generator.transform.dense.weight",
    ):
        assert not torch.equal(first[name], other[name])


@pytest.mark.parametrize(("layers", "expected"), [(4, 1), (12, 3), (2, 1)])
def test_by_default_the_generator_has_a_quarter_of_the_layers(layers, expected):
    both = build_detector(
        encoder(num_layers=layers), num_layers=None, hidden_size=None, rng=torch.Generator()
    )
    assert len(both.generator.blocks) == expected


def test_a_smaller_generator_keeps_the_head_size():
    config = made(width=8).generator.config
    assert (config.hidden_size, config.num_heads, config.intermediate_size, config.num_layers) == (
        8,
        2,
        16,
        2,
    )


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_layers": 0}, ("generator_num_layers", "0", "1", "4")),
        ({"num_layers": 5}, ("generator_num_layers", "5", "1", "4")),
        ({"hidden_size": 32}, ("generator_hidden_size", "32", "4", "16")),
        ({"hidden_size": 2}, ("generator_hidden_size", "2", "4", "16")),
        ({"hidden_size": 10}, ("generator_hidden_size", "10", "4")),
    ],
)
def test_invalid_generator_sizes_are_rejected(sizes, message):
    with raises(ConfigError, message):
        build_detector(
            encoder(), **({"num_layers": 1, "hidden_size": None} | sizes), rng=torch.Generator()
        )


@pytest.mark.parametrize("width", [None, 8])
def test_matrices_of_both_models_blocks_go_to_muon(width):
    both = made(width=width)
    groups = build_optimizer(both, OptimizerConfig(name="muon", lr=0.02)).param_groups
    parts = {id(weight): group["parts"] for group in groups for weight in group["params"]}
    named = dict(both.named_parameters())
    assert sum(len(group["params"]) for group in groups) == len(named)
    for name, weight in named.items():
        joined = {"qkv.weight": 3, "up.weight": 2}.get(".".join(name.split(".")[-2:]), 1)
        inside = name.startswith(("model.blocks.", "generator.blocks.")) and weight.ndim == 2
        assert parts[id(weight)] == (joined if inside else 0), name
