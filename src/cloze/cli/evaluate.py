"""`cloze evaluate`: metrics and worst errors of a model."""

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import (
    Database,
    Device,
    Dtype,
    Force,
    Json,
    LabelColumn,
    LabelDelimiter,
    ModelFolder,
    Overlap,
    PairColumn,
    Quiet,
    SkipBad,
    TagColumn,
    TagScheme,
    TargetColumn,
    TextColumn,
    Truncation,
    check_page_path,
    print_note,
    print_skipped,
    progress,
)
from cloze.cli.format import print_json
from cloze.cli.format_evaluation import print_evaluation

Chinese = Annotated[
    bool | None,
    typer.Option(
        "--chinese/--no-chinese",
        help="Question answering: score by the rules of CMRC (default: if most contexts are "
        "Chinese).",
    ),
]
Bleu = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Translators: tokenizer of BLEU: 13a, zh or none (default 13a)."
    ),
]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write an HTML report to this .html file."),
]


def evaluate(
    model: ModelFolder,
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA",
            help="Files, folders, globs, or - for standard input. Fine-tuned model: labelled "
            "examples. Masked or causal language model: text. Embedding model: pairs of texts with "
            "a rating. Translator: source file and target file. Word vectors: analogies, rated "
            "pairs of words.",
        ),
    ],
    *,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    label_delimiter: LabelDelimiter = None,
    tag_column: TagColumn = None,
    tag_scheme: TagScheme = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all predictions to this file: .jsonl, .tsv, or for question answering "
            ".json by id.",
        ),
    ] = None,
    report: Report = None,
    worst: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Number of worst errors to list (default 5; in the report 50).",
        ),
    ] = None,
    swap: Annotated[
        bool, typer.Option("--swap", help="Pairs: also evaluate with the two texts swapped.")
    ] = False,
    max_length: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Masked language models: maximum number of tokens in a sample (default: the "
            "model's maximum length).",
        ),
    ] = None,
    truncation: Truncation = None,
    overlap: Overlap = None,
    chinese: Chinese = None,
    beam: Annotated[
        int | None,
        typer.Option(metavar="N", help="Translators: beam size (default 4)."),
    ] = None,
    bleu: Bleu = None,
    database: Database = None,
    target_column: TargetColumn = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a model on labelled data or text, and list its worst errors.

    With --pair-column or --label-column, a pre-trained encoder is evaluated like an embedding
    model: correlation of the cosine similarities with ratings of pairs of texts, as in STS-B.
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
            label_delimiter=label_delimiter,
            tag_column=tag_column,
            tag_scheme=tag_scheme,
            truncation=truncation,
            overlap=overlap,
            max_length=max_length,
            chinese=chinese,
            swap=swap,
            beam=beam,
            bleu=bleu,
            database=database,
            target_column=target_column,
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
        if not quiet:
            print_note(f"report: {report}")
    if as_json:
        print_json(result.to_dict())
    else:
        print_evaluation(result)
