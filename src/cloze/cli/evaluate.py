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
    TextColumn,
    print_json,
    print_table,
    progress,
)
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.tasks.evaluation import Evaluation
    from cloze.tasks.scored import CorpusEvaluation

SHOWN = 12  # labels of a confusion matrix on the screen
LONG = 160  # letters of a text there
WORST = 5

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
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of the tags; of running text.")
    ] = None,
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
    length: Annotated[
        int | None,
        typer.Option(metavar="N", help="Masked words: tokens of a sample. [the model's]"),
    ] = None,
    policy: Policy = None,
    stride: Stride = None,
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
    --pair or --label, is held against scored pairs such as STS-B.
    """
    from cloze.checkpoint.abilities import family_of
    from cloze.checkpoint.families import load
    from cloze.tasks.evaluate import evaluate
    from cloze.tasks.evaluate_pretrained import evaluation_kind, is_pretrained
    from cloze.tasks.predictions import predictions_file, write_predictions
    from cloze.tasks.scored import CorpusEvaluation

    if predictions is not None:  # before the time is spent
        predictions_file(predictions, force=force)
    check_report(report, force)
    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    own = family_of(opened) is not None
    untaught = (
        is_pretrained(opened) and evaluation_kind(opened, pair=pair, label=label) != "similarity"
    )
    if (own or untaught) and (predictions is not None or worst is not None):
        name = "--worst" if predictions is None else "--predictions"
        what = "a model judged by running text" if untaught else f"a {type(opened).__name__}"
        raise typer.BadParameter(f"{what} does not know it", param_hint=name)
    title = f"{Path(model).name} on {', '.join(Path(one).name for one in data)}"
    options: dict[str, Any] = {
        "text": text,
        "pair": pair,
        "label": label,
        "column": column,
        "scheme": scheme,
        "policy": policy,
        "stride": stride,
        "length": length,
        "chinese": chinese,
        "swap": swap,
        "beam": beam,
        "bleu": bleu,
        "skip_bad": skip_bad,
    }
    with progress(quiet) as show:
        made: Evaluation | CorpusEvaluation = evaluate(opened, list(data), **options, progress=show)
    skipped = Skipped()
    for error in made.skipped:
        skipped(error)
    skipped.tell()
    if report is not None:
        listed = {} if worst is None else {"worst": worst}  # of our own families it is refused
        made.save(report, title=title, **listed)
    if isinstance(made, CorpusEvaluation):
        _show_own(made, model, as_json)
        return
    if predictions is not None:
        write_predictions(made, predictions, force=force)
    _show(made, model, WORST if worst is None else worst, as_json)


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
        print_json({"model": model, **made.to_dict()})
    else:
        print_table(("score", model), made.rows())


def _show(made: "Evaluation", model: str, worst: int, as_json: bool) -> None:
    from cloze.tasks.evaluation import shorten

    if as_json:
        listed = [dataclasses.asdict(one) for one in made.worst_errors(worst)]
        print_json({"model": model, **made.to_dict(), "worst": listed})
        return
    print_table(("score", model), _scores(made))
    matrix = made.confusion
    if matrix is not None and len(matrix.labels) <= SHOWN and sys.stdout.isatty():
        rows = [
            (name, *counts)
            for name, counts in zip(matrix.labels, matrix.counts.tolist(), strict=True)
        ]
        print_table(("is \\ predicted", *matrix.labels), rows)
    if worst and made.errors:
        errors = [
            (
                *(shorten(text, LONG) for text in (one.text, one.gold, one.predicted)),
                f"{one.severity:.4g}",
                one.where,
            )
            for one in made.worst_errors(worst)
        ]
        title = f"the worst of {len(made.errors):,} errors"
        print_table(("text", "right", "predicted", made.severity, "where"), errors, title=title)


def _scores(made: "Evaluation") -> Iterator[tuple[str, object]]:
    from cloze.metrics.names import called

    yield from ((called(name), f"{value:.4f}") for name, value in made.scores.items())
    if made.calibration is not None:
        yield "calibration error", f"{made.calibration.error:.4f}"
    if made.swapped is not None:
        if made.swapped.agreement is not None:
            yield "same answer, A and B exchanged", f"{made.swapped.agreement:.4f}"
        yield "difference, exchanged", f"{made.swapped.difference:.4f}"
        main = made.swapped.scores[made.metric]
        yield f"{called(made.metric)}, exchanged", f"{main:.4f}"
    yield "examples", made.count
    if made.truncated:
        yield "cut, too long", made.truncated
    if made.chinese:
        yield "rules", "CMRC's"
    yield "time", f"{made.seconds:.1f} s"
