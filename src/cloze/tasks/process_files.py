"""`process_files`: embed, classify, tag or answer more rows than fit into memory.

Rows are read and computed block by block, in this process or by workers of Ray. The results are
the same: one per row, in order. A single file is written by this process as the blocks arrive. A
folder has a part per block, which the workers write themselves; an interrupted job continues with
the parts that exist.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cloze.checkpoint.atomic import lock_folder
from cloze.config import in_range
from cloze.data.input_files import find_files, split_endings
from cloze.data.labelled.examples import Origin, TextExample
from cloze.data.map_blocks import Engine, ExecutorOptions, cut_blocks, map_blocks, uses_gpu
from cloze.data.objects import is_table
from cloze.data.result_files import check_result_format, open_result_file
from cloze.data.result_parts import (
    MAX_LISTED,
    Part,
    compute_file_sha256,
    format_part_name,
    open_part_folder,
)
from cloze.data.sources import Row, Source, Sources, collect_sources, read_rows
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, absolute_path, check_output_path
from cloze.progress import ProgressCallback, ProgressOption, open_progress
from cloze.results import Result
from cloze.tasks.block_functions import (
    INPUTS,
    BlockFunction,
    Computed,
    Item,
    ItemOrError,
    compute_key,
    find_model,
    measure_item,
)

BLOCK_ROWS = 4096
MAX_BLOCK_ROWS = 1 << 20
BLOCK_CHARS = 1 << 24  # a block of long texts has fewer rows
TOKEN_BLOCK_CHARS = 1 << 20  # with a vector for each token

OnError = Callable[[InputError], object]


@dataclass(frozen=True, kw_only=True, repr=False)
class ProcessResult(Result):
    """What was written, and how many rows failed or were truncated."""

    out: Path
    rows: int
    failed: int  # their records have an error
    truncated: int  # rows that were longer than the model reads
    truncated_chars: int
    max_length: int  # tokens that the model reads of a row; 0 without rows
    seconds: float
    parts: int | None = None  # of a folder
    reused: int | None = None  # parts that existed already

    @property
    def count(self) -> int:
        """Rows that have a result."""
        return self.rows - self.failed

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that the commands print."""
        folder = {} if self.parts is None else {"parts": self.parts, "reused": self.reused}
        return {
            "out": str(self.out),
            "count": self.count,
            "truncated": self.truncated,
            "failed": self.failed,
            **folder,
        }


def process_files(
    function: str,
    model: PathLike,
    sources: Sources,
    out: PathLike,
    *,
    engine: Engine = "local",
    address: str | None = None,
    workers: int | None = None,
    block_rows: int | None = None,
    text_column: str | int | None = None,
    pair_column: str | int | None = None,
    skip_bad: bool = False,
    force: bool = False,
    device: str | None = None,
    dtype: str = "float32",
    progress: ProgressOption = None,
    on_error: OnError | None = None,
    **options: Any,  # noqa: ANN401
) -> ProcessResult:
    """Embed, classify, tag or answer the rows of files, and write one result per row, in order.

    Args:
        function: embed, classify, tag or answer.
        model: the model's folder or name; with Ray every machine must find it.
        sources: files, folders or globs (txt, jsonl, csv, tsv, parquet; for answer in the SQuAD
            format), or other sources of rows, such as an iterator of texts.
        out: a file that ends in .jsonl or .parquet, or .npy for embeddings; or a folder (a name
            without an ending), which will contain a parquet file per block. An interrupted job
            continues a folder with the blocks that are missing.
        engine: local, in this process, or ray.
        address: HOST:PORT of a running Ray cluster. Default: Ray is started on this machine.
        workers: number of Ray workers, each with its own copy of the model. Default: one per GPU,
            or one per core if no GPU is used.
        block_rows: number of rows that are computed together, and sorted by length (default 4096;
            long texts: fewer).
        text_column: column of the text in tables: name or 1-based number (default: auto-detected).
        pair_column: column of the second text for classify.
        skip_bad: go on after rows that cannot be read; their results contain the error.
        force: overwrite existing results.
        device: the device of each worker, or of this process (default: auto-detected).
        dtype: data type to compute with.
        progress: show a progress bar, or not; a function is called with stage, done and total.
        on_error: called with the error of each row that failed; of a part of a folder with at most
            the first hundred.
        **options: of the function, as its command has them: truncation, overlap; for embed also
            pooling, layers, normalize and batch_tokens; for classify top (default 1, or all labels
            if a text may have several); for tag aggregation; for answer top, max_answer_tokens,
            allow_no_answer and whole_words.
    """
    work = BlockFunction(
        name=function,
        model=find_model(model),
        device=device,
        dtype=dtype,
        options=options,
    )
    listed = collect_sources(sources)
    columns = {"text_column": text_column, "pair_column": pair_column}
    rows = read_items(function, listed, skip_bad=skip_bad, **columns)
    where = ExecutorOptions(
        engine=engine, address=address, workers=workers, use_gpu=uses_gpu(device)
    )
    with open_progress(progress) as show:
        return process_rows(
            work,
            rows,
            Path(out),
            where,
            block_rows=block_rows,
            force=force,
            progress=show,
            on_error=on_error,
        )


def read_items(
    function: str,
    sources: list[Source],
    *,
    skip_bad: bool,
    text_column: str | int | None = None,
    pair_column: str | int | None = None,
) -> Iterator[ItemOrError]:
    """The rows of sources as a function reads them; with `skip_bad` also the errors of rows."""
    if pair_column is not None and function != "classify":
        raise ConfigError(
            f"{function} reads no pairs of texts", fix="leave out pair_column (--pair-column)"
        )

    def read(on_error: Any) -> Iterator[Item]:  # noqa: ANN401
        if function == "classify" and (pair_column is not None or any(map(_has_columns, sources))):
            from cloze.data.labelled.tables import read_text_examples

            return read_text_examples(
                sources,
                text_column=text_column,
                pair_column=pair_column,
                label_column=False,
                on_error=on_error,
            )
        if function == "answer":
            from cloze.data.labelled.questions import read_question_examples

            found = read_question_examples(sources, on_error=on_error)
            return (replace(one, answers=None) for one in found)
        rows = read_rows(sources, text_column=text_column, on_error=on_error)
        return map(_make_example, rows) if function == "classify" else rows

    return keep_errors(read) if skip_bad else read("raise")


def _has_columns(source: Source) -> bool:
    """Whether a source is a table, which may contain pairs, rather than texts."""
    if not isinstance(source, str | os.PathLike):
        return is_table(source)
    return source != "-" and any(split_endings(one)[0] != ".txt" for one in find_files(source))


def _make_example(row: Row) -> TextExample:
    return TextExample(text=row.text, origin=Origin(file=row.file, line=row.line))


def keep_errors(read: Callable[[OnError], Iterator[Item]]) -> Iterator[ItemOrError]:
    """The rows of a reader with the errors of others between them, in order."""
    errors: list[InputError] = []
    for item in read(errors.append):
        yield from errors
        errors.clear()
        yield item
    yield from errors


def process_rows(
    function: BlockFunction,
    rows: Iterable[ItemOrError],
    out: Path,
    where: ExecutorOptions,
    *,
    block_rows: int | None = None,
    force: bool = False,
    progress: ProgressCallback | None = None,
    on_error: OnError | None = None,
) -> ProcessResult:
    """Process rows that are already opened; see `process_files`."""
    most = in_range("block_rows", block_rows or BLOCK_ROWS, 1, MAX_BLOCK_ROWS)
    check_process_output(function, out, force=force)
    fields = INPUTS[function.name]
    blocks = cut_blocks(
        rows,
        max_rows=most,
        max_size=TOKEN_BLOCK_CHARS if function.kind == "embed tokens" else BLOCK_CHARS,
        measure=partial(measure_item, fields=fields),
    )
    start = time.perf_counter()
    write = _write_folder if is_part_folder(out) else _write_file
    rows_done = failed = truncated = truncated_chars = parts = reused = max_length = 0
    for part, is_reused in write(function, blocks, out, where, force=force, block_rows=most):
        rows_done += part.rows
        failed += part.failed
        truncated += part.truncated
        truncated_chars += part.truncated_chars
        max_length = part.max_length
        parts += 1
        reused += is_reused
        if progress:
            progress("rows", rows_done, None)
        for problem, fix in part.errors:
            if on_error:
                on_error(InputError(problem, fix=fix))
    return ProcessResult(
        out=out,
        rows=rows_done,
        failed=failed,
        truncated=truncated,
        truncated_chars=truncated_chars,
        max_length=max_length,
        seconds=time.perf_counter() - start,
        parts=parts if is_part_folder(out) else None,
        reused=reused if is_part_folder(out) else None,
    )


def is_part_folder(out: Path) -> bool:
    """Whether results are written to a folder of parts: a name without an ending."""
    return not out.suffix or out.is_dir()


def check_process_output(function: BlockFunction, out: Path, *, force: bool = False) -> None:
    """Check, before any work is done, that the results can be written."""
    if is_part_folder(out):
        check_output_path(out, force=True)  # what is inside is checked when it is opened
    else:
        check_result_format(out, function.kind)
        check_output_path(out, force, file=True)


_Blocks = Iterable[Sequence[ItemOrError]]


def _write_file(
    function: BlockFunction, blocks: _Blocks, out: Path, where: ExecutorOptions, **_: object
) -> Iterator[tuple[Part, bool]]:
    """Write the records to one file, in this process."""
    with open_result_file(out, function.kind) as write:
        for computed in map_blocks(function, blocks, where):
            write(computed.records)
            yield _summarize(computed, out.name, max_errors=len(computed.records)), False


def _write_folder(
    function: BlockFunction,
    blocks: _Blocks,
    out: Path,
    where: ExecutorOptions,
    *,
    force: bool,
    block_rows: int,
) -> Iterator[tuple[Part, bool]]:
    """Let the workers write a part for each block that has none."""
    fields, path = INPUTS[function.name], Path(absolute_path(out))
    job = {**function.describe(), "block_rows": block_rows}
    with (
        lock_folder(path, work="writing to"),
        open_part_folder(path, job, force=force) as folder,
    ):

        def plan() -> Iterator[_PlannedPart | Part]:
            for number, block in enumerate(blocks):
                name, key = format_part_name(number), compute_key(block, fields)
                found = folder.find(name, key)
                yield found or _PlannedPart(path=path / name, key=key, block=block)

        for part, is_reused in map_blocks(_PartWriter(function), plan(), where):
            folder.add(part, is_new=not is_reused)
            yield part, is_reused
        folder.finish()


@dataclass(frozen=True, kw_only=True)
class _PlannedPart:
    """A block and the file of its results."""

    path: Path
    key: str
    block: Sequence[ItemOrError]


@dataclass(frozen=True)
class _PartWriter:
    """Computes blocks and writes their parts, in a worker; the second value: it existed."""

    function: BlockFunction

    def __call__(self) -> Callable[[_PlannedPart | Part], tuple[Part, bool]]:
        compute = self.function()

        def write(planned: _PlannedPart | Part) -> tuple[Part, bool]:
            if isinstance(planned, Part):
                return planned, True
            computed = compute(planned.block)
            with open_result_file(planned.path, self.function.kind) as write_records:
                write_records(computed.records)
            part = _summarize(computed, planned.path.name, key=planned.key)
            size, digest = planned.path.stat().st_size, compute_file_sha256(planned.path)
            return replace(part, size=size, sha256=digest), False

        return write


def _summarize(
    computed: Computed, name: str, *, key: str = "", max_errors: int = MAX_LISTED
) -> Part:
    records = computed.records
    errors = [one.error for one in records if getattr(one, "error", None) is not None]  # type: ignore[attr-defined]
    chars = [getattr(one, "truncated_chars", 0) for one in records]
    return Part(
        name=name,
        key=key,
        rows=len(records),
        failed=len(errors),
        truncated=sum(map(bool, chars)),
        truncated_chars=sum(chars),
        errors=tuple((one.problem, one.fix) for one in errors[:max_errors]),
        max_length=computed.max_length,
    )
