"""`cloze distill`: a model to one with half of its layers."""

from functools import partial
from typing import Annotated, Any

import typer

from cloze.cli.common import Force, Json, Quiet
from cloze.cli.training import (
    Out,
    Settings,
    Sources,
    check_paths,
    check_texts,
    report_usage,
    resume_run,
    run_training,
    settings_to_resume,
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
    shown: dict[str, Any] = {"command": "distill", "as_json": as_json, "quiet": quiet}
    if resume:
        from cloze.make.sources import resolve_model_name

        changes = settings_to_resume(out, options, settings, recipe=recipe)
        if teacher is not None:  # it may have moved, and its weights are compared
            changes["distill.teacher"] = resolve_model_name(teacher)
        resume_run(out, changes, sources=texts, **shown)
        return
    if teacher is None:
        raise typer.BadParameter("no model to learn from: name its folder", param_hint="TEACHER")
    from cloze.make.recipe.complete import complete_distillation

    with report_usage():
        completed = complete_distillation(
            recipe, teacher=teacher, options=options, settings=settings or []
        )
    if not texts and not completed.data.sources:
        raise typer.BadParameter("no text: name files, folders or globs", param_hint="INPUT")
    check_paths(teacher, ())
    check_texts(texts)
    import cloze

    run_training(partial(cloze.distill, teacher, texts, out, completed, force=force), **shown)
