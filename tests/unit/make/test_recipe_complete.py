"""What a recipe refuses before any work is done, whichever run it is for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cloze.cli.flags import collect_options
from cloze.config import read_toml, to_mapping
from cloze.errors import ConfigError
from cloze.make.recipe.classes import CLASSES
from cloze.make.recipe.complete import recipe
from cloze.make.recipe.files import list_recipes
from cloze.make.recipe.finetune import FinetuneRecipe, FinetuneRun
from cloze.make.recipe.language_models import LanguageModelRecipe
from cloze.make.recipe.options import find_options
from cloze.make.recipe.pretrain import PretrainRecipe
from cloze.make.recipe.run import CHANGEABLE, UNITS, PretrainRun, SelectingRun
from cloze.make.run_folder import to_toml
from helpers import raises

SHIPPED = json.loads(Path(__file__).with_name("shipped_recipes.json").read_text())


def flat(values, inside=""):
    found = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{inside}{name}.")
        else:
            found[inside + name] = value
    return found


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_recipe_has_the_values_it_was_published_with(name):
    """All its settings and those of its model, as the first version of the recipe had them."""
    found = flat(to_mapping(recipe(name)))
    assert {path: found.get(path) for path in SHIPPED[name]} == SHIPPED[name]
    added = {"model.preset", "model.family", "model.position_init"}
    added |= {f"vocabulary.{one}" for one in ("kind", "byte_fallback", "extra_tokens")}
    added |= {"sampling.phase1_max_length", "sampling.phase1_fraction"}
    added |= {f"transfer.{one}" for one in ("classifier", "tagger", "kernel_size", "mix_penalty")}
    added |= {"data.engine", "data.address"}
    added |= {"schedule.min_factor", "transfer.concat_pooling"}
    added |= {path for path in found if path.startswith("language_model.")}
    if name == "word2vec":
        added |= {"run.snapshots"}
    if name == "diffusion":
        added |= {f"run.{one}" for one in ("fast", "store_texts")}
        added |= {f"data.{one}" for one in ("shift", "zoom", "color_jitter")}
    if name == "clip":
        added |= {"model.resampling"}
    if name == "lstm":
        added |= {"model.embedding_dropout", "model.weight_dropout"}
    if name in ("lstm", "nnlm"):
        added |= {f"run.{one}" for one in ("variable_length", "eval_rows", "layer_decay")}
        added |= {f"run.{one}_penalty" for one in ("activation", "temporal")}
    assert found.keys() - SHIPPED[name].keys() <= added


def test_every_shipped_recipe_is_checked():
    assert SHIPPED.keys() == list_recipes().keys()


@pytest.mark.parametrize(
    ("setting", "names", "fix"),
    [
        ("masking.mlm_probability=7", ("masking.mlm_probability", "7.0"), "1"),
        ("masking.split=[0.5, 0.5]", ("masking.split", "[0.5, 0.5]"), "3"),
        ("masking.split=[0.5, 0.5, 0.5]", "masking.split", "sum to 1"),
        ("sampling.max_length=1", ("sampling.max_length", "1"), "8"),
        ("sampling.short_seq_prob=2", ("sampling.short_seq_prob", "2.0"), "0 to 1"),
        ("sampling.max_length=1024", ("sampling.max_length", "1,024", "512"), "--max-length 512"),
        ("run.batch_tokens=16", ("sampling.max_length", "16"), "--batch-tokens"),
        ("run.accumulate=0", ("run.accumulate", "0"), "1"),
        ("data.hold_out=2", ("data.hold_out", "2.0"), "less than 1"),
        ("data.workers=0", ("data.workers", "0"), "1"),
        ("data.segmenter=jiba", ("data.segmenter", "jiba"), "jieba"),
        ("vocabulary.size=1", ("size", "1"), "6"),
        ("vocabulary.kind=bpe", ("vocabulary.kind", "bpe"), "wordpiece"),
        ("vocabulary.min_count=0", ("vocabulary.min_count", "0"), "1"),
        ("vocabulary.extra_tokens=-1", ("vocabulary.extra_tokens", "-1"), "0"),
        ("model.num_layers=0", ("model.num_layers", "0"), "1"),
        ("model.hidden_size=102", ("model.hidden_size", "102"), "4"),
        ("model.dropout=2", ("model.dropout", "2.0"), "0 to 1"),
        ("model.activation=gelo", ("model.activation", "gelo"), "gelu"),
        ("model.vocab_size=9", "model.vocab_size", "leave"),
        ("model.hiden_size=9", ("model.hiden_size", "bert"), "hidden_size"),
        ("model.family=brt", "brt", "bert"),
        ("model.is_causal=true", ("model.is_causal", "mlm"), "causal"),
        ("optimizer.betas=[0.9]", ("optimizer.betas", "[0.9]"), "2"),
        ("optimizer.betas=[0.9, 1.0]", ("optimizer.betas", "1.0"), "less than 1"),
        ("model.preset=['mini']", ("model.preset", "string"), "mini"),
        ("optimizer.lr=-1", ("optimizer.lr", "-1.0"), "0 to 1,000"),
        ("schedule.shape=sine", ("schedule.shape", "sine"), "cosine"),
        ("schedule.warmup=2", ("schedule.warmup", "2.0"), "1"),
        ("run.eval_every=0", ("run.eval_every", "0"), "1"),
    ],
)
def test_a_value_that_cannot_be_is_told_by_its_name(setting, names, fix):
    with raises(ConfigError, names, fix=fix):
        recipe(settings=[setting])


def test_a_student_has_at_least_one_layer():
    with raises(ConfigError, "distill.num_layers", "0"):
        recipe("distill", settings=["distill.num_layers=0"])


def test_a_generator_is_not_larger_than_the_model():
    for name, value in (("generator_num_layers", 9), ("generator_hidden_size", 4096)):
        with raises(ConfigError, name, value, fix="1"):
            recipe(settings=["objective.kind=detection", f"objective.{name}={value}"])
        recipe(settings=[f"objective.{name}={value}"])  # nothing is detected


RECIPES = {
    "bert": lambda *settings: recipe(settings=settings),
    "finetune": lambda *settings: recipe("finetune", settings=settings),
    "lstm": lambda *settings: recipe("lstm", settings=settings),
    "transformer": lambda *settings: recipe("transformer", settings=settings),
}


@pytest.mark.parametrize("kind", RECIPES)
@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (["run.seed=-1"], ("run.seed", "-1")),
        (["run.clip_norm=-1"], ("run.clip_norm", "-1.0")),
        (["run.dtype=fp8"], ("run.dtype", "fp8")),
        (["run.guard=go"], ("run.guard", "go")),
        (["run.log_every=0"], ("run.log_every", "0")),
        (["run.save_every=0"], ("run.save_every", "0")),
        (["run.save_minutes=-1"], ("run.save_minutes", "-1.0")),
        (["run.steps=100", "run.epochs=3"], ("steps", "epochs")),
        (["run.eval_every=9", "run.evals_per_epoch=3"], ("eval_every", "evals_per_epoch")),
        (["run.steps=0"], ("run.steps", "0")),
        (["run.tokens=-5"], ("run.tokens", "-5")),
        (["run.minutes=0"], ("run.minutes", "0.0")),
        (["run.epochs=-3"], ("run.epochs", "-3.0")),
        (["run.epochs=nan"], ("run.epochs", "nan")),
    ],
)
def test_every_run_is_checked_the_same(kind, settings, names):
    with raises(ConfigError, names):
        RECIPES[kind](*settings)


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        ("finetune", "data.max_length=0", ("data.max_length", "0")),
        ("finetune", "data.overlap=-1", ("data.overlap", "-1")),
        ("finetune", "transfer.dropout=2", ("transfer.dropout", "2.0")),
        ("finetune", "transfer.hidden_size=0", ("transfer.hidden", "0")),
        ("finetune", "transfer.l2_penalty=-1", ("transfer.l2_penalty", "-1.0")),
        ("lstm", "vocabulary.size=3", ("vocabulary.size", "3")),
        ("lstm", "model.hidden_size=0", ("model.hidden_size", "0")),
        ("transformer", "vocabulary.size=200", ("vocabulary.size", "200", "257")),
        ("transformer", "model.norm=mid", ("model.norm", "mid")),
        ("transformer", "run.beam_size=5000", ("run.beam", "5000", "1,024")),
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
    made = recipe("lstm", settings=["model.hidden_size=200"])
    assert made.model.config.embedding_size == 200
    assert "embedding_size = 200\n" in to_toml(made)
    sizes = ["model.hidden_size=200", "model.embedding_size=9"]
    for tied, size in ((True, 9), (False, 200)):  # of the last layer
        made = recipe("lstm", settings=[*sizes, f"model.tie_embeddings={str(tied).lower()}"])
        assert (made.model.config.embedding_size, made.model.config.output_size) == (9, size)


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
    assert recipe(path) == made


def test_what_may_differ_on_resuming_are_settings_that_there_are():
    tables = {
        f"{table}.{name}"
        for kind in (PretrainRecipe(), LanguageModelRecipe(), FinetuneRecipe())
        for table in ("run", "data")
        for name in getattr(getattr(kind, table, None), "__dict__", {})
    }
    assert tables >= CHANGEABLE


def test_recipes_and_options_need_no_torch():
    code = """import sys
from cloze.cli.flags import make_parameters
from cloze.make.recipe.complete import recipe
from cloze.make.recipe.files import list_recipes
for name in list_recipes():
    recipe(name)
for command in ("pretrain", "finetune", "distill", "glue"):
    list(make_parameters(command))
print("torch" in sys.modules)"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "False"


@pytest.mark.parametrize("command", CLASSES)
def test_an_option_is_one_setting_of_a_recipe(command):
    """No two fields of a recipe have the same flag, and every flag says what it does."""
    for cls in CLASSES[command]:
        paths = [path for path, _ in find_options(cls).values()]
        assert len(paths) == len(set(paths))
    for fields in collect_options(command).values():
        assert all(field.info.help for field in fields)
