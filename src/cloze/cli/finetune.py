"""`cloze finetune`: a model and labelled data to a model for a task."""

from functools import partial
from typing import Annotated, Any

import typer

from cloze.cli.command import Command
from cloze.cli.common import Force, Json, Quiet
from cloze.cli.training import (
    Out,
    Resume,
    Settings,
    check_paths,
    report_usage,
    resume_run,
    run_training,
    settings_to_resume,
)

_PAIRED = ("--train", "--dev")


def finetune(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="Task to learn: classify, tag, answer, choose, embed, translate or summarize.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help='Model to start from: a folder, a built-in model or "org/name". For translate and '
            "summarize: a GPT or another causal language model, or a translator to continue; leave "
            "it out to train a new one.",
        ),
    ] = None,
    *,
    out: Out,
    train: Annotated[
        list[str] | None,
        typer.Option(
            "--train",
            metavar="PATH",
            help="Training data: a file, folder, glob or - (standard input); may be repeated. For "
            "embed: pairs of texts, or running text. For "
            "translate and summarize: --train SOURCE TARGET (aligned lines), or a table with a "
            "column for each.",
        ),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="Dev data, used to select the best model (default: a tenth of --train; translate "
            "and summarize: none).",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Recipe: finetune, features (a classifier on a frozen encoder), ulmfit (a "
            "classifier on a recurrent language model), embed, or a TOML file; "
            "for translate and summarize: transformer, transformer-base, seq2seq, decoder, "
            "decoder-translate or decoder-summarize (default: the task's).",
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
    shown: dict[str, Any] = {"command": "finetune", "as_json": as_json, "quiet": quiet}
    if resume:
        given = {"task": task, "model.init_from": model, "data.train": train, "data.dev": dev}
        changes = settings_to_resume(out, options, settings, recipe=recipe, **given)
        resume_run(out, changes, **shown)
        return
    from cloze.make.recipe.complete import complete_finetuning

    with report_usage():
        completed = complete_finetuning(
            recipe, task=task, model=model, options=options, settings=settings or []
        )
    stages = getattr(completed, "language_model", None)
    texts = (*stages.general_text, *stages.unlabelled) if stages else ()
    check_paths(
        completed.model.init_from or None,
        [*(train or completed.data.train), *(dev or completed.data.dev), *texts],
    )
    from cloze.train.run_files import check_run_path

    check_run_path(out, force)
    import cloze

    tune = partial(cloze.finetune, None, None, train or [], out, completed, dev=dev or [])
    run_training(partial(tune, force=force), **shown)


class PairedFiles(Command):
    """Reads `--train SRC TGT` of translate and summarize as `--train SRC --train TGT`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Repeat the option before the second of its two values."""
        if args[:1] in (["translate"], ["summarize"]):
            expanded: list[str] = []
            for arg in args:
                is_value = arg == "-" or not arg.startswith("-")
                if expanded[-2:-1] and expanded[-2] in _PAIRED and is_value:
                    expanded.append(expanded[-2])
                expanded.append(arg)
            args = expanded
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter:
            raise
        except Exception as error:
            if "unexpected extra argument" in str(error):
                ctx.fail(f"{error}. Give the training data after --train, and dev data after --dev")
            raise


COMMAND_CLASS = PairedFiles
