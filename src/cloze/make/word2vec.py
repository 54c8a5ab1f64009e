"""Train word vectors (word2vec) on running text."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from cloze.checkpoint.atomic import lock_folder
from cloze.checkpoint.model import Model
from cloze.checkpoint.word2vec import make_vector_model
from cloze.config import to_mapping
from cloze.data.sources import Sources, check_rereadable, read_rows
from cloze.files import PathLike, check_output_path
from cloze.make.recipe.language_models import Word2VecRecipe
from cloze.make.run_folder import check_one_process, replace_model, write_recipe
from cloze.make.sources import name_sources, resolve_sources
from cloze.models.configs.word2vec import Word2VecConfig
from cloze.models.word2vec import WordVectors
from cloze.progress import ProgressCallback
from cloze.train.callbacks import CallbackList, TrainingRun
from cloze.train.config import Word2VecRun, Word2VecVocabulary
from cloze.train.result import RunResult
from cloze.train.word2vec.corpus import encode_corpus
from cloze.train.word2vec.trainer import require_numba, train_vectors


def pretrain_word2vec(
    sources: Sources,
    out: PathLike,
    recipe: Word2VecRecipe,
    *,
    force: bool = False,
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Train word vectors as a recipe says; the only score is the number of words."""
    callbacks = callbacks or CallbackList()
    started = time.monotonic()
    texts = resolve_sources(sources, recipe.data.sources)
    callbacks.on_train_begin(TrainingRun(Path(out), to_mapping(recipe)))
    model = train_word2vec(
        texts,
        out,
        settings=recipe.run,
        text=recipe.vocabulary,
        config=recipe.model.new_config,
        text_column=recipe.data.text_column,
        force=force,
        progress=callbacks.on_progress,
    )
    data = replace(recipe.data, sources=name_sources(texts))
    write_recipe(Path(out), replace(recipe, data=data))
    words = {"words": float(model.config.vocab_size)}
    callbacks.on_save(Path(out))
    result = RunResult(folder=Path(out), scores=words, seconds=time.monotonic() - started)
    callbacks.on_train_end(result)
    return result


def train_word2vec(
    sources: Sources,
    out: PathLike | None = None,
    *,
    settings: Word2VecRun | None = None,
    text: Word2VecVocabulary | None = None,
    config: Word2VecConfig | None = None,
    text_column: str | None = None,
    force: bool = False,
    progress: ProgressCallback | None = None,
) -> Model:
    """Train word vectors on files, folders, globs or datasets, and save them in a folder.

    Args:
        sources: what `cloze.data.sources.read_rows` reads; not `-`, as it is read at least twice.
        out: the folder to save in (default: nothing is saved).
        settings: hyperparameters of the training.
        text: how text is split into words.
        config: the size of the vectors, and their character n-grams.
        text_column: text column of tables (default: found by its name).
        force: overwrite what is in `out`.
        progress: called with (stage, done, total).
    """
    settings, text = settings or Word2VecRun(), text or Word2VecVocabulary()
    config = config or Word2VecConfig()
    folder = None if out is None else check_output_path(out, force)  # before the work, not after it
    require_numba()
    check_rereadable(sources)

    def texts() -> Iterator[str]:
        return (row.text for row in read_rows(sources, text_column=text_column))

    with ExitStack() as stack:
        if folder is not None:
            check_one_process()
            stack.enter_context(lock_folder(folder))
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="cloze-words-"))
        encoded = encode_corpus(texts, text, Path(temporary), progress=progress)
        learned = train_vectors(encoded, settings, config, progress)
        vectors = WordVectors(
            words=encoded.vocabulary.words,
            vectors=learned.vectors,
            counts=encoded.vocabulary.counts,
            char_ngrams=config.char_ngrams,
            ngram_vectors=learned.gram_vectors,
            lowercase=text.lowercase,
            snapshots=learned.snapshots,
        )
        model = make_vector_model(vectors, {"run": asdict(settings), "vocabulary": asdict(text)})
        if folder is not None:
            with replace_model(folder) as work:
                model.save(work, force=True)
    return model
