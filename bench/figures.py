"""The size and the structure of the code in one table.

    make figures
    python bench/figures.py --src /path/to/old/src --src src     # side by side

Imports count wherever they are: at the top, inside functions, under TYPE_CHECKING. A chain is the
longest path along imports between modules of one package, in modules. The commands are run on the
folders in tests/golden and a little text, each in its own process.
"""

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
LONG, SHORT = 450, 50  # lines of a file
TEXT = "\n\n".join(f"the cat number {n} sat.\nit saw a dog.\nthe dog ran." for n in range(200))
# Participles that do not end in -ed, and verbs and nouns that do.
IRREGULAR = """
    begun bent bought bound broken brought built caught chosen done drawn driven fallen felt found
    given gone grown heard held hidden kept known laid led left lent lost made meant met paid said
    seen sent shown sold spent spoken stood stuck struck sunk taken taught thought thrown told
    understood woken won worn written
"""
OTHERS = "bed bleed breed embed exceed feed need proceed red seed shed speed"
Row = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--src", type=Path, action="append", help="src folder; several are printed side by side"
    )
    parser.add_argument("--no-commands", action="store_true", help="leave out what takes seconds")
    parser.add_argument("--names", action="store_true", help="list the modules and functions, too")
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)  # as JSON, one tree
    options = parser.parse_args()
    trees = [src.resolve() for src in options.src or [ROOT / "src"]]
    if options.rows:
        print(json.dumps(rows_of(trees[0], options)))
        return
    print_table([str(tree) for tree in trees], [_in_process(tree, options) for tree in trees])


def _in_process(src: Path, options: argparse.Namespace) -> list[Row]:
    """The rows of a tree, from a process that imports no other."""
    command = [sys.executable, __file__, "--rows", "--src", str(src)]
    command += ["--no-commands"] * options.no_commands + ["--names"] * options.names
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [(name, value) for name, value in json.loads(done.stdout)]


def rows_of(src: Path, options: argparse.Namespace) -> list[Row]:
    files = [SourceFile.read(path) for path in sorted((src / "cloze").rglob("*.py"))]
    rows = [*size_rows(files), *name_rows(files, names=options.names)]
    rows += import_rows(src, names=options.names)
    return rows if options.no_commands else [*rows, *command_rows(src)]


def print_table(titles: list[str], columns: list[list[Row]]) -> None:
    """Rows in the order of the last column; those that only others have come where they are."""
    order = list(dict.fromkeys(name for column in reversed(columns) for name, _ in column))
    cells = [[name, *(dict(column).get(name, "–") for column in columns)] for name in order]
    lines = [
        line for row in cells for line in zip_longest(*(x.split("\n") for x in row), fillvalue="")
    ]
    table = [["", *titles], *([*line] for line in lines)]
    widths = [max(len(row[n]) for row in table) for n in range(len(table[0]))]
    for row in table:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


# Lines, functions, classes, names.


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    path: Path
    lines: Mapping[str, int]  # by kind
    functions: tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]
    classes: int

    @property
    def total(self) -> int:
        return sum(self.lines.values())

    @classmethod
    def read(cls, path: Path) -> "SourceFile":
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        return cls(
            path=path,
            lines=_kinds(text, nodes),
            functions=tuple(functions),
            classes=sum(isinstance(node, ast.ClassDef) for node in nodes),
        )


DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _kinds(text: str, nodes: list[ast.AST]) -> Counter[str]:
    """The number of lines that are docstrings, imports, comments, blank lines and code."""
    kinds = {n: "code" if line.strip() else "blank" for n, line in enumerate(text.splitlines(), 1)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            kinds[token.start[0]] = "comment"
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    documented = [node for node in nodes if isinstance(node, DOCUMENTED)]
    docstrings = [node.body[0] for node in documented if ast.get_docstring(node, clean=False)]
    for kind, found in (("import", imports), ("docstring", docstrings)):
        for node in found:
            kinds |= dict.fromkeys(range(node.lineno, node.end_lineno + 1), kind)
    return Counter(kinds.values())


def size_rows(files: list[SourceFile]) -> Iterator[Row]:
    total = sum((Counter(file.lines) for file in files), Counter())
    named = [file for file in files if not file.path.name.startswith("__")]
    sizes = [f.end_lineno - f.lineno + 1 for file in files for f in file.functions]
    yield "files", f"{len(files):,}"
    yield "lines", f"{total.total():,}"
    for kind in ("code", "import", "docstring", "comment", "blank"):
        yield f"  {kind}", f"{total[kind]:,}"
    yield "functions and methods", f"{len(sizes):,}"
    yield "  mean lines", f"{sum(sizes) / len(sizes):.1f}"
    yield "  of 50 lines or more", str(sum(size >= 50 for size in sizes))
    yield "classes", f"{sum(file.classes for file in files):,}"
    yield f"files over {LONG} lines", str(sum(file.total > LONG for file in named))
    longest = max(named, key=lambda file: file.total)
    yield "  longest", f"{longest.total} {longest.path.parent.name}/{longest.path.name}"
    yield f"files under {SHORT} lines, __init__ aside", str(sum(f.total < SHORT for f in named))


def is_participle(name: str) -> bool:
    """Whether a name is a bare participle: told, settled, _kept."""
    word = name.strip("_")
    if word in IRREGULAR.split():
        return True
    return re.fullmatch(r"[a-z]{2,}ed", word) is not None and word not in OTHERS.split()


def name_rows(files: list[SourceFile], *, names: bool) -> Iterator[Row]:
    found: Counter[str] = Counter()
    for function in (function for file in files for function in file.functions):
        values = {"property", "cached_property"}
        is_value = any(ast.unparse(one) in values for one in function.decorator_list)
        if is_participle(function.name) and not is_value:
            found[function.name] += 1
    yield "functions named by a bare participle", str(found.total())
    if names:
        yield "  they are", "\n".join(sorted(found))


# Imports.


def import_rows(src: Path, *, names: bool) -> Iterator[Row]:
    import grimp  # comes with import-linter

    sys.path.insert(0, str(src))
    graph = grimp.build_graph("cloze", cache_dir=None)
    imports = {one: graph.find_modules_directly_imported_by(one) for one in graph.modules}
    importers = {one: graph.find_modules_that_directly_import(one) for one in graph.modules}
    single = sorted(one for one, others in importers.items() if len(others) == 1)
    yield "modules with a single importer", str(len(single))
    outside = [one for one in single if not one.startswith("cloze.cli.")]
    yield "  outside cli", str(len(outside))
    if names:
        pairs = (f"{one} <- {next(iter(importers[one]))}" for one in outside)
        yield "  imported by", "\n".join(pairs)
    below = _inside(imports, "cloze.")
    cycles = [group for group in groups(below) if len(group) > 1]
    yield "import cycles", str(len(cycles))
    for number, cycle in enumerate(cycles, 1):
        yield f"  cycle {number}", "\n".join(sorted(cycle))
    facade = next(group for group in groups(imports) if "cloze" in group)
    yield "  modules in a cycle by way of cloze/__init__.py", str(len(set(facade) - {"cloze"}))
    packages = sorted(graph.find_children("cloze"))
    chains = {package: longest_chain(_inside(imports, package)) for package in packages}
    yield "longest import chain inside a package", str(max(map(len, chains.values())))
    for package, chain in chains.items():
        if len(chain) > 1:
            told = "\n".join(one.removeprefix(f"{package}.") for one in chain) if names else ""
            yield f"  {package.removeprefix('cloze.')}", f"{len(chain)}\n{told}".strip()


def _inside(imports: Mapping[str, set[str]], package: str) -> dict[str, set[str]]:
    prefix = f"{package.removesuffix('.')}."
    inside = {one for one in imports if one == package or one.startswith(prefix)}
    return {one: imports[one] & inside for one in sorted(inside)}


def groups(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected modules, each group after those that it imports (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(one: str) -> None:
        order[one] = low[one] = len(order)
        stack.append(one)
        for other in sorted(imports[one]):
            if other not in order:
                visit(other)
            if other in stack:
                low[one] = min(low[one], low[other])
        if low[one] == order[one]:
            at = stack.index(one)
            found.append(stack[at:])
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for one in sorted(imports):
        if one not in order:
            visit(one)
    return found


def longest_chain(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules, each imported by the one before it; all of a cycle count."""
    chains: dict[str, list[str]] = {}
    for group in groups(imports):
        below = {other for one in group for other in imports[one]} - set(group)
        after = max((chains[one] for one in sorted(below)), key=len, default=[])
        chains |= {one: [*group, *after] for one in group}
    return max(chains.values(), key=len, default=[])


# Commands.

PROBE = """
import atexit, json, runpy, sys
from pathlib import Path
file = Path(sys.argv[1])
sys.argv = ["cloze", *sys.argv[2:]]
atexit.register(lambda: file.write_text(json.dumps(sorted(sys.modules))))
runpy.run_module("cloze", run_name="__main__")
"""


def command_rows(src: Path) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="figures-") as folder:
        place = Path(folder)
        (place / "text.txt").write_text(TEXT)
        masked, labelled, bare = (
            str(GOLDEN / name / "model") for name in ("bert_mlm_nsp", "bert_sequence", "bert_bare")
        )
        table = str(GOLDEN / "data" / "labels.tsv")
        short = ["--recipe", "demo", "--steps", "2"]
        data = ["--train", table, "--dev", table, "--epochs", "1"]
        commands = {
            "fill": ["fill", masked, "the [MASK] sees a dog ."],
            "pretrain": ["pretrain", str(place / "text.txt"), "--out", str(place / "a"), *short],
            "finetune classify": ["finetune", "classify", bare, *data, "--out", str(place / "b")],
            "evaluate": ["evaluate", labelled, table],
        }
        for name, command in commands.items():
            modules = modules_of(src, place, *command, "--device", "cpu")
            ours = [one for one in modules if one.split(".")[0] == "cloze"]
            yield f"modules of cloze that `{name}` executes", str(len(ours))
        light = {
            "--help": (["--help"], 0),
            "fill --help": (["fill", "--help"], 0),
            "pretrain --help": (["pretrain", "--help"], 0),
            "info": (["info", masked], 0),
            "an unknown option": (["fill", masked, "--nonsense"], 2),
            "a missing argument": (["fill"], 2),
            "an unknown command": (["nonsense"], 2),
            "an unknown recipe": (["pretrain", table, "--out", "c", "--recipe", "nonsense"], None),
            "an unknown task": (["finetune", "nonsense", bare, *data, "--out", "c"], None),
        }
        for name, (command, code) in light.items():
            modules = modules_of(src, place, *command, code=code)
            yield f"torch is imported by {name}", "yes" if "torch" in modules else "no"


def modules_of(src: Path, place: Path, *command: str, code: int | None = 0) -> list[str]:
    """The modules that a command has imported when it ends with this code; None: any but 0."""
    out = place / "modules.json"
    environment = os.environ | {"PYTHONPATH": str(src), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(out), *command],
        env=environment,
        capture_output=True,
        text=True,
        cwd=place,
    )
    if done.returncode != code and (code is not None or done.returncode == 0):
        raise SystemExit(f"cloze {' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(out.read_text())


if __name__ == "__main__":
    main()
