"""The tokenizer of a run: trained once, and again only if its text or settings have changed."""

import shutil
from pathlib import Path
from typing import Any

from cloze.checkpoint.atomic import atomic_folder
from cloze.checkpoint.model import Model
from cloze.config import to_mapping
from cloze.data.sources import OnError, Source, fingerprint_files, read_rows
from cloze.errors import FolderError
from cloze.files import read_json, write_json
from cloze.make.recipe.data import CorpusData, VocabularyConfig
from cloze.make.run_folder import TOKENIZER, TOKENIZER_ORIGIN
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import add_bos_and_eos, extend_tokenizer, train_tokenizer
from cloze.train.callbacks import CallbackList


def find_base_tokenizer(base: Model | None, *, is_teacher: bool) -> Tokenizer | None:
    """The tokenizer of the model to continue, or of the teacher, which gets no new tokens."""
    if base is None:
        return None
    keeps_tokens = is_teacher or not base.is_causal
    return base.tokenizer if keeps_tokens else add_bos_and_eos(base.tokenizer)


def prepare_tokenizer(
    sources: list[Source],
    out: Path,
    vocabulary: VocabularyConfig,
    data: CorpusData,
    *,
    base: Tokenizer | None,
    max_length: int,
    callbacks: CallbackList,
) -> Tokenizer:
    """The tokenizer in the run's folder; else the base model's, a given one, or a new one."""
    folder = out / TOKENIZER
    if folder.is_dir():  # of this run before it was resumed, or of its plan
        return Tokenizer.load(folder)
    # rows that cannot be read are counted when the corpus is prepared
    on_error: OnError = (lambda _: None) if data.skip_bad else "raise"
    read = read_rows(sources, text_column=data.text_column, on_error=on_error)
    texts = (row.text for row in read)
    if base is not None:
        tokenizer = base
        if vocabulary.extra_tokens:
            callbacks.on_log(f"adding {vocabulary.extra_tokens:,} words to the vocabulary")
            tokenizer = extend_tokenizer(
                tokenizer, texts, vocabulary.extra_tokens, progress=callbacks.on_progress
            )
    elif vocabulary.folder is not None:
        tokenizer = Tokenizer.load(vocabulary.folder)
    else:
        callbacks.on_log(f"training a tokenizer with {vocabulary.size:,} tokens")
        tokenizer = train_tokenizer(
            texts,
            kind=vocabulary.kind,
            vocab_size=vocabulary.size,
            lowercase=vocabulary.lowercase,
            byte_fallback=vocabulary.byte_fallback,
            min_count=vocabulary.min_count,
            progress=callbacks.on_progress,
        )
    is_trained = base is None and vocabulary.folder is None
    origin = _origin(sources, vocabulary, data) if is_trained else None
    with atomic_folder(folder) as work:
        tokenizer.with_max_length(max_length).save(work)
        write_json(work / TOKENIZER_ORIGIN, origin, indent=None)
    return tokenizer


def remove_stale_tokenizer(
    sources: list[Source],
    out: Path,
    vocabulary: VocabularyConfig,
    data: CorpusData,
    *,
    init_from: str | None,
) -> None:
    """Remove the tokenizer in a run's folder unless this run would train the same one."""
    is_trained = init_from is None and vocabulary.folder is None
    origin = _origin(sources, vocabulary, data) if is_trained else None
    if origin is None or _read_origin(out) != origin:
        shutil.rmtree(out / TOKENIZER, ignore_errors=True)


def _origin(
    sources: list[Source], vocabulary: VocabularyConfig, data: CorpusData
) -> dict[str, Any] | None:
    """What a tokenizer is trained on and how; None if the text cannot be identified."""
    files = fingerprint_files(sources)
    if files is None:
        return None
    return {"files": files, "column": data.text_column, "vocabulary": to_mapping(vocabulary)}


def _read_origin(out: Path) -> object:
    path = out / TOKENIZER / TOKENIZER_ORIGIN
    try:
        return read_json(path, max_bytes=1 << 28)  # it lists all files of text
    except FolderError:
        return "none"
