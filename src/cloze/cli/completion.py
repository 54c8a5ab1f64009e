"""The values that a shell suggests for arguments and options, by the names of the parameters.

Where nothing is suggested, the shell completes the names of files. This runs at every press of the
tab key: it imports no torch and reads few folders.
"""

import os
from collections.abc import Callable, Iterable, Iterator

import typer

_DEPTH, _FOLDERS = 3, 500  # how far model folders are looked for


def _values(*names: str) -> Callable[[], Iterable[str]]:
    return lambda: names


def _names_in(table: str) -> Callable[[], Iterable[str]]:
    """The names in a tuple or dictionary, given as "package.module:attribute"."""

    def find() -> list[str]:
        from cloze.models.registry import resolve

        return list(resolve(table))

    return find


def complete_models(incomplete: str) -> Iterator[str]:
    """The built-in models, and the model folders in and below the folder that is typed."""
    from cloze.checkpoint.source import builtin

    yield from builtin()
    yield from _find_folders(os.path.dirname(incomplete), "config.json")  # noqa: PTH120 (keeps ./)


def complete_runs(incomplete: str) -> Iterator[str]:
    """The folders of training runs."""
    yield from _find_folders(os.path.dirname(incomplete), "recipe.toml")  # noqa: PTH120


def _find_folders(parent: str, file: str) -> Iterator[str]:
    """The folders that have a file, in and below a folder, spelled as the user began."""
    level, visited = [parent], 0
    for _ in range(_DEPTH):
        below: list[str] = []
        for folder in level:
            for name in _list_subfolders(folder):
                visited += 1
                if visited > _FOLDERS:
                    return
                path = os.path.join(folder, name)  # noqa: PTH118
                if os.path.isfile(os.path.join(path, file)):  # noqa: PTH113, PTH118
                    yield path
                else:
                    below.append(path)
        level = below


def _list_subfolders(folder: str) -> list[str]:
    try:
        with os.scandir(os.path.expanduser(folder or ".")) as entries:  # noqa: PTH111
            return sorted(one.name for one in entries if one.is_dir() and one.name[0] != ".")
    except OSError:
        return []


def complete_recipes(ctx: typer.Context) -> list[str]:
    """The recipes of the command."""
    from cloze.make.recipe.classes import CLASSES, get_recipe_class
    from cloze.make.recipe.files import list_recipes, read_values

    command = "finetune" if ctx.info_name == "glue" else ctx.info_name
    classes = CLASSES.get(command, ())  # type: ignore[call-overload]
    return [name for name in list_recipes() if get_recipe_class(read_values(name)) in classes]


def complete_families(ctx: typer.Context) -> list[str]:
    """The families that the command trains."""
    from cloze.make.recipe.complete import list_pretrained_families
    from cloze.models.registry import list_families

    if ctx.info_name == "pretrain":
        return list_pretrained_families()
    return [one.name for one in list_families().values() if one.kind == "encoder"]


def complete_presets() -> Iterable[str]:
    """The sizes of all families."""
    from cloze.models.registry import list_families

    presets = [one.config_class.PRESETS for one in list_families().values()]
    return dict.fromkeys(name for some in presets for name in some)


def complete_settings(ctx: typer.Context) -> Iterable[str]:
    """The settings of the recipes of the command, as `table.name=`."""
    from cloze.make.recipe.classes import CLASSES
    from cloze.make.recipe.options import walk_fields

    command = "finetune" if ctx.info_name == "glue" else ctx.info_name
    classes = CLASSES.get(command, ())  # type: ignore[call-overload]
    return dict.fromkeys(f"{path}=" for cls in classes for path, _ in walk_fields(cls))


def complete_glue_tasks(incomplete: str) -> list[str]:
    """The names of GLUE's tasks, after those that are typed."""
    from cloze.metrics.glue import GLUE

    typed = incomplete.rpartition(",")[0]
    return [f"{typed},{name}" if typed else name for name in GLUE]


COMPLETIONS: dict[str, Callable[..., Iterable[str]]] = {
    "model": complete_models,
    "models": complete_models,
    "teacher": complete_models,
    "init_from": complete_models,
    "run": complete_runs,
    "recipe": complete_recipes,
    "family": complete_families,
    "preset": complete_presets,
    "settings": complete_settings,
    "tasks": complete_glue_tasks,
    "task": _names_in("cloze.make.recipe.finetune:TASKS"),
    "format": _names_in("cloze.tasks.export:FORMATS"),
    "order": _values("confidence", "left-to-right"),
    "truncation": _names_in("cloze.text.truncation:TRUNCATIONS"),
    "tag_scheme": _names_in("cloze.data.labelled.tag_schemes:SCHEMES"),
    "layers": _names_in("cloze.make.recipe.finetune:LAYER_NAMES"),
    "bleu": _names_in("cloze.make.recipe.language_models:BLEU_TOKENIZERS"),
    "aggregation": _names_in("cloze.tasks.aggregation:AGGREGATIONS"),
    "pooling": _values("cls", "mean", "max", "none"),
    "transfer": _values("full", "last-2", "head", "features"),
    "device": _values("cpu", "cuda", "mps"),
    "dtype": _values("float32", "bfloat16", "float16", "int8", "auto"),
}
