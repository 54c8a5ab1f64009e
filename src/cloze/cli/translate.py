"""`cloze translate`: translate sentences."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    INPUT,
    Device,
    Dtype,
    Force,
    Json,
    ModelFolder,
    Quiet,
    Texts,
    check_svg_path,
    print_note,
    progress,
    read_inputs,
)
from cloze.cli.format import (
    join_lines,
    print_json,
    print_json_lines,
    print_translate,
)
from cloze.cli.outcomes import Outcomes, ignore_truncation
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.tasks.translate import Translation


def translate(
    model: ModelFolder,
    texts: Texts = None,
    *,
    max_length_ratio: Annotated[
        float,
        typer.Option(
            metavar="X", help="Maximum output length: X times the source length, plus 10 tokens."
        ),
    ] = 2.0,
    truncation: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="What to do with sentences that are too long: head, tail or head+tail keep that "
            "part; error rejects the sentence (default: head).",
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            metavar="PATH",
            rich_help_panel=INPUT,
            help="Read sentences from a file, or from standard input (-), one per line.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the best translations to this file, one per line."
        ),
    ] = None,
    align: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Plot the word alignment of the first sentence to an .svg file."
        ),
    ] = None,
    lines: Annotated[
        bool,
        typer.Option(
            "--lines", help="With --align: draw lines between words instead of a heat map."
        ),
    ] = False,
    batch_tokens: Annotated[
        int,
        typer.Option(metavar="N", help="Maximum of source tokens × beam size in a batch."),
    ] = 4096,
    force: Force = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """Translate sentences: one translation per line."""
    inputs = [] if file and not texts else read_inputs(texts)

    from cloze.checkpoint.load import load
    from cloze.data.parallel_text import read_all_lines
    from cloze.files import check_output_path, write_text

    if lines and align is None:
        raise InputError(
            "--lines has no effect without a plot", fix="add --align FILE, or leave out --lines"
        )
    rows = [*inputs, *(read_all_lines(file) if file else [])]
    check_svg_path(align, force)
    if out is not None:
        check_output_path(out, force, file=True)
    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.inputs import add_location
    from cloze.tasks.translate import translate

    errors: dict[int, InputError] = {}
    with progress(quiet) as show, ignore_truncation():
        found = translate(
            opened,
            [row.text for row in rows],
            **options,
            max_length_ratio=max_length_ratio,
            align=align is not None,
            truncation=truncation,
            batch_tokens=batch_tokens,
            on_error=lambda n, error: errors.setdefault(n, add_location(error, rows[n])),
            progress=show,
        )
    outcomes = Outcomes("sentences", skip_bad=False)
    if out is not None:
        write_text(out, "".join(f"{join_lines(one.text)}\n" for one in found))
    else:
        several = options.get("n_best", 1) > 1
        _print_translations(found, errors, as_json=as_json, table=several)
    for n, one in enumerate(found):
        outcomes.add(errors.get(n), one.truncated_chars)
    if out is not None:
        _print_summary(outcomes, out, as_json=as_json, quiet=quiet)
    if align is not None:
        _plot_alignment(found, align, lines, quiet=quiet or len(found) == 1, failed=bool(errors))
    outcomes.finish()


def _print_translations(
    found: "list[Translation]", errors: dict[int, InputError], *, as_json: bool, table: bool
) -> None:
    from cloze.tasks.inputs import Failure

    if as_json:
        print_json_lines(
            Failure(inputs={"source": one.source}, error=errors[n]) if n in errors else one
            for n, one in enumerate(found)
        )
    else:
        print_translate(found, table=table)


def _print_summary(outcomes: Outcomes, out: Path, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json(outcomes.summary(out))
    if not quiet:
        print_note(f"{outcomes.num_succeeded:,} of {outcomes.count:,} lines: {out}")


def _plot_alignment(
    found: "list[Translation]", path: Path, lines: bool, *, quiet: bool, failed: bool
) -> None:
    """Plot the best translation of the first sentence that has one."""
    from cloze.plot.alignment import alignment_heatmap

    aligned = ((one, c.alignment) for one in found for c in one.candidates if c.alignment)
    one, shown = next(aligned, (None, None))
    if one is None or shown is None:
        if failed:  # the errors were printed
            return
        raise InputError(
            "--align has nothing to plot: all sentences are blank",
            fix="give a sentence that is not blank",
        )
    if not quiet:
        print_note(f"{path} shows the first sentence: {one.source}")
    if lines:
        shown.plot_lines().save(path)
    else:
        alignment_heatmap(shown.source, shown.target, shown.weights.tolist()).save(path)
