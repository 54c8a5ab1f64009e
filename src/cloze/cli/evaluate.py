"""`cloze evaluate`: the scores of a model on data of its kind."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Force,
    Json,
    LabelColumn,
    ModelFolder,
    PairColumn,
    Policy,
    Quiet,
    Scheme,
    SkipBad,
    Skipped,
    Stride,
    TagColumn,
    TextColumn,
    print_json,
    print_table,
    progress,
)
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.tasks.evaluate_own import Scored
    from cloze.tasks.evaluation import Evaluation

SHOWN = 12  # labels of a confusion matrix on the screen
LONG = 160  # letters of a text there

Chinese = Annotated[
    bool | None,
    typer.Option("--chinese/--no-chinese", help="Answers: score by CMRC's rules. [found]"),
]
Bleu = Annotated[
    str, typer.Option(metavar="NAME", help="Translators: words of BLEU: 13a, zh, none.")
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write a page: .html.")
]


def evaluate(
    model: ModelFolder,
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA", help="Labelled files; of a language model text; of a translator two."
        ),
    ],
    *,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    column: TagColumn = None,
    scheme: Scheme = None,
    predictions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all: .jsonl, .tsv; answers: .json by id."),
    ] = None,
    report: Report = None,
    worst: Annotated[int, typer.Option(min=0, metavar="N", help="Worst errors to show.")] = 5,
    swap: Annotated[
        bool, typer.Option("--swap", help="Ask pairs again with A and B exchanged.")
    ] = False,
    policy: Policy = None,
    stride: Stride = None,
    chinese: Chinese = None,
    beam: Annotated[int, typer.Option(metavar="N", help="Translators: hypotheses.")] = 4,
    bleu: Bleu = "13a",
    skip_bad: SkipBad = False,
    force: Force = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a model on data of its kind, and show where it goes wrong."""
    from cloze.checkpoint.abilities import family_of
    from cloze.checkpoint.families import load
    from cloze.tasks.evaluate import evaluate
    from cloze.tasks.predictions import predictions_file, write_predictions

    if predictions is not None:  # before the time is spent
        predictions_file(predictions, force=force)
    check_report(report, force)
    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    title = f"{Path(model).name} on {', '.join(Path(one).name for one in data)}"
    options: dict[str, Any] = {
        "text": text,
        "pair": pair,
        "label": label,
        "column": column,
        "scheme": scheme,
        "policy": policy,
        "stride": stride,
        "chinese": chinese,
        "swap": swap,
        "skip_bad": skip_bad,
    }
    if family_of(opened) is not None:
        _refuse(options | {"predictions": predictions}, type(opened).__name__)
        scored = _own(opened, data, beam=beam, bleu=bleu, quiet=quiet)
        _show_own(scored, model, title, report, as_json)
        return
    with progress(quiet) as show:
        made = evaluate(
            opened,
            list(data),
            **options,
            progress=lambda done, of: show("sequences", done, of),
        )
    skipped = Skipped()
    for error in made.skipped:
        skipped(error)
    skipped.tell()
    if predictions is not None:
        write_predictions(made, predictions, force=force)
    if report is not None:
        made.save(report, title=title)
    if as_json:
        errors = [dataclasses.asdict(one) for one in made.worst(worst)]
        print_json({"model": model, **made.data, "worst": errors})
    else:
        _show(made, model, worst)


def check_report(path: Path | None, force: bool) -> None:
    """Whether a page can be written there, before the time is spent."""
    from cloze.data.files import fresh_path

    if path is None:
        return
    if path.suffix != ".html":
        raise InputError(f"{path}: a report is a page", fix="end its name in .html")
    fresh_path(path, force)


def _refuse(options: dict[str, Any], name: str) -> None:
    for option, value in options.items():
        if value not in (None, False):
            raise typer.BadParameter(
                f"a {name} does not know it", param_hint=f"--{option.replace('_', '-')}"
            )


def _own(opened: Any, data: list[str], *, beam: int, bleu: str, quiet: bool) -> "Scored":  # noqa: ANN401
    from cloze.tasks.evaluate_own import evaluate_own

    with progress(quiet) as show:
        return evaluate_own(
            opened,
            list(data),
            beam=beam,
            bleu=bleu,
            progress=lambda done, of: show("sentences", done, of),
        )


def _show_own(scored: "Scored", model: str, title: str, report: Path | None, as_json: bool) -> None:
    if report is not None:
        scored.save(report, title=title)
    if as_json:
        print_json({"model": model, **scored.data})
    else:
        print_table(("score", model), scored.rows())


def _show(made: "Evaluation", model: str, worst: int) -> None:
    from cloze.tasks.evaluation import shortened

    print_table(("score", model), _scores(made))
    matrix = made.confusion
    if matrix is not None and len(matrix.labels) <= SHOWN and sys.stdout.isatty():
        rows = [
            (name, *counts)
            for name, counts in zip(matrix.labels, matrix.counts.tolist(), strict=True)
        ]
        print_table(("is \\ predicted", *matrix.labels), rows)
    if worst and made.mistakes:
        errors = [
            (
                *(shortened(text, LONG) for text in (one.text, one.gold, one.said)),
                f"{one.weight:.4g}",
                one.where,
            )
            for one in made.worst(worst)
        ]
        title = f"the worst of {len(made.mistakes):,} errors"
        print_table(("text", "right", "predicted", made.weight, "where"), errors, title=title)


def _scores(made: "Evaluation") -> Iterator[tuple[str, object]]:
    yield from ((name, f"{value:.4f}") for name, value in made.scores.items())
    if made.calibration is not None:
        yield "calibration error", f"{made.calibration.error:.4f}"
    if made.swapped is not None:
        if made.swapped.same is not None:
            yield "same, A and B exchanged", f"{made.swapped.same:.4f}"
        yield "difference, exchanged", f"{made.swapped.difference:.4f}"
        main = made.swapped.scores[made.measure]
        yield f"{made.measure}, exchanged", f"{main:.4f}"
    yield "examples", made.count
    if made.cut:
        yield "cut, too long", made.cut
    if made.chinese:
        yield "rules", "CMRC's"
    yield "time", f"{made.seconds:.1f} s"
