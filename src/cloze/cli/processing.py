"""The options and the output of commands that write results to files, here or with Ray."""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import print_note, progress
from cloze.cli.format import print_json
from cloze.cli.outcomes import Outcomes

if TYPE_CHECKING:
    from cloze.tasks.block_functions import Item, ItemOrError

TERMINATED = 143  # as shells report SIGTERM
OUTPUT = "Output and large data"

Out = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        rich_help_panel=OUTPUT,
        help="Write the results to this .jsonl or .parquet file; or to a folder (a name without an "
        "ending), with a parquet file per block: if the command is interrupted, the same command "
        "continues it. A row that fails keeps its place, with its error.",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=OUTPUT,
        help="Where blocks of rows are computed: local, in this process, or ray, by workers that "
        "each hold the model. With ray, --out is required.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        rich_help_panel=OUTPUT,
        help="With --engine ray: address of a running cluster, whose machines all find the model "
        "and the output folder (default: Ray is started on this machine).",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=OUTPUT,
        help="With --engine ray: number of workers (default: one per GPU, or one per core if no "
        "GPU is used).",
    ),
]
BlockRows = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=OUTPUT,
        help="With --out: number of rows that are computed together (default 4096; of long texts "
        "fewer). More need more memory, fewer more files in a folder.",
    ),
]


def check_processing(
    out: Path | None, engine: str, address: str | None, workers: int | None, block_rows: int | None
) -> None:
    """Reject options that have no effect."""
    if out is not None:
        return
    given = {"--engine": engine != "local", "--address": address, "--workers": workers}
    for name, value in {**given, "--block-rows": block_rows}.items():
        if value:
            raise typer.BadParameter("it needs --out, a file or a folder", param_hint=name)


def process_to_files(
    function: str,
    model: str,
    rows: Iterator[Any],
    out: Path,
    outcomes: Outcomes,
    options: Mapping[str, Any],
    *,
    engine: str,
    address: str | None,
    workers: int | None,
    block_rows: int | None,
    device: str | None,
    dtype: str,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Process the rows of a command, and print counts, failures and the summary."""
    from cloze.data.map_blocks import ExecutorOptions
    from cloze.tasks.block_functions import BlockFunction, find_model
    from cloze.tasks.process_files import check_process_output, process_rows, uses_gpu

    work = BlockFunction(
        name=function, model=find_model(model), device=device, dtype=dtype, options=options
    )
    where = ExecutorOptions(
        engine=engine,  # type: ignore[arg-type]  # checked by it
        address=address,
        workers=workers,
        use_gpu=uses_gpu(device),
    )
    check_process_output(work, out, force=force)
    with exit_on_sigterm(), progress(quiet) as show:
        result = process_rows(
            work,
            rows,
            out,
            where,
            block_rows=block_rows,
            force=force,
            progress=lambda _, done, total: show(outcomes.name, done, total),
            on_error=outcomes.skipped,
        )
    outcomes.count_rows(result.rows, result.failed, result.truncated, result.truncated_chars)
    if as_json:
        print_json(result.to_dict())
    if not quiet:
        verb = {"embed": "embedded", "classify": "classified", "tag": "tagged"}.get(
            function, "answered"
        )
        reused = f" ({result.reused:,} of {result.parts:,} parts existed)" if result.reused else ""
        print_note(f"{result.count:,} of {result.rows:,} {outcomes.name} {verb}{reused}: {out}")
    outcomes.finish(f"truncated to {result.max_length:,} tokens")


def read_with_errors(
    read: "Callable[..., Iterator[Item]]", *, skip_bad: bool
) -> "Iterator[ItemOrError]":
    """The rows of a reader, which takes `on_error`; with `skip_bad` also the errors of rows."""
    if not skip_bad:
        return read(on_error="raise")
    from cloze.tasks.process_files import keep_errors

    return keep_errors(lambda on_error: read(on_error=on_error))


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that no partial file remains."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
