"""Command-line options generated from the fields of recipes and other configurations.

A field's `Flag` names its option, its annotation gives the type, its `Help` the text, and the
default recipe of the command the default. Recipes are imported when such a command is run or its
help is shown, not when the command line starts, and none of this imports torch.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer

if TYPE_CHECKING:
    from cloze.config import FieldInfo

LANGUAGE_MODELS, TRANSLATE = "NNLM and LSTM", "Translate"
# The recipes whose values are shown as defaults in the help, by command or by the group that has an
# option. Where they differ, each value is shown with the text here.
DEFAULT_RECIPES = {
    "pretrain": {"laptop": "", "fast": "on a GPU"},
    "distill": {"distill": ""},
    "finetune": {"finetune": ""},
    "glue": {"finetune": ""},
    LANGUAGE_MODELS: {"lstm": "lstm", "nnlm": "nnlm"},
    TRANSLATE: {"transformer": ""},
}
# the options of fine-tuning that apply to all tasks of GLUE
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
# The commands whose options are the fields of one configuration, not of recipes.
CONFIGS = {
    "vocabulary": "cloze.make.recipe.data:TokenizerOptions",
    "translate": "cloze.decode.config:BeamConfig",
    "generate": "cloze.decode.config:SamplingOptions",
}
_EXCLUDED = {"distill": frozenset({"pairs"})}  # the student is not trained on pairs
_MODEL, _DATA, _TRAINING = _PANELS = ("Model", "Data", "Training")
_PANEL_OF = {
    "model": _MODEL,
    "vocabulary": _MODEL,
    "distill": _MODEL,
    "transfer": _MODEL,
    "data": _DATA,
    "sampling": _DATA,
    "masking": _DATA,
}
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
    return (parameter for _, parameter in sorted(found, key=lambda one: _PANELS.index(one[0])))


def _make_parameter(
    name: str, fields: "list[OptionField]", command: str
) -> tuple[str, inspect.Parameter]:
    """A parameter and its panel in the help."""
    first = fields[0]
    assert first.info.flag is not None
    panel = _PANEL_OF.get(first.path.partition(".")[0], _TRAINING)
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
        annotation=Annotated[_parameter_type([one.info for one in fields]), option],
    )


class OptionField(NamedTuple):
    """The field of a recipe or another configuration that an option sets."""

    cls: type[Any]
    path: str
    info: "FieldInfo"


def collect_options(command: str) -> dict[str, list[OptionField]]:
    """The options of a command, each with its field in every class that has it."""
    from cloze.make.recipe.complete import CLASSES
    from cloze.make.recipe.finetune import FinetuneRecipe
    from cloze.make.recipe.options import find_options
    from cloze.models.registry import resolve

    classes: tuple[type[Any], ...]
    if command in CONFIGS:
        classes = (resolve(CONFIGS[command]),)
    else:
        classes = (FinetuneRecipe,) if command == "glue" else CLASSES[command]  # type: ignore[index]
    found: dict[str, list[OptionField]] = {}
    for cls in classes:
        for name, (path, info) in find_options(cls).items():
            found.setdefault(name, []).append(OptionField(cls, path, info))
    excluded = _EXCLUDED.get(command, frozenset())
    return {
        name: fields
        for name, fields in found.items()
        if name not in excluded and (command != "glue" or name in _GLUE)
    }


def describe_option(fields: list[OptionField], command: str) -> str:
    """The help of an option: which tasks or families have it, what it does, and its default."""
    _, path, info = fields[0]
    text, whose = info.help or path, _describe_owners(fields, command)
    if whose:
        text = f"{whose}: {text[0].lower()}{text[1:]}"
    recipes = DEFAULT_RECIPES.get(whose) or DEFAULT_RECIPES.get(command, {})
    if "(default" not in text and (default := _describe_default(path, info, recipes)):
        text += f" (default {default})"
    return text + "."


def _describe_owners(fields: list[OptionField], command: str) -> str:
    """The tasks of `finetune`, or the families of `pretrain`, that alone have an option."""
    from cloze.make.recipe.finetune import FinetuneRecipe
    from cloze.make.recipe.language_models import TranslationRecipe
    from cloze.make.recipe.pretrain import PretrainRecipe

    classes = {one.cls for one in fields}
    flag = fields[0].info.flag
    if command == "finetune":
        tasks = [*(flag.only if flag else ())]
        if FinetuneRecipe not in classes:
            tasks = [TRANSLATE]
        elif tasks and TranslationRecipe in classes:
            tasks.append("translate")
        return ", ".join(tasks).capitalize()
    if command == "pretrain" and PretrainRecipe not in classes:
        return LANGUAGE_MODELS
    return ""


def _describe_default(path: str, info: "FieldInfo", recipes: Mapping[str, str]) -> str:
    """The value in the default recipes; where it depends on the recipe, all of them."""
    from cloze.make.recipe.complete import read_values

    if not recipes:
        return _format_default(info.default, info)
    values = {
        whose: _format_default(_look_up(read_values(name), path, info.default), info)
        for name, whose in recipes.items()
    }
    if len(set(values.values())) == 1 or not all(values.values()):
        return next(iter(values.values()))
    return "; ".join(f"{whose} {value}".strip() for whose, value in values.items())


def _look_up(values: Mapping[str, Any], path: str, default: Any) -> Any:  # noqa: ANN401
    found: Any = values
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return default
        found = found[name]
    return found


def _format_default(value: object, info: "FieldInfo") -> str:
    if isinstance(value, bool) and info.flag is not None and "/" in info.flag.name:
        return info.flag.name.split("/")[0 if value else 1]
    if value is None or value is MISSING or isinstance(value, bool | tuple | list):
        return ""
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)


def _parameter_type(infos: "list[FieldInfo]") -> Any:  # noqa: ANN401
    """The type of an option: a number with a fraction if any of its fields takes one."""
    hints = {info.hint for info in infos}
    if all(get_origin(hint) is Literal for hint in hints):
        choices = dict.fromkeys(choice for info in infos for choice in get_args(info.hint))
        return Literal[tuple(choices)] | None
    for kind in (float, int, bool):
        if kind in hints:
            return kind | None
    is_list = any(get_origin(hint) is tuple and ... in get_args(hint) for hint in hints)
    return list[str] | None if is_list else str | None
