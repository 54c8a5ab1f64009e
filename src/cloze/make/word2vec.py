"""`pretrain` for word2vec: running text to word vectors."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from cloze.checkpoint.vectors import WordModel
from cloze.data.files import PathLike, fresh_path
from cloze.data.streams import Source, check_rereadable, rows
from cloze.make.folder import alone, replaced
from cloze.models.word2vec import WordVectors
from cloze.text.counting import Told
from cloze.train.word2vec.corpus import encode
from cloze.train.word2vec.settings import Settings, Text
from cloze.train.word2vec.trainer import learn, need_kernel


def pretrain_word2vec(
    sources: Source | list[Source],
    out: PathLike | None = None,
    *,
    settings: Settings | None = None,
    text: Text | None = None,
    column: str | None = None,
    force: bool = False,
    progress: Told | None = None,
) -> WordVectors:
    """Learn word vectors from files, folders, globs or data sets, and save them in a folder.

    Args:
        sources: what `cloze.data.streams.rows` reads. They are read at least twice, so not `-`.
        out: the folder to save in; nothing is written without one.
        settings: how vectors are learned.
        text: how text becomes words.
        column: where the text of a table is; found by name when left out.
        force: overwrite what lies in `out`.
        progress: called with (stage, done, of how many) as the work goes on.
    """
    settings, text = settings or Settings(), text or Text()
    folder = None if out is None else fresh_path(out, force)  # before the work, not after it
    need_kernel()
    check_rereadable(sources)

    def texts() -> Iterator[str]:
        return (row.text for row in rows(sources, column=column))

    with ExitStack() as stack:
        if folder is not None:
            stack.enter_context(alone(folder))
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="cloze-words-"))
        encoded = encode(texts, text, Path(temporary), progress=progress)
        learned = learn(encoded, settings, progress)
        vectors = WordModel(
            words=encoded.vocabulary.words,
            vectors=learned.vectors,
            counts=encoded.vocabulary.counts,
            grams=settings.grams,
            gram_vectors=learned.gram_vectors,
            lowercase=text.lowercase,
            training={"settings": asdict(settings), "text": asdict(text)},
        )
        if folder is not None:
            with replaced(folder) as work:
                vectors.save(work, overwrite=True)
    return vectors
