"""`finetune`: which recipe a task has."""

import pytest

import cloze
from cloze.errors import ConfigError, InputError
from cloze.make.recipe.complete import complete_finetuning, recipe
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.make.recipe.language_models import TranslationRecipe
from cloze.make.recipe.options import OptionError
from cloze.make.recipe.transfer import LAYER_NAMES
from cloze.tasks.features import LAYER_CHOICES, SCALAR_MIX
from helpers import raises


def test_a_task_has_its_recipe():
    tag = complete_finetuning(task="tag")
    assert tag == complete_finetuning("finetune", task="tag")
    assert tag.task == "tag"
    assert isinstance(complete_finetuning(task="translate"), TranslationRecipe)
    assert isinstance(complete_finetuning(), FinetuneRecipe)
    with raises(ConfigError, "task", "sing"):
        complete_finetuning(task="sing")


def test_an_option_is_the_setting_of_its_task():
    translator = complete_finetuning(task="translate", options={"max_length": 9})
    assert translator.data.max_length == 9
    for task, option in (("translate", "pooling"), ("classify", "context"), ("tag", "regression")):
        with raises(OptionError, option, task):
            complete_finetuning(task=task, options={option: "mean"})
    assert complete_finetuning(task="tag", options={"context": True}).data.context


@pytest.mark.parametrize(
    "asked", [{"options": {"transfer": "features"}}, {"settings": ["transfer.kind=features"]}]
)
def test_features_have_a_recipe_of_their_own_however_they_are_asked_for(asked):
    made = complete_finetuning(task="classify", **asked)
    assert made == complete_finetuning("features", task="classify")


def test_a_recipe_says_its_task(tmp_path):
    assert isinstance(complete_finetuning("seq2seq"), TranslationRecipe)
    assert isinstance(recipe("seq2seq"), TranslationRecipe)
    (tmp_path / "mine.toml").write_text('task = "tag"\n')
    assert recipe(tmp_path / "mine.toml") == complete_finetuning(tmp_path / "mine.toml")
    assert recipe(tmp_path / "mine.toml").task == "tag"
    for name in ("laptop", "distill", "lstm"):
        with raises(ConfigError, name, "translate"):
            complete_finetuning(name, task="translate")
    with raises(ConfigError, "transformer", "tag"):
        complete_finetuning("transformer", task="tag")


def test_layers_are_those_that_embed_knows():
    assert set(LAYER_NAMES) == {*LAYER_CHOICES, SCALAR_MIX}


def test_what_is_missing_is_told(tmp_path):
    with raises(InputError, "model"):
        cloze.finetune("classify", "", "train.tsv", tmp_path / "m")
    with raises(InputError, "labelled"):
        cloze.finetune("classify", "base", [], tmp_path / "m")
