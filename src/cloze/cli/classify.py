"""`cloze classify`: label texts or pairs of texts."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    Files,
    ModelFolder,
    Overlap,
    PairColumn,
    SkipBad,
    TextColumn,
    Texts,
    Truncation,
    is_piped,
    read_inputs,
)
from cloze.cli.format import print_classify, print_json_lines
from cloze.cli.images import (
    Images,
    classify_image_files,
    open_image_files,
    split_labels,
)
from cloze.cli.outcomes import Outcomes
from cloze.cli.processing import ProcessingOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloze.data.labelled.examples import TextExample


def classify(
    model: ModelFolder,
    texts: Texts = None,
    *,
    pair: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Second text, which is paired with every TEXT."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of labels to print per text (default: 1, or those above their threshold "
            "if a text may have several).",
        ),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABELS",
            help='With --images: the labels to choose from, separated by commas, such as "a red '
            'heart,a dog"; may be repeated.',
        ),
    ] = None,
    template: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="With --images: text of a label, with {} in its place; several are averaged "
            '(default: "a picture of {}").',
        ),
    ] = None,
    truncation: Truncation = None,
    overlap: Overlap = None,
    images: Images = None,
    files: Files = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    skip_bad: SkipBad = False,
    processing: ProcessingOptions,
) -> None:
    """Predict the label of texts or of pairs of texts, or their labels if they may have several.

    With --images and --labels, a CLIP chooses the label of each image, without any training.
    """
    if images or labels or template:
        if not images:
            raise typer.BadParameter("it needs --images", param_hint="--labels, --template")
        given = {"pair": pair, "overlap": overlap, "file": files, "pair_column": pair_column}
        names = split_labels(labels)
        found_images = open_image_files(images, texts, processing, **given)
        classify_image_files(
            model,
            found_images,
            names,
            processing,
            skip_bad,
            template=template,
            truncation=truncation,
            top=top,
        )
        return
    if pair is not None and pair_column is not None:
        raise typer.BadParameter("--pair and --pair-column cannot be combined: give one of them")
    is_piped_table = _is_table_on_stdin(texts, files, text_column or pair_column)
    tables = ["-"] if is_piped_table else [] if texts else files or []
    if pair_column is not None and not tables:
        raise typer.BadParameter(
            "it needs a table: name one with --file, or pipe it in", param_hint="--pair-column"
        )
    outcomes = Outcomes("texts", skip_bad=skip_bad)
    numbered = text_column is not None and text_column.isdigit()
    is_table = is_piped_table or all(map(_is_table_file, tables))
    read = (
        partial(_read_table, tables, text_column, pair_column, pair)
        if tables and (numbered or is_table or pair_column is not None)
        else partial(_read_texts, texts, files, text_column, pair)
    )
    written = {"top": top, "truncation": truncation, "overlap": overlap}
    if processing.write_files("classify", model, read, outcomes, written):
        return
    examples = read(on_error=outcomes.on_error)

    from cloze.checkpoint.task import override_truncation

    opened = processing.load_model(model)

    from cloze.tasks.classify import predict
    from cloze.tasks.inference import resolve_task

    task = override_truncation(resolve_task("classify", opened), truncation, overlap)

    def classify_all(some: "Sequence[TextExample]", **options: Any) -> "Sequence[Any]":  # noqa: ANN401
        found = predict(opened, some, task=task, **options)
        return found if most is None else [one.keep_top(most) for one in found]

    several = opened.problem_type == "multi_label_classification"
    most = 1 if top is None and not several else top
    show = partial(
        print_classify,
        number=opened.problem_type == "regression",
        predicted_only=several and top is None,
    )
    how = f"truncated to {opened.max_length:,} tokens"
    fields = ["text", "pair"]
    with outcomes.predict(
        classify_all, examples, fields, how=how, quiet=processing.quiet
    ) as results:
        (print_json_lines if processing.as_json else show)(results)


def _read_texts(
    texts: list[str] | None,
    files: list[str] | None,
    text_column: str | None,
    pair: str | None,
    *,
    on_error: Any,  # noqa: ANN401
) -> "Iterator[TextExample]":
    from cloze.data.labelled.examples import Origin, TextExample

    return (
        TextExample(text=row.text, pair=pair, origin=Origin(file=row.file, line=row.line))
        for row in read_inputs(texts, files, text_column, on_error=on_error)
    )


def _is_table_on_stdin(
    texts: list[str] | None, files: list[str] | None, columns: str | None
) -> bool:
    """Whether standard input is read, and in columns or JSON lines instead of plain text."""
    named = [*(texts or []), *(files or [])]
    if named != ["-"] and (named or not is_piped()):
        return False

    from cloze.data.readers import detect_stdin_format

    return columns is not None or detect_stdin_format(columns) != "lines"


def _is_table_file(name: str) -> bool:
    from cloze.data.input_files import split_endings

    return split_endings(name)[0] in (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")


def _read_table(
    files: list[str],
    text_column: str | None,
    pair_column: str | None,
    pair: str | None,
    *,
    on_error: Any,  # noqa: ANN401
) -> "Iterator[TextExample]":
    """Rows of tables; columns are found as in fine-tuning."""
    from cloze.data.labelled.tables import read_text_examples

    examples = read_text_examples(
        list(files),
        text_column=text_column,
        pair_column=pair_column,
        label_column=False,
        on_error=on_error,
    )
    return (replace(one, pair=one.pair if pair is None else pair) for one in examples)
