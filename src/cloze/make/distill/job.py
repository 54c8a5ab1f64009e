"""`distill`: a model to one with half its layers, on raw text.  Sanh et al. 2019.

A run like any other of `pretrain`, with its recipe, display, report and states; what is new is the
recipe's table `distill`, which names the teacher.
"""

from collections.abc import Sequence

from cloze.checkpoint.contents import read_folder
from cloze.data.sources import Source
from cloze.files import PathLike
from cloze.make.distill.student import plan_student
from cloze.make.pretrain.job import pretrain_encoder
from cloze.make.pretrain.recipe import Recipe
from cloze.make.pretrain.recipe import recipe as complete
from cloze.train.fit import Callbacks, RunResult

DEFAULT = "distill"


def distill(
    teacher: PathLike,
    sources: Source | list[Source],
    out: PathLike,
    recipe: Recipe | PathLike = DEFAULT,
    *,
    layers: int | None = None,
    family: str | None = None,
    temperature: float | None = None,
    settings: Sequence[str] = (),
    force: bool = False,
    callbacks: Callbacks | None = None,
) -> RunResult:
    """Train a student on text to say and think what its teacher does.

    It begins with every second layer of the teacher, and learns from the teacher's guesses and the
    words at masked places, and from the teacher's vectors everywhere. A teacher without a masked-LM
    head, such as a sentence embedder, teaches its vectors alone, and its student embeds like it.

    Args:
        teacher: a folder, or "org/name".
        sources: what `cloze.data.sources.rows` reads; if empty, the recipe's `corpus.sources`.
        out: the run's and the student's folder; `cloze.resume` goes on there.
        recipe: a `Recipe`, the name of one, or its file.
        layers: of the student; half the teacher's when left out.
        family: of the student; unsaid, a ModernBERT's is a ModernBERT, any other's a DistilBERT;
            bert keeps a BERT teacher's shape.
        temperature: of both's guesses when they are compared.
        settings: such as "run.minutes=30", on top of the recipe.
        force: overwrite what is there.
        callbacks: for logging and progress.
    """
    asked = {"layers": layers, "family": family, "temperature": temperature}
    table = {"teacher": str(teacher)} | {k: v for k, v in asked.items() if v is not None}
    made = complete(recipe, flags={"distill": table}, settings=settings)
    assert made.distill is not None
    published = read_folder(teacher, kind="encoder")
    # before anything is prepared: a student that cannot be
    plan_student(
        published.config,
        published.task_heads,
        layers=made.distill.layers,
        family=made.distill.family,
    )
    return pretrain_encoder(sources, out, made, force=force, callbacks=callbacks)
