"""`pretrain --model ngram`: running text to an n-gram model."""

import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from os import PathLike
from pathlib import Path

from cloze.checkpoint.ngram import NGramModel, open_ngram
from cloze.checkpoint.words import Vocabulary
from cloze.config import in_range, one_of
from cloze.data.files import fresh_path
from cloze.data.streams import Row, Source, check_rereadable, rows
from cloze.make.folder import alone, replaced
from cloze.models.configs.ngram import MAX_ORDER
from cloze.text.counting import Told
from cloze.text.learn import learn
from cloze.text.spaced import learn_spaced
from cloze.text.tokenizer import Tokenizer
from cloze.train.ngram import fit

VOCABULARY_KINDS = ("word", "spaced", "wordpiece", "bpe", "char")
_BATCH = 1000  # rows tokenized at once
_MIB = 1 << 20


def pretrain_ngram(
    sources: Source | list[Source],
    out: str | PathLike[str],
    *,
    order: int = 5,
    tokenizer: Tokenizer | str | PathLike[str] | None = None,
    kind: str = "word",
    size: int = 500_000,
    min_count: int = 2,
    lowercase: bool | None = None,
    memory: int = 1024,
    column: str | None = None,
    force: bool = False,
    progress: Told | None = None,
) -> NGramModel:
    """Count an n-gram model of a text and save it in a folder. A line is a sentence.

    Args:
        sources: what `cloze.data.streams.rows` reads; twice, unless a tokenizer is given.
        out: the folder to save in.
        order: the words of the longest n-grams, 1 to 5.
        tokenizer: whose pieces are counted, or the folder of one; else one is learned.
        kind: what to learn: `word`, `wordpiece`, `bpe`, `char`, or `spaced`, the words as they
            stand between white space, for text that is split already.
        size: of the vocabulary that is learned.
        min_count: rarer words are counted as <unk>, so that its probability is a measured one.
        lowercase: drop case and accents; by default so for word and wordpiece, never for spaced.
        memory: MiB for the counting to work in; what does not fit goes to files beside `out`.
        column: where the text of a table is; found by name when left out.
        force: overwrite what lies in `out`.
        progress: called with (stage, done, of how many) as the work goes on.
    """
    in_range("order", order, 1, MAX_ORDER)  # before the work, not after it
    in_range("memory", memory, 1, 1 << 30)
    one_of("kind of vocabulary", kind, VOCABULARY_KINDS)
    target = fresh_path(out, force)

    def texts() -> Iterator[str]:
        return _texts(rows(sources, column=column), progress)

    with alone(target):
        if tokenizer is None:
            check_rereadable(
                sources, fix="give files or a list, or a tokenizer whose vocabulary is to be used"
            )
            tokenizer = learn_words(
                texts(), kind=kind, size=size, min_count=min_count, lowercase=lowercase
            )
        elif not isinstance(tokenizer, Tokenizer):
            tokenizer = Tokenizer.load(tokenizer)
        vocabulary = Vocabulary(tokenizer)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as temporary:
            module = fit(
                _sentences(texts(), vocabulary),
                vocab_size=len(vocabulary.words),
                order=order,
                folder=Path(temporary),
                memory=memory * _MIB,
                progress=progress,
            )
            made = NGramModel(module=module, tokenizer=tokenizer)
            with replaced(target) as work:
                made.save(work, overwrite=True)
    return open_ngram(target)


def learn_words(
    texts: Iterable[str],
    *,
    kind: str,
    size: int,
    min_count: int,
    lowercase: bool | None = None,
    progress: Told | None = None,
) -> Tokenizer:
    """The vocabulary of a language model, of any of the kinds."""
    one_of("kind of vocabulary", kind, VOCABULARY_KINDS)
    options = {"size": size, "min_count": min_count, "progress": progress}
    if kind == "spaced":
        return learn_spaced(texts, **options)  # type: ignore[arg-type]
    return learn(texts, kind=kind, lowercase=lowercase, **options)  # type: ignore[arg-type]


def _sentences(texts: Iterator[str], vocabulary: Vocabulary) -> Iterator[list[int]]:
    while batch := list(islice(texts, _BATCH)):
        yield from filter(None, vocabulary.ids(batch))


def _texts(stream: Iterable[Row], progress: Told | None) -> Iterator[str]:
    size = 0
    for number, row in enumerate(stream, 1):
        size += len(row.text)
        if progress and number % _BATCH == 0:
            progress("million characters read", size // 10**6, None)
        if row.text.strip():
            yield row.text
