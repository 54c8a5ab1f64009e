"""`vocabulary`: text to a tokenizer."""

from __future__ import annotations  # `help` shows types by their short names

from collections.abc import Callable, Iterable
from typing import Literal

from cloze.data.sources import Sources, collect_sources, read_rows
from cloze.errors import InputError
from cloze.files import PathLike, check_output_path
from cloze.make.recipe.data import TokenizerOptions
from cloze.report.display import open_callbacks
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer
from cloze.train.callbacks import Callback


def vocabulary(
    sources: Sources,
    *,
    out: PathLike | None = None,
    kind: Literal["wordpiece", "bpe", "word", "char"] = "wordpiece",
    size: int = 30_000,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    chinese: bool = True,
    byte_fallback: bool = False,
    min_count: int = 2,
    text_column: str | int | None = None,
    on_error: Literal["raise"] | Callable[[InputError], object] = "raise",
    force: bool = False,
    progress: bool = True,
    callbacks: Callback | Iterable[Callback] = (),
) -> Tokenizer:
    """Train a tokenizer on files, folders, globs or datasets, and save it in a folder.

    Args:
        sources: text, as in `pretrain`.
        out: the folder to save in (default: nothing is saved).
        kind: wordpiece, bpe, word or char.
        size: maximum number of tokens, special tokens included.
        lowercase: convert text to lower case and remove accents (default: for wordpiece and word).
        strip_accents: remove accents, or keep them (default: the value of `lowercase`).
        chinese: treat every Chinese character as a word; without effect for bpe.
        byte_fallback: encode rare characters as bytes instead of [UNK].
        min_count: minimum number of occurrences of a token.
        text_column: text column of tables: name or 1-based number (default: auto-detected).
        on_error: what to do with a row that cannot be read: raise an error, or call this function
            with the error and skip the row.
        force: overwrite what is in `out`.
        progress: show progress bars on a terminal or in a notebook.
        callbacks: called with log lines and progress.
    """
    options = TokenizerOptions(
        kind=kind,
        size=size,
        lowercase=lowercase,
        strip_accents=strip_accents,
        chinese=chinese,
        byte_fallback=byte_fallback,
        min_count=min_count,
    )
    folder = None if out is None else check_output_path(out, force)  # before the work, not after it
    with open_callbacks(progress, callbacks) as opened:
        rows = read_rows(collect_sources(sources), text_column=text_column, on_error=on_error)
        tokenizer = train_tokenizer(
            (row.text for row in rows),
            kind=options.kind,
            vocab_size=options.size,
            lowercase=options.lowercase,
            strip_accents=options.strip_accents,
            chinese=options.chinese,
            byte_fallback=options.byte_fallback,
            min_count=options.min_count,
            progress=opened.on_progress,
        )
    if folder is not None:
        tokenizer.save(folder)
    return tokenizer
