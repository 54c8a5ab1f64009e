"""`compare` for word vectors: the same questions to all, and those that all can answer."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloze.errors import InputError
from cloze.metrics.bootstrap import Metric
from cloze.metrics.words import Question, known_words, score_analogies, score_similarities
from cloze.models.word2vec import WordVectors
from cloze.progress import ProgressCallback
from cloze.tasks.evaluate_own import read_word_questions


@dataclass(frozen=True, kw_only=True)
class WordVectorScores:
    """How word vectors did, file by file."""

    sets: Mapping[str, tuple[Metric, int]]  # by measure: what is drawn from, and how many
    seconds: float

    @property
    def metric(self) -> str:
        """The name of *the* score, that of the first file."""
        return next(iter(self.sets))

    @property
    def count(self) -> int:
        """Questions and pairs."""
        return sum(count for _, count in self.sets.values())


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What all models know of a file: questions, or else pairs."""

    questions: Sequence[Question]
    pairs: Sequence[tuple[str, str, float]]
    unknown: int

    def of(self, model: WordVectors) -> tuple[Metric, int]:
        if self.questions:
            return score_analogies(model, self.questions).correct, len(self.questions)
        return score_similarities(model, self.pairs).metric, len(self.pairs)


def score_word_vectors(
    models: Mapping[str, Any], data: Sequence[Any], progress: ProgressCallback | None = None
) -> tuple[dict[str, WordVectorScores], int]:
    """Accuracy of analogies, Spearman's correlation with judged pairs; and how many were left out.

    What has a word that one of the models lacks is left out for all of them: their scores, and the
    draws of the bootstrap, are of the same questions.
    """
    for name, model in models.items():
        if not isinstance(model, WordVectors):
            raise InputError(
                f"{name} has no word vectors, and {next(iter(models))} has",
                fix="compare models for the same task",
            )
    common = frozenset.intersection(*(known_words(model) for model in models.values()))
    asked: dict[str, _Asked] = {}
    for path in data:
        measure, those = _asked(path, common)
        if measure in asked:
            raise InputError(f"{path}: two files have this name", fix="rename one, or leave it out")
        asked[measure] = those
    found = {}
    for name, model in models.items():
        since = time.perf_counter()
        sets = {measure: those.of(model) for measure, those in asked.items()}
        found[name] = WordVectorScores(sets=sets, seconds=time.perf_counter() - since)
        if progress:
            progress(name, found[name].count, found[name].count)
    return found, sum(those.unknown for those in asked.values())


def _asked(path: object, common: frozenset[str]) -> tuple[str, _Asked]:
    """The measure of a file, and what of it can be asked."""
    name, questions, pairs = read_word_questions(path)
    made = _Asked(
        questions=[one for one in questions or () if _known(one.words, common)],
        pairs=[pair for pair in pairs if _known(pair[:2], common)],
        unknown=sum(not _known(one.words, common) for one in questions or ())
        + sum(not _known(pair[:2], common) for pair in pairs),
    )
    kept = len(made.questions) + len(made.pairs)
    if kept < 2:  # noqa: PLR2004
        raise InputError(
            f"{path}: of {kept + made.unknown} rows {kept} have only words that all models know",
            fix="a comparison needs two: are they of the same language?",
        )
    return f"{name} {'spearman' if questions is None else 'accuracy'}", made


def _known(words: Sequence[str], common: frozenset[str]) -> bool:
    return all(word.upper() in common for word in words)
