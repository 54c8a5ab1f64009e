"""`cloze pretrain`: text to a model."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import Force, Json, Quiet, Threads
from cloze.cli.format import print_json, print_table
from cloze.cli.training import (
    Out,
    Resume,
    Settings,
    Sources,
    check_texts,
    report_usage,
    resume_run,
    run_training,
    settings_to_resume,
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
            "lstm, awd-lstm, elmo, word2vec, gpt, gpt2, retro, music, clip, diffusion, or a TOML "
            "file (default: that of --family, or of the family of --init-from; else laptop, or "
            "fast on a GPU).",
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Model family: bert, roberta, modernbert, gpt2, openai-gpt, gpt3, retro, "
            "music-transformer, ngram, nnlm, lstm, elmo, word2vec, clip or diffusion (default: the "
            "recipe's).",
        ),
    ] = None,
    settings: Settings = None,
    resume: Resume = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Prepare tokenizer and corpus, train for ten seconds, print the estimated steps, "
            "epochs, hours and memory, and stop.",
        ),
    ] = False,
    force: Force = False,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """Pre-train a BERT, or a model of another family, on your own text."""
    texts = inputs or []
    shown: dict[str, Any] = {"command": "pretrain", "as_json": as_json, "quiet": quiet}
    if resume:
        changes = settings_to_resume(
            out, options, settings, recipe=recipe, **{"model.family": family}
        )
        resume_run(out, changes, sources=texts, **shown)
        return
    check_texts(texts)  # the default recipe depends on the device, which torch knows
    from cloze.make.recipe.complete import complete_pretraining
    from cloze.make.recipe.pretrain import PretrainRecipe

    with report_usage():
        completed = complete_pretraining(
            recipe,
            family=family,
            options={**options, "threads": threads},
            settings=settings or [],
        )
    if plan and not isinstance(completed, PretrainRecipe):
        raise typer.BadParameter("only runs of encoders can be planned", param_hint="--plan")
    if not texts and not completed.data.sources:
        raise typer.BadParameter("no text: name files, folders or globs", param_hint="INPUT")
    if plan:
        from cloze.make.pretrain.plan import plan as estimate
        from cloze.report.display import open_callbacks

        assert isinstance(completed, PretrainRecipe)
        with open_callbacks(not quiet, ()) as opened:
            found = estimate(texts, out, completed, callbacks=opened)
        _print_plan(found, as_json)
        return
    import cloze

    run_training(partial(cloze.pretrain, texts, out, completed, force=force), **shown)


def _print_plan(plan: "Plan", as_json: bool) -> None:
    if as_json:
        print_json(plan.to_dict())
        return
    rows = [
        ("parameters", plan.parameters),
        ("vocabulary", plan.vocabulary),
        ("documents", plan.documents),
        ("tokens per epoch", plan.tokens_per_epoch),
        ("tokens per step", plan.tokens_per_step),
        ("non-padding tokens", format_percent(plan.non_padding_fraction)),
        ("tokens/s in the trial", round(plan.tokens_per_second)),
        ("steps", plan.steps),
        ("tokens", plan.tokens),
        ("epochs", f"{plan.epochs:.2f}"),
        ("time", format_duration(plan.hours * 3600)),
        ("memory of weights and optimizer", f"{plan.weights_mib:,.0f} MiB"),
        *(
            [("peak memory in the trial", f"{plan.peak_mib:,.0f} MiB")]
            if plan.peak_mib is not None
            else []
        ),
    ]
    print_table(("plan", ""), rows)
