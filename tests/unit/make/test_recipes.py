"""What a recipe refuses before any work is done, whichever run it is for."""

import subprocess
import sys

import pytest

from cloze.config import read_toml, to_toml
from cloze.errors import ConfigError
from cloze.make.finetune.recipe import FinetuneRecipe, FinetuneRun, finetune_recipe
from cloze.make.language_model.recipe import LanguageRecipe, language_recipe
from cloze.make.pretrain.recipe import Recipe, recipe
from cloze.make.recipe.run import CHANGEABLE, UNITS, PretrainRun, SelectingRun
from cloze.make.translation.recipe import translate_recipe
from helpers import raises


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("masking.rate=7", ("masking.rate", "7.0", "0", "1")),
        ("masking.split=[0.5, 0.5]", ("masking.split", "0.5", "3")),
        ("masking.split=[0.5, 0.5, 0.5]", ("masking.split", "1")),
        ("samples.length=1", ("samples.length", "1", "8")),
        ("samples.short=2", ("samples.short", "2.0", "0", "1")),
        ("samples.length=1024", ("samples.length", "1,024", "model.max_positions", "512")),
        ("batch.tokens=16", ("samples.length", "16", "batch.tokens")),
        ("batch.per_step=0", ("batch.per_step", "0", "1")),
        ("corpus.hold_out=2", ("corpus.hold_out", "2.0", "1")),
        ("corpus.workers=0", ("corpus.workers", "0")),
        ("corpus.segmenter=jiba", ("corpus.segmenter", "jiba", "jieba")),
        ("vocabulary.size=1", ("vocabulary.size", "1", "6")),
        ("vocabulary.min_count=0", ("vocabulary.min_count", "0")),
        ("vocabulary.extra_pieces=-1", ("vocabulary.extra_pieces", "-1")),
        ("model.num_layers=0", ("model.num_layers", "0")),
        ("model.hidden_size=102", ("model.hidden_size", "102")),
        ("model.dropout=2", ("model.dropout", "2.0", "0", "1")),
        ("model.activation=gelo", ("model.activation", "gelo")),
        ("optimizer.betas=[0.9]", ("optimizer.betas", "0.9", "2")),
        ("optimizer.betas=[0.9, 1.0]", ("optimizer.betas", "1.0", "1")),
        ("optimizer.lr=-1", ("optimizer.lr", "-1.0")),
        ("schedule.shape=sine", ("schedule.shape", "sine")),
        ("schedule.warmup=2", ("schedule.warmup", "2.0")),
        ("distill.layers=0", ("distill.layers", "0")),
        ("run.eval_every=0", ("run.eval_every", "0")),
    ],
)
def test_a_value_that_cannot_be_is_told_by_its_name(setting, message):
    with raises(ConfigError, message):
        recipe(settings=[setting])


def test_a_generator_is_not_larger_than_the_model():
    for name, value in (("generator_layers", 9), ("generator_width", 4096)):
        with raises(ConfigError, name, value, fix="1"):
            recipe(settings=["objective.kind=detection", f"objective.{name}={value}"])
        recipe(settings=[f"objective.{name}={value}"])  # nothing is detected


RECIPES = {
    "bert": lambda *settings: recipe(settings=settings),
    "finetune": lambda *settings: finetune_recipe(settings=settings),
    "lstm": lambda *settings: language_recipe("lstm", settings=settings),
    "transformer": lambda *settings: translate_recipe(settings=settings),
}


@pytest.mark.parametrize("kind", RECIPES)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["run.seed=-1"], ("run.seed", "-1", "0")),
        (["run.clip_norm=-1"], ("run.clip_norm", "-1.0")),
        (["run.dtype=fp8"], ("run.dtype", "fp8")),
        (["run.guard=go"], ("run.guard", "go")),
        (["run.log_every=0"], ("run.log_every", "0")),
        (["run.save_every=0"], ("run.save_every", "0", "1")),
        (["run.save_minutes=-1"], ("run.save_minutes", "-1.0", "0")),
        (["run.steps=100", "run.epochs=3"], "steps and epochs"),
        (["run.steps=0"], ("run.steps", "0", "1")),
        (["run.tokens=-5"], ("run.tokens", "-5")),
        (["run.minutes=0"], ("run.minutes", "0.0")),
        (["run.epochs=-3"], ("run.epochs", "-3.0")),
        (["run.epochs=nan"], ("run.epochs", "nan")),
    ],
)
def test_every_run_is_checked_the_same(kind, settings, message):
    with raises(ConfigError, message):
        RECIPES[kind](*settings)


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        ("finetune", "data.length=0", ("data.length", "0")),
        ("finetune", "data.stride=-1", ("data.stride", "-1")),
        ("finetune", "transfer.dropout=2", ("transfer.dropout", "2.0")),
        ("finetune", "transfer.hidden=0", ("transfer.hidden", "0")),
        ("finetune", "transfer.penalty=-1", ("transfer.penalty", "-1.0")),
        ("lstm", "vocabulary.size=3", ("vocabulary.size", "3")),
        ("lstm", "lstm.hidden_size=0", ("lstm.hidden_size", "0")),
        ("transformer", "vocabulary.size=200", ("vocabulary.size", "200", "257")),
        ("transformer", "transformer.norm=mid", ("transformer.norm", "mid")),
        ("transformer", "run.beam=5000", ("run.beam", "5000", "1,024")),
    ],
)
def test_the_tables_of_other_recipes_too(kind, setting, message):
    with raises(ConfigError, message):
        RECIPES[kind](setting)


def test_objects_made_in_python_are_held_to_their_choices():
    with raises(ConfigError, "fp8", fix=("float32", "bfloat16", "bf16")):
        PretrainRun(dtype="fp8")
    with raises(ConfigError, "steps", "epochs"):
        FinetuneRun(steps=3, epochs=1.0)


@pytest.mark.parametrize("kind", RECIPES)
def test_a_precision_is_one_however_it_is_spelt(kind):
    assert RECIPES[kind]("run.dtype=bfloat16") == RECIPES[kind]("run.dtype=bf16")
    with raises(ConfigError, "float16", fix="bfloat16"):
        RECIPES[kind]("run.dtype=float16")


def test_the_words_of_an_lstm_are_as_wide_as_its_output():
    made = language_recipe("lstm", settings=["lstm.hidden_size=200"])
    assert made.lstm is not None
    assert made.lstm.embedding_size == 200
    assert "embedding_size = 200\n" in to_toml(made)
    with raises(ConfigError, "lstm.embedding_size", "9", "200", fix="out"):
        language_recipe("lstm", settings=["lstm.hidden_size=200", "lstm.embedding_size=9"])
    untied = ["lstm.hidden_size=200", "lstm.embedding_size=9", "lstm.tie_embeddings=false"]
    assert language_recipe("lstm", settings=untied).lstm.embedding_size == 9


def test_epochs_are_counted_in_tokens_or_in_steps():
    assert PretrainRun(epochs=2.5).budget(lambda: 100).tokens == 250
    assert SelectingRun(epochs=2.5).budget(100).steps == 250
    assert SelectingRun(minutes=1.0).budget(100).minutes == 1.0
    for run in (PretrainRun(), SelectingRun()):
        with raises(ConfigError, "budget", fix="--epochs"):
            run.check_budget()


@pytest.mark.parametrize("kind", RECIPES)
def test_a_saved_recipe_says_all_and_reads_back(kind, tmp_path):
    made = RECIPES[kind]("run.steps=3", "run.save_every=2")
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(made))
    said = read_toml(path)["run"]
    assert said.keys() & set(UNITS) == {"steps"}
    shared = {"seed", "dtype", "clip_norm", "log_every", "save_minutes", "save_every"}
    assert said.keys() >= shared | {"tensorboard"}
    read = {"bert": recipe, "finetune": finetune_recipe, "lstm": language_recipe}
    assert read.get(kind, translate_recipe)(path) == made


def test_what_may_differ_on_resuming_are_settings_that_there_are():
    tables = {
        f"{table}.{name}"
        for kind in (Recipe(), LanguageRecipe(lstm=RECIPES["lstm"]().lstm), FinetuneRecipe())
        for table in ("run", "corpus")
        for name in getattr(getattr(kind, table, None), "__dict__", {})
    }
    assert tables >= CHANGEABLE


def test_a_judged_run_knows_nothing_of_raw_text():
    """It takes a record of who looks on from where no corpus is made."""
    code = "import sys, cloze.train.fit; print('cloze.make.pretrain.setup' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "False"
