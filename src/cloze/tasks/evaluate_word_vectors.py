"""`evaluate` for word vectors: analogies, and correlation with human ratings."""

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from cloze.checkpoint.model import Model
from cloze.data.labelled.examples import TextExample
from cloze.data.labelled.tables import read_text_examples
from cloze.data.parallel_text import read_all_lines
from cloze.data.sources import as_list, is_stream, store_streams
from cloze.errors import InputError
from cloze.metrics.bootstrap import Metric
from cloze.metrics.word_vectors import (
    AnalogyQuestion,
    list_known_words,
    read_pairs,
    read_questions,
    score_analogies,
    score_similarities,
)
from cloze.models.word2vec import WordVectors
from cloze.progress import ProgressCallback
from cloze.tasks.evaluation import CorpusEvaluation

FIRST_ROWS = 20  # that decide whether data are pairs of texts


def evaluate_word_vectors(
    model: Model,
    data: Any,  # noqa: ANN401 - files
    *,
    progress: ProgressCallback | None = None,  # noqa: ARG001 - all evaluators have it
) -> CorpusEvaluation:
    """Compute the accuracy on analogy files and the correlation on files of rated word pairs."""
    with store_streams(as_list(data), Path(tempfile.gettempdir())) as files:
        return _evaluate_files(model.module, files)


def _evaluate_files(model: WordVectors, files: Sequence[Any]) -> CorpusEvaluation:
    since = time.perf_counter()
    scores: dict[str, float] = {}
    counts: dict[str, int] = {}
    for path in files:
        name, questions, pairs = read_word_questions(path)
        if questions is not None:
            analogies = score_analogies(model, questions)
            scores[f"{name} accuracy"] = analogies.accuracy
            sections = analogies.count_by_section()
            if len(sections) > 1:
                scores |= {f"{name}: {part}": good / of for part, (good, of) in sections.items()}
            scored, unknown = len(analogies.questions), analogies.unknown
        else:
            found = score_similarities(model, pairs)
            scores[f"{name} spearman"], scores[f"{name} pearson"] = found.spearman, found.pearson
            scored, unknown = len(found.ratings), found.unknown
        counts[f"{name} scored"], counts[f"{name} unknown"] = scored, unknown
    return CorpusEvaluation(
        kind="words",
        scores=scores,
        counts=counts,
        notes={},
        seconds=time.perf_counter() - since,
    )


def read_word_questions(
    path: object,
) -> tuple[str, list[AnalogyQuestion] | None, list[tuple[str, str, float]]]:
    """Read a file: its name, and its analogies (None if it has none) or rated pairs."""
    if not isinstance(path, str | os.PathLike) or not Path(path).is_file():
        what = "is a folder" if isinstance(path, str | os.PathLike) and Path(path).is_dir() else ""
        raise InputError(
            f"{path}: {what or 'there is no such file'}",
            fix="name files of analogies or of rated pairs of words; not folders or globs",
        )
    file = Path(path)
    if _has_analogies(file):
        return file.stem, read_questions(file), []
    return file.stem, None, read_pairs(file)


def _has_analogies(path: Path) -> bool:
    """Whether a file contains analogies: sections, or four words per line without commas."""
    first = next((row.text for row in read_all_lines(path) if row.text.strip()), "")
    return first.startswith(":") or ("," not in first and "\t" not in first)


def has_text_pairs(data: Any) -> bool:  # noqa: ANN401 (as of `evaluate`)
    """Whether data are rated pairs of texts, by their first rows; not if they are of words."""
    sources = as_list(data)
    if any(is_stream(one) for one in sources):
        return False
    if sources and isinstance(sources[0], TextExample):
        examples = sources[:FIRST_ROWS]
    else:
        try:
            examples = list(islice(read_text_examples(sources, is_regression=True), FIRST_ROWS))
        except InputError:
            return False
    sides = [side.strip() for one in examples if one.pair for side in (one.text, one.pair)]
    return any(" " in side for side in sides)


@dataclass(frozen=True, kw_only=True)
class WordVectorScores:
    """The scores of word vectors, file by file."""

    bootstrap_metrics: Mapping[str, tuple[Metric, int]]  # metric, number of examples
    seconds: float

    @property
    def metric(self) -> str:
        """The name of the main score: that of the first file."""
        return next(iter(self.bootstrap_metrics))

    @property
    def count(self) -> int:
        """Number of questions and pairs."""
        return sum(count for _, count in self.bootstrap_metrics.values())


@dataclass(frozen=True, kw_only=True)
class _CommonQuestions:
    """The questions or pairs of a file whose words are in all vocabularies."""

    questions: Sequence[AnalogyQuestion]
    pairs: Sequence[tuple[str, str, float]]
    unknown: int

    def score(self, model: WordVectors) -> tuple[Metric, int]:
        if self.questions:
            return score_analogies(model, self.questions).correct, len(self.questions)
        return score_similarities(model, self.pairs).score_subset, len(self.pairs)


def score_word_vectors(
    models: Mapping[str, WordVectors], data: Sequence[Any], progress: ProgressCallback | None = None
) -> tuple[dict[str, WordVectorScores], int]:
    """Evaluate models on the same questions; also return the number of questions left out.

    A question with a word that is not in all vocabularies is left out for all models.
    """
    common = frozenset.intersection(*(list_known_words(model) for model in models.values()))
    files: dict[str, _CommonQuestions] = {}
    for path in data:
        metric, questions = _common_questions(path, common)
        if metric in files:
            raise InputError(f"{path}: two files have this name", fix="rename one of them")
        files[metric] = questions
    found = {}
    for name, model in models.items():
        since = time.perf_counter()
        metrics = {metric: questions.score(model) for metric, questions in files.items()}
        found[name] = WordVectorScores(
            bootstrap_metrics=metrics, seconds=time.perf_counter() - since
        )
        if progress:
            progress(name, found[name].count, found[name].count)
    return found, sum(questions.unknown for questions in files.values())


def _common_questions(path: object, common: frozenset[str]) -> tuple[str, _CommonQuestions]:
    name, questions, pairs = read_word_questions(path)
    made = _CommonQuestions(
        questions=[one for one in questions or () if _all_known(one.words, common)],
        pairs=[pair for pair in pairs if _all_known(pair[:2], common)],
        unknown=sum(not _all_known(one.words, common) for one in questions or ())
        + sum(not _all_known(pair[:2], common) for pair in pairs),
    )
    kept = len(made.questions) + len(made.pairs)
    if kept < 2:  # noqa: PLR2004
        raise InputError(
            f"{path}: all models know the words of only {kept} of {kept + made.unknown} rows; "
            "a comparison needs at least two",
            fix="check that models and file are in the same language",
        )
    return f"{name} {'spearman' if questions is None else 'accuracy'}", made


def _all_known(words: Sequence[str], common: frozenset[str]) -> bool:
    return all(word.upper() in common for word in words)
