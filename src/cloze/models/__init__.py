"""The systems, one file each; none imports another.

The encoders' names are looked up when they are first used: n-grams and word vectors need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloze.models.bert import Bert
    from cloze.models.distilbert import DistilBert
    from cloze.models.encoders import MODELS, Family, fresh, on_meta
    from cloze.models.modernbert import ModernBert

__all__ = [
    "MODELS",
    "Bert",
    "DistilBert",
    "Family",
    "ModernBert",
    "fresh",
    "on_meta",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("cloze.models.encoders"), name)
