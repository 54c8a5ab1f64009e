"""`cloze distill`: a model to one with half of its layers."""

from typing import Annotated, Any

import typer

from cloze.cli.common import Force, Json, Quiet
from cloze.cli.format_run import print_run_result
from cloze.cli.training import (
    Out,
    Settings,
    Sources,
    report_usage,
    settings_to_resume,
    show_progress,
)


def distill(
    teacher: Annotated[
        str | None,
        typer.Argument(
            metavar="TEACHER",
            help='Model to learn from: a folder, a built-in model or "org/name".',
        ),
    ] = None,
    inputs: Sources = None,
    *,
    out: Out,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="Recipe: distill, or a TOML file (default distill)."
        ),
    ] = None,
    settings: Settings = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the run in --out; name the TEACHER again if it has moved."
        ),
    ] = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """Train a student with half of a model's layers to reproduce the model, on raw text."""
    texts = inputs or []
    if resume:
        moved = {} if teacher is None else {"distill.teacher": teacher}
        changed = settings_to_resume(out, options, settings, recipe, moved=moved)
        import cloze

        with show_progress(str(out), quiet=quiet, display=not as_json) as callbacks:
            ended = cloze.resume(out, sources=texts, settings=changed, callbacks=callbacks)
        print_run_result(ended, as_json, command="distill")
        return
    if teacher is None:
        raise typer.BadParameter("no model to learn from: name its folder", param_hint="TEACHER")
    from cloze.make.recipe.complete import complete_distillation

    with report_usage():
        made = complete_distillation(
            recipe, teacher=teacher, options=options, settings=settings or []
        )
    if not texts and not made.data.sources:
        raise typer.BadParameter("no text: name files, folders or globs", param_hint="INPUT")
    import cloze

    with show_progress(str(out), quiet=quiet, display=not as_json) as callbacks:
        ended = cloze.distill(teacher, texts, out, made, force=force, callbacks=callbacks)
    print_run_result(ended, as_json, command="distill")
