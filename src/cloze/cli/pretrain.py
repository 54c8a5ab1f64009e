"""`cloze pretrain`: text to a model."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import Column, Device, Force, Json, Quiet, Threads, print_json, print_table
from cloze.cli.ended import print_end
from cloze.cli.training import (
    Accumulate,
    BatchTokens,
    CorpusFolder,
    Epochs,
    Length,
    Minutes,
    Precision,
    Rate,
    Resume,
    RunSeed,
    SaveEvery,
    Settings,
    Sources,
    Steps,
    Tensorboard,
    Tokens,
    Workers,
    for_resuming,
    given,
    nested,
    watching,
)
from cloze.plot.format import format_duration, format_percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloze.make.pretrain.dispatch import AnyRecipe
    from cloze.make.pretrain.plan import Plan
    from cloze.train.fit import Callbacks, RunResult

# flags of every command, which have nothing to change in some kinds of models
ANYONES = ("run.device", "run.seed", "run.dtype", "run.threads")
# what a setting is called on the command line, where not every kind has it
FLAGS = {
    "model.init_from": "--from",
    "model.preset": "--preset",
    "run.minutes": "--minutes",
    "run.steps": "--steps",
    "run.tokens": "--tokens",
    "run.epochs": "--epochs",
    "run.save_every": "--save-every",
    "run.tensorboard": "--tensorboard",
    "vocabulary.folder": "--vocabulary",
    "vocabulary.size": "--vocabulary-size",
    "vocabulary.extra_pieces": "--extra-pieces",
    "corpus.folder": "--corpus",
    "corpus.column": "--column",
    "corpus.dev": "--dev",
    "corpus.workers": "--workers",
    "samples.pairs": "--pairs",
    "samples.length": "--length",
    "masking.rate": "--mask-rate",
    "masking.whole_words": "--whole-words",
    "batch.tokens": "--batch-tokens",
    "batch.per_step": "--accumulate",
    "optimizer.lr": "--rate",
}


def pretrain(
    inputs: Sources = None,
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The run's and the model's folder.")],
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="laptop; on a GPU fast; bert-original; bert-tiny … bert-base; demo; "
            "ngram, nnlm, lstm, word2vec; or a file.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="bert (default), modernbert, ngram, word2vec, nnlm or lstm."
        ),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Language models: text to judge by. [the last lines]"),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="tiny, mini, small, medium, base, large; of modernbert also cloze."
        ),
    ] = None,
    minutes: Minutes = None,
    steps: Steps = None,
    tokens: Tokens = None,
    epochs: Epochs = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="MODEL", help="Go on from this model.")
    ] = None,
    extra_pieces: Annotated[
        int | None, typer.Option(metavar="N", help="With --from: words of the new text to add.")
    ] = None,
    vocabulary: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="A tokenizer; unsaid, one is learned.")
    ] = None,
    vocabulary_size: Annotated[
        int | None, typer.Option(metavar="N", help="Pieces to learn.")
    ] = None,
    pairs: Annotated[
        str | None, typer.Option(metavar="KIND", help="nsp, sop (sentence order) or none.")
    ] = None,
    whole_words: Annotated[
        bool | None, typer.Option("--whole-words/--pieces", help="What is masked.")
    ] = None,
    mask_rate: Annotated[float | None, typer.Option(metavar="SHARE", help="Of the tokens.")] = None,
    length: Length = None,
    batch_tokens: BatchTokens = None,
    accumulate: Accumulate = None,
    rate: Rate = None,
    dtype: Precision = None,
    column: Column = None,
    corpus: CorpusFolder = None,
    settings: Settings = None,
    save_every: SaveEvery = None,
    workers: Workers = None,
    resume: Resume = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Prepare vocabulary and corpus, try ten seconds, say what to expect, and stop.",
        ),
    ] = False,
    tensorboard: Tensorboard = None,
    seed: RunSeed = None,
    force: Force = False,
    device: Device = None,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a BERT, or a model of another kind, on your own text, in the time you have."""
    flags = given(
        {
            "model.init_from": start,
            "model.preset": preset,
            "run.minutes": minutes,
            "run.steps": steps,
            "run.tokens": tokens,
            "run.epochs": epochs,
            "run.seed": seed,
            "run.dtype": dtype,
            "run.save_every": save_every,
            "run.device": device,
            "run.tensorboard": tensorboard,
            "vocabulary.folder": vocabulary,
            "vocabulary.size": vocabulary_size,
            "vocabulary.extra_pieces": extra_pieces,
            "corpus.folder": corpus,
            "corpus.column": column,
            "corpus.dev": dev or None,
            "corpus.workers": workers,
            "samples.pairs": pairs,
            "samples.length": length,
            "masking.rate": mask_rate,
            "masking.whole_words": whole_words,
            "batch.tokens": batch_tokens,
            "batch.per_step": accumulate,
            "optimizer.lr": rate,
        }
    )

    from cloze.make.pretrain.dispatch import complete, pretrain
    from cloze.make.resume import resume as go_on

    ended: RunResult
    with watching(str(out), quiet=quiet, display=not as_json) as callbacks:
        if resume:
            changed = for_resuming(flags, settings, recipe, model)
            ended = go_on(out, sources=inputs or [], settings=changed, callbacks=callbacks)
        else:
            texts = inputs or []
            # no setting of a run that goes on: the libraries have heard of it already
            own = _own({**flags, **given({"run.threads": threads})}, model, recipe)
            _, made = complete(recipe, model=model, flags=nested(own), settings=settings or [])
            if not texts and not made.corpus.sources:
                raise typer.BadParameter(
                    "no text: name files, folders or globs", param_hint="INPUT"
                )
            if plan:
                _plan(texts, out, made, callbacks, as_json)
                return
            ended = pretrain(texts, out, made, force=force, callbacks=callbacks)
    print_end(ended, as_json)


def _own(flags: "Mapping[str, Any]", model: str | None, recipe: str | None) -> dict[str, Any]:
    """The flags as this kind of model calls them; those it does not know are bad usage."""
    from cloze.config import one_of
    from cloze.make.pretrain.dispatch import MODEL_MAKERS, START, kind_in, kind_of, made_in_one_go

    if model is not None:
        one_of("model", model, MODEL_MAKERS)
    if recipe is None:
        name = model or kind_in(flags.get(START)) or "bert"
    else:
        name = model or kind_of(recipe)
    own: dict[str, Any] = {}
    for setting, value in flags.items():
        path = MODEL_MAKERS[name].path(setting)
        if path is not None:
            whole = isinstance(value, float) and value.is_integer()
            own[path] = int(value) if whole else value
        elif setting == START:
            raise made_in_one_go(name)
        elif setting not in ANYONES:
            raise typer.BadParameter(f"--model {name} does not know it", param_hint=FLAGS[setting])
    return own


def _plan(
    texts: list[str], out: Path, recipe: "AnyRecipe", callbacks: "Callbacks", as_json: bool
) -> None:
    from cloze.make.pretrain.plan import plan
    from cloze.make.pretrain.recipe import Recipe

    if not isinstance(recipe, Recipe):
        raise typer.BadParameter("only an encoder is planned", param_hint="--plan")
    _print_plan(plan(texts, out, recipe, callbacks=callbacks), as_json)


def _print_plan(made: "Plan", as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(made))
        return
    rows = [
        ("parameters", made.parameters),
        ("vocabulary", made.vocabulary),
        ("documents", made.documents),
        ("tokens in an epoch", made.tokens_per_epoch),
        ("tokens in a step", made.tokens_per_step),
        ("places filled with tokens", format_percent(made.real_share)),
        ("tokens a second, in a trial", round(made.tokens_per_second)),
        ("steps", made.steps),
        ("tokens", made.tokens),
        ("epochs", f"{made.epochs:.2f}"),
        ("time", format_duration(made.hours * 3600)),
        ("memory of weights and optimizer", f"{made.weights_mib:,.0f} MiB"),
        *(
            [("most memory in the trial", f"{made.peak_mib:,.0f} MiB")]
            if made.peak_mib is not None
            else []
        ),
    ]
    print_table(("plan", ""), rows)
