"""A causal BERT: attention, inputs of the heads, folders."""

import json

import pytest
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.checkpoint.task import FeatureSettings
from cloze.data.labelled.batch import EncodedExample
from cloze.errors import ConfigError, InputError
from cloze.interpret.capture import capture
from cloze.make.distill.student import build_student
from cloze.make.extend_model import extend_model
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.nn.attention import Attention
from cloze.nn.context import AttentionContext
from cloze.nn.layout import Packed
from cloze.tasks.features import extract_features
from helpers import PIECES, raises, scramble, tiny_tokenizer

SHAPE = {
    "vocab_size": len(PIECES),
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 32,
}
CONFIG = BertConfig(**SHAPE, max_positions=12, is_causal=True)


def built(*heads, config=CONFIG):
    module = scramble(build(config, heads, rng=torch.Generator())).eval()
    return Model(module=module, config=config, tokenizer=tiny_tokenizer())


def some_ids(*shape):
    return torch.randint(5, len(PIECES), shape, generator=torch.Generator().manual_seed(1))


def test_attention_weights_are_zero_for_later_tokens():
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    for allowed in (mask, None):
        module = built().module
        with capture(module, Attention) as seen:
            module(some_ids(2, 6), allowed)
        assert len(seen) == 2
        for weights in seen:
            real = weights[:, :, :4]  # what padding sees is no one's concern
            assert (real.triu(1) == 0).all()
            torch.testing.assert_close(real.sum(-1), torch.ones(2, 2, 4))


def test_a_mask_of_queries_is_combined_with_the_causal_mask():
    """Two texts in one row, separated by a mask."""
    ids, module = some_ids(1, 7), built().module
    apart = torch.block_diag(torch.ones(3, 3), torch.ones(4, 4))[None]
    both = module(ids, apart)
    torch.testing.assert_close(both[:, :3], module(ids[:, :3]), rtol=1e-4, atol=1e-5)
    before = module(ids, apart.tril())
    torch.testing.assert_close(both, before, rtol=0, atol=0)


def test_a_window_is_combined_with_a_causal_mask():
    for layout in (Packed.from_lengths([5]), None):
        context = AttentionContext(layout, max_seqlen=5, device=torch.device("cpu"), is_causal=True)
        expected = torch.ones(5, 5).tril().triu(-2).bool()
        assert torch.equal(context.attn_mask(4), expected)
        assert torch.equal(context.run_mask(5, 4), expected)
        assert torch.equal(context.run_mask(3), torch.ones(3, 3).tril().bool())


@pytest.mark.parametrize("head", ["sequence", "choice"])
def test_pooled_heads_read_the_last_token(head):
    module = built(head).module
    lengths, ids = (3, 5, 1), some_ids(9)
    packed = Packed.from_lengths(lengths)
    hidden = module(ids, packed)
    read = module.head_inputs(head, hidden, packed.starts, packed)
    assert torch.equal(read, hidden[[2, 7, 8]])
    real = torch.arange(5) < torch.tensor(lengths)[:, None]
    rows = torch.zeros(3, 5, dtype=torch.long)
    rows[real] = ids
    firsts = torch.arange(0, 15, 5)
    padded = module.head_inputs(head, module(rows, real), firsts, real)
    torch.testing.assert_close(padded, read, rtol=1e-4, atol=1e-5)
    whole = module(rows)
    assert torch.equal(module.head_inputs(head, whole, firsts, None), whole[:, -1])


def test_token_heads_read_every_token():
    module = built("token").module
    hidden, indices = module(some_ids(2, 4)), torch.tensor([1, 6])
    read = module.head_inputs("token", hidden, indices, None)
    assert torch.equal(read, hidden.flatten(0, 1)[indices])


def test_is_causal_is_saved_and_loaded(tmp_path):
    model = built("mlm")
    opened = cloze.load(model.save(tmp_path / "m"))
    assert opened.config == CONFIG
    assert not opened.report
    assert opened.module.is_causal
    assert json.loads((tmp_path / "m" / "config.json").read_text())["is_decoder"] is True
    texts = ["the cat sat", "a b c d e"]
    assert (cloze.embed(opened, texts) == cloze.embed(model, texts)).all()
    described = cloze.info(tmp_path / "m")
    assert described.config["attention"] == "causal"
    assert "fill" not in described.capabilities
    assert {"suggest", "generate"} <= described.capabilities.keys()


@pytest.mark.parametrize("said", [None, False])
def test_other_berts_are_not_causal(said, tmp_path):
    config = BertConfig(**SHAPE, max_positions=12)
    folder = built("mlm", config=config).save(tmp_path / "m")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"is_decoder": said}))
    assert cloze.load(folder).config == config
    assert "fill" in cloze.info(folder).capabilities
    assert "attention" not in cloze.info(folder).config


def test_an_extended_model_stays_causal():
    model = extend_model(built("mlm"), tiny_tokenizer(), ["sequence"], rng=torch.Generator())
    assert model.config.is_causal
    assert model.module.is_causal


def test_fill_is_an_error():
    with raises(InputError, "causal", fix="mask"):
        cloze.fill(built("mlm"), "the [MASK] sat")


def test_cls_pooling_is_an_error():
    items = [EncodedExample(ids=(2, 6, 3), type_ids=(0, 0, 0), positions=(0,))]
    for ask in (
        lambda: cloze.embed(built(), ["a b"], pooling="cls"),
        lambda: extract_features(
            built(), items, FeatureSettings(input_size=16), pooled=True, batch_tokens=64
        ),
    ):
        with raises(InputError, "causal", fix=("mean", "max")):
            ask()
    settings = FeatureSettings(input_size=16, pooling="mean")
    found = extract_features(built(), items, settings, pooled=True, batch_tokens=64)
    (vector,) = found.vectors
    assert vector.shape == (1, 16)
    assert cloze.embed(built(), ["a b"]).shape == (1, 16)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_distillation_is_an_error(family):
    with raises(ConfigError, "teacher"):
        build_student(built("mlm"), family=family)
