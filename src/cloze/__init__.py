"""cloze: BERT and everything it grew from and into.

Everything a user asks for is a verb, and a verb is a function here:

    import cloze
    bert = cloze.load("runs/bert")
    cloze.fill(bert, "The capital of France is [MASK].")

Names are looked up when they are first used, so that `import cloze` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cloze.checkpoint.load import load
    from cloze.checkpoint.model import Model
    from cloze.errors import ClozeError
    from cloze.make.pretrain import pretrain
    from cloze.make.recipe import recipe
    from cloze.make.vocabulary import vocabulary
    from cloze.tasks.embed import embed
    from cloze.tasks.fill import fill
    from cloze.tasks.info import info
    from cloze.tasks.tokenize import tokenize
    from cloze.text.tokenizer import Tokenizer

_HOMES = {
    "load": "cloze.checkpoint.load",
    "Model": "cloze.checkpoint.model",
    "ClozeError": "cloze.errors",
    "pretrain": "cloze.make.pretrain",
    "recipe": "cloze.make.recipe",
    "vocabulary": "cloze.make.vocabulary",
    "embed": "cloze.tasks.embed",
    "fill": "cloze.tasks.fill",
    "info": "cloze.tasks.info",
    "tokenize": "cloze.tasks.tokenize",
    "Tokenizer": "cloze.text.tokenizer",
}

__all__ = [
    "ClozeError",
    "Model",
    "Tokenizer",
    "embed",
    "fill",
    "info",
    "load",
    "pretrain",
    "recipe",
    "tokenize",
    "vocabulary",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'cloze' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
