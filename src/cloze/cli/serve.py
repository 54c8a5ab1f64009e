"""`cloze serve`: serve models over HTTP."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from cloze.cli.common import Device, Dtype, Quiet, Threads, print_note
from cloze.errors import InputError, MissingExtraError

LIMITS = "Limits"
_LIBRARIES = ("fastapi", "orjson", "prometheus_client", "uvicorn")  # of the extra


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="Model folders, names of built-in models, or NAME=FOLDER; requests choose a model "
            "by its name, which is the last part of the folder.",
        ),
    ],
    *,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 is public."),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65_535, metavar="N", help="Port; 0 selects a free one."),
    ] = 8000,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with API keys, one per line (default: the environment variable "
            "CLOZE_API_KEYS, separated by commas).",
        ),
    ] = None,
    allow_no_key: Annotated[
        bool, typer.Option("--allow-no-key", help="Allow a public address without a key.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Accept this value of the header Host, besides localhost; may be repeated.",
        ),
    ] = None,
    preload: Annotated[
        bool,
        typer.Option("--preload", help="Load all models at the start, not only the first one."),
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            max=256,
            metavar="N",
            help="Number of worker processes that share the address and the CPU cores.",
        ),
    ] = 1,
    index: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="Index to search (`cloze index`), or NAME=FOLDER; its model is served, too; may "
            "be repeated.",
        ),
    ] = None,
    allow_indexing: Annotated[
        bool,
        typer.Option(
            "--allow-indexing", help="Allow changes of indexes over HTTP; needs API keys."
        ),
    ] = False,
    allow_finetuning: Annotated[
        bool,
        typer.Option(
            "--allow-finetuning", help="Allow fine-tuning jobs over HTTP; needs API keys."
        ),
    ] = False,
    finetuning_folder: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Folder of fine-tuning jobs: uploaded rows, runs and models."
        ),
    ] = Path("finetuning"),
    log: Annotated[
        Literal["json", "text", "none"],
        typer.Option(metavar="FORMAT", help="Format of the log lines: json, text or none."),
    ] = "json",
    max_body_mb: Annotated[
        float,
        typer.Option(
            min=0.001, metavar="N", rich_help_panel=LIMITS, help="Maximum size of a request in MB."
        ),
    ] = 8.0,
    max_request_tokens: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=LIMITS,
            help="Maximum number of tokens of a request.",
        ),
    ] = 1 << 18,
    max_queue_tokens: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=LIMITS,
            help="Number of tokens of waiting requests from which on new ones are refused (429).",
        ),
    ] = 1 << 18,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=LIMITS,
            help="Number of tokens that are computed together (default: depends on the device).",
        ),
    ] = None,
    deadline: Annotated[
        float,
        typer.Option(
            min=0.001, metavar="SECONDS", rich_help_panel=LIMITS, help="Maximum time of a request."
        ),
    ] = 60.0,
    drain_seconds: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            rich_help_panel=LIMITS,
            help="Maximum time to answer open requests after SIGTERM.",
        ),
    ] = 30.0,
    max_upload_mb: Annotated[
        float,
        typer.Option(
            min=0.001,
            metavar="N",
            rich_help_panel=LIMITS,
            help="Maximum size of a file with rows for fine-tuning in MB.",
        ),
    ] = 256.0,
    max_finetuning_jobs: Annotated[
        int,
        typer.Option(
            min=1,
            max=256,
            metavar="N",
            rich_help_panel=LIMITS,
            help="Number of fine-tuning jobs that run at a time; others wait.",
        ),
    ] = 1,
    device: Device = None,
    dtype: Dtype = "float32",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Serve models over HTTP: every function, and the APIs of OpenAI, Cohere and others."""
    del threads  # set in the environment
    from cloze.serve.config import ServeConfig

    config = ServeConfig(
        host=host,
        port=port,
        api_keys=_read_keys(api_key_file),
        allow_no_key=allow_no_key,
        allowed_hosts=tuple(allowed_host or ()),
        max_body_bytes=round(max_body_mb * 1_000_000),
        max_request_tokens=max_request_tokens,
        max_queue_tokens=max_queue_tokens,
        batch_tokens=batch_tokens,
        deadline=deadline,
        drain_seconds=drain_seconds,
        preload=preload,
        workers=workers,
        indexes=tuple(index or ()),
        allow_indexing=allow_indexing,
        finetuning_folder=str(finetuning_folder) if allow_finetuning else None,
        max_upload_bytes=round(max_upload_mb * 1_000_000),
        max_finetuning_jobs=max_finetuning_jobs,
        device=device,
        dtype=dtype,
        log_format=log,
    )
    if any(find_spec(name) is None for name in _LIBRARIES):
        raise MissingExtraError("cloze serve", extra="serve")
    from cloze.serve.workers import serve

    def announce(address: str) -> None:
        if not quiet:
            print_note(f"cloze serves on {address} (Ctrl-C stops)")

    serve(models, config, on_start=announce)


def _read_keys(file: Path | None) -> tuple[str, ...]:
    if file is None:
        given = os.environ.get("CLOZE_API_KEYS", "").split(",")
    else:
        try:
            given = file.read_text("utf-8").splitlines()
        except OSError as error:
            raise InputError(
                f"{file}: {error.strerror or error}",
                fix="use a readable file with one key per line",
            ) from None
    return tuple(key.strip() for key in given if key.strip())
