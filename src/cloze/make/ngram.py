"""Train an n-gram model on running text, one sentence per line."""

import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from os import PathLike
from pathlib import Path

from cloze.checkpoint.atomic import lock_folder
from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.config import in_range, one_of, to_mapping
from cloze.data.sources import Sources, check_rereadable, read_rows
from cloze.files import check_output_path
from cloze.make.recipe.language_models import NGramRecipe
from cloze.make.run_folder import check_one_process, replace_model, write_recipe
from cloze.make.sources import iter_texts, name_sources, resolve_sources
from cloze.models.configs.ngram import MAX_ORDER
from cloze.models.language import Vocabulary
from cloze.progress import ProgressCallback
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer, train_whitespace_tokenizer
from cloze.train.callbacks import CallbackList, TrainingRun
from cloze.train.ngram import estimate_ngram
from cloze.train.result import RunResult

VOCABULARY_KINDS = ("word", "spaced", "wordpiece", "bpe", "char")
_BATCH = 1000  # rows tokenized at once
_MIB = 1 << 20


def pretrain_ngram(
    sources: Sources,
    out: str | PathLike[str],
    recipe: NGramRecipe,
    *,
    force: bool = False,
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Train an n-gram model as a recipe says; the scores are the numbers of n-grams."""
    callbacks = callbacks or CallbackList()
    started, vocabulary = time.monotonic(), recipe.vocabulary
    texts = resolve_sources(sources, recipe.data.sources)
    callbacks.on_train_begin(TrainingRun(Path(out), to_mapping(recipe)))
    model = train_ngram(
        texts,
        out,
        order=recipe.model.new_config.order,
        tokenizer=vocabulary.folder,
        kind=vocabulary.kind,
        size=vocabulary.size,
        min_count=vocabulary.min_count,
        lowercase=vocabulary.lowercase,
        memory=recipe.run.memory_mib,
        text_column=recipe.data.text_column,
        force=force,
        progress=callbacks.on_progress,
    )
    data = replace(recipe.data, sources=name_sources(texts))
    write_recipe(Path(out), replace(recipe, data=data))
    counts = {
        f"{order}-grams": float(len(level.keys))
        for order, level in enumerate(model.module.levels, 1)
    }
    callbacks.on_save(Path(out))
    result = RunResult(folder=Path(out), scores=counts, seconds=time.monotonic() - started)
    callbacks.on_train_end(result)
    return result


def train_ngram(
    sources: Sources,
    out: str | PathLike[str],
    *,
    order: int = 5,
    tokenizer: Tokenizer | str | PathLike[str] | None = None,
    kind: str = "word",
    size: int = 500_000,
    min_count: int = 2,
    lowercase: bool | None = None,
    memory: int = 1024,
    text_column: str | None = None,
    force: bool = False,
    progress: ProgressCallback | None = None,
) -> Model:
    """Count the n-grams of a text and save the model in a folder.

    Args:
        sources: what `cloze.data.sources.read_rows` reads; twice, unless a tokenizer is given.
        out: the folder to save in.
        order: length of the longest n-grams, 1 to 5.
        tokenizer: a tokenizer or its folder (default: one is trained on the text).
        kind: kind of the trained tokenizer: `word`, `wordpiece`, `bpe`, `char`, or `spaced` for
            text that is tokenized already, with spaces between the tokens.
        size: vocabulary size of the trained tokenizer.
        min_count: rarer words are counted as <unk>, so that its probability is estimated.
        lowercase: remove case and accents (default: for word and wordpiece only).
        memory: MiB of memory for counting; the rest is stored in temporary files beside `out`.
        text_column: text column of tables (default: found by its name).
        force: overwrite what is in `out`.
        progress: called with (stage, done, total).
    """
    in_range("order", order, 1, MAX_ORDER)  # before the work, not after it
    in_range("memory", memory, 1, 1 << 30)
    one_of("kind of vocabulary", kind, VOCABULARY_KINDS)
    target = check_output_path(out, force)

    def texts(progress: ProgressCallback | None = None) -> Iterator[str]:
        rows = read_rows(sources, text_column=text_column)
        return (text for text in iter_texts(rows, progress) if text.strip())

    check_one_process()
    with lock_folder(target):
        if tokenizer is None:
            check_rereadable(
                sources, fix="give files or a list, or a tokenizer whose vocabulary is to be used"
            )
            tokenizer = train_lm_tokenizer(
                texts(),
                kind=kind,
                size=size,
                min_count=min_count,
                lowercase=lowercase,
                progress=progress,
            )
        elif not isinstance(tokenizer, Tokenizer):
            tokenizer = Tokenizer.load(tokenizer)
        vocabulary = Vocabulary(tokenizer)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as temporary:
            module = estimate_ngram(
                _sentences(texts(progress), vocabulary),
                vocab_size=len(vocabulary.tokens),
                order=order,
                folder=Path(temporary),
                memory=memory * _MIB,
                progress=progress,
            )
            made = Model(module=module, config=module.config, tokenizer=tokenizer)
            with replace_model(target) as work:
                made.save(work, force=True)
    return load(target)


def train_lm_tokenizer(
    texts: Iterable[str],
    *,
    kind: str,
    size: int,
    min_count: int,
    lowercase: bool | None = None,
    progress: ProgressCallback | None = None,
) -> Tokenizer:
    """Train the tokenizer of a language model."""
    one_of("kind of vocabulary", kind, VOCABULARY_KINDS)
    options = {"vocab_size": size, "min_count": min_count, "progress": progress}
    if kind == "spaced":
        return train_whitespace_tokenizer(texts, **options)  # type: ignore[arg-type]
    return train_tokenizer(texts, kind=kind, lowercase=lowercase, **options)  # type: ignore[arg-type]


def _sentences(texts: Iterator[str], vocabulary: Vocabulary) -> Iterator[list[int]]:
    while batch := list(islice(texts, _BATCH)):
        yield from filter(None, vocabulary.encode(batch))
