"""A ModernBERT from raw text, and what becomes of it: fine-tuned, gone on with, not distilled."""

import pytest
import torch

import cloze
from cloze.errors import ConfigError
from cloze.make.finetune.dispatch import finetune
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.complete import recipe
from helpers import raises
from smallruns import SMALL, stories

MODERN = [
    *SMALL,
    "model.family=modernbert",
    "model.num_layers=3",
    "model.global_attention_every=3",
    "model.window_size=6",
]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return stories(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def made(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "m"
    pretrain(text, out, recipe(settings=MODERN))
    return out


def test_text_becomes_a_modernbert(made):
    model = cloze.load(made)
    assert not model.report
    assert model.task_heads == ("mlm",)
    config = model.config
    assert (
        config.family,
        config.num_layers,
        config.global_attention_every,
        config.window_size,
    ) == (
        "modernbert",
        3,
        3,
        6,
    )
    assert (config.intermediate_size, config.rope_theta, config.dropout) == (64, 10_000.0, 0.0)
    assert len(cloze.fill(model, "the [MASK] sat.", top=3).masks[0].predictions) == 3
    assert cloze.embed(model, ["the cat sat."]).shape == (1, 16)
    found = cloze.info(made)
    assert found.total_parameters == sum(weight.numel() for weight in model.module.parameters())
    assert (found.config["global_attention_every"], found.config["window_size"]) == (3, 6)


def test_it_is_fine_tuned_from_its_transform_on(made, tmp_path):
    rows = [f"the {word}.\t{label}" for word, label in [("cat sat", "a"), ("dog ran", "b")] * 12]
    data = tmp_path / "train.tsv"
    data.write_text("\n".join(rows) + "\n")
    finetune("classify", made, data, tmp_path / "ft", dev=data, settings=["run.epochs=1"])
    tuned, base = cloze.load(tmp_path / "ft"), cloze.load(made)
    assert tuned.task_heads == ("sequence",)
    # as in the published library, the layer before the heads goes on where masked words left it
    drift = (tuned.module.transform.dense.weight - base.module.transform.dense.weight).abs().max()
    assert 0 < drift < 0.01
    assert len(cloze.classify(tuned, ["the cat sat."])) == 1


def test_dropout_is_that_of_the_configuration():
    dropouts = ["model.dropout=0.2", "model.ffn_dropout=0.1", "model.attention_dropout=0.3"]
    config = recipe(settings=[*MODERN, *dropouts]).model.config
    assert (config.dropout, config.ffn_dropout, config.attention_dropout) == (0.2, 0.1, 0.3)
    assert recipe("bert-tiny").model.config.dropout == 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["sampling.pairs=nsp"], ("pairs", "nsp", "ModernBERT", "--pairs none")),
        (["model.family=gpt"], ("model.family", "gpt")),
        (["model.preset=giant"], ("model.preset", "giant")),
        (
            ["model.family=bert"],
            ("model.global_attention_every", "ModernBERT"),
        ),
    ],
)
def test_what_it_cannot_have(settings, message):
    with raises(ConfigError, message):
        recipe(settings=[*MODERN, *settings])


def test_a_bert_has_no_preset_of_ours():
    with raises(ConfigError, "model.preset", "cloze"):
        recipe(settings=["model.preset=cloze"])


def test_going_on_with_pairs_is_refused_before_any_work(made, text, tmp_path):
    asked = recipe(settings=[f"model.init_from={made}", "sampling.pairs=nsp", "run.steps=1"])
    with raises(ConfigError, "modernbert", "head", "pairs", fix="--pairs none"):
        pretrain(text, tmp_path / "m", asked)
    assert not (tmp_path / "m" / "corpus").exists()


def test_new_words_and_heads_are_grown(made):
    from cloze.make.extend_model import extend_model

    base = cloze.load(made)
    model = extend_model(
        base, base.tokenizer, ("token",), rng=torch.Generator(), labels=("a", "b", "c")
    )
    ids = torch.tensor([[2, 7, 8, 3]])
    assert torch.equal(model.module(ids), base.module(ids))
    assert model.module.logits("token", model.module(ids)).shape == (1, 4, 3)
