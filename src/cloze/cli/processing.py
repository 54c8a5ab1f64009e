"""The options and the output of commands that write results to files, here or with Ray."""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import Device, Dtype, Force, Json, Quiet, print_note, progress
from cloze.cli.format import print_json
from cloze.cli.outcomes import Outcomes

if TYPE_CHECKING:
    from cloze.checkpoint.model import Model
    from cloze.data.map_blocks import ExecutorOptions
    from cloze.tasks.block_functions import Item, ItemOrError
    from cloze.tasks.process_files import ProcessResult

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


@dataclass(frozen=True, kw_only=True)
class ProcessingOptions:
    """The options of a command that prints results, or writes them to files here or with Ray."""

    out: Out = None
    engine: Engine = "local"
    address: Address = None
    workers: Workers = None
    block_rows: BlockRows = None
    force: Force = False
    device: Device = None
    dtype: Dtype = "float32"
    as_json: Json = False
    quiet: Quiet = False

    def load_model(self, model: str) -> "Model":
        """Load the model of a command that prints results."""
        from cloze.checkpoint.load import load

        return load(model, device=self.device, dtype=self.dtype, quiet=self.quiet)

    def write_files(
        self,
        function: str,
        model: str,
        read: "Callable[..., Iterator[Item]]",
        outcomes: Outcomes,
        options: Mapping[str, Any],
    ) -> bool:
        """With --out, write the results of all rows and the summary; return whether it was given.

        Args:
            function: name of the function: embed, classify, tag or answer.
            model: folder or name of the model.
            read: yields the rows; it takes `on_error`.
            outcomes: counts rows and failures.
            options: options of the function.
        """
        if self.out is None:
            self._reject_unused()
            return False

        from cloze.tasks.block_functions import BlockFunction, find_model
        from cloze.tasks.process_files import check_process_output, process_rows

        work = BlockFunction(
            name=function,
            model=find_model(model),
            device=self.device,
            dtype=self.dtype,
            options=options,
        )
        executor = self.make_executor()
        check_process_output(work, self.out, force=self.force)
        with exit_on_sigterm(), progress(self.quiet) as show:
            result = process_rows(
                work,
                _read_with_errors(read, skip_bad=outcomes.skip_bad),
                self.out,
                executor,
                block_rows=self.block_rows,
                force=self.force,
                progress=lambda _, done, total: show(outcomes.name, done, total),
                on_error=outcomes.skipped,
            )
        outcomes.count_rows(result.rows, result.failed, result.truncated, result.truncated_chars)
        if self.as_json:
            print_json(result.to_dict())
        if not self.quiet:
            _print_summary(function, outcomes.name, result)
        outcomes.finish(f"truncated to {result.max_length:,} tokens")
        return True

    def make_executor(self) -> "ExecutorOptions":
        """Where blocks of rows are computed."""
        from cloze.data.map_blocks import ExecutorOptions, uses_gpu

        return ExecutorOptions(
            engine=self.engine,  # type: ignore[arg-type]  # checked by it
            address=self.address,
            workers=self.workers,
            use_gpu=uses_gpu(self.device),
        )

    def _reject_unused(self) -> None:
        """Reject options that have no effect without --out."""
        given = {
            "--engine": self.engine != "local",
            "--address": self.address,
            "--workers": self.workers,
            "--block-rows": self.block_rows,
        }
        for name, value in given.items():
            if value:
                raise typer.BadParameter("it needs --out, a file or a folder", param_hint=name)


def _print_summary(function: str, inputs: str, result: "ProcessResult") -> None:
    verb = {"embed": "embedded", "classify": "classified", "tag": "tagged"}.get(
        function, "answered"
    )
    reused = f" ({result.reused:,} of {result.parts:,} parts existed)" if result.reused else ""
    print_note(f"{result.count:,} of {result.rows:,} {inputs} {verb}{reused}: {result.out}")


def _read_with_errors(
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
