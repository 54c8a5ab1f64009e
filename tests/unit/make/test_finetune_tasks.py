"""`finetune`: which task is made how, by which recipe."""

import pytest

import cloze
from cloze.errors import ConfigError, InputError
from cloze.make.finetune.dispatch import TASK_MAKERS, complete, task_of
from cloze.make.finetune.recipe import FinetuneRecipe
from cloze.make.pretrain.recipe import recipes
from cloze.make.translation.recipe import TranslateRecipe, translate_recipe
from helpers import raises


def test_a_task_has_its_recipe():
    assert [*TASK_MAKERS] == ["classify", "tag", "answer", "choose", "translate"]
    assert complete(task="tag")[1] == complete("finetune", task="tag")[1]
    assert isinstance(complete(task="translate")[1], TranslateRecipe)
    assert isinstance(complete()[1], FinetuneRecipe)
    assert TASK_MAKERS["translate"].path("data.length") == "data.limit"
    assert TASK_MAKERS["translate"].path("transfer.pooling") is None
    with raises(ConfigError, "task", "sing"):
        complete(task="sing")


@pytest.mark.parametrize(
    "asked",
    [{"flags": {"transfer": {"kind": "features"}}}, {"settings": ["transfer.kind=features"]}],
)
def test_features_have_a_recipe_of_their_own_however_they_are_asked_for(asked):
    assert complete(task="classify", **asked)[1] == complete("features", task="classify")[1]


def test_a_recipe_says_its_task(tmp_path):
    found = {name: task_of(name) for name in recipes()}
    assert found["transformer"] == found["seq2seq"] == "translate"
    assert found["laptop"] is None
    assert task_of(translate_recipe("seq2seq")) == "translate"
    (tmp_path / "mine.toml").write_text('task = "tag"\n')
    assert task_of(tmp_path / "mine.toml") == "tag"
    assert complete(tmp_path / "mine.toml")[1].task == "tag"


def test_what_is_missing_is_told(tmp_path):
    with raises(InputError, "model"):
        cloze.finetune("classify", "", "train.tsv", tmp_path / "m")
    with raises(InputError, "labelled"):
        cloze.finetune("classify", "base", [], tmp_path / "m")
