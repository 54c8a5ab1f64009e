"""`pretrain` for word2vec: running text to word vectors."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from cloze.checkpoint.vectors import save_vectors
from cloze.data.files import PathLike, fresh_path
from cloze.data.streams import Source, inventory, rows
from cloze.errors import InputError
from cloze.models.word2vec import WordVectors
from cloze.text.counting import Progress
from cloze.train.word2vec.corpus import encode
from cloze.train.word2vec.settings import Settings, Text
from cloze.train.word2vec.trainer import learn, need_kernel


def pretrain_word2vec(
    sources: Source | list[Source],
    out: PathLike | None = None,
    *,
    settings: Settings | None = None,
    text: Text | None = None,
    corpus: PathLike | None = None,
    column: str | None = None,
    on_error: Literal["raise"] | Callable[[InputError], object] = "raise",
    force: bool = False,
    progress: Progress | None = None,
) -> WordVectors:
    """Learn word vectors from files, folders, globs or data sets, and save them in a folder.

    Args:
        sources: what `cloze.data.streams.rows` reads. They are read at least twice, so not `-`.
        out: the folder to save in; nothing is written without one.
        settings: how vectors are learned.
        text: how text becomes words.
        corpus: a folder to keep the numbered words in; a later run on the same files takes them.
        column: where the text of a table is; found by name when left out.
        on_error: what to do with rows that cannot be read: raise, or hand them over and go on.
        force: overwrite what lies in `out`.
        progress: called with (stage, done, of how many) as the work goes on.
    """
    settings, text = settings or Settings(), text or Text()
    folder = None if out is None else fresh_path(out, force)  # before the work, not after it
    need_kernel()
    for source in sources if isinstance(sources, list | tuple) else [sources]:
        if source == "-" or isinstance(source, Iterator):
            raise InputError(
                "word2vec reads its text more than once, and a stream is gone after the first time",
                fix="save it to a file and name that",
            )
    reading = 0

    def texts() -> Iterator[str]:
        nonlocal reading
        reading += 1  # what cannot be read is told once
        told = on_error if on_error == "raise" or reading == 1 else lambda _: None
        return (row.text for row in rows(sources, column=column, on_error=told))

    with tempfile.TemporaryDirectory(prefix="cloze-words-") as temporary:
        encoded = encode(
            texts,
            text,
            Path(corpus if corpus is not None else temporary),
            inventory=_same(sources, column) if corpus is not None else None,
            progress=progress,
        )
        learned = learn(encoded, settings, progress)
    vectors = WordVectors(
        words=encoded.vocabulary.words,
        vectors=learned.vectors,
        counts=encoded.vocabulary.counts,
        grams=settings.grams,
        gram_vectors=learned.gram_vectors,
        lowercase=text.lowercase,
        training={"settings": asdict(settings), "text": asdict(text)},
    )
    if folder is not None:
        save_vectors(vectors, folder, overwrite=True)
    return vectors


def _same(sources: Source | list[Source], column: str | None) -> object:
    """What must not have changed for a kept corpus to be taken; None if that cannot be told."""
    files = inventory(sources)
    return None if files is None else [files, column]
