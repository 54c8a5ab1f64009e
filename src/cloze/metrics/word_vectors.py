"""Metrics of word vectors: accuracy on analogies, correlation with human similarity ratings.

Computed as in gensim: with the first 300,000 words, case-insensitive, and without the questions and
pairs that contain other words, whose number is reported.  q questions, v words, d width.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloze.data.parallel_text import read_all_lines
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.metrics.regression import pearson, spearman
from cloze.models.word2vec import WordVectors

RESTRICT = 300_000
_BATCH = 256  # questions scored at once
_QUESTION_WORDS, _PAIR_COLUMNS = 4, 3
_EXPECTED = (
    "word vectors are evaluated on analogies, four words per line (`man king woman queen`), or on "
    "rated pairs of words (`cat<TAB>dog<TAB>7.5`)"
)


@dataclass(frozen=True, kw_only=True)
class AnalogyQuestion:
    """a is to b as c is to d."""

    section: str
    words: tuple[str, str, str, str]


@dataclass(frozen=True, kw_only=True)
class AnalogyScores:
    """The questions whose words are all known, and which of them were answered correctly."""

    questions: Sequence[AnalogyQuestion]
    correct: NDArray[np.float64]  # q; 1 or 0
    unknown: int  # number of questions with unknown words

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean()) if len(self.correct) else float("nan")

    def count_by_section(self) -> dict[str, tuple[int, int]]:
        """The numbers of correct answers and of questions in each section."""
        found: dict[str, tuple[int, int]] = {}
        for question, is_correct in zip(self.questions, self.correct, strict=True):
            correct, total = found.get(question.section, (0, 0))
            found[question.section] = correct + int(is_correct), total + 1
        return found


@dataclass(frozen=True, kw_only=True)
class SimilarityScores:
    """Human ratings and cosines of the pairs whose words are both known."""

    ratings: NDArray[np.float64]
    cosines: NDArray[np.float64]
    unknown: int  # number of pairs with unknown words

    @property
    def spearman(self) -> float:
        return spearman(self.ratings, self.cosines)

    @property
    def pearson(self) -> float:
        return pearson(self.ratings, self.cosines)

    def score_subset(self, indices: NDArray[np.int64]) -> float:
        """The Spearman correlation of the pairs with these indices, for the bootstrap."""
        return spearman(self.ratings[indices], self.cosines[indices])


def read_questions(path: PathLike) -> list[AnalogyQuestion]:
    """Read a file like questions-words.txt: `: section`, then four words per line."""
    questions, section = [], ""
    for number, line in _read_rows(path):
        if line.startswith(":"):
            section = line[1:].strip()
            continue
        words = line.split()
        if len(words) != _QUESTION_WORDS:
            raise InputError(
                f"{path}:{number}: {len(words)} words instead of 4",
                fix=f"correct the line; {_EXPECTED}",
            )
        a, b, c, d = words
        questions.append(AnalogyQuestion(section=section, words=(a, b, c, d)))
    return questions


def read_pairs(path: PathLike) -> list[tuple[str, str, float]]:
    """Read a table with tabs or commas whose last columns are two words and a rating."""
    found: list[tuple[str, str, float]] = []
    for number, line in _read_rows(path):
        if line.startswith("#"):
            continue
        cells = line.split("\t") if "\t" in line else next(csv.reader([line]))
        if len(cells) < _PAIR_COLUMNS:
            raise InputError(
                f"{path}:{number}: {len(cells)} columns instead of 3",
                fix=f"correct the line; {_EXPECTED}",
            )
        *_, first, second, rating = (cell.strip() for cell in cells)
        if not (first or second or rating):  # an empty row
            continue
        try:
            found.append((first, second, float(rating)))
        except ValueError:
            if number > 1:  # line 1 may be a header
                raise InputError(
                    f"{path}:{number}: {rating!r} is not a number", fix="correct the line"
                ) from None
    return found


def score_analogies(
    model: WordVectors, questions: Sequence[AnalogyQuestion], *, restrict: int = RESTRICT
) -> AnalogyScores:
    """3CosAdd (Mikolov et al. 2013): d is the word nearest to b − a + c, other than a, b and c."""
    unit = model.unit_vectors[:restrict]
    rows, same_word = _index_words(model, restrict)
    known = [q for q in questions if all(word.upper() in rows for word in q.words)]
    correct = np.zeros(len(known))
    for start in range(0, len(known), _BATCH):
        batch = known[start : start + _BATCH]
        ids = np.array([[rows[word.upper()] for word in q.words] for q in batch])  # q 4
        a, b, c = (unit[ids[:, column]] for column in range(3))
        scores = (b - a + c) @ unit.T  # q v
        for number, (*given, answer) in enumerate(ids):
            for row in given:
                scores[number, same_word[row]] = -np.inf
            predicted = model.words[int(scores[number].argmax())]
            correct[start + number] = rows[predicted.upper()] == answer
    return AnalogyScores(questions=known, correct=correct, unknown=len(questions) - len(known))


def score_similarities(
    model: WordVectors, pairs: Sequence[tuple[str, str, float]], *, restrict: int = RESTRICT
) -> SimilarityScores:
    """The cosine and the human rating of each pair."""
    rows, _ = _index_words(model, restrict)
    known = [
        (rows[a.upper()], rows[b.upper()], rating)
        for a, b, rating in pairs
        if a.upper() in rows and b.upper() in rows
    ]
    if len(known) < 2:  # noqa: PLR2004
        raise InputError(
            f"only {len(known)} of {len(pairs)} pairs have both words in the vocabulary",
            fix="use pairs in the language of the vectors; a correlation needs at least two",
        )
    first, second, ratings = zip(*known, strict=True)
    cosines = np.einsum(
        "nd,nd->n", model.unit_vectors[list(first)], model.unit_vectors[list(second)]
    )
    return SimilarityScores(
        ratings=np.array(ratings, np.float64),
        cosines=cosines.astype(np.float64),
        unknown=len(pairs) - len(known),
    )


def list_known_words(model: WordVectors, restrict: int = RESTRICT) -> frozenset[str]:
    """The words that questions and pairs may contain, in upper case."""
    return frozenset(word.upper() for word in model.words[:restrict])


def _index_words(model: WordVectors, restrict: int) -> tuple[dict[str, int], dict[int, list[int]]]:
    """The first row of each upper-cased word; and for each such row all rows of the same word."""
    rows: dict[str, int] = {}
    same_word: dict[int, list[int]] = {}
    for row, word in enumerate(model.words[:restrict]):
        first = rows.setdefault(word.upper(), row)
        same_word.setdefault(first, []).append(row)
    return rows, same_word


def _read_rows(path: PathLike) -> Iterator[tuple[int, str]]:
    return ((row.line, row.text) for row in read_all_lines(path) if row.text.strip())
