"""Learning to translate: files to a folder, resumed exactly."""

import json
import math
from dataclasses import replace

import pytest
import torch

import cloze
from cloze.errors import ConfigError, FolderError, InputError
from cloze.make.recipe.complete import recipe
from cloze.make.recipe.language_models import BLEU_TOKENIZERS, TranslationRun
from cloze.metrics.bleu import TOKENIZERS
from cloze.models.transformer import Transformer
from helpers import Watch, raises
from translators import TEXTS, train_translator

TINY = {
    "transformer": [
        *("model.hidden_size=16", "model.num_layers=1", "model.num_heads=2"),
        *(
            "model.intermediate_size=16",
            "model.dropout=0.1",
            "model.attention_dropout=0.1",
        ),
    ],
    "seq2seq": [
        "model.hidden_size=16",
        "model.embedding_size=8",
        "loss.scheduled_sampling_prob=0.5",
    ],
}
RUN = ["vocabulary.size=290", "run.batch_tokens=120", "run.log_every=1", "optimizer.lr=0.01"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Sentences, and the same ones backwards."""
    folder = tmp_path_factory.mktemp("pairs")
    lines = [*TEXTS, ""]
    backwards = [" ".join(reversed(line.split())) for line in lines]
    for name, some in (("train.en", lines), ("train.de", backwards)):
        (folder / name).write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    for name in ("train.en", "train.de"):
        head = (folder / name).read_text(encoding="utf-8").splitlines()[:6]
        (folder / f"dev{name[5:]}").write_text("\n".join(head) + "\n", encoding="utf-8")
    return folder


def trained(files, out, recipe="transformer", *settings, dev=True, **options):
    return train_translator(
        files / "train.en",
        files / "train.de",
        out,
        recipe,
        dev=(files / "dev.en", files / "dev.de") if dev else None,
        settings=[*TINY[recipe], *RUN, *settings],
        **options,
    )


@pytest.mark.parametrize("recipe", TINY)
def test_files_become_a_folder_that_translates(recipe, files, tmp_path):
    said = []
    watch = [Watch(log=said.append)]
    ended = trained(files, tmp_path / "run", recipe, "run.epochs=2", callbacks=watch)
    assert ended.left_out == 1
    assert "60 training pairs; left out: 1 empty on one side" in said
    assert ended.score is not None
    assert set(ended.scores) == {"bleu", "loss", "perplexity", "accuracy"}
    model = cloze.load(tmp_path / "run", device="cpu")
    assert model.config.family == recipe
    assert model.config.max_trained_length > 3
    assert len(cloze.translate(model, ["ein Hund", ""])) == 2
    metrics = (tmp_path / "run/metrics.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in metrics.splitlines()]
    losses = [row["loss"] for row in rows if row["kind"] == "train"]
    assert losses[-1] < losses[0]
    assert sum(row["kind"] == "eval" for row in rows) == 2
    samples = json.loads((tmp_path / "run/samples.json").read_text(encoding="utf-8"))
    assert samples[0]["source"] == TEXTS[0]
    assert (tmp_path / "run/report.html").is_file()
    data = json.loads((tmp_path / "run/data.json").read_text())
    assert data == {"training": 60, "dev": 6, "left_out": 1}


@pytest.mark.parametrize("recipe", TINY)
def test_a_run_that_stopped_goes_on_exactly(recipe, files, tmp_path):
    straight = trained(files, tmp_path / "straight", recipe, "run.steps=8")
    kill = [Watch(stop_at=3)]
    trained(files, tmp_path / "cut", recipe, "run.steps=8", "run.save_every=1", callbacks=kill)
    resumed = cloze.resume(tmp_path / "cut")
    assert (straight.steps, resumed.steps) == (8, 8)
    assert resumed.score == straight.score
    one, other = (
        cloze.load(tmp_path / name, device="cpu").module.state_dict()
        for name in ("straight", "cut")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_it_is_a_task_of_finetune(files, tmp_path):
    settings = [*TINY["transformer"], *RUN, "run.steps=2"]
    train, dev = ((files / f"{name}.en", files / f"{name}.de") for name in ("train", "dev"))
    ended = cloze.finetune("translate", None, train, tmp_path / "a", dev=dev, settings=settings)
    straight = trained(files, tmp_path / "b", "transformer", "run.steps=2")
    assert (ended.score, ended.steps) == (straight.score, straight.steps)
    again = cloze.finetune("translate", None, (), tmp_path / "c", tmp_path / "a/recipe.toml")
    assert again.score == ended.score  # the recipe names its files
    with raises(FolderError, "runs/bert"):
        cloze.finetune("translate", "runs/bert", train, tmp_path / "d")
    with raises(InputError, "train", "two"):
        cloze.finetune("translate", None, files / "train.en", tmp_path / "d")
    with raises(InputError, "raw"):
        cloze.resume(tmp_path / "a", sources=[files / "train.en"])


def test_minutes_are_judged_at_their_end(files, tmp_path):
    ended = trained(
        files, tmp_path / "run", "transformer", "run.minutes=0.005", "run.evals_per_epoch=0.001"
    )
    assert ended.score is not None
    assert ended.best_step == ended.steps


def test_without_dev_data_the_last_model_is_kept(files, tmp_path):
    ended = trained(files, tmp_path / "run", "transformer", "run.steps=2", dev=False)
    assert ended.score is None
    assert ended.best_step == 2
    assert cloze.load(tmp_path / "run").config.hidden_size == 16


def test_sentences_in_python_and_long_ones_left_out(tmp_path):
    ended = train_translator(
        [*TEXTS, " ".join(TEXTS)],
        [*TEXTS, "kurz"],
        tmp_path / "run",
        settings=[*TINY["transformer"], *RUN, "run.steps=1", "data.max_length=60"],
    )
    assert ended.left_out == 1
    with raises(InputError, "Python"):
        cloze.resume(tmp_path / "run")


def test_what_a_user_can_get_wrong(files, tmp_path):
    with raises(InputError, "train.en", "61", "dev.de", "6"):
        train_translator(files / "train.en", files / "dev.de", tmp_path / "a")
    with raises(InputError, "pair", "2"):
        trained(files, tmp_path / "b", "transformer", "data.max_length=2")
    trained(files, tmp_path / "c", "transformer", "run.steps=1", dev=False)
    with raises(InputError, "exists"):
        trained(files, tmp_path / "c", "transformer", "run.steps=1")
    for settings, message in (
        (["model.family=lstm"], ("transformer", "seq2seq")),
        (["loss.scheduled_sampling_prob=0.5"], "loss.scheduled_sampling_prob"),
        (["run.bleu_tokenizer=14a"], ("run.bleu_tokenizer", "14a")),
        (["run.batch_tokens=0"], ("run.batch_tokens", "0")),
        (["model.wings=2"], ("model.wings", "transformer")),
        (["data.train=['a']"], ("data.train", "1")),
        (["schedule.shape=inverse-sqrt", "schedule.warmup=0.0"], ("warmup", "0.0")),
    ):
        with raises(ConfigError, message):
            recipe("transformer", settings=settings)


def test_the_tokenizers_of_bleu_are_those_that_there_are():
    assert set(BLEU_TOKENIZERS) == set(TOKENIZERS)


def test_the_papers_schedule():
    """d^−½·min(step^−½, step·w^−1.5) is what the recipe's shape gives with the rate (d·w)^−½."""
    made = recipe("transformer", settings=["schedule.shape=inverse-sqrt", "schedule.warmup=0.04"])
    steps, warmup, width = 1000, 40, 256
    for step in (1, 10, 40, 41, 200, 1000):
        paper = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert (width * warmup) ** -0.5 * made.schedule(step / steps) == pytest.approx(paper)


def test_own_words_rise_in_a_line():
    loss = recipe(
        "seq2seq", settings=["loss.scheduled_sampling_prob=0.4", "loss.scheduled_sampling_epochs=4"]
    ).loss
    assert [loss.sampling_prob_at(epoch) for epoch in (0, 2, 4, 9)] == pytest.approx(
        [0.0, 0.2, 0.4, 0.4]
    )


def test_a_vocabulary_of_ones_own(files, tmp_path):
    trained(files, tmp_path / "one", "transformer", "run.steps=1", dev=False)
    folder = tmp_path / "one" / "vocabulary"
    trained(
        files,
        tmp_path / "two",
        "transformer",
        "run.steps=1",
        f"vocabulary.folder={folder}",
        dev=False,
    )
    one, two = (cloze.load(tmp_path / name) for name in ("one", "two"))
    assert one.tokenizer.encode_ids(TEXTS) == two.tokenizer.encode_ids(TEXTS)
    words = cloze.Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    words.save(tmp_path / "words")
    with raises(ConfigError, "words", fix="bpe"):
        trained(
            files,
            tmp_path / "three",
            "transformer",
            f"vocabulary.folder={tmp_path / 'words'}",
        )


@pytest.mark.parametrize("name", ["transformer", "seq2seq"])
def test_the_recipes_that_come_with_it(name):
    made = recipe(name)
    assert made.run.epochs
    assert made.model.family == name


def test_the_papers_base_model():
    """Vaswani et al. 2017: eq. 3 for the rate, table 3 for the shape."""
    made = recipe("transformer-base")
    assert made.run.steps is not None
    for step in (1, 100, 3999, 4000, 4001, 20_000, 100_000):
        paper = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        rate = made.optimizer.lr * made.schedule(step / made.run.steps)
        assert rate == pytest.approx(paper, rel=1e-12)
    shape = made.model.config
    assert (shape.norm, shape.dropout, shape.attention_dropout) == ("post", 0.1, 0.0)
    assert (made.loss.label_smoothing, made.optimizer.betas) == (0.1, (0.9, 0.98))
    assert (made.optimizer.eps, made.optimizer.weight_decay, made.run.clip_norm) == (
        1e-9,
        0.0,
        math.inf,
    )
    with torch.device("meta"):
        net = Transformer(replace(shape, vocab_size=37_000))
    attention, inner = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512
    encoder, decoder = attention + inner + 2 * 1024, 2 * attention + inner + 3 * 1024
    wanted = 6 * (encoder + decoder) + 37_000 * 512
    assert sum(weight.numel() for weight in net.parameters()) == wanted == 63_082_496


def test_the_papers_base_model_is_a_recipe_of_the_task(files, tmp_path):
    small = [*TINY["transformer"], *RUN, "run.steps=1"]
    sides = [files / "train.en", files / "train.de"]
    ended = cloze.finetune(
        "translate", None, sides, tmp_path / "m", "transformer-base", settings=small
    )
    assert ended.steps == 1
    assert "clip_norm = inf" in (tmp_path / "m" / "recipe.toml").read_text()
    assert recipe(tmp_path / "m" / "recipe.toml").run.clip_norm == math.inf


def test_a_run_without_a_budget():
    with raises(ConfigError, "budget", fix=("--minutes", "--steps", "--tokens", "--epochs")):
        TranslationRun().budget(10)
    assert TranslationRun(epochs=2.0).budget(10).steps == 20
