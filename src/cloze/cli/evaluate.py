"""`cloze evaluate`: the scores of a model on data of its kind."""

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Force,
    Json,
    LabelColumn,
    ModelFolder,
    Overlap,
    PairColumn,
    Quiet,
    Scheme,
    SkipBad,
    TagColumn,
    TextColumn,
    Truncation,
    check_page_path,
    print_skipped,
    progress,
)
from cloze.cli.format import print_json
from cloze.cli.format_evaluation import print_evaluation

Chinese = Annotated[
    bool | None,
    typer.Option(
        "--chinese/--no-chinese",
        help="Score answers by CMRC's rules (default: if most contexts are Chinese).",
    ),
]
Bleu = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Tokenizer of BLEU: 13a, zh or none (default 13a)."),
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write an HTML page: FILE.html.")
]


def evaluate(
    model: ModelFolder,
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA",
            help="Labelled files, pairs of texts with ratings, or -; text for a language model; "
            "source and target for a translator; analogies and rated pairs for word vectors.",
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
        typer.Option(
            metavar="FILE", help="Write all predictions: .jsonl, .tsv, or for answers .json by id."
        ),
    ] = None,
    report: Report = None,
    worst: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Number of worst errors to show (default 5; on a page 50)."
        ),
    ] = None,
    swap: Annotated[
        bool, typer.Option("--swap", help="Predict pairs again with the two texts swapped.")
    ] = False,
    max_length: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Masked LM: tokens per sample (default: the model's maximum length)."
        ),
    ] = None,
    truncation: Truncation = None,
    overlap: Overlap = None,
    chinese: Chinese = None,
    beam: Annotated[
        int | None,
        typer.Option(metavar="N", help="Translators: hypotheses of the beam search (default 4)."),
    ] = None,
    bleu: Bleu = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a model on data of its kind, and show its worst errors.

    A model with a masked-LM head predicts masked tokens of running text; an embedding model, or any
    with --pair-column or --label-column, is correlated with rated pairs of texts such as STS-B.
    """
    from cloze.checkpoint.load import load
    from cloze.tasks.evaluate import evaluate

    check_page_path(report, force)
    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    with progress(quiet) as show:
        result = evaluate(
            opened,
            list(data),
            name=model,
            text_column=text_column,
            pair_column=pair_column,
            label_column=label_column,
            tag_column=tag_column,
            scheme=scheme,
            truncation=truncation,
            overlap=overlap,
            max_length=max_length,
            chinese=chinese,
            swap=swap,
            beam=beam,
            bleu=bleu,
            skip_bad=skip_bad,
            worst=worst,
            predictions=predictions,
            force=force,
            progress=show,
        )
    print_skipped(result.skipped)
    if report is not None:
        files = ", ".join(Path(one).name for one in data)
        result.save(report, title=f"{Path(model).name} on {files}")
    if as_json:
        print_json(result.to_dict())
    else:
        print_evaluation(result)
