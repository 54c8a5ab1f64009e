"""Options as keyword arguments: their signature, help and types, and errors about them."""

import importlib.util
import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

import cloze
from cloze.errors import ConfigError
from cloze.make.recipe.complete import complete_finetuning, complete_pretraining
from cloze.make.recipe.option_help import collect_options
from cloze.make.recipe.options import OptionError
from helpers import check_mentions, raises

FUNCTIONS = ("pretrain", "finetune", "distill", "glue")
TOOL = Path(__file__).resolve().parents[3] / "tools" / "write_keywords.py"


@pytest.mark.parametrize("name", [*FUNCTIONS, "vocabulary"])
def test_signature_and_help_list_every_option(name):
    function = getattr(cloze, name)
    parameters, text = inspect.signature(function).parameters, inspect.getdoc(function)
    for option in collect_options(name):
        assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"\n    {option}" in text, option
    kinds = {parameter.kind for parameter in parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    assert "--" not in text


def test_help_has_types_defaults_and_meaning():
    plain = " ".join(cloze.finetune.__doc__.split())
    check_mentions(plain, "lr (float): Peak learning rate", "(default 5e-5)")
    check_mentions(plain, "epochs (float): Number of passes over the training data (default 3)")
    check_mentions(plain, "search (bool)", 'recipe="features"', "vocabulary (PathLike)")
    parameters = inspect.signature(cloze.finetune).parameters
    assert parameters["lr"].annotation == float | None
    assert parameters["batch_size"].annotation == int | None
    check_mentions(" ".join(cloze.pretrain.__doc__.split()), "(default 0.0005; on a GPU 0.02)")


def test_types_are_those_of_the_fields():
    """If this fails: python tools/write_keywords.py."""
    spec = importlib.util.spec_from_file_location("write_keywords", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.FILE.read_text(encoding="utf-8") == tool.render()


def test_unknown_options_suggest_the_closest(tmp_path):
    out = tmp_path / "run"
    with raises(OptionError, "classify", "epoch", fix="epochs"):
        cloze.finetune("classify", "cloze-en", [], out, epoch=2)
    with raises(OptionError, "minuts", fix="minutes"):
        cloze.pretrain("a.txt", out, minuts=2)
    with raises(OptionError, "distill", "temprature", fix="temperature"):
        cloze.distill("cloze-en", "a.txt", out, temprature=2)
    with raises(OptionError, "batchsize", fix="batch_size"):
        cloze.recipe("finetune", batchsize=2)
    with raises(OptionError, "glue", "epoch", fix="epochs"):
        cloze.glue("cloze-en", tmp_path, epoch=2)
    with raises(OptionError, "glue", "label_column", fix="epochs"):
        cloze.glue("cloze-en", tmp_path, label_column="label")
    with raises(OptionError, "betas", fix="settings={'optimizer.betas'"):
        cloze.finetune("classify", "cloze-en", [], out, betas=(0.9, 0.98))
    with raises(OptionError, "tag_scheme", "classify", fix="leave it out"):
        cloze.finetune("classify", "cloze-en", [], out, tag_scheme="IOB2")


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"lr": "fast"}, "number"),
        ({"lr": -1}, "0"),
        ({"lr": True}, "number"),
        ({"batch_size": 2.5}, "whole number"),
        ({"search": "yes"}, "true or false"),
        ({"truncation": "heads"}, "head"),
        ({"device": 0}, "string"),
    ],
    ids=str,
)
def test_wrong_types_say_which_type_is_expected(options, fix):
    with raises(ConfigError, *options, fix=fix):
        complete_finetuning(task="classify", options=options)


def test_numbers_paths_and_devices_of_other_libraries_are_accepted():
    made = complete_finetuning(
        task="classify",
        options={
            "lr": np.float64(1e-4),
            "batch_size": np.int64(8),
            "epochs": 2,
            "device": torch.device("cpu"),
            "dtype": torch.bfloat16,
        },
    )
    assert (made.optimizer.lr, made.run.batch_size, made.run.epochs) == (1e-4, 8, 2.0)
    assert (made.run.device, made.run.dtype) == ("cpu", "bfloat16")
    made = complete_pretraining(options={"vocabulary": Path("a/b"), "steps": 1e3, "device": "cpu"})
    assert (made.vocabulary.folder, made.run.steps) == ("a/b", 1000)
    for dev in (Path("a.txt"), "a.txt", ["a.txt"], (Path("a.txt"),)):
        assert complete_pretraining("lstm", options={"dev": dev}).data.dev == ("a.txt",)


def test_settings_may_be_nested():
    flat = cloze.recipe("finetune", settings={"optimizer.lr": 1e-3, "run.minutes": 5})
    assert cloze.recipe("finetune", settings=["optimizer.lr=1e-3", "run.minutes=5"]) == flat
    nested = {"optimizer": {"lr": 1e-3}, "run": {"minutes": 5}}
    assert cloze.recipe("finetune", settings=nested) == flat
    assert flat.run.epochs is None  # minutes replace the epochs of the recipe
    made = complete_pretraining(settings={"model": {"family": "lstm"}})
    assert made.model.family == "lstm"
    with raises(ConfigError, "optimizer.lrs", fix="lr"):
        cloze.recipe("finetune", settings={"optimizer": {"lrs": 1e-3}})
