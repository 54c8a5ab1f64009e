"""Command-line options generated from the fields of recipes and other configurations.

Names, types, help and defaults are those of `make/recipe/option_help.py`. This file and the recipes
are imported when such a command is run or its help is shown, not when the command line starts, and
none of this imports torch.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_origin

import typer

from cloze.make.recipe.option_help import (
    CONFIGS,
    GROUPS,
    OptionField,
    collect_options,
    describe_option,
    find_group,
    merge_types,
)

_SHARED = frozenset({"threads"})  # declared by every command


def add_flags(function: Callable[..., None], command: str) -> Callable[..., None]:
    """A function whose `**options` are explicit parameters; it gets those that are given."""
    signature = inspect.signature(function, eval_str=True)
    declared = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]

    names = {parameter.name for parameter in declared}

    def call(**values: Any) -> None:  # noqa: ANN401
        is_given = {name: value not in (None, [], ()) for name, value in values.items()}
        function(**{name: values[name] for name in values if name in names or is_given[name]})

    taken = names | _SHARED
    generated = [one for one in make_parameters(command) if one.name not in taken]
    if command in CONFIGS:  # they are what the command is about: before the options of all commands
        first = [one for one in declared if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        declared = [*first, *generated, *(one for one in declared if one not in first)]
    else:
        declared += generated
    call.__signature__ = signature.replace(parameters=declared)  # type: ignore[attr-defined]
    call.__doc__, call.__name__ = function.__doc__, function.__name__
    return call


def make_parameters(command: str) -> Iterator[inspect.Parameter]:
    """One parameter for each generated option of a command, sorted by the panels of the help."""
    found = [
        _make_parameter(name, fields, command) for name, fields in collect_options(command).items()
    ]
    if command in CONFIGS:
        return (parameter for _, parameter in found)
    return (parameter for _, parameter in sorted(found, key=lambda one: GROUPS.index(one[0])))


def _make_parameter(
    name: str, fields: list[OptionField], command: str
) -> tuple[str, inspect.Parameter]:
    """A parameter and its panel in the help."""
    first = fields[0]
    assert first.info.flag is not None
    panel = find_group(fields)
    option = typer.Option(
        first.info.flag.name,
        metavar=first.info.flag.metavar,
        help=describe_option(fields, command),
        rich_help_panel=None if command in CONFIGS else panel,
    )
    return panel, inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_parameter_type(fields), option],
    )


def _parameter_type(fields: list[OptionField]) -> Any:  # noqa: ANN401
    merged = merge_types(fields)
    return (list[str] if get_origin(merged) is tuple else merged) | None
