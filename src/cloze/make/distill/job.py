"""`distill`: a model to one with half of its layers, on raw text.  Sanh et al. 2019.

The student is trained like an encoder in pre-training; its recipe has a table `distill` that names
the teacher.
"""

from __future__ import annotations  # `help` shows types by their short names

from collections.abc import Iterable
from typing import Unpack

from cloze.checkpoint.contents import read_folder
from cloze.config import Settings
from cloze.data.sources import Sources, collect_sources
from cloze.files import PathLike
from cloze.make.distill.student import plan_student
from cloze.make.pretrain.job import pretrain_encoder
from cloze.make.recipe.classes import Recipe
from cloze.make.recipe.complete import complete_distillation
from cloze.make.recipe.keywords import DistillOptions
from cloze.make.recipe.option_help import document_options
from cloze.report.display import open_callbacks
from cloze.train.callbacks import Callback
from cloze.train.result import RunResult


@document_options("distill")
def distill(
    teacher: PathLike,
    sources: Sources,
    out: PathLike,
    recipe: Recipe | PathLike | None = None,
    *,
    settings: Settings = (),
    force: bool = False,
    progress: bool = True,
    callbacks: Callback | Iterable[Callback] = (),
    **options: Unpack[DistillOptions],
) -> RunResult:
    """Train a student on text to reproduce the predictions and hidden states of its teacher.

    It starts with every second layer of the teacher, and learns from the teacher's predictions and
    the tokens at masked positions, and from the teacher's hidden states at all positions. A teacher
    without a masked-LM head, such as a sentence embedder, teaches its hidden states only.

    Args:
        teacher: a folder, a built-in model or "org/name".
        sources: text, as in `pretrain`; if empty, the recipe's `data.sources`.
        out: the run's and the student's folder.
        recipe: a recipe with a table `distill`, the name of one, or its file (default: distill).
        settings: any settings of the recipe, such as {"run.minutes": 30}, {"run": {"minutes": 30}}
            or ["run.minutes=30"].
        force: overwrite what is in `out`.
        progress: show progress bars and metrics on a terminal or in a notebook, else log lines.
        callbacks: called while the run is prepared and trained, and when it ends.
    """
    completed = complete_distillation(recipe, teacher=teacher, options=options, settings=settings)
    published = read_folder(teacher, kind="encoder")
    plan_student(  # raises before anything is prepared
        published.config,
        published.task_heads,
        layers=completed.distill.num_layers,
        family=completed.distill.family,
    )
    text = collect_sources(sources)
    with open_callbacks(progress, callbacks) as opened:
        return pretrain_encoder(text, out, completed, force=force, callbacks=opened)
