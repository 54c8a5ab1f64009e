"""ModernBERT: sizes, initial weights, local attention, pooling."""

import pytest
import torch

import cloze
from cloze.errors import ConfigError, InputError
from cloze.make.finetune.job import depth_of
from cloze.models.build import build, build_on_meta
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.nn.layout import Packed
from helpers import raises, scramble, tiny_model

SHAPE = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_layers": 4,
    "num_heads": 2,
    "intermediate_size": 24,
    "max_positions": 40,
}


def built(heads=(), seed=0, **changes):
    return built_of(ModernBertConfig(**{**SHAPE, **changes}), heads, seed)


def built_of(config, heads=(), seed=0):
    return build(config, heads, rng=torch.Generator().manual_seed(seed)).eval()


def some_ids(rows, length):
    return torch.randint(5, 30, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("name", "millions"), [("base", 149.0), ("large", 394.8), ("cloze", 24.6)])
def test_presets_have_the_published_sizes(name, millions):
    size = 30_522 if name == "cloze" else 50_368
    module = build_on_meta(ModernBertConfig.preset(name, vocab_size=size))
    count = sum(weight.numel() for weight in module.parameters()) / 1e6
    assert count == pytest.approx(millions, abs=0.1)


def test_small_presets_have_global_attention_only():
    for name in ModernBertConfig.PRESETS:
        config = ModernBertConfig.preset(name, vocab_size=30)
        width, hidden = config.hidden_size, config.intermediate_size
        far = not any(map(config.is_local, range(config.num_layers)))
        assert far == (name not in ("base", "large"))
        if far:  # as much work as a plain net of four times the width
            assert hidden % 32 == 0
            assert 0 <= hidden - 8 * width / 3 < 32
    changed = ModernBertConfig.preset("cloze", vocab_size=30, hidden_size=640, num_heads=10)
    assert changed.intermediate_size == 1728
    assert (
        ModernBertConfig.preset(
            "tiny", vocab_size=30, global_attention_every=2
        ).global_attention_every
        == 2
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_attention_every": 0}, ("global_attention_every", "0", "1")),
        ({"window_size": 0}, ("window_size", "0", "1")),
        ({"rope_theta": 0.5}, ("rope_theta", "0.5", "1")),
        ({"local_rope_theta": "big"}, ("local_rope_theta", "big")),
        ({"ffn_dropout": 2}, ("ffn_dropout", "2")),
        ({"classifier_dropout": -1}, ("classifier_dropout", "-1")),
        ({"norm_bias": 1}, ("norm_bias", "1")),
        ({"classifier_pooling": "max"}, ("classifier_pooling", "max", "mean")),
        ({"classifier_activation": "gelo"}, ("classifier_activation", "gelo")),
        (
            {"hidden_size": 6, "num_heads": 2},
            ("3", "even"),
        ),
    ],
)
def test_invalid_configurations_are_errors(changes, message):
    with raises(ConfigError, message):
        ModernBertConfig(**{**SHAPE, **changes})


def test_token_types_are_ignored():
    module, ids = built(), some_ids(2, 6)
    assert torch.equal(module(ids, None, torch.ones_like(ids)), module(ids))


def test_a_sequence_longer_than_max_positions_is_an_error():
    with raises(InputError, "41 tokens", "40 positions"):
        built()(some_ids(1, 41))


def test_local_layers_attend_within_their_window():
    """Two local layers with 2 positions on each side: tokens more than 4 away have no effect."""
    module = scramble(built(num_layers=3, global_attention_every=3, window_size=4, hidden_size=16))
    layers = {0: 0, 1: 2, 2: 4}
    ids = some_ids(1, 20)
    changed = ids.clone()
    changed[0, 10] = 4
    # the first layer is global, so look from its output on
    x, y = (list(module.hidden_states(row))[1] for row in (ids, ids))
    y = y.clone()
    y[0, 10] += 1.0
    context = module.make_context(ids, None)
    for layer in (1, 2):
        x, y = (module.blocks[layer](z, context) for z in (x, y))
        moved = (x != y).any(-1)[0].nonzero().flatten().tolist()
        assert moved == list(range(10 - layers[layer], 11 + layers[layer]))
    assert (module(ids) != module(changed)).any(-1).all()  # by the global layer everyone hears


def test_initial_residual_weights_are_scaled():
    shape = {
        "vocab_size": 30,
        "hidden_size": 128,
        "num_layers": 8,
        "num_heads": 2,
        "intermediate_size": 256,
    }
    module = built_of(ModernBertConfig(**shape))
    block = module.blocks[3]
    for weight, expected in (
        (block.attention.qkv.weight, 0.02),
        (block.attention.out.weight, 0.02 / 4),
        (block.ffn.up.weight, 0.02),
        (block.ffn.down.weight, 0.02 / 4),
        (module.embeddings.word.weight, 0.02),
    ):
        assert weight.std().item() == pytest.approx(expected, rel=0.05)


def test_the_depth_of_parameters():
    """0 the embeddings, k block k; the last norm, the transform and the heads above them all."""
    depths = {name: depth_of(name, 4) for name, _ in built(("mlm", "token")).named_parameters()}
    assert depths["embeddings.word.weight"] == depths["embeddings.norm.weight"] == 0
    assert depths["blocks.2.attention.qkv.weight"] == 3
    top = {name for name, depth in depths.items() if depth == 5}
    assert top >= {"norm.weight", "transform.dense.weight", "task_heads.mlm.bias"}


def test_without_biases():
    names = [name for name, _ in built(("mlm",), lm_head_bias=False).named_parameters()]
    assert not [name for name in names if "bias" in name]
    assert "blocks.0.attention_norm.weight" not in names  # the embeddings are normed just before


def test_an_unknown_head_is_an_error():
    with raises(ConfigError, "head", "nsp"):
        built(("nsp",))
    with raises(ConfigError, "head", "mlm"):
        built(("token",)).logits("mlm", torch.zeros(1, 16))


@pytest.mark.parametrize("layout", ["packed", "padded", "plain"])
def test_sequence_heads_with_mean_pooling(layout):
    module = scramble(built(("sequence", "token"), classifier_pooling="mean"))
    rows = [some_ids(1, length)[0] for length in (5, 5, 3)]
    alone = torch.stack([module(row[None])[0].mean(0) for row in rows])
    if layout == "packed":
        allowed = Packed.from_lengths(map(len, rows))
        hidden = module(torch.cat(rows), allowed)
    elif layout == "padded":
        allowed = torch.arange(5) < torch.tensor([5, 5, 3])[:, None]
        hidden = module(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), allowed)
    else:
        allowed, alone = None, alone[:2]
        hidden = module(torch.stack(rows[:2]))
    indices = torch.tensor([0, 5, 10][: len(alone)])
    ours = module.head_inputs("sequence", hidden, indices, allowed)
    torch.testing.assert_close(ours, alone, rtol=1e-5, atol=1e-5)
    # a head that reads tokens reads them
    tokens = module.head_inputs("token", hidden, indices, allowed)
    assert torch.equal(tokens, hidden.flatten(0, -2)[indices])


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_classify_uses_the_pooling_of_the_folder(pooling, tmp_path):
    from dataclasses import replace

    model = tiny_model("sequence", family="modernbert")
    config = replace(model.config, classifier_pooling=pooling)
    module = build(config, ("sequence",), rng=torch.Generator()).eval()
    module.load_state_dict(model.module.state_dict())
    opened = cloze.load(replace(model, module=module, config=config).save(tmp_path / "m"))
    assert opened.config.classifier_pooling == pooling
    texts = ["the cat sat.", "a b c d e f", "cat"]
    predicted = cloze.classify(opened, texts)
    for text, one in zip(texts, predicted, strict=True):
        hidden = module(torch.tensor(opened.tokenizer.encode_ids([text])))
        read = hidden[:, 0] if pooling == "cls" else hidden.mean(1)
        expected = module.logits("sequence", read).softmax(-1)[0]
        assert one.score == pytest.approx(expected.max().item(), abs=1e-5)


@pytest.mark.parametrize(
    "name", ["dropout", "attention_dropout", "ffn_dropout", "classifier_dropout"]
)
def test_each_dropout_is_active_in_training(name):
    module = scramble(built(("token",), **{name: 0.5})).train()
    ids = some_ids(2, 8)

    def scores():
        return module.logits("token", module(ids))

    assert not torch.equal(scores(), scores())
    module.eval()
    assert torch.equal(scores(), scores())


def test_attention_dropout_also_applies_to_the_output():
    """As in the published model, and not on the weights alone."""
    module = scramble(built(attention_dropout=1.0, attention_bias=True)).train()
    block, x = module.blocks[1], torch.ones(1, 3, 16)
    context = module.make_context(torch.zeros(1, 3, dtype=torch.long), None)
    assert torch.equal(block(x, context), x + block.ffn(block.ffn_norm(x)))


def test_training_uses_mean_pooling_like_inference():
    from cloze.data.labelled.batch import EncodedExample, collate_examples
    from cloze.objectives.labelled import make_classification_objective

    module = scramble(built(("sequence",), classifier_pooling="mean"))
    rows = [some_ids(1, length)[0].tolist() for length in (4, 4, 7)]
    groups = [
        [EncodedExample(ids=row, type_ids=[0] * len(row), targets=(n % 2,))]
        for n, row in enumerate(rows)
    ]
    loss = make_classification_objective("sequence")(module, collate_examples("x", groups), None)[
        "x"
    ]
    read = torch.stack([module(torch.tensor([row]))[0].mean(0) for row in rows])
    expected = torch.nn.functional.cross_entropy(
        module.logits("sequence", read), torch.tensor([0, 1, 0]), reduction="sum"
    )
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
