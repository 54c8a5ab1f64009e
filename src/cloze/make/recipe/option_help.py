"""The options of the training functions and commands: their types, help and defaults.

A field's `Flag` names its option, its annotation gives the type, its `Help` the text, and the
default recipe of the command the default. The command line (`cli/flags.py`), `help(cloze.finetune)`
and the types in `keywords.py`, which `tools/write_keywords.py` generates, all use these.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from textwrap import wrap
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from cloze.config import FieldInfo, suggest
from cloze.files import PathLike
from cloze.make.recipe.options import OptionError, find_options
from cloze.models.registry import resolve

F = TypeVar("F", bound=Callable[..., Any])

TRANSLATE, EMBED = "Translate and summarize", "Embed"
# The recipes whose values are shown as defaults in the help, by command, by the tasks or by the
# families that have an option. Where they differ, each value is shown with the text here.
DEFAULT_RECIPES = {
    "pretrain": {"laptop": "", "fast": "on a GPU"},
    "distill": {"distill": ""},
    "finetune": {"finetune": ""},
    "glue": {"finetune": ""},
    TRANSLATE: {"transformer": ""},
    EMBED: {"embed": ""},
    "NNLM": {"nnlm": "nnlm"},
    "LSTM": {"lstm": "lstm"},
    "ELMo": {"elmo": "elmo"},
    "RETRO": {"retro": "retro"},
    "diffusion": {"diffusion": "diffusion"},
    "CLIP": {"clip": "clip"},
    "word2vec": {"word2vec": "word2vec"},
    "n-gram": {"ngram": "ngram"},
}
# the families of a class of recipes, by its name
_FAMILIES = {
    "LanguageModelRecipe": ("NNLM", "LSTM", "ELMo"),
    "NGramRecipe": ("n-gram",),
    "Word2VecRecipe": ("word2vec",),
    "RetroRecipe": ("RETRO",),
    "ClipRecipe": ("CLIP",),
    "DiffusionRecipe": ("diffusion",),
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
        "transformation",
        "lm_weight",
        "layer_decay",
        "transfer",
        "patience",
    ]
)
# The commands whose options are the fields of one configuration, not of recipes.
CONFIGS = {
    "vocabulary": "cloze.make.recipe.data:TokenizerOptions",
    "translate": "cloze.decode.config:BeamConfig",
    "summarize": "cloze.decode.config:BeamConfig",
    "generate": "cloze.decode.config:GenerationOptions",
}
_EXCLUDED = {"distill": frozenset({"pairs"})}  # the student is not trained on pairs
_MODEL, _DATA, _TRAINING = GROUPS = ("Model", "Data", "Training")
_GROUP_OF = {
    "model": _MODEL,
    "vocabulary": _MODEL,
    "distill": _MODEL,
    "transfer": _MODEL,
    "embedding": _MODEL,
    "data": _DATA,
    "sampling": _DATA,
    "masking": _DATA,
}
# the types of options that are more than text, by their metavars
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("FOLDER", "MODEL", "PATH"), PathLike),
    "COLUMN": str | int,
}


def document_options(command: str) -> Callable[[F], F]:
    """Make the options of a function visible: in `inspect.signature` and in `help()`.

    The function has a parameter `**options`, and its docstring says nothing about it.
    """

    def document(function: F) -> F:
        signature = inspect.signature(function)
        declared = {
            name: parameter
            for name, parameter in signature.parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }
        options = {
            name: fields
            for name, fields in collect_options(command).items()
            if name not in declared
        }
        generated = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=keyword_type(fields) | None,
            )
            for name, fields in options.items()
        ]
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*declared.values(), *generated]
        )
        function.__doc__ = f"{inspect.getdoc(function)}\n{_list_options(options, command)}"
        return function

    return document


def _list_options(options: "Mapping[str, list[OptionField]]", command: str) -> str:
    """The options of a command by groups, as sections of a docstring."""
    lines: list[str] = []
    for group in GROUPS:
        found = {name: one for name, one in options.items() if find_group(one) == group}
        if found:
            lines += ["", f"{group} options:"]
        for name, fields in found.items():
            kind = keyword_type(fields)
            kind = "str" if get_origin(kind) is Literal else describe_type(kind)
            entry = f"{name} ({kind}): {describe_option(fields, command, as_flag=False)}"
            first, *rest = wrap(entry, 88, break_on_hyphens=False)
            lines += [f"    {first}", *(f"        {line}" for line in rest)]
    return "\n".join(lines)


def keyword_type(fields: "list[OptionField]") -> Any:  # noqa: ANN401
    """The type of an option as a keyword argument: paths may be `Path`, columns numbers."""
    merged, flag = merge_types(fields), fields[0].info.flag
    is_list = get_origin(merged) is tuple
    one = _TYPES.get((flag and flag.metavar) or "", str if is_list else merged)
    return one | Sequence[one] if is_list else one  # type: ignore[valid-type]


def describe_type(kind: Any) -> str:  # noqa: ANN401
    """A type as source code."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind == PathLike:
        return "PathLike"
    if kind == PathLike | Sequence[PathLike]:
        return "PathLike | Sequence[PathLike]"
    if origin is Literal:
        return f"Literal[{', '.join(map(json.dumps, inner))}]"
    if origin is Sequence:
        return f"Sequence[{describe_type(inner[0])}]"
    return " | ".join(map(describe_type, inner)) if inner else str(kind.__name__)


class OptionField(NamedTuple):
    """The field of a recipe or another configuration that an option sets."""

    cls: type[Any]
    path: str
    info: FieldInfo


def collect_options(command: str) -> dict[str, list[OptionField]]:
    """The options of a command, each with its field in every class that has it."""
    found: dict[str, list[OptionField]] = {}
    for cls in _find_classes(command):
        for name, (path, info) in find_options(cls).items():
            found.setdefault(name, []).append(OptionField(cls, path, info))
    excluded = _EXCLUDED.get(command, frozenset())
    return {
        name: fields
        for name, fields in found.items()
        if name not in excluded and (command != "glue" or name in _GLUE)
    }


def _find_classes(command: str) -> tuple[type[Any], ...]:
    """The configuration of a command or its recipes, which only the latter need to import."""
    if command in CONFIGS:
        return (resolve(CONFIGS[command]),)
    from cloze.make.recipe.classes import CLASSES
    from cloze.make.recipe.finetune import FinetuneRecipe

    classes: dict[str, tuple[type[Any], ...]] = {
        **{str(name): found for name, found in CLASSES.items()},
        "glue": (FinetuneRecipe,),
        "recipe": tuple(cls for found in CLASSES.values() for cls in found),
    }
    return classes[command]


def check_options(command: str, options: Mapping[str, Any]) -> None:
    """Raise if a command does not have one of these options, although its recipe does."""
    known = collect_options(command)
    for name in options.keys() - known:
        raise OptionError(name, command, fix=suggest(name, known))


def find_group(fields: list[OptionField]) -> str:
    """The group of an option in the help: Model, Data or Training."""
    return _GROUP_OF.get(fields[0].path.partition(".")[0], _TRAINING)


def merge_types(fields: list[OptionField]) -> Any:  # noqa: ANN401
    """The type of an option: all choices of its fields, or the most general of their types."""
    hints = list(dict.fromkeys(one.info.hint for one in fields))
    if all(get_origin(hint) is Literal for hint in hints):
        return Literal[tuple(dict.fromkeys(choice for hint in hints for choice in get_args(hint)))]
    general = (kind for kind in (float, int, bool) if kind in hints)
    is_list = any(get_origin(hint) is tuple and ... in get_args(hint) for hint in hints)
    return next(general, tuple[str, ...] if is_list else str)


def describe_option(fields: list[OptionField], command: str, *, as_flag: bool = True) -> str:
    """The help of an option: which tasks or families have it, what it does, and its default.

    Other options in the text are named as flags, or else as keyword arguments.
    """
    _, path, info = fields[0]
    text, owners = info.help or path, _find_owners(fields, command)
    recipes = DEFAULT_RECIPES.get(command, {})
    if owners:
        text = f"{', '.join(owners)}: {text[0].lower()}{text[1:]}"
        own = [DEFAULT_RECIPES[owner] for owner in owners if owner in DEFAULT_RECIPES]
        recipes = {name: shown for one in own for name, shown in one.items()} or recipes
    if "(default" not in text and (default := _describe_default(path, info, recipes, as_flag)):
        text += f" (default {default})"
    return f"{text if as_flag else _name_keywords(text)}."


def _name_keywords(text: str) -> str:
    """A text with flags replaced by keyword arguments: --recipe fast by recipe="fast"."""
    text = re.sub(r"--(recipe|kind) (\w+)", r'\1="\2"', text)
    return re.sub(r"--([\w-]+)", lambda found: found[1].replace("-", "_"), text)


def _find_owners(fields: list[OptionField], command: str) -> list[str]:
    """The tasks of `finetune`, or the families of `pretrain`, that alone have an option."""
    if command not in ("finetune", "pretrain"):
        return []
    from cloze.make.recipe.embedding import EmbeddingRecipe
    from cloze.make.recipe.finetune import FinetuneRecipe
    from cloze.make.recipe.language_models import TranslationRecipe
    from cloze.make.recipe.pretrain import PretrainRecipe

    classes = {one.cls for one in fields}
    flag = fields[0].info.flag
    if command == "pretrain":
        names = {one.__name__ for one in classes}
        owners = [family for name, some in _FAMILIES.items() if name in names for family in some]
        return [] if PretrainRecipe in classes else [*(flag.only if flag else ())] or owners
    if FinetuneRecipe not in classes:
        return [EMBED if EmbeddingRecipe in classes else TRANSLATE]
    tasks = [*(flag.only if flag else ())]
    if tasks and EmbeddingRecipe in classes:
        tasks.append("embed")
    if tasks and TranslationRecipe in classes:
        tasks += ["translate", "summarize"]
    return [one if number else one.capitalize() for number, one in enumerate(tasks)]


def _describe_default(path: str, info: FieldInfo, recipes: Mapping[str, str], as_flag: bool) -> str:
    """The value in the default recipes; where it depends on the recipe, all of them."""
    if not recipes:
        return _format_default(info.default, info, as_flag)
    from cloze.make.recipe.files import read_values

    values = {
        whose: _format_default(_look_up(read_values(name), path, info.default), info, as_flag)
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


def _format_default(value: object, info: FieldInfo, as_flag: bool) -> str:
    if isinstance(value, bool) and not as_flag:
        return str(value)
    if isinstance(value, bool) and info.flag is not None and "/" in info.flag.name:
        return info.flag.name.split("/")[0 if value else 1]
    if value is None or value is MISSING or isinstance(value, bool | tuple | list):
        return ""
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)
