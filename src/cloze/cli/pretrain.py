"""`cloze pretrain`: text to a model."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import Device, Force, Json, Quiet, Threads, print_json, print_table, progress
from cloze.errors import ConfigError

if TYPE_CHECKING:
    from cloze.make.plan import Plan
    from cloze.make.pretrain import Pretrained

FRACTION = 100


def pretrain(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Files, folders or globs of text."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The run's and the model's folder.")],
    recipe: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="bert-tiny … bert-base, or a TOML file.")
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
        int, typer.Option(metavar="N", help="With --from: words of the new text to add.")
    ] = 0,
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
        Path | None, typer.Option(metavar="FOLDER", help="A prepared corpus to share or reuse.")
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
        bool, typer.Option("--tensorboard", help="Write for TensorBoard, too.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Seed of all that is random.")
    ] = None,
    force: Force = False,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a BERT on your own text, in the time you have."""
    flags = _nested(
        {
            "model.preset": preset,
            "run.minutes": minutes,
            "run.steps": steps,
            "run.tokens": tokens,
            "run.epochs": epochs,
            "run.seed": seed,
            "run.precision": dtype,
            "run.save_every": save_every,
            "vocabulary.folder": vocabulary,
            "vocabulary.size": vocabulary_size,
            "samples.pairs": pairs,
            "samples.length": length,
            "masking.rate": mask_rate,
            "masking.whole_words": whole_words,
            "batch.tokens": batch_tokens,
            "batch.per_step": accumulate,
            "optimiser.rate": rate,
        }
    )
    ...


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        table, _, name = path.partition(".")
        if value is not None:
            nested.setdefault(table, {})[name] = value
    return nested
