"""`cloze finetune`: a model and labelled data to a model for a task."""

from typing import Annotated, Any

import typer

from cloze.cli.common import Command, Force, Json, Quiet
from cloze.cli.format_run import print_run_result
from cloze.cli.training import (
    Out,
    Resume,
    Settings,
    report_usage,
    settings_to_resume,
    show_progress,
)

_PAIRED = ("--train", "--dev")


def finetune(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK", help="Task to learn: classify, tag, answer, choose or translate."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help='Model to start from: a folder, a built-in model or "org/name"; translate: a '
            "translator to continue, or none.",
        ),
    ] = None,
    *,
    out: Out,
    train: Annotated[
        list[str] | None,
        typer.Option(
            "--train",
            metavar="PATH",
            help="Training data, - for standard input; translate: SRC TGT.",
        ),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="Data to evaluate on (default: a tenth of --train; translate: none).",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Recipe: finetune, features; translate: transformer, transformer-base, seq2seq; "
            "or a TOML file (default: the task's).",
        ),
    ] = None,
    settings: Settings = None,
    resume: Resume = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """Fine-tune a model for a task with labelled data."""
    if resume:
        changed = settings_to_resume(out, options, settings, task, model, train, dev, recipe)
        import cloze

        with show_progress(str(out), quiet=quiet, display=not as_json) as callbacks:
            ended = cloze.resume(out, settings=changed, callbacks=callbacks)
        print_run_result(ended, as_json, command="finetune")
        return
    from cloze.make.recipe.complete import complete_finetuning

    with report_usage():
        made = complete_finetuning(
            recipe, task=task, model=model, options=options, settings=settings or []
        )
    import cloze

    with show_progress(str(out), quiet=quiet, display=not as_json) as callbacks:
        ended = cloze.finetune(
            None, None, train or [], out, made, dev=dev or [], force=force, callbacks=callbacks
        )
    print_run_result(ended, as_json, command="finetune")


class PairedFiles(Command):
    """Reads `--train SRC TGT` of a translator as `--train SRC --train TGT`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Repeat the option before the second of its two values."""
        if args[:1] == ["translate"]:
            expanded: list[str] = []
            for arg in args:
                is_value = arg == "-" or not arg.startswith("-")
                if expanded[-2:-1] and expanded[-2] in _PAIRED and is_value:
                    expanded.append(expanded[-2])
                expanded.append(arg)
            args = expanded
        return super().parse_args(ctx, args)


COMMAND_CLASS = PairedFiles
