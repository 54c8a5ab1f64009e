"""Pre-train, fine-tune, evaluate and use BERT and related models on your own text.

Every operation is a function, and inference functions are also methods of a loaded model:

    import cloze

    model = cloze.load("cloze-en")
    model.fill("In winter the lake is covered with [MASK].")  # the same as cloze.fill(model, ...)

The functions are listed in `__init__.pyi`, where type checkers and editors find them. Their modules
are imported when a function is first used, so `import cloze` takes a few milliseconds.
"""

import sys
from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

with open(f"{__file__}i", encoding="utf-8") as _stub:  # noqa: PTH123 - pathlib is slow to import
    _lines = [_line.split() for _line in _stub if _line.startswith("from ")]
_MODULES = {words[-1]: words[1] for words in _lines}  # of the public names

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'cloze' has no attribute {name!r}")
    if _MODULES[name] == __name__:  # a module itself
        return import_module(f"{__name__}.{name}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(ModuleType):
    """This package; importing a subpackage does not hide a function of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
