"""The scripts in bench/ and docs/ are run rarely: what they import must not move away unnoticed."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted([*ROOT.glob("bench/*.py"), *ROOT.glob("docs/**/*.py")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_what_a_script_imports_of_cloze_is_there(script):
    asked = [
        (node.module, name.name)
        for node in ast.walk(ast.parse(script.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cloze"
        for name in node.names
    ]
    missing = [f"{module}.{name}" for module, name in asked if not there(module, name)]
    assert not missing


def there(module, name):
    if hasattr(import_module(module), name):
        return True
    try:
        import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True
