"""Text that every Python carries: the language reference's topics and the library's docstrings.

A corpus of about two megabytes that needs no download. Modules are parsed, never imported.
"""

import ast
import sysconfig
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from pydoc_data.topics import topics

_LEFT_OUT = {"test", "tests", "idlelib", "site-packages", "dist-packages", "lib2to3", "turtledemo"}
_SHORTEST = 40  # characters: below that a docstring is a label, not text
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def read_documents() -> Iterator[str]:
    """One document per topic and per module, in a fixed order; paragraphs apart by blank lines."""
    for name in sorted(topics):
        yield topics[name]
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if not _LEFT_OUT & set(path.relative_to(library).parts):
            text = "\n\n".join(_docstrings(path))
            if text:
                yield text


def split_paragraphs(document: str) -> list[str]:
    """The paragraphs of a document, each on one line; code and tables are left out."""
    found = []
    for block in document.split("\n\n"):
        lines = [line.strip() for line in block.splitlines()]
        indented = block.startswith("    ") or any(line.startswith((">>>", "+-")) for line in lines)
        text = " ".join(line for line in lines if line)
        if not indented and sum(c.isalpha() or c.isspace() for c in text) > 0.8 * len(text):
            found.append(text)
    return [text for text in found if text]


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # the library ships a few files that are meant to be broken
        return
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            text = ast.get_docstring(node, clean=False)
            if text and len(text) >= _SHORTEST:
                yield cleandoc(text)
