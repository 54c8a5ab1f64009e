"""`cloze pretrain`: text to a model."""

import dataclasses
import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import Device, Force, Json, Quiet, print_json, print_table, progress
from cloze.errors import ConfigError

if TYPE_CHECKING:
    from cloze.make.metrics import Meter
    from cloze.make.plan import Plan
    from cloze.make.pretrain import Pretrained
    from cloze.make.workshop import Say
    from cloze.train.step import Step


# flags that change where a run happens and what it shows: a resumed one may take them
ANYWHERE = {"run.device", "run.tensorboard", "run.save_every", "corpus.workers", "corpus.folder"}


def pretrain(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Files, folders or globs of text."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The run's and the model's folder.")],
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="laptop (default), bert-tiny … bert-base, or a file."
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="SIZE", help="tiny, mini, small, medium, base, large.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(metavar="N", help="Train this long.")] = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="Or so many steps.")] = None,
    tokens: Annotated[int | None, typer.Option(metavar="N", help="Or so many tokens.")] = None,
    epochs: Annotated[float | None, typer.Option(metavar="N", help="Or so often all.")] = None,
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
    length: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens in a sample, at most.")
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens computed at once.")
    ] = None,
    accumulate: Annotated[
        int | None, typer.Option(metavar="N", help="Batches to a step, over all processes.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="X", help="The highest learning rate.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="NAME", help="float32 or bf16 (mixed).")
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="A prepared corpus to share or reuse.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Any setting of the recipe."),
    ] = None,
    save_every: Annotated[int | None, typer.Option(metavar="STEPS", help="Save the state.")] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes that prepare the text.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be done, and stop.")] = False,
    tensorboard: Annotated[
        bool | None, typer.Option("--tensorboard", help="Write for TensorBoard, too.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Seed of all that is random.")
    ] = None,
    force: Force = False,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a BERT on your own text, in the time you have."""
    flags = given(
        {
            "model.start": start,
            "model.preset": preset,
            "run.minutes": minutes,
            "run.steps": steps,
            "run.tokens": tokens,
            "run.epochs": epochs,
            "run.seed": seed,
            "run.precision": dtype,
            "run.save_every": save_every,
            "run.device": device,
            "run.tensorboard": tensorboard,
            "vocabulary.folder": vocabulary,
            "vocabulary.size": vocabulary_size,
            "vocabulary.extra_pieces": extra_pieces,
            "corpus.folder": corpus,
            "corpus.workers": workers,
            "samples.pairs": pairs,
            "samples.length": length,
            "masking.rate": mask_rate,
            "masking.whole_words": whole_words,
            "batch.tokens": batch_tokens,
            "batch.per_step": accumulate,
            "optimiser.rate": rate,
        }
    )

    from cloze.make.plan import plan as make_plan
    from cloze.make.pretrain import Watch, pretrain, resume_run
    from cloze.make.recipe import DEFAULT
    from cloze.make.recipe import recipe as make_recipe

    begun = [path for path in flags if path not in ANYWHERE]
    if resume and (inputs or begun or recipe or settings):
        raise ConfigError(
            "a resumed run goes on by the recipe it began with",
            fix="give --resume and --out alone, or start a new run with --from",
        )
    with ExitStack() as stack:
        say = say_on(stack.enter_context(progress(quiet)), quiet)
        watch = Watch(
            say=say,
            steps=partial(shown, before=stack, title=str(out), quiet=quiet or as_json),
        )
        if resume:
            changed = [f"{path}={json.dumps(value)}" for path, value in flags.items()]
            ended = resume_run(out, settings=changed, watch=watch)
        else:
            texts = inputs or []
            made = make_recipe(recipe or DEFAULT, flags=nested(flags), settings=settings or [])
            if not texts and not made.corpus.sources:
                raise typer.BadParameter(
                    "no text: name files, folders or globs", param_hint="INPUT"
                )
            if plan:
                _print_plan(make_plan(texts, out, made, say=say), as_json)
                return
            ended = pretrain(texts, out, made, force=force, watch=watch)
    print_end(ended, as_json)


def say_on(show: "Callable[[str, int, int | None], None]", quiet: bool) -> "Say":
    from cloze.make.workshop import Say

    return Say(
        text=(lambda _: None) if quiet else (lambda text: typer.echo(text, err=True)),
        vocabulary=show,
        corpus=lambda done: show("documents prepared", done.documents, None),
    )


def shown(
    steps: "Iterator[Step]", meter: "Meter", *, before: ExitStack, title: str, quiet: bool
) -> "Iterator[Step]":
    """The steps, with a live display around them in place of the bars of the preparation."""
    from cloze.train.display import Display

    before.close()
    if quiet:
        yield from steps
        return
    waiting: deque[Step] = deque()  # on their way from a GPU, which nobody waits for
    with Display(title=title) as display:
        for step in steps:
            waiting.append(step)
            while waiting and (waiting[0].ready or waiting[0].last):
                for row in meter.rows(waiting.popleft()):
                    display.show(row)
            yield step


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
        ("places filled with tokens", f"{made.real_share:.1%}"),
        ("tokens a second, in a trial", round(made.tokens_per_second)),
        ("steps", made.steps),
        ("tokens", made.tokens),
        ("epochs", f"{made.epochs:.2f}"),
        ("time", _duration(made.hours * 3600)),
        ("memory of weights and optimiser", f"{made.weights_mib:,.0f} MiB"),
        ("most memory in the trial", f"{made.peak_mib:,.0f} MiB"),
    ]
    print_table(("plan", ""), rows)


def print_end(ended: "Pretrained", as_json: bool, verb: str = "pretrain") -> None:
    if as_json:
        print_json({**dataclasses.asdict(ended), "folder": str(ended.folder)})
        return
    scores = {
        "eval.mlm": ("held-out loss", "{:.3f}"),
        "eval.perplexity": ("held-out perplexity", "{:,.1f}"),
        "eval.mlm.accuracy": ("masked words right", "{:.1%}"),
        "eval.mlm.teacher": ("by the teacher", "{:.1%}"),
        "eval.unigram": ("by the commonest word", "{:.1%}"),
        "eval.nsp.accuracy": ("next sentences right", "{:.1%}"),
        "eval.commoner": ("by the commoner answer", "{:.1%}"),
        "eval.cosine": ("1 − cosine with the teacher", "{:.4f}"),
    }
    rows: list[tuple[str, object]] = [
        ("steps", ended.steps),
        ("tokens", ended.tokens),
        ("time", _duration(ended.seconds)),
        *(
            (name, f.format(ended.scores[k]))
            for k, (name, f) in scores.items()
            if k in ended.scores
        ),
        ("report", str(ended.folder / "report.html")),
    ]
    print_table(("trained", str(ended.folder)), rows)
    if ended.stopped:
        again = f"cloze {verb} --resume --out {ended.folder}"
        typer.echo(f"stopped by {ended.stopped} and saved; to go on: {again}", err=True)


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


def given(flags: dict[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in flags.items() if value is not None}


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        table, _, name = path.partition(".")
        nested.setdefault(table, {})[name] = value
    return nested
