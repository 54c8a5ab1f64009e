"""`cloze evaluate`: the scores of a model on data of its kind."""

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
    from cloze.tasks.evaluation import CorpusEvaluation, Evaluation

SHOWN = 12  # labels of a confusion matrix on the screen
LONG = 160  # letters of a text there

Chinese = Annotated[
    bool | None,
    typer.Option("--chinese/--no-chinese", help="Answers: score by CMRC's rules. [found]"),
]
Bleu = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Translators: words of BLEU: 13a, zh, none. [13a]"),
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write a page: .html.")
]


def evaluate(
    model: ModelFolder,
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA",
            help="Labelled files, scored pairs or -; of a language model text; of a translator two "
            "files; of word vectors analogies, judged pairs.",
        ),
    ],
    *,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    tag_column: TagColumn = None,
    scheme: Scheme = None,
    predictions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all: .jsonl, .tsv; answers: .json by id."),
    ] = None,
    report: Report = None,
    worst: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Worst errors to show. [5; on a page 50]")
    ] = None,
    swap: Annotated[
        bool, typer.Option("--swap", help="Ask pairs again with A and B exchanged.")
    ] = False,
    max_length: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Masked LM: tokens of a sample (default: the model's limit)."
        ),
    ] = None,
    truncation: Policy = None,
    overlap: Stride = None,
    chinese: Chinese = None,
    beam: Annotated[
        int | None, typer.Option(metavar="N", help="Translators: hypotheses. [4]")
    ] = None,
    bleu: Bleu = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a model on data of its kind, and show where it goes wrong.

    A masked-LM head is asked for hidden words of running text; a model of vectors, or any with
    --pair-column or --label-column, is held against scored pairs such as STS-B.
    """
    from cloze.checkpoint.load import load
    from cloze.tasks.evaluate import evaluate
    from cloze.tasks.evaluation import CorpusEvaluation

    check_report(report, force)
    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    title = f"{Path(model).name} on {', '.join(Path(one).name for one in data)}"
    options: dict[str, Any] = {
        "name": model,
        "text_column": text_column,
        "pair_column": pair_column,
        "label_column": label_column,
        "tag_column": tag_column,
        "scheme": scheme,
        "truncation": truncation,
        "overlap": overlap,
        "max_length": max_length,
        "chinese": chinese,
        "swap": swap,
        "beam": beam,
        "bleu": bleu,
        "skip_bad": skip_bad,
        "worst": worst,
        "predictions": predictions,
        "force": force,
    }
    with progress(quiet) as show:
        made: Evaluation | CorpusEvaluation = evaluate(opened, list(data), **options, progress=show)
    skipped = Skipped()
    for error in made.skipped:
        skipped(error)
    skipped.tell()
    if report is not None:
        made.save(report, title=title)
    if isinstance(made, CorpusEvaluation):
        _show_own(made, model, as_json)
        return
    _show(made, model, as_json)


def check_report(path: Path | None, force: bool) -> None:
    """Whether a page can be written there, before the time is spent."""
    from cloze.files import check_output_path

    if path is None:
        return
    if path.suffix != ".html":
        raise InputError(f"{path}: a report is a page", fix="end its name in .html")
    check_output_path(path, force, file=True)


def _show_own(made: "CorpusEvaluation", model: str, as_json: bool) -> None:
    if as_json:
        print_json(made.to_dict())
    else:
        print_table(("score", model), made.rows())


def _show(made: "Evaluation", model: str, as_json: bool) -> None:
    from cloze.tasks.evaluation import shorten

    if as_json:
        print_json(made.to_dict())
        return
    print_table(("score", model), _scores(made))
    matrix = made.confusion
    if matrix is not None and len(matrix.labels) <= SHOWN and sys.stdout.isatty():
        rows = [
            (name, *counts)
            for name, counts in zip(matrix.labels, matrix.counts.tolist(), strict=True)
        ]
        print_table(("is \\ predicted", *matrix.labels), rows)
    if made.listed_errors:
        errors = [
            (
                *(shorten(text, LONG) for text in (one.text, one.gold, one.predicted)),
                f"{one.severity:.4g}",
                one.where,
            )
            for one in made.listed_errors
        ]
        title = f"the worst of {len(made.errors):,} errors"
        print_table(("text", "right", "predicted", made.severity, "where"), errors, title=title)


def _scores(made: "Evaluation") -> Iterator[tuple[str, object]]:
    from cloze.metrics.names import metric_label

    yield from ((metric_label(name), f"{value:.4f}") for name, value in made.scores.items())
    if made.calibration is not None:
        yield "calibration error", f"{made.calibration.error:.4f}"
    if made.swapped is not None:
        if made.swapped.agreement is not None:
            yield "same answer, A and B exchanged", f"{made.swapped.agreement:.4f}"
        yield "difference, exchanged", f"{made.swapped.difference:.4f}"
        main = made.swapped.scores[made.metric]
        yield f"{metric_label(made.metric)}, exchanged", f"{main:.4f}"
    yield "examples", made.count
    if made.truncated:
        yield "cut, too long", made.truncated
    if made.chinese:
        yield "rules", "CMRC's"
    yield "time", f"{made.seconds:.1f} s"
