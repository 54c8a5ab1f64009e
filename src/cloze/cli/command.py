"""Commands from functions: shared options, help with defaults, errors as exit codes.

`cloze --help` imports this module: anything heavier than typer is imported where it is used.
"""

import functools
import inspect
import re
from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer
from typer.core import TyperCommand

from cloze.cli.common import (
    CLOSED_PIPE,
    FAILED,
    GENERAL,
    INTERRUPTED,
    Device,
    Dtype,
    Json,
    Quiet,
    Seed,
    Threads,
    describe_os_error,
    discard_stdout,
    print_error,
    print_note,
)
from cloze.cli.completion import COMPLETIONS
from cloze.errors import ClozeError


class _Shared(NamedTuple):
    option: Any
    default: object
    shown: bool = False


# Every command accepts these, so that a script may pass them to any. A command declares those that
# it uses; the others have no effect and are not listed in its help.
SHARED = {
    "as_json": _Shared(Json, False),
    "device": _Shared(Device, None),
    "dtype": _Shared(Dtype, "float32"),
    "threads": _Shared(Threads, None, shown=True),  # used by its callback
    "seed": _Shared(Seed, 0),
    "quiet": _Shared(Quiet, False),
}


def make_command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function: add the shared options, turn errors into exit codes.

    A parameter whose type is a dataclass stands for the options that are its fields.
    """
    signature, groups = _expand_groups(inspect.signature(function, eval_str=True))
    declared = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    declared = [_complete_option(one) for one in declared]
    undeclared = [name for name in SHARED if name not in signature.parameters]

    @functools.wraps(function)
    def command(**given: object) -> None:
        for name in undeclared:
            del given[name]
        given |= {name: _take_group(kind, given) for name, kind in groups.items()}
        try:
            function(**given)
        except ClozeError as error:
            print_error(error)
            raise typer.Exit(FAILED) from error
        except KeyboardInterrupt as error:
            if message := str(error):  # what has become of the work
                print_note(message)
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:
            discard_stdout()
            raise typer.Exit(CLOSED_PIPE) from error
        except OSError as error:
            print_error(describe_os_error(error))
            raise typer.Exit(FAILED) from error

    added = [_shared_parameter(name) for name in undeclared]
    whole = signature.replace(parameters=[*declared, *added])
    command.__signature__ = whole  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in whole.parameters.items()}
    return command


def _expand_groups(signature: inspect.Signature) -> tuple[inspect.Signature, dict[str, Any]]:
    """A signature with the fields of its dataclasses as parameters, and those dataclasses."""
    given = signature.parameters.values()
    groups: dict[str, Any] = {
        one.name: one.annotation for one in given if is_dataclass(one.annotation)
    }
    expanded: list[inspect.Parameter] = []
    for one in given:
        if one.name in groups:
            expanded += inspect.signature(groups[one.name], eval_str=True).parameters.values()
        else:
            expanded.append(one)
    return signature.replace(parameters=expanded), groups


def _take_group(kind: type, given: dict[str, object]) -> object:
    return kind(**{one.name: given.pop(one.name) for one in fields(kind)})


def _complete_option(parameter: inspect.Parameter) -> inspect.Parameter:
    """Add the default to the help, as `(default 5)`, and the values that a shell suggests.

    A [ in the help is escaped, because rich would parse it.
    """
    if not hasattr(parameter.annotation, "__metadata__"):
        return parameter
    kind, info = parameter.annotation.__origin__, copy(parameter.annotation.__metadata__[0])
    text, default = info.help or "", parameter.default
    unstated = default is None or default is False or default is parameter.empty
    if "(default" not in text and not unstated:
        names = (info.default, *(info.param_decls or ()))  # typer keeps the first as `default`
        pair = next((name for name in names if "/" in str(name)), "")
        shown = pair.partition("/")[0] if default is True else default
        text = f"{text.removesuffix('.')} (default {shown})."
    info.help, info.show_default = re.sub(r"(?<!\\)\[", r"\\[", text), False
    if not any(get_origin(one) is Literal for one in (kind, *get_args(kind))):
        info.autocompletion = COMPLETIONS.get(parameter.name)
    return parameter.replace(annotation=Annotated[kind, info])


_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class Command(TyperCommand):
    """A command whose help shows neither the types of arguments and flags nor ranges."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Parse the arguments; for an option of another library, suggest the one here."""
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            if hasattr(error, "possibilities"):
                from cloze.make.recipe.options import SYNONYMS

                name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
                meant = "--" + SYNONYMS.get(name, "").replace("_", "-")
                if any(meant in one.opts for one in self.get_params(ctx)):
                    error.possibilities = [meant]
            raise

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - click's, or typer's copy of it
        """The parameters, with the general options and `--help` last."""
        found: list[Any] = super().get_params(ctx)
        for one in found:
            simplify_parameter(one)
            if "--help" in one.opts:
                one.rich_help_panel = GENERAL
        return sorted(found, key=lambda one: one.rich_help_panel == GENERAL)


def simplify_parameter(parameter: Any) -> None:  # noqa: ANN401
    """Leave out of the help what typer adds: <str>, <bool>, [x>=1], and braces in the usage."""
    if parameter.param_type_name == "argument":
        name = parameter.metavar if parameter.required else f"[{parameter.metavar}]"
        several = "" if parameter.nargs == 1 or "..." in str(name) else "..."
        parameter.display_type_rich = lambda ctx: None  # noqa: ARG005 - typer names it
        parameter.get_usage_pieces = lambda ctx: [f"{name}{several}"]  # noqa: ARG005
    elif getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    parameter._get_number_range_help_str = lambda: None
    if "get_runtime_param" not in vars(parameter) and hasattr(parameter, "get_runtime_param"):
        coercion = _LazyCoercion(parameter.get_runtime_param)
        parameter.get_runtime_param = lambda: coercion


class _LazyCoercion:
    """Converts values as typer does, which imports pydantic, except those that have their type.

    So a command with texts and defaults starts a tenth of a second earlier.
    """

    def __init__(self, get_runtime_param: Callable[[], Any]) -> None:
        self.get_runtime_param = get_runtime_param

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401
        """The value of a parameter."""
        several, kind = param.multiple or param.nargs == -1, param.type_descriptor.annotation
        if value is None:
            return () if several else None
        items = value if several and isinstance(value, list | tuple) else (value,)
        item_type = get_args(kind)[0] if get_origin(kind) is list else kind
        is_literal, found = get_origin(item_type) is Literal, {type(item) for item in items}
        if (is_literal and all(item in get_args(item_type) for item in items)) or (
            item_type in (str, int, float) and found <= {item_type}
        ):
            return list(items) if several else value
        try:
            return self.get_runtime_param().coerce(value, param=param, ctx=ctx)
        except typer.BadParameter as error:
            wrong = (_describe_wrong_value(item, item_type) for item in items)
            error.message = next(filter(None, wrong), error.message)
            raise


def _describe_wrong_value(value: object, kind: Any) -> str | None:  # noqa: ANN401
    """What is wrong with a value that is no number or not one of the choices; None if neither."""
    if get_origin(kind) is Literal:
        choices = [str(choice) for choice in get_args(kind)]
        if value in choices:
            return None
        from difflib import get_close_matches

        close = get_close_matches(str(value).lower(), choices, 1)
        fix = f"; did you mean {close[0]}?" if close else ""
        return f"{value!r} is not one of {', '.join(choices)}{fix}"
    if kind not in (int, float):
        return None
    try:
        kind(value)
    except ValueError:
        return f"{value!r} is not a {'whole ' if kind is int else ''}number"
    return None


def _shared_parameter(name: str) -> inspect.Parameter:
    option, default, shown = SHARED[name]
    kind, info = option.__origin__, copy(option.__metadata__[0])
    info.hidden, info.show_default = not shown, False
    info.autocompletion = COMPLETIONS.get(name)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )
