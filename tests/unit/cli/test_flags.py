"""Options that are generated from the fields of recipes and other configurations."""

import inspect
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from cloze.cli.app import app
from cloze.cli.flags import CONFIGS, add_flags, collect_options, make_parameters
from cloze.make.recipe.classes import CLASSES

COMMANDS = (*CLASSES, "glue", *CONFIGS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_an_option_is_a_sentence_that_names_its_default(command):
    options = collect_options(command)
    assert options
    for parameter in make_parameters(command):
        _, option = get_args(parameter.annotation)
        info = options[parameter.name][0].info
        assert info.help
        assert option.help.endswith(".")
        has_default = isinstance(info.default, int | float | str)
        is_switch = isinstance(info.default, bool) and "/" not in info.flag.name
        if has_default and not is_switch:
            assert "(default" in option.help, option.help


def test_a_function_gets_its_own_parameters_and_the_options_that_are_given():
    calls = []

    def vocabulary(inputs: str, *, force: bool = False, **options: Any) -> None:
        calls.append((inputs, force, options))

    function = add_flags(vocabulary, "vocabulary")
    names = list(inspect.signature(function).parameters)
    assert names[:2] == ["inputs", "kind"]
    assert names[-1] == "force"
    unset = dict.fromkeys(name for name in names if name not in ("inputs", "force"))
    function(inputs="a.txt", force=True, **unset | {"size": 90, "lowercase": False})
    assert calls == [("a.txt", True, {"size": 90, "lowercase": False})]


@pytest.mark.parametrize(
    ("command", "option"),
    [("vocabulary", "--kind"), ("finetune", "--pooling"), ("pretrain", "--schedule")],
)
def test_a_value_that_is_no_choice_is_a_usage_error(command, option):
    ran = CliRunner().invoke(app, [command, option, "nonsense", "--out", "never-written"])
    assert ran.exit_code == 2
    assert option in ran.stderr
    assert "nonsense" in ran.stderr
