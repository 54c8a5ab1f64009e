"""Fine-tuning of causal models: input transformations and the auxiliary LM loss."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import processors

import cloze
from cloze.data.labelled.batch import EncodedExample, collate_examples
from cloze.data.labelled.examples import TextExample
from cloze.errors import ConfigError, InputError
from cloze.make.glue import adapt_recipe
from cloze.make.recipe.complete import recipe
from cloze.metrics.glue import GLUE
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.gpt import GPT2Config, GPTConfig
from cloze.objectives.core import DeviceBatch
from cloze.objectives.labelled import make_classification_objective, make_regression_objective
from cloze.text.input_tokens import DELIMITER, EXTRACT, START, add_input_tokens
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer
from helpers import Watch, raises, tiny_model
from tunings import metrics, picks, questions, tagged, texts, tune, weights

WORDS = ["a b c d e f g h", "the cat sat on a mat", "yes no maybe"] * 30


@pytest.fixture(scope="module")
def plain():
    """A byte-level BPE tokenizer, which adds no special tokens."""
    return train_tokenizer(WORDS, kind="bpe", vocab_size=290, lowercase=False)


def base(kind, tokenizer, heads=("lm",), **changes):
    shape = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "max_positions": 48}
    config = kind(
        vocab_size=tokenizer.vocab_size,
        intermediate_size=64,
        init_std=0.1,
        **shape,
        **changes,
    )
    rng = torch.Generator().manual_seed(0)
    return cloze.checkpoint.model.Model.from_config(config, tokenizer, heads, rng=rng)


def pairs(count, seed=0):
    """The label says whether the first words of the two texts are equal."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        one, two = (" ".join(rng.choice(list("bcdef"), 2)) for _ in range(2))
        same = bool(rng.integers(2))
        label = "same" if same else "other"
        found.append(TextExample(text=one, pair=one if same else two, label=label))
    return found


def test_the_tokens_around_texts(plain):
    framed = add_input_tokens(plain)
    assert framed.vocab_size == plain.vocab_size + 3
    assert framed.encode("a b").tokens[0] == START
    assert framed.encode("a b").tokens[-1] == EXTRACT
    pair = framed.encode("a b", "c d")
    (middle,) = (n for n, token in enumerate(pair.tokens) if token == DELIMITER)
    assert [pair.sequence_ids[n] for n in (0, middle - 1, middle, middle + 1, -1)] == [
        *(None, 0, None, 1, None)
    ]
    assert framed.decode(pair.ids) == "a bc d"
    assert add_input_tokens(framed) is framed
    bert = tiny_model("sequence").tokenizer
    assert add_input_tokens(bert) is bert  # [CLS] and [SEP] are such tokens
    ideographs = train_tokenizer(["天地玄黄"] * 9, kind="bpe", vocab_size=260)
    assert add_input_tokens(ideographs).encode("天").tokens[0] == START
    short = framed.encode("a b c d e f", "a b c", max_length=8, truncation="head")
    assert len(short) == 8
    assert (short.tokens[0], short.tokens[-1]) == (START, EXTRACT)


def test_a_byte_level_step_of_a_published_tokenizer_is_kept(plain, tmp_path):
    plain.backend.post_processor = processors.ByteLevel(trim_offsets=True)
    plain.save(tmp_path / "t")
    framed = add_input_tokens(Tokenizer.load(tmp_path / "t"))
    framed.save(tmp_path / "framed")
    again = Tokenizer.load(tmp_path / "framed")
    encoded = again.encode("the cat", "sat")
    assert encoded.ids == framed.encode("the cat", "sat").ids
    assert (encoded.tokens[0], encoded.tokens[-1]) == (START, EXTRACT)
    words = [encoded.offsets[n] for n in encoded.token_range()]
    assert words[0][0] == 0
    assert (4, 7) in words or all(end <= 7 for _, end in words)  # without the space before it


@pytest.mark.parametrize("kind", [GPTConfig, GPT2Config])
def test_a_classifier_reads_the_extract_token(kind, plain, tmp_path):
    started = base(kind, plain)
    tune(started, tmp_path / "m", "run.steps=2", "run.eval_every=2", dev=texts(8))
    model = cloze.load(tmp_path / "m")
    assert model.tokenizer.encode("a").tokens[-1] == EXTRACT
    assert model.config.vocab_size == plain.vocab_size + 3
    old, new = (weights(one)["embeddings.word.weight"] for one in (started, model))
    assert new.isfinite().all()
    assert new[-3:].abs().min() > 0
    assert json.loads((tmp_path / "m/cloze.json").read_text())["transformation"] == "entailment"
    assert model.task_heads == ("sequence",)
    assert len(old) + 3 == len(new)
    together = cloze.classify(model, ["a b", "c", "d e f"])
    alone = [cloze.classify(model, text) for text in ("a b", "c", "d e f")]
    assert [one.score for one in together] == pytest.approx([one.score for one in alone], abs=1e-6)


@pytest.mark.parametrize("kind", [GPTConfig, GPT2Config, BertConfig])
def test_similarity_does_not_depend_on_the_order(kind, plain, tmp_path):
    causal = {"is_causal": True} if kind is BertConfig else {}
    tokenizer = tiny_model("mlm").tokenizer if causal else plain
    started = base(kind, tokenizer, ("mlm",) if causal else ("lm",), **causal)
    asked = ("data.transformation=similarity", "run.steps=3", "run.eval_every=3")
    tune(started, tmp_path / "m", *asked, train=pairs(24), dev=pairs(8, 1))
    model = cloze.load(tmp_path / "m")
    assert model.task.is_symmetric
    one, other = cloze.classify(model, ["b c", "d"], ["d e f", "e e e c"])
    back = cloze.classify(model, "d e f", "b c")
    assert one.scores == pytest.approx(back.scores, abs=1e-6)
    plainly = replace(model, task=replace(model.task, transformation="entailment"))
    assert cloze.classify(plainly, "b c", "d e f").scores != pytest.approx(
        cloze.classify(plainly, "d e f", "b c").scores, abs=1e-6
    )
    # by hand: the last vectors of both orders, added
    total = 0
    for first, second in (("b c", "d e f"), ("d e f", "b c")):
        encoded = model.tokenizer.encode(first, second)
        hidden = model.module(torch.tensor([encoded.ids]), None, torch.tensor([encoded.type_ids]))
        total = total + hidden[:, -1]
    scores = model.module.logits("sequence", total).softmax(-1)[0].tolist()
    assert [one.scores[label] for label in model.labels] == pytest.approx(scores, abs=1e-6)
    assert other.pair == "e e e c"
    with raises(InputError, "similarity", "window", fix="head"):
        cloze.classify(model, "b", "c", truncation="window")


def test_similarity_learns_numbers(plain, tmp_path):
    rows = [
        TextExample(text=one.text, pair=one.pair, label=float(one.label == "same"))
        for one in pairs(24)
    ]
    asked = ("data.transformation=similarity", "run.steps=2", "run.eval_every=2")
    tune(base(GPT2Config, plain), tmp_path / "m", *asked, train=rows, dev=rows)
    model = cloze.load(tmp_path / "m")
    one, other = cloze.classify(model, ["b", "c c"], ["c c", "b"])
    assert one.score == pytest.approx(other.score, abs=1e-5)
    assert cloze.evaluate(model, rows).scores.keys() >= {"pearson"}


def test_what_similarity_cannot_be(plain, tmp_path):
    with raises(ConfigError, "similarity", "choose", fix="--transformation"):
        tune(base(GPT2Config, plain), tmp_path / "a", "data.transformation=similarity",
             task="choose", train=picks(8), dev=picks(8))  # fmt: skip
    with raises(InputError, "similarity", fix="--pair-column"):
        tune(base(GPT2Config, plain), tmp_path / "b", "data.transformation=similarity")
    with raises(ConfigError, "data.transformation", "features", fix="--transformation"):
        tune(base(GPT2Config, plain), tmp_path / "c", "data.transformation=similarity",
             "transfer.kind=features", train=pairs(8), dev=pairs(8))  # fmt: skip


def test_texts_without_tokens_around_them(plain, tmp_path):
    asked = ("data.transformation=none", "run.steps=1", "run.eval_every=1")
    tune(base(GPT2Config, plain), tmp_path / "m", *asked)
    model = cloze.load(tmp_path / "m")
    assert model.tokenizer.vocab_size == plain.vocab_size


@pytest.mark.parametrize("kind", [GPTConfig, GPT2Config])
@pytest.mark.parametrize(
    ("task", "data"), [("choose", picks), ("tag", tagged), ("answer", questions)]
)
def test_other_tasks(kind, task, data, plain, tmp_path):
    tune(base(kind, plain), tmp_path / "m", "run.steps=2", "run.eval_every=2", task=task,
         train=data(8), dev=data(4))  # fmt: skip
    model = cloze.load(tmp_path / "m")
    assert task in model.capabilities
    evaluated = cloze.evaluate(model, data(4))
    assert evaluated.count == 4
    if task == "choose":
        assert model.task_heads == ("choice", "lm")  # the class of transformers has both
        assert "generate" in model.capabilities
        assert sum(cloze.choose(model, "the cat", ["a", "b"]).scores) == pytest.approx(1)


def test_multiple_choice_is_learned(plain, tmp_path):
    done = tune(base(GPT2Config, plain), tmp_path / "m", "run.epochs=6.0", task="choose",
                train=picks(120), dev=picks(30, 1))  # fmt: skip
    assert done.score > 0.8


def two_rows(model, *, swapped=False):
    rng = np.random.default_rng(0)

    def row(length, **more):
        ids = rng.integers(5, 20, length).tolist()
        return EncodedExample(ids=ids, type_ids=[0] * length, **more)

    firsts = [row(length, targets=(length % 2,)) for length in (3, 7, 5)]
    groups = [[one, row(len(one.ids))] if swapped else [one] for one in firsts]
    return collate_examples("classify", groups, has_lm=True)


@pytest.mark.parametrize("padded", [False, True])
def test_the_auxiliary_loss(padded):
    """L₃ = L₂ + λ·L₁, with the next tokens of each sequence as the targets of L₁."""
    model = tiny_model("sequence", "lm", family="gpt2")
    batch = two_rows(model)
    assert batch.counts == {"classify": 3, "lm": 2 + 6 + 4}
    given = DeviceBatch.from_batch(torch.device("cpu"), batch) if padded else batch
    objective = make_classification_objective("sequence", lm_weight=0.25)
    terms = objective(model.module, given, None)
    expected, borders = 0.0, np.split(batch.input_ids, batch.starts[1:-1])
    for ids in map(torch.from_numpy, borders):
        logits = model.module.logits("lm", model.module(ids[None]))[0]
        expected = expected + torch.nn.functional.cross_entropy(
            logits[:-1], ids[1:], reduction="sum"
        )
    torch.testing.assert_close(terms["lm"], expected, rtol=1e-5, atol=1e-5)
    weight = model.module.embeddings.position.weight
    (got,) = torch.autograd.grad(terms["lm"], weight)
    (full,) = torch.autograd.grad(expected, weight)
    torch.testing.assert_close(got, 0.25 * full, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [make_classification_objective, make_regression_objective])
def test_padded_groups_equal_packed_ones(make):
    labels = ("x",) if make is make_regression_objective else ("no", "yes")
    model = tiny_model("sequence", "lm", family="gpt2", labels=labels)
    batch = two_rows(model, swapped=True)
    objective = make("sequence", lm_weight=0.5)
    device = torch.device("cpu")
    packed, padded = (
        objective(model.module, one, None) for one in (batch, DeviceBatch.from_batch(device, batch))
    )
    for name in packed:
        torch.testing.assert_close(packed[name], padded[name], rtol=1e-5, atol=1e-5)
    parts = [objective(model.module, part, None) for part in batch.split(2)]
    torch.testing.assert_close(sum(one["classify"] for one in parts), packed["classify"])


def test_the_weight_of_the_auxiliary_loss(plain, tmp_path):
    few = ("run.steps=1", "run.eval_every=1")
    tune(base(GPTConfig, plain), tmp_path / "gpt", *few)
    assert metrics(tmp_path / "gpt")[0]["lm_loss"] > 0  # GPT's recipe has it
    tune(base(GPT2Config, plain), tmp_path / "gpt2", *few)
    assert "lm_loss" not in metrics(tmp_path / "gpt2")[0]
    tune(base(GPT2Config, plain, tie_embeddings=False), tmp_path / "on", *few, "loss.lm_weight=0.5")
    assert metrics(tmp_path / "on")[0]["lm_loss"] > 0
    saved = cloze.load(tmp_path / "on")
    assert saved.task_heads == ("sequence",)
    assert not saved.report.unexpected
    with raises(ConfigError, "lm_weight", "causal", fix="--lm-weight"):
        tune(tiny_model("mlm"), tmp_path / "bert", *few, "loss.lm_weight=0.5")
    bare = base(GPT2Config, plain, ("sequence",), tie_embeddings=False)
    with raises(ConfigError, "lm_weight", "LM head", fix="--lm-weight"):
        tune(bare, tmp_path / "bare", *few, "loss.lm_weight=0.5")
    with raises(ConfigError, "lm_weight"):  # before an old run is overwritten
        tune(bare, tmp_path / "on", *few, "loss.lm_weight=0.5", force=True)
    assert cloze.load(tmp_path / "on").task_heads == ("sequence",)


def test_a_resumed_run_ends_with_the_same_bits(plain, tmp_path):
    asked = ("run.steps=4", "run.eval_every=2", "data.transformation=similarity")
    started = base(GPTConfig, plain).save(tmp_path / "base")
    rows = tmp_path / "rows.tsv"
    rows.write_text("sentence1\tsentence2\tlabel\n" + "".join(
        f"{one.text}\t{one.pair}\t{one.label}\n" for one in pairs(24)))  # fmt: skip
    files = {"train": [str(rows)], "dev": [str(rows)]}
    tune(str(started), tmp_path / "whole", *asked, **files)
    tune(str(started), tmp_path / "m", *asked, **files, callbacks=Watch(stop_at=2))
    cloze.resume(tmp_path / "m", progress=False)
    one, other = (weights(cloze.load(tmp_path / name)) for name in ("whole", "m"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_glue_reads_only_pairs_without_an_order_twice():
    asked = recipe("finetune", settings=["data.transformation=similarity"])
    chosen = {name: adapt_recipe(asked, task).data.transformation for name, task in GLUE.items()}
    assert {name for name, one in chosen.items() if one == "similarity"} == {"MRPC", "QQP", "STS-B"}
