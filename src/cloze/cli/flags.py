"""Command-line options generated from the fields of recipes.

A field's `Flag` names its option, its annotation gives the type, its `Help` the text, and the
default recipe of the command the default. Recipes are imported when such a command is run or its
help is shown, not when the command line starts, and none of this imports torch.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

if TYPE_CHECKING:
    from cloze.config import FieldInfo

DEFAULT_RECIPES = {
    "pretrain": ("laptop", "fast"),  # the second on a GPU
    "distill": ("distill",),
    "finetune": ("finetune",),
    "glue": ("finetune",),
}
# the options of fine-tuning that make sense for all tasks of GLUE
_GLUE = frozenset(
    [
        "epochs",
        "lr",
        "batch_size",
        "seed",
        "seeds",
        "search",
        "device",
        "dtype",
        "max_length",
        "truncation",
        "layer_decay",
        "transfer",
        "patience",
    ]
)
_EXCLUDED = {"distill": frozenset({"pairs"})}  # a student learns no pairs
_PANELS = {
    "model": "Model and vocabulary",
    "vocabulary": "Model and vocabulary",
    "distill": "Model and vocabulary",
    "transfer": "Model and vocabulary",
    "data": "Data",
    "sampling": "Data",
    "masking": "Data",
}
_TRAINING = "Training"
_SHARED = frozenset({"threads"})  # declared by every command


def has_flags(function: Callable[..., None]) -> bool:
    """Whether a command takes the options of its recipes, as `**options`."""
    parameters = inspect.signature(function).parameters.values()
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


def add_flags(function: Callable[..., None], command: str) -> Callable[..., None]:
    """A function whose `**options` are explicit parameters: the options of a command's recipes."""
    signature = inspect.signature(function, eval_str=True)
    declared = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]

    def call(**given: Any) -> None:  # noqa: ANN401
        function(**given)

    taken = {parameter.name for parameter in declared} | _SHARED
    generated = [one for one in make_parameters(command) if one.name not in taken]
    call.__signature__ = signature.replace(parameters=[*declared, *generated])  # type: ignore[attr-defined]
    call.__doc__, call.__name__ = function.__doc__, function.__name__
    return call


def make_parameters(command: str) -> Iterator[inspect.Parameter]:
    """One parameter for each option of the recipes of a command."""
    for name, fields in collect_options(command).items():
        path, info = fields[0]
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                _parameter_type([info for _, info in fields]),
                typer.Option(
                    info.flag.name if info.flag else f"--{name}",
                    metavar=info.flag.metavar if info.flag else None,
                    help=describe(path, info, command),
                    rich_help_panel=_PANELS.get(path.partition(".")[0], _TRAINING),
                ),
            ],
        )


def collect_options(command: str) -> "dict[str, list[tuple[str, FieldInfo]]]":
    """The options of a command, each with its field in every recipe class that has it."""
    from cloze.make.finetune.recipe import FinetuneRecipe
    from cloze.make.recipe.complete import CLASSES, find_options

    classes = (FinetuneRecipe,) if command == "glue" else CLASSES[command]  # type: ignore[index]
    found: dict[str, list[tuple[str, FieldInfo]]] = {}
    for cls in classes:
        for name, field in find_options(cls).items():
            found.setdefault(name, []).append(field)
    excluded = _EXCLUDED.get(command, frozenset())
    return {
        name: fields
        for name, fields in found.items()
        if name not in excluded and (command != "glue" or name in _GLUE)
    }


def describe(path: str, info: "FieldInfo", command: str) -> str:
    """The help of an option: what it does, for which tasks, and its default."""
    text = info.help or path
    if info.flag and info.flag.only and command == "finetune":
        text = f"{', '.join(info.flag.only).capitalize()}: {text[0].lower()}{text[1:]}"
    if "(default" not in text and (default := _default(path, info, command)):
        text += f" (default {default})"
    return text + "."


def _default(path: str, info: "FieldInfo", command: str) -> str:
    """The value in the default recipe; where it depends on the GPU, both."""
    from cloze.make.recipe.complete import read_values

    values = [
        _format(_lookup(read_values(name), path, info.default)) for name in DEFAULT_RECIPES[command]
    ]
    if not values[0] or len(set(values)) == 1:
        return values[0]
    return f"{values[0]}; on a GPU {values[1]}"


def _lookup(values: Mapping[str, Any], path: str, default: Any) -> Any:  # noqa: ANN401
    found: Any = values
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return default
        found = found[name]
    return found


def _format(value: object) -> str:
    if value is None or value is MISSING or isinstance(value, bool | tuple | list):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _parameter_type(infos: "list[FieldInfo]") -> Any:  # noqa: ANN401
    """The type of an option: a number with a fraction if any of its fields takes one."""
    hints = {info.hint for info in infos}
    for kind in (float, int, bool):
        if kind in hints:
            return kind | None
    is_list = any(get_origin(hint) is tuple and ... in get_args(hint) for hint in hints)
    return list[str] | None if is_list else str | None
