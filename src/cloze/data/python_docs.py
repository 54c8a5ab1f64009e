"""Text that comes with Python: the topics of the language reference and the docstrings.

A corpus of about two megabytes without a download. Modules are parsed, not imported.
"""

import ast
import sysconfig
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from pydoc_data.topics import topics

_EXCLUDED = {"test", "tests", "idlelib", "site-packages", "dist-packages", "lib2to3", "turtledemo"}
_MIN_LENGTH = 40  # characters of a docstring
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def read_documents() -> Iterator[str]:
    """One document per topic and module, in a fixed order; blank lines separate paragraphs."""
    for name in sorted(topics):
        yield topics[name]
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if not _EXCLUDED & set(path.relative_to(library).parts):
            text = "\n\n".join(_docstrings(path))
            if text:
                yield text


def split_paragraphs(document: str) -> list[str]:
    """The paragraphs of a document, each on one line, without code and tables."""
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
    except (SyntaxError, ValueError):  # the standard library contains invalid files for tests
        return
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            text = ast.get_docstring(node, clean=False)
            if text and len(text) >= _MIN_LENGTH:
                yield cleandoc(text)
