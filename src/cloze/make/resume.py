"""`resume`: go on with a run, whatever kind of run it is; the recipe in its folder says."""

from collections.abc import Sequence
from typing import Any

from cloze.data.sources import Source, as_list
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.make.finetune.dispatch import TASK_MAKERS, task_of
from cloze.make.pretrain.dispatch import MODEL_MAKERS, kind_of
from cloze.make.run_folder import find_run_recipe
from cloze.train.fit import Callbacks, RunResult


def resume(
    out: PathLike,
    *,
    sources: Source | list[Source] = (),
    settings: Sequence[str] = (),
    callbacks: Callbacks | None = None,
) -> RunResult:
    """Go on with the run in a folder: of `pretrain`, `finetune` or `distill`.

    It ends as if it had never stopped, exactly where the budget is in epochs, steps or tokens.

    Args:
        out: the run's folder, with the recipe it began with.
        sources: the text of `pretrain` and `distill` again, where it must be read again and has
            moved, or the recipe could not name it; it must be the same.
        settings: may change where it runs and what it shows, not what it computes.
        callbacks: for logging and progress.
    """
    path = find_run_recipe(out)
    task = task_of(path)
    name = kind_of(path) if task is None else task
    again = (MODEL_MAKERS if task is None else TASK_MAKERS)[name].resume
    if again is None:
        raise InputError(
            f"a model of the kind {name} is made in one go: there is nothing to go on from",
            fix="make it again with --force",
        )
    text: dict[str, Any] = {"sources": sources} if as_list(sources) else {}
    if text and task is not None:
        raise InputError(
            "only runs on raw text can be given their text again",
            fix="put the data back where the recipe says",
        )
    ended: RunResult = again(out, **text, settings=settings, callbacks=callbacks)
    return ended
