"""`--images` of `cloze embed` and `cloze classify`: what both do with images in place of texts."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import INPUT, print_note, progress
from cloze.cli.format import print_json, print_json_lines, print_table
from cloze.cli.outcomes import Outcomes
from cloze.cli.processing import ProcessingOptions
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.checkpoint.model import Model
    from cloze.tasks.image_inputs import ImageOrError

Images = Annotated[
    list[str] | None,
    typer.Option(
        "--images",
        metavar="PATH",
        rich_help_panel=INPUT,
        help="Read images instead of texts: files, folders, globs, tar files, or tables with a "
        "column of paths; may be repeated, and all other arguments are images, too.",
    ),
]
_BLOCK = 1024  # images whose results are written together


def open_image_files(
    images: Sequence[str],
    others: Sequence[str] | None,
    processing: ProcessingOptions,
    **unsupported: object,
) -> "list[ImageOrError]":
    """The images that the arguments name; options that images do not have are rejected."""
    checked = {
        **unsupported,
        "engine": processing.engine != "local",
        "block_rows": processing.block_rows,
    }
    name = next((one for one, value in checked.items() if value), None)
    if name is not None:
        raise typer.BadParameter(
            "it has no effect on images", param_hint=f"--{name.replace('_', '-')}"
        )
    if processing.out is not None and not processing.out.suffix:
        raise typer.BadParameter(
            "results of images are written to one file: .jsonl or .parquet", param_hint="--out"
        )

    from cloze.tasks.image_inputs import open_images

    found, _ = open_images([*images, *(others or [])])
    if not found:
        raise InputError("there are no images", fix="check the paths")
    return found


def run_on_images(
    images: "Sequence[ImageOrError]",
    compute: "Callable[[Sequence[ImageOrError]], Sequence[Any]]",
    print_records: Callable[[Iterable[Any]], None],
    processing: ProcessingOptions,
    *,
    kind: str,
    skip_bad: bool,
) -> None:
    """Compute records block by block, and print them or write them to a file.

    An image that fails has its error in its place, or is skipped; the exit code says so.
    """
    outcomes = Outcomes("images", skip_bad=skip_bad)

    def iterate() -> Iterator[list[Any]]:
        with progress(processing.quiet) as show:
            for start in range(0, len(images), _BLOCK):
                block = compute(images[start : start + _BLOCK])
                yield [one for one in block if outcomes.add(getattr(one, "error", None))]
                show("images", min(start + _BLOCK, len(images)), len(images))

    out = processing.out
    if out is None:
        records = [one for block in iterate() for one in block]
        (print_json_lines if processing.as_json else print_records)(records)
        outcomes.finish()
        return
    with _open_output(out, kind, force=processing.force) as write:
        for block in iterate():
            write(block)
    if processing.as_json:
        print_json(outcomes.summary(out))
    if not processing.quiet:
        print_note(f"{outcomes.num_succeeded:,} of {outcomes.count:,} images: {out}")
    outcomes.finish()


@contextmanager
def _open_output(out: Path, kind: str, *, force: bool) -> Iterator[Callable[[list[Any]], None]]:
    from cloze.data.result_files import open_result_file
    from cloze.files import check_output_path

    check_output_path(out, force, file=True)
    with open_result_file(out, kind) as write:
        yield write


def embed_image_files(
    model: str,
    images: "Sequence[ImageOrError]",
    processing: ProcessingOptions,
    skip_bad: bool,
    *,
    normalize: bool,
) -> None:
    """`cloze embed --images`."""
    opened = _open_model(model, processing, "embed")

    from cloze.cli.format_vectors import VectorLines, print_vectors
    from cloze.tasks.embed_images import stream_images

    def compute(some: "Sequence[ImageOrError]") -> Sequence[Any]:
        (records,) = stream_images(
            opened, some, normalize=normalize, chunk=len(some), progress=False
        )
        return records

    def show(records: Iterable[Any]) -> None:
        listed = list(records)
        (print_vectors if sys.stdout.isatty() else VectorLines(by_token=False))(listed)

    run_on_images(images, compute, show, processing, kind="embed images", skip_bad=skip_bad)


def classify_image_files(
    model: str,
    images: "Sequence[ImageOrError]",
    labels: Sequence[str],
    processing: ProcessingOptions,
    skip_bad: bool,
    *,
    template: Sequence[str] | None,
    truncation: str | None,
    top: int | None,
) -> None:
    """`cloze classify --images`."""
    opened = _open_model(model, processing, "classify")

    from cloze.tasks.classify_images import TEMPLATE, ImageClassification, classify_images

    def compute(some: "Sequence[ImageOrError]") -> Sequence[Any]:
        found = classify_images(
            opened, some, labels, template=template or TEMPLATE, truncation=truncation
        )
        return [
            one.keep_top(top or 1) if isinstance(one, ImageClassification) else one for one in found
        ]

    run_on_images(
        images, compute, _print_labels, processing, kind="classify images", skip_bad=skip_bad
    )


def _open_model(model: str, processing: ProcessingOptions, function: str) -> "Model":
    from cloze.tasks.image_inputs import open_image_model

    return open_image_model(processing.load_model(model), function)


def _print_labels(results: Iterable[Any]) -> None:
    from cloze.cli.format import format_probability

    rows = (
        row
        for one in results
        for row in (
            [(one.inputs["image"], "", "")]
            if hasattr(one, "error")
            else [(one.image, name, format_probability(p)) for name, p in one.scores.items()]
        )
    )
    print_table(("image", "label", "probability"), rows)


def split_labels(labels: Sequence[str] | None) -> list[str]:
    """The labels of `--labels "a,b" --labels c`."""
    found = [one.strip() for given in labels or () for one in given.split(",")]
    if not found:
        raise typer.BadParameter(
            'name the labels to choose from: "a cat,a dog"', param_hint="--labels"
        )
    return found
