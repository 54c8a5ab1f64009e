"""ULMFiT as one command: a language model, its fine-tuning on the task's texts, a classifier."""

import random
from itertools import groupby

import pytest
import torch

import cloze
from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import TextExample
from cloze.errors import ConfigError, InputError
from cloze.files import read_json
from cloze.make.finetune.job import depth_of, layer_lr_factors, unfreeze_gradually
from cloze.make.finetune.labelled import Labelled
from cloze.make.finetune.stages import collect_texts
from cloze.make.recipe.complete import recipe
from cloze.make.recipe.transfer import TransferConfig
from cloze.train.config import OptimizerConfig
from cloze.train.optim import build_optimizer
from helpers import Watch, raises
from recurrent import recurrent_encoder

NOUNS, GOOD, BAD = ["cat", "dog", "film", "plot"], ["good", "great"], ["bad", "poor"]
SMALL = {"weight_dropout": 0.1, "dropout": 0.1, "input_dropout": 0.1, "output_dropout": 0.1}
PRETRAIN = [
    *("model.hidden_size=12", "model.embedding_size=8", "model.num_layers=2"),
    *(f"model.{name}={value}" for name, value in SMALL.items()),
    *("vocabulary.kind=spaced", "run.batch_size=8", "run.bptt_length=10", "run.epochs=1"),
    *("optimizer.name=adamw", "optimizer.lr=0.02", "run.clip_norm=1"),
]
FAST = ["transfer.layer_decay=0.8", "transfer.unfreeze_every=0.5"]
FINETUNE = ["run.batch_size=8", "run.bptt_length=10", "run.epochs=1", "run.eval_rows=2"]


def sentence(rng, label):
    noun, word = rng.choice(NOUNS), rng.choice(GOOD if label else BAD)
    return f"the {noun} was {word} and the {rng.choice(NOUNS)} ran"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    for name, count in (("train", 96), ("dev", 32)):
        rows = [(sentence(rng, label), "yes" if label else "no") for label in [0, 1] * (count // 2)]
        text = "".join(f"{text}\t{label}\n" for text, label in rows)
        (folder / f"{name}.tsv").write_text(f"text\tlabel\n{text}")
    for name in ("general", "unlabelled"):
        lines = [sentence(rng, rng.random() < 0.5) for _ in range(60)]
        (folder / f"{name}.txt").write_text("\n".join(lines))
    return folder


def tune(files, out, model=None, *, settings=(), **options):
    stages = [
        f"language_model.pretrain_settings={PRETRAIN}".replace("'", '"'),
        f"language_model.finetune_settings={FINETUNE}".replace("'", '"'),
    ]
    return cloze.finetune(
        *("classify", model, files / "train.tsv", out, "ulmfit"),
        **{
            "dev": files / "dev.tsv",
            "epochs": 8,
            "lr": 0.05,
            "batch_size": 16,
            "device": "cpu",
            **options,
        },
        settings=[*stages, "transfer.dropout=0.1", "run.log_every=1", *FAST, *settings],
        progress=False,
    )


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    said = []
    result = tune(
        files,
        out,
        general_text=files / "general.txt",
        unlabelled=files / "unlabelled.txt",
        callbacks=Watch(log=said.append),
    )
    return out, result, said


def test_three_stages_make_a_classifier(trained, files):
    out, result, said = trained
    assert [line[:12] for line in said if line.startswith("stage")] == [
        f"stage {number} of 3" for number in (1, 2, 3)
    ]
    assert result.score == 1.0
    model = cloze.load(out, device="cpu")
    assert (model.family.name, model.labels, model.head) == ("ulmfit", ("no", "yes"), "sequence")
    texts = ["the cat was great and the dog ran", "the cat was poor and the dog ran"]
    assert [one.label for one in cloze.classify(out, texts)] == ["yes", "no"]
    assert cloze.evaluate(out, files / "dev.tsv").scores["accuracy"] == 1.0
    assert cloze.embed(out, texts, layers=[0, 1]).shape == (2, 8 + 12)
    for stage in ("general", "language_model"):
        assert cloze.load(out / stage, device="cpu").family.name == "lstm"
        assert read_json(out / stage / "finished.json")["scores"]["perplexity"] > 1
    adapted, general = (
        cloze.load(out / stage, device="cpu").module.state_dict()
        for stage in ("language_model", "general")
    )
    assert all(not torch.equal(adapted[name], general[name]) for name in adapted)


@pytest.mark.parametrize("step", [4, 20, 29])
def test_a_run_that_is_stopped_in_any_stage_continues_exactly(trained, files, tmp_path, step):
    """The stages have 9, 14 and 36 steps."""
    count = iter(range(1000))

    class Stop(cloze.Callback):
        every = 1

        def on_train_begin(self, run):
            self.run = run

        def on_step(self, metrics):
            assert metrics
            if next(count) == step:
                self.run.request_stop()

    straight, _, _ = trained
    cut = tmp_path / "cut"
    texts = {
        "general_text": files / "general.txt",
        "unlabelled": files / "unlabelled.txt",
    }
    assert tune(files, cut, callbacks=Stop(), **texts).stopped
    assert cloze.resume(cut, progress=False).stopped is None
    one, other = (cloze.load(out, device="cpu").module.state_dict() for out in (straight, cut))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_each_technique_can_be_left_out(trained, files, tmp_path):
    out, _, _ = trained
    settings = [
        "language_model.finetune_recipe=",
        "transfer.layer_decay=1",
        "transfer.unfreeze_every=0",
        "transfer.concat_pooling=false",
        "schedule.shape=constant",
        "schedule.warmup=0",
    ]
    made = tmp_path / "out"
    tune(files, made, out / "general", epochs=1, settings=settings)
    assert not (made / "language_model").exists()
    model = cloze.load(made, device="cpu")
    assert model.module.task_heads["sequence"].norm.num_features == 8
    again = tmp_path / "again"  # from a classifier with another pooling
    cloze.finetune(
        "classify", made, files / "train.tsv", again, epochs=1, device="cpu", progress=False
    )
    assert cloze.load(again).module.task_heads["sequence"].norm.num_features == 24


def test_other_recipes_and_transfers_start_from_a_language_model_too(trained, files, tmp_path):
    lm = trained[0] / "language_model"
    options = {"dev": files / "dev.tsv", "device": "cpu", "progress": False}
    plain = cloze.finetune(
        "classify", lm, files / "train.tsv", tmp_path / "plain", epochs=1, **options
    )
    assert plain.steps == 3
    features = cloze.finetune(
        "classify", lm, files / "train.tsv", tmp_path / "f", transfer="features", **options
    )
    assert features.score > 0.5
    again = cloze.finetune(
        *("classify", trained[0], files / "train.tsv", tmp_path / "again"), epochs=1, **options
    )
    assert again.score == 1.0


def test_a_tagger_and_heads_that_it_lacks(trained, tmp_path):
    lm, data = trained[0] / "language_model", tmp_path / "ner.txt"
    lines = "".join(f"the O\n{noun} B-X\nran O\n\n" for noun in NOUNS * 4)
    data.write_text(lines)
    options = {"dev": data, "device": "cpu", "progress": False, "settings": ["run.batch_size=4"]}
    cloze.finetune("tag", lm, data, tmp_path / "tag", epochs=12, lr=0.05, **options)
    assert [span.text for span in cloze.tag(tmp_path / "tag", "the film ran").spans] == ["film"]
    for model in (lm, tmp_path / "tag"):
        with raises(InputError, "finetune answer", fix="embed" if model != lm else "generate"):
            cloze.finetune("answer", model, data, tmp_path / "no", **options)
    with raises(ConfigError, "tag", "labelled data", fix="finetune"):
        cloze.pretrain(data, tmp_path / "no", init_from=tmp_path / "tag", steps=1)


def test_layers_have_their_learning_rates_and_are_unfrozen_from_the_top():
    module = recurrent_encoder().module
    table = TransferConfig(layer_decay=1 / 2.6, unfreeze_every=1.0)
    factor = layer_lr_factors(table, module.num_layers)
    optimizer = build_optimizer(module, OptimizerConfig(lr=1.0, weight_decay=0.0), factor)
    names = {id(weight): name for name, weight in module.named_parameters()}
    for group in optimizer.param_groups:
        for weight in group["params"]:
            depth = depth_of(names[id(weight)], 3)
            assert group["lr"] == pytest.approx(2.6 ** (depth - 4))
    depths = {depth_of(name, 3) for name in names.values()}
    assert depths == {0, 1, 2, 3, 4}

    class Done:
        def __init__(self, number):
            self.number = number

    lowest = []
    steps = unfreeze_gradually(map(Done, range(1, 13)), module, table, per_epoch=2, after=0)
    for _ in steps:
        trained = [n for n, weight in module.named_parameters() if weight.requires_grad]
        lowest.append(min(depth_of(name, 3) for name in trained))
    assert [(depth, len(list(same))) for depth, same in groupby(lowest)] == [
        *((4, 2), (3, 2), (2, 2), (1, 2), (0, 4)),
    ]


def test_the_language_model_reads_all_texts_in_random_order():
    examples = [TextExample(text=f"a{n}\nb{n}", pair="c", label="x") for n in range(20)]
    data = Labelled(
        task=Task(name="classify"),
        train=examples,
        dev=(),
        held_out=False,
        labels=("x",),
        problem="",
    )
    found = collect_texts(data, (), seed=0)
    assert sorted(found) == sorted([f"{side}{n}" for n in range(20) for side in "ab"] + ["c"] * 20)
    assert found != collect_texts(data, (), seed=1)
    assert found == collect_texts(data, (), seed=0)


def test_what_a_user_can_get_wrong(files, tmp_path):
    with raises(ConfigError, "unlabelled", fix="--recipe ulmfit"):
        recipe("finetune", unlabelled="a.txt")
    with raises(ConfigError, "recurrent", "BERT", fix="ulmfit-general"):
        tune(files, tmp_path / "out", "cloze-en")
    with raises(InputError, "model to start from", fix="--general-text PATH"):
        tune(files, tmp_path / "out")
    for model in ("cloze-en", cloze.load("cloze-en")):
        with raises(ConfigError, "language_model.general_text", fix="--general-text"):
            tune(files, tmp_path / "out", model, general_text=files / "general.txt")
    with raises(ConfigError, "fast", "recurrent", fix="awd-lstm"):
        tune(
            files,
            tmp_path / "out",
            general_text=files / "general.txt",
            settings=[
                "language_model.pretrain_recipe=fast",
                "language_model.pretrain_settings=[]",
            ],
        )
