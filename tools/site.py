"""Hooks of the documentation site (mkdocs.yml): pages made from the code, links out of docs/.

README.md, CONTRIBUTING.md and CHANGELOG.md are pages of the site; the reference pages are made from
docstrings, from the help of the commands and from the fields of the recipes.
"""

import dataclasses
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
# columns of equal width, with code that wraps
SIDE_BY_SIDE = """
<style>
.md-typeset table:not([class]) { display: table; table-layout: fixed; width: 100%; }
.md-typeset table:not([class]) code { white-space: normal; overflow-wrap: anywhere; }
</style>
"""
EVALUATION = {"evaluate", "compare", "glue", "score", "score_pairs"}
MODELS = {"load", "builtin", "info", "tokenize", "export", "push_to_hub"}
OPTIONS = {"pretrain", "finetune", "distill", "glue"}  # functions with the options of recipes


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    reference = {"cli": write_commands(), "recipes": write_recipes(), **write_python()}
    for name, content in reference.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Point links at the pages of the site; remove those to files that it does not have."""
    source = page.file.src_uri
    origin = next((ROOT / name for name, made in PAGES.items() if made == source), None)
    folder = (origin or ROOT / "docs" / source).parent
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    for number in range(0, len(parts), 2):
        parts[number] = rewrite_links(parts[number], folder, Path(source).parent, files)
    return "".join(parts) + (SIDE_BY_SIDE if source.startswith("coming-from/") else "")


def rewrite_links(text: str, folder: Path, here: Path, files: Files) -> str:
    """Links of a document in `folder` as links of a page in the folder `here` of the site."""

    def target(path: str) -> str | None:
        found = (folder / path).resolve()
        inside = found.relative_to(ROOT).as_posix() if found.is_relative_to(ROOT) else ""
        name = PAGES.get(inside) or inside.removeprefix("docs/")
        known = name if files.get_file_from_path(name) else None
        return known and Path(*[".."] * len(here.parts), known).as_posix()

    def link(found: re.Match[str]) -> str:
        label, path, anchor = found[1], found[2], found[3] or ""
        if re.match(r"https?:|#|$", path):
            return found[0]
        there = target(path)
        return f"[{label}]({there}{anchor})" if there else label

    text = re.sub(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)", link, text)
    return re.sub(r'(?<=src=")[^"]+|(?<=!\[).*?\]\([^)]+', lambda one: image(one[0], target), text)


def image(found: str, target: Any) -> str:  # noqa: ANN401
    """The path of an image, in HTML or in Markdown, on the site."""
    label, bracket, path = found.rpartition("](")
    if path.startswith(("http:", "https:", "data:")):
        return found
    return f"{label}{bracket}{target(path) or path}"


def write_python() -> dict[str, str]:
    """The pages of the Python reference: the public functions, and the classes of their results."""
    import cloze

    pages: dict[str, list[str]] = {"models": [], "inference": [], "training": [], "evaluation": []}
    for name in cloze.__all__:
        pages[choose_page(name, cloze._MODULES[name])].append(name)
    package = griffe.load("cloze", search_paths=[str(ROOT / "src")])
    listed = {f"{cloze._MODULES[name]}.{name}" for name in cloze.__all__}
    written = {}
    for page, names in pages.items():
        paths = [f"{cloze._MODULES[name]}.{name}" for name in names]
        fresh: list[str] = []
        for path in paths:
            fresh += [one for one in find_results(package, path) if one not in (*listed, *fresh)]
        listed |= set(fresh)
        lines = [f"# {page.capitalize()}\n", *map(write_directive, paths, names)]
        if fresh:
            lines += ["## Results\n", "Classes of the results of these functions.\n"]
            lines += [f"::: {one}\n    options:\n      heading_level: 3\n" for one in fresh]
        written[page] = "\n".join(lines)
    written["sklearn"] = write_estimators()
    return written


def write_directive(path: str, name: str) -> str:
    """What mkdocstrings replaces by the documentation of a public name."""
    if name == "explain":  # an object: its class, and the function of each view
        from cloze.tasks.explain import VIEWS

        views = {view: kind.function.replace(":", ".") for view, kind in VIEWS.items()}
        return "\n".join(
            [
                '::: cloze.tasks.explain.Explain\n    options:\n      heading: "cloze.explain"\n'
                '      toc_label: "explain"\n      members: [__call__, compare]\n',
                *(
                    f'::: {target}\n    options:\n      heading: "cloze.explain.{view}"\n'
                    f'      toc_label: "explain.{view}"\n      heading_level: 3\n'
                    for view, target in views.items()
                ),
                "::: cloze.plot.view.View\n    options:\n      heading_level: 3\n",
            ]
        )
    lines = [
        f'::: {path}\n    options:\n      heading: "cloze.{name}"\n      toc_label: "{name}"\n'
    ]
    if name in OPTIONS:
        lines += [
            f"::: cloze.make.recipe.keywords.{name.capitalize()}Options\n    options:\n"
            f'      heading: "Options of cloze.{name}"\n      toc_label: "options of {name}"\n'
            "      heading_level: 3\n"
        ]
    return "\n".join(lines)


def choose_page(name: str, module: str) -> str:
    """The page of a public name, by the module that defines it."""
    if name in EVALUATION:
        return "evaluation"
    if name in MODELS or not module.startswith(
        ("cloze.tasks", "cloze.make", "cloze.report", "cloze.train")
    ):
        return "models"
    return "inference" if module.startswith("cloze.tasks") else "training"


def find_results(package: griffe.Module, path: str) -> list[str]:
    """The paths of the classes that a function returns, and of those in their fields."""
    one = find_object(package, path)
    if not isinstance(one, griffe.Function):
        return []
    hints = [one.returns, *(each.returns for each in one.overloads or ())]
    found: list[str] = []
    while hints:
        names = hints.pop(0)
        for name in names.iterate(flat=True) if isinstance(names, griffe.Expr) else ():
            cls = find_object(package, getattr(name, "canonical_path", ""))
            if isinstance(cls, griffe.Class) and cls.path not in found:
                found.append(cls.path)
                hints += [each.annotation for each in cls.attributes.values()]
            elif isinstance(cls, griffe.Attribute):  # a type alias
                hints.append(cls.value)
    return found


def find_object(package: griffe.Module, path: str) -> griffe.Object | None:
    """The class, function or type alias with this path, if it is in the package."""
    inside = path.removeprefix("cloze.")
    if inside == path:
        return None
    try:
        found = package[inside]
        return found.final_target if isinstance(found, griffe.Alias) else found
    except (KeyError, griffe.AliasResolutionError):
        return None


def write_estimators() -> str:
    """The page of cloze.sklearn."""
    names = [
        name
        for name, one in vars(import_module("cloze.sklearn")).items()
        if inspect.isclass(one) and one.__module__ == "cloze.sklearn" and name[0] != "_"
    ]
    start = "# scikit-learn\n\nThe estimators need the extra `sklearn`.\n"
    return "\n".join([start, *(f"::: cloze.sklearn.{name}\n" for name in names)])


def write_commands() -> str:
    """The page of the command line: the help of every command."""
    from cloze.cli.app import COMMANDS, load_command

    lines = ["# Command line\n", "`cloze COMMAND --help` shows the same in a terminal.\n"]
    for name, (_, example) in COMMANDS.items():
        command = load_command(name, to_run=True)
        lines += [f"## cloze {name}\n", f"{unescape(command.help or '')}\n"]
        lines += [f"```bash\n{example}\n```\n"]
        subcommands = getattr(command, "commands", {})
        for subname, one in subcommands.items():
            lines += [f"### cloze {name} {subname}\n", f"{unescape(one.help or '')}\n"]
            lines += write_parameters(one, subname)
        if not subcommands:
            lines += write_parameters(command, name)
    return "\n".join(lines)


def write_parameters(command: Any, name: str) -> list[str]:  # noqa: ANN401 (of typer)
    """The table of the arguments and options of a command."""
    lines = ["| argument or option | meaning |", "|---|---|"]
    for one in command.get_params(command.make_context(name, [], resilient_parsing=True)):
        if not getattr(one, "hidden", False):
            names = [*one.opts, *one.secondary_opts]
            shown = f"`{', '.join(names)}`" if one.param_type_name == "option" else ""
            value = f"`{one.metavar}`" if one.metavar else ""
            text = unescape(getattr(one, "help", "") or "").replace("|", "\\|")
            label = f"{shown} {value}".strip().replace("|", "\\|")
            lines.append(f"| {label} | {text} |")
    return [*lines, ""]


def unescape(text: str) -> str:
    """Help without the escapes of rich, and as Markdown: a [ and a < are themselves."""
    plain = text.replace("\\[", "[").replace("\b", "")
    return plain.replace("[", "\\[").replace("<", "&lt;").replace("*", "\\*")


def write_recipes() -> str:
    """The page of the recipes: those that come with the package, and all settings."""
    from cloze.make.recipe.classes import CLASSES, get_recipe_class
    from cloze.make.recipe.files import list_recipes, read_values
    from cloze.make.recipe.options import walk_fields
    from cloze.models.registry import list_families

    lines = [
        "# Recipes\n",
        "A recipe is a TOML file with the settings of a training run. Name one with `--recipe`, "
        "change single settings with `--set table.name=value`, in Python with "
        '`settings={"table.name": value}`. Every run writes its complete recipe to '
        "`recipe.toml`.\n",
        "| recipe | command | contents |",
        "|---|---|---|",
    ]
    commands = {cls: command for command, classes in CLASSES.items() for cls in classes}
    for name, path in list_recipes().items():
        cls = get_recipe_class(read_values(name))
        lines.append(f"| `{name}` | `{commands[cls]}` | {read_comment(path)} |")
    for command, classes in CLASSES.items():
        for cls in classes:
            title = (cls.__doc__ or "").strip().splitlines()[0]
            lines += [f"\n## {command}: {cls.__name__}\n", f"{title}\n", *HEADER]
            lines += [write_field(path, info) for path, info in walk_fields(cls)]
    for family in list_families().values():
        lines += [f"\n## model: {family.name}\n", f"Settings of {family.description}.\n", *HEADER]
        lines += [
            write_field(f"model.{path}", info)
            for path, info in walk_fields(family.config_class)
            if path not in getattr(family.config_class, "FROM_DATA", ())
        ]
    return "\n".join(lines) + "\n"


HEADER = ["| setting | type | default | flag | meaning |", "|---|---|---|---|---|"]


def read_comment(path: Path) -> str:
    """The first sentence of the comment at the top of a recipe."""
    comment = re.match(r"(?:# .*\n)+", path.read_text("utf-8"))
    text = re.sub(r"\n?# ?", " ", comment[0]).strip() if comment else ""
    return re.split(r"(?<=[a-z0-9)])\. (?=[A-Z`])", text)[0].rstrip(".:") + "."


def write_field(path: str, info: Any) -> str:  # noqa: ANN401 (FieldInfo)
    default = "" if info.default in (dataclasses.MISSING, None, ()) else f"`{info.default}`"
    flag = f"`{info.flag.name}`" if info.flag else ""
    row = [f"`{path}`", describe_type(info.hint), default, flag, unescape(info.help or "")]
    return "| " + " | ".join(one.replace("|", "\\|") for one in row) + " |"


def describe_type(hint: Any) -> str:  # noqa: ANN401
    if get_origin(hint) is Literal:
        return ", ".join(f"`{one}`" for one in get_args(hint))
    names = {int: "integer", float: "number", str: "text", bool: "true or false"}
    if hint in names:
        return names[hint]
    return "list" if get_origin(hint) in (tuple, list) else "table" if get_origin(hint) else "text"
