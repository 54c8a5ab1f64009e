"""`cloze translate`: sentences in another language."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import (
    ARGUMENT,
    FAILED,
    Device,
    Dtype,
    Force,
    Json,
    ModelFolder,
    Quiet,
    Texts,
    check_svg_path,
    print_error,
    print_json,
    print_table,
    printable,
    progress,
    read_inputs,
)
from cloze.cli.outcomes import print_line
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.tasks.translate import Alignment, Translation, TranslationCandidate


def translate(
    model: ModelFolder,
    texts: Texts = None,
    *,
    beam: Annotated[int, typer.Option(metavar="N", help="Hypotheses to follow; 1: greedy.")] = 4,
    best: Annotated[int, typer.Option(metavar="N", help="Translations to show, of a beam.")] = 1,
    penalty: Annotated[str, typer.Option(metavar="NAME", help="Of length: wu or average.")] = "wu",
    alpha: Annotated[float, typer.Option(metavar="X", help="Its strength; 0: none.")] = 0.6,
    no_repeat: Annotated[int, typer.Option(metavar="N", help="No n-gram comes twice.")] = 0,
    ratio: Annotated[
        float, typer.Option(metavar="X", help="Tokens for one of the source, at most.")
    ] = 2.0,
    policy: Annotated[
        str | None, typer.Option(metavar="CHOICE", help="Too long: head, tail, head+tail.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="PATH", help="A sentence on each line, or -."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the best, line by line.")
    ] = None,
    align: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw which words came from which: .svg.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Draw lines between words, not a heat map.")
    ] = False,
    batch_tokens: Annotated[int, typer.Option(metavar="N", help="Tokens in a batch.")] = 4096,
    force: Force = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Translate sentences; as many lines come out as go in."""
    inputs = [] if file and not texts else read_inputs(texts)

    from cloze.checkpoint.load import load
    from cloze.data.parallel_text import read_lines_of_file
    from cloze.files import check_output_path
    from cloze.tasks.translate import translate

    if lines and align is None:
        raise InputError(
            "there are no lines to choose where nothing is drawn",
            fix="name the picture: --align FILE; or leave out --lines",
        )
    rows = [*inputs, *(read_lines_of_file(file) if file else [])]
    check_svg_path(align, force)
    if out is not None:
        check_output_path(out, force, file=True)
    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    failed: dict[int, InputError] = {}

    def fail(number: int, error: InputError) -> None:
        row = rows[number]
        where = "" if row.file == ARGUMENT else f"{row.file}:{row.line}: "
        failed[number] = InputError(f"{where}{error.problem}", fix=error.fix)

    with progress(quiet) as show:
        found = translate(
            opened,
            [row.text for row in rows],
            beam=beam,
            n_best=best,
            length_normalization=penalty,
            length_penalty=alpha,
            no_repeat_ngram_size=no_repeat,
            max_length_ratio=ratio,
            align=align is not None,
            truncation=policy,
            batch_tokens=batch_tokens,
            on_error=fail,
            progress=show,
        )
    if out is None:
        _print(found, failed, as_json=as_json, table=best > 1)
    else:
        _write(found, out, len(failed), as_json=as_json, quiet=quiet)
    for error in failed.values():
        print_error(error)
    if align is not None:
        _draw(found, align, lines, quiet=quiet or len(found) == 1, failed=bool(failed))
    if failed:
        raise typer.Exit(FAILED)


def _write(
    found: "list[Translation]", out: Path, failed: int, *, as_json: bool, quiet: bool
) -> None:
    from cloze.files import write_text

    write_text(out, "".join(f"{_flat(one.text)}\n" for one in found))
    count, cut = len(found) - failed, sum(one.truncated > 0 for one in found)
    if as_json:
        print_json({"out": str(out), "count": count, "truncated": cut, "failed": failed})
    if not quiet:
        typer.echo(f"{count:,} of {len(found):,} lines: {out}", err=True)


def _print(
    found: "list[Translation]", failed: dict[int, InputError], *, as_json: bool, table: bool
) -> None:
    if as_json:
        for number, one in enumerate(found):
            print_line({"source": one.source}, failed.get(number) or _plain(one))
    elif table:
        _show(found)
    else:
        for one in found:
            print(_flat(one.text))


def _flat(text: str) -> str:
    """In one line, so that line n stays the translation of line n."""
    return " ".join(text.splitlines())


def _show(found: "list[Translation]") -> None:
    """One table; of several sentences it says which each is a translation of."""
    alone = len(found) == 1
    rows = [
        ([] if alone else [one.source]) + [candidate.text, f"{candidate.score:.4f}"]
        if one.source.strip()
        else []  # a blank line for a blank line
        for one in found
        for candidate in one.candidates
    ]
    columns = ["translation", "score"]
    if alone:
        print_table(columns, rows, title=found[0].source)
    else:
        print_table(["source", *columns], rows)


def _plain(one: "Translation") -> dict[str, object]:
    return {
        "translations": [_candidate(each) for each in one.candidates],
        "truncated": one.truncated,
    }


def _candidate(one: "TranslationCandidate") -> dict[str, object]:
    return {
        "text": one.text,
        "score": one.score,
        "log_probability": one.log_probability,
        "finished": one.finished,
        "alignment": None if one.alignment is None else _alignment(one.alignment),
    }


def _alignment(one: "Alignment") -> dict[str, object]:
    return {
        "source": one.source,
        "target": one.target,
        "weights": [[round(float(x), 6) for x in row] for row in one.weights],
        "hard": one.hard,
    }


def _draw(
    found: "list[Translation]", place: Path, lines: bool, *, quiet: bool, failed: bool
) -> None:
    """The best translation of the first sentence that has one."""
    from cloze.plot.alignment import AlignmentLines, alignment_heatmap

    drawn = ((one, c.alignment) for one in found for c in one.candidates if c.alignment)
    one, shown = next(drawn, (None, None))
    if one is None or shown is None:
        if failed:  # and it was said why
            return
        raise InputError("there is nothing to draw", fix="give a sentence that is not blank")
    if not quiet:
        typer.echo(f"{place} shows the first of them: {printable(one.source)}", err=True)
    words = {"source": shown.source, "target": shown.target, "weights": shown.weights.tolist()}
    picture = AlignmentLines(title="Alignment", **words) if lines else alignment_heatmap(**words)
    picture.save(place)
