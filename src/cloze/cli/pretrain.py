"""`cloze pretrain`: text to a model."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import Force, Json, Quiet, Threads
from cloze.cli.format import print_json, print_table
from cloze.cli.format_run import print_run_result
from cloze.cli.training import (
    Out,
    Resume,
    Settings,
    Sources,
    report_usage,
    settings_to_resume,
    show_progress,
)
from cloze.plot.format import format_duration, format_percent

if TYPE_CHECKING:
    from cloze.make.pretrain.plan import Plan


def pretrain(
    inputs: Sources = None,
    *,
    out: Out,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Recipe: laptop, fast, bert-original, bert-tiny … bert-base, demo, ngram, nnlm, "
            "lstm, word2vec, or a TOML file (default: the family's; laptop, on a GPU fast).",
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Model family: bert, modernbert, ngram, nnlm, lstm or word2vec (default: the "
            "recipe's).",
        ),
    ] = None,
    settings: Settings = None,
    resume: Resume = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Prepare tokenizer and corpus, train for ten seconds, print an estimate and stop.",
        ),
    ] = False,
    force: Force = False,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """Pre-train a BERT, or a model of another family, on your own text, in the time you have."""
    texts = inputs or []
    if resume:
        changed = settings_to_resume(out, options, settings, recipe, family)
        import cloze

        with show_progress(str(out), quiet=quiet, display=not as_json) as callbacks:
            ended = cloze.resume(out, sources=texts, settings=changed, callbacks=callbacks)
        print_run_result(ended, as_json)
        return
    from cloze.make.recipe.complete import complete_pretraining
    from cloze.make.recipe.pretrain import PretrainRecipe

    with report_usage():
        made = complete_pretraining(
            recipe,
            family=family,
            options={**options, "threads": threads},
            settings=settings or [],
        )
    if plan and not isinstance(made, PretrainRecipe):
        raise typer.BadParameter("only encoders can be planned", param_hint="--plan")
    if not texts and not made.data.sources:
        raise typer.BadParameter("no text: name files, folders or globs", param_hint="INPUT")
    import cloze

    with show_progress(str(out), quiet=quiet, display=not as_json) as callbacks:
        if plan:
            from cloze.make.pretrain.plan import plan as estimate

            assert isinstance(made, PretrainRecipe)
            _print_plan(estimate(texts, out, made, callbacks=callbacks), as_json)
            return
        ended = cloze.pretrain(texts, out, made, force=force, callbacks=callbacks)
    print_run_result(ended, as_json)


def _print_plan(made: "Plan", as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(made))
        return
    rows = [
        ("parameters", made.parameters),
        ("vocabulary", made.vocabulary),
        ("documents", made.documents),
        ("tokens per epoch", made.tokens_per_epoch),
        ("tokens per step", made.tokens_per_step),
        ("non-padding tokens", format_percent(made.real_share)),
        ("tokens/s in the trial", round(made.tokens_per_second)),
        ("steps", made.steps),
        ("tokens", made.tokens),
        ("epochs", f"{made.epochs:.2f}"),
        ("time", format_duration(made.hours * 3600)),
        ("memory of weights and optimizer", f"{made.weights_mib:,.0f} MiB"),
        *(
            [("peak memory in the trial", f"{made.peak_mib:,.0f} MiB")]
            if made.peak_mib is not None
            else []
        ),
    ]
    print_table(("plan", ""), rows)
