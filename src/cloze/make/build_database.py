"""`build_database`: text to a database of chunks, which a RETRO retrieves from."""

from __future__ import annotations  # `help` shows types by their short names

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.data.chunks import ChunkTable
from cloze.data.config import CorpusOptions
from cloze.data.prepare import prepare_corpus
from cloze.data.sources import Sources, collect_sources
from cloze.errors import InputError
from cloze.files import PathLike, check_output_path, expand_user
from cloze.make.sources import resolve_model_name
from cloze.report.display import open_callbacks
from cloze.results import Result
from cloze.retrieval.chunk_database import (
    DESCRIPTION,
    ChunkDatabase,
    DatabaseText,
    Progress,
)
from cloze.retrieval.chunk_database import (
    build_database as write_database,
)
from cloze.tasks.chunk_retriever import digest_tokenizer, digest_weights, embed_chunks
from cloze.tasks.inputs import resolve_model
from cloze.train.callbacks import Callback

if TYPE_CHECKING:
    from cloze.models.configs.retro import RetroConfig

CORPUS = "corpus"  # the tokens of the text, while the database is built


@dataclass(frozen=True, kw_only=True, repr=False)
class DatabaseSummary(Result):
    """The size of a database, and what it was made with."""

    folder: str
    chunks: int
    tokens: int
    documents: int
    chunk_length: int
    encoder: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the database."""
        names = ("folder", "chunks", "tokens", "documents", "chunk_length", "encoder")
        return {name: getattr(self, name) for name in names}


def build_database(
    model: Model | PathLike,
    sources: Sources,
    out: PathLike,
    *,
    encoder: PathLike = "cloze-en",
    text_column: str | int | None = None,
    skip_bad: bool = False,
    workers: int | None = None,
    force: bool = False,
    progress: bool = True,
    callbacks: Callback | Iterable[Callback] = (),
) -> DatabaseSummary:
    """Build a database of text for a RETRO: `generate`, `score` and `evaluate` retrieve from it.

    If it is interrupted, the same call continues with the parts that are complete.

    Args:
        model: a RETRO, or its folder, whose vocabulary and chunks the database has.
        sources: text, as in `pretrain`; blank lines separate documents.
        out: the folder of the database.
        encoder: model that computes the keys, the mean of its token vectors.
        text_column: text column of tables: name or 1-based number (default: auto-detected).
        skip_bad: skip rows that cannot be read.
        workers: number of processes that prepare the text (default: one per core).
        force: replace a database in `out`; it stays usable until the new one is complete.
        progress: show progress bars on a terminal or in a notebook.
        callbacks: called with log lines and progress.
    """
    opened = resolve_model(model)
    if getattr(getattr(opened, "config", None), "family", "") != "retro":
        raise InputError(
            "a database is for a RETRO, and this model is none",
            fix="train one: cloze pretrain TEXT --recipe retro",
        )
    folder = expand_user(out)
    if (folder / DESCRIPTION).exists() or not _is_unfinished(folder):
        check_output_path(folder, force)
    name = resolve_model_name(str(encoder))
    computing = load(name, device=str(opened.device), quiet=True)
    column = None if text_column is None else str(text_column)
    options = CorpusOptions(hold_out=0.0, text_column=column, skip_bad=skip_bad)
    with open_callbacks(progress, callbacks) as shown:
        corpus = prepare_corpus(
            collect_sources(sources), opened.tokenizer, folder / CORPUS, options, workers=workers
        )
        chunks = ChunkTable(corpus, opened.config.chunk_length)
        found = build_text_database(
            folder, chunks, opened, computing, name=name, progress=shown.on_progress
        )
    shutil.rmtree(folder / CORPUS)
    return DatabaseSummary(
        folder=str(out),
        chunks=len(found),
        tokens=found.info.tokens,
        documents=len(np.unique(found.text.documents)),
        chunk_length=found.info.chunk_length,
        encoder=found.info.encoder,
    )


def _is_unfinished(folder: Path) -> bool:
    """Whether a folder has nothing but what an interrupted call has left."""
    if not folder.is_dir():
        return False
    inside = [path.name for path in folder.iterdir()]
    return all(name == CORPUS or name.startswith(("keys-", "tokens-", ".")) for name in inside)


def build_text_database(
    folder: Path,
    chunks: ChunkTable,
    model: Model[Any, RetroConfig],
    encoder: Model,
    *,
    name: str,
    progress: Progress | None = None,
) -> ChunkDatabase:
    """The database of the training documents of a corpus, with the keys of an encoder `name`."""
    return write_database(
        folder,
        collect_text(chunks),
        lambda some: embed_chunks(encoder, model.tokenizer, some),
        {
            "chunk_length": model.config.chunk_length,
            "vocab_size": model.config.vocab_size,
            "tokenizer": digest_tokenizer(model.tokenizer),
            "encoder": name,
            "encoder_digest": digest_weights(encoder),
        },
        progress=progress,
    )


def collect_text(chunks: ChunkTable) -> DatabaseText:
    """The training documents of a corpus that have chunks, one after another."""
    used = np.flatnonzero(chunks.is_train)
    starts, ends = chunks.starts[used], chunks.ends[used]
    firsts = np.flatnonzero(np.diff(ends, prepend=-1))  # the first chunk of each document
    lengths = ends[firsts] - starts[firsts]
    parts = [
        chunks.corpus.read_tokens(int(first), int(last))[0]
        for first, last in zip(starts[firsts], ends[firsts], strict=True)
    ]
    ids = np.concatenate(parts) if parts else np.zeros(0, np.uint16)
    document = np.repeat(np.arange(len(firsts)), np.diff([*firsts, len(used)]))
    begins = np.cumsum(lengths) - lengths
    shift = (begins - starts[firsts])[document] if len(used) else np.zeros(0, np.int64)
    return DatabaseText(
        ids=ids, starts=starts + shift, ends=ends + shift, documents=chunks.digests[used]
    )
