"""Pre-train, fine-tune, evaluate and use BERT and related models on your own text.

Every operation is a function of this package:

    import cloze
    bert = cloze.load("runs/bert")
    cloze.fill(bert, "The capital of France is [MASK].")

Names are looked up when they are first used, so that `import cloze` is fast.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cloze.checkpoint.load import load
    from cloze.checkpoint.model import Model
    from cloze.checkpoint.source import builtin
    from cloze.errors import ClozeError
    from cloze.make.demo import demo
    from cloze.make.distill.job import distill
    from cloze.make.finetune.dispatch import finetune
    from cloze.make.glue import glue
    from cloze.make.pretrain.dispatch import pretrain
    from cloze.make.recipe.complete import recipe
    from cloze.make.resume import resume
    from cloze.make.vocabulary import vocabulary
    from cloze.report.page import build_report
    from cloze.tasks.answer import answer
    from cloze.tasks.choose import choose
    from cloze.tasks.classify import classify
    from cloze.tasks.compare import compare
    from cloze.tasks.embed import embed
    from cloze.tasks.evaluate import evaluate
    from cloze.tasks.export import export
    from cloze.tasks.fill import fill
    from cloze.tasks.generate import generate
    from cloze.tasks.info import info
    from cloze.tasks.score import score, score_pairs
    from cloze.tasks.similar import (
        analogy,
        combine,
        cosine,
        odd_one_out,
        plot_vectors,
        plot_words,
        similar,
    )
    from cloze.tasks.suggest import suggest
    from cloze.tasks.tag import tag
    from cloze.tasks.tokenize import tokenize
    from cloze.tasks.translate import translate
    from cloze.text.tokenizer import Tokenizer

_HOMES = {
    "load": "cloze.checkpoint.load",
    "Model": "cloze.checkpoint.model",
    "builtin": "cloze.checkpoint.source",
    "ClozeError": "cloze.errors",
    "demo": "cloze.make.demo",
    "distill": "cloze.make.distill.job",
    "glue": "cloze.make.glue",
    "pretrain": "cloze.make.pretrain.dispatch",
    "recipe": "cloze.make.recipe.complete",
    "build_report": "cloze.report.page",
    "resume": "cloze.make.resume",
    "finetune": "cloze.make.finetune.dispatch",
    "vocabulary": "cloze.make.vocabulary",
    "answer": "cloze.tasks.answer",
    "choose": "cloze.tasks.choose",
    "classify": "cloze.tasks.classify",
    "compare": "cloze.tasks.compare",
    "embed": "cloze.tasks.embed",
    "evaluate": "cloze.tasks.evaluate",
    "export": "cloze.tasks.export",
    "fill": "cloze.tasks.fill",
    "generate": "cloze.tasks.generate",
    "info": "cloze.tasks.info",
    "score": "cloze.tasks.score",
    "score_pairs": "cloze.tasks.score",
    "analogy": "cloze.tasks.similar",
    "plot_vectors": "cloze.tasks.similar",
    "combine": "cloze.tasks.similar",
    "cosine": "cloze.tasks.similar",
    "odd_one_out": "cloze.tasks.similar",
    "similar": "cloze.tasks.similar",
    "plot_words": "cloze.tasks.similar",
    "suggest": "cloze.tasks.suggest",
    "tag": "cloze.tasks.tag",
    "tokenize": "cloze.tasks.tokenize",
    "translate": "cloze.tasks.translate",
    "Tokenizer": "cloze.text.tokenizer",
}

__all__ = [
    "ClozeError",
    "Model",
    "Tokenizer",
    "analogy",
    "answer",
    "build_report",
    "builtin",
    "choose",
    "classify",
    "combine",
    "compare",
    "cosine",
    "demo",
    "distill",
    "embed",
    "evaluate",
    "export",
    "fill",
    "finetune",
    "generate",
    "glue",
    "info",
    "load",
    "odd_one_out",
    "plot_vectors",
    "plot_words",
    "pretrain",
    "recipe",
    "resume",
    "score",
    "score_pairs",
    "similar",
    "suggest",
    "tag",
    "tokenize",
    "translate",
    "vocabulary",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'cloze' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(ModuleType):
    """This package: an imported subpackage does not hide the function of its name (`evaluate`)."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
