"""`vocabulary`: running text to a tokenizer."""

from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from typing import Literal

from cloze.data.sources import Row, Source, read_rows
from cloze.errors import InputError
from cloze.files import check_output_path
from cloze.progress import ProgressCallback
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer

_REPORT = 10_000  # rows between two calls of `progress`


def vocabulary(
    sources: Source | list[Source],
    *,
    out: str | PathLike[str] | None = None,
    kind: str = "wordpiece",
    size: int = 30_000,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    chinese: bool = True,
    byte_fallback: bool = False,
    min_count: int = 2,
    column: str | None = None,
    on_error: Literal["raise"] | Callable[[InputError], object] = "raise",
    force: bool = False,
    progress: ProgressCallback | None = None,
) -> Tokenizer:
    """Learn a vocabulary from files, folders, globs or data sets, and save it in a folder.

    Args:
        sources: what `cloze.data.sources.read_rows` reads.
        out: the folder to save in; nothing is written without one.
        kind: wordpiece, bpe, word or char.
        size: how many pieces, special tokens included.
        lowercase: drop case and accents; by default so for wordpiece and word.
        strip_accents: drop accents, or keep them, whatever becomes of the case.
        chinese: every ideograph is a word of its own; bpe knows no such words.
        byte_fallback: spell rare characters in bytes instead of losing them to [UNK].
        min_count: how often a piece must be seen.
        column: where the text of a table is; found by name when left out.
        on_error: what to do with rows that cannot be read: raise, or hand them over and go on.
        force: overwrite what lies in `out`.
        progress: called with (stage, done, of how many) as the work goes on.
    """
    folder = None if out is None else check_output_path(out, force)  # before the work, not after it
    tokenizer = train_tokenizer(
        _texts(read_rows(sources, column=column, on_error=on_error), progress),
        kind=kind,
        vocab_size=size,
        lowercase=lowercase,
        strip_accents=strip_accents,
        chinese=chinese,
        byte_fallback=byte_fallback,
        min_count=min_count,
        progress=progress,
    )
    if folder is not None:
        tokenizer.save(folder)
    return tokenizer


def _texts(stream: Iterable[Row], progress: ProgressCallback | None) -> Iterator[str]:
    size = 0
    for number, row in enumerate(stream, 1):
        size += len(row.text) if row.text.isascii() else len(row.text.encode())
        if progress and number % _REPORT == 0:
            progress("megabytes read", size // 10**6, None)
        yield row.text
