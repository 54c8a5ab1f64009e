"""`evaluate` for our own families: language models, translators, word vectors."""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from cloze.checkpoint.abilities import OWN, family_of
from cloze.checkpoint.translator import Translator
from cloze.data.parallel_text import read_lines_of_file
from cloze.data.sources import Source, as_list, read_rows, store_streams
from cloze.errors import InputError
from cloze.metrics.language import score_language
from cloze.metrics.words import (
    Question,
    read_pairs,
    read_questions,
    score_analogies,
    score_similarities,
)
from cloze.models.language import LanguageModel
from cloze.models.word2vec import WordVectors
from cloze.progress import ProgressCallback
from cloze.tasks.evaluate_translator import evaluate_translator
from cloze.tasks.scored import CorpusEvaluation, check_options


class OwnOptions(TypedDict, total=False):
    """The choices of `evaluate` for our own families."""

    beam: int | None  # of translators, as bleu and policy
    bleu: str | None
    policy: str | None
    skip_bad: bool  # of language models
    progress: ProgressCallback | None


def evaluate_own(
    model: LanguageModel | Translator | WordVectors,
    data: Source | Sequence[Any],
    **options: Unpack[OwnOptions],
) -> CorpusEvaluation:
    """Score a model of our own families.

    Args:
        model: a language model (perplexity, bits per byte), a translator (BLEU), or word vectors
            (accuracy of analogies, correlation with judged similarities).
        data: text, a sentence to a line; or two files, source and target; or files of questions
            (`a b c d`, `: section`) and of judged pairs (`word, word, number`).
        **options: of a translator `beam` (4), `bleu`, how it finds words (13a, zh where the target
            is Chinese, none), and `policy`, for sentences that are too long: without one they count
            as blank; of a language model `skip_bad`, to pass over rows that cannot be read.
            `progress` is told how many sentences of a translator are done.
    """
    if isinstance(model, Translator):
        chosen = check_options(options, "beam", "bleu", "policy", of=model)
        return evaluate_translator(model, data, options.get("progress"), **chosen)
    if isinstance(model, WordVectors):
        check_options(options, of=model)
        return _words(model, as_list(data))
    family = family_of(model)
    if family is None or "suggest" not in OWN[family].verbs:
        raise InputError(
            f"a {type(model).__name__} is not scored so", fix="give a language model's folder"
        )
    return evaluate_text(model, data, **check_options(options, "skip_bad", of=model))


def evaluate_text(
    model: LanguageModel,
    data: Source | Sequence[Any],
    *,
    column: str | None = None,
    skip_bad: bool = False,
) -> CorpusEvaluation:
    """Perplexity and bits per byte of a text, a sentence to a line; tables have a `column`."""
    since = time.perf_counter()
    skipped: list[InputError] = []
    lines = read_rows(
        as_list(data), column=column, on_error=skipped.append if skip_bad else "raise"
    )
    found = score_language(model, (row.text for row in lines))
    names = ("perplexity", "word_perplexity", "bits_per_byte")
    return CorpusEvaluation(
        kind="language",
        scores={name: getattr(found, name) for name in names},
        counts={name: getattr(found, name) for name in ("texts", "tokens", "words", "unknown")},
        notes={},
        skipped=tuple(skipped),
        seconds=time.perf_counter() - since,
    )


def _words(model: WordVectors, sources: list[Any]) -> CorpusEvaluation:
    with store_streams(sources, Path(tempfile.gettempdir())) as data:
        return _judged_words(model, data)


def _judged_words(model: WordVectors, data: Sequence[Any]) -> CorpusEvaluation:
    since = time.perf_counter()
    scores: dict[str, float] = {}
    counts: dict[str, int] = {}
    for path in data:
        name, questions, judged = read_word_questions(path)
        if questions is not None:
            answers = score_analogies(model, questions)
            scores[f"{name} accuracy"] = answers.accuracy
            sections = answers.sections()
            if len(sections) > 1:
                scores |= {f"{name}: {part}": right / of for part, (right, of) in sections.items()}
            asked, unknown = len(answers.questions), answers.unknown
        else:
            pairs = score_similarities(model, judged)
            scores[f"{name} spearman"], scores[f"{name} pearson"] = pairs.spearman, pairs.pearson
            asked, unknown = len(pairs.ratings), pairs.unknown
        counts[f"{name} asked"], counts[f"{name} unknown"] = asked, unknown
    return CorpusEvaluation(
        kind="words",
        scores=scores,
        counts=counts,
        notes={},
        seconds=time.perf_counter() - since,
    )


def read_word_questions(
    path: object,
) -> tuple[str, list[Question] | None, list[tuple[str, str, float]]]:
    """What word vectors are judged by: a file's name, and its questions, or else its pairs."""
    if not isinstance(path, str | os.PathLike) or not Path(path).is_file():
        raise InputError(f"{path}: there is no such file", fix="name files, not folders")
    place = Path(path)
    if _is_questions(place):
        return place.stem, read_questions(place), []
    return place.stem, None, read_pairs(place)


def _is_questions(path: Path) -> bool:
    """Analogies have sections, or four words in a line without commas."""
    first = next((row.text for row in read_lines_of_file(path) if row.text.strip()), "")
    return first.startswith(":") or ("," not in first and "\t" not in first)
