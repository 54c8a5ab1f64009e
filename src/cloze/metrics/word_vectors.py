"""How good word vectors are: analogies, and similarities that people judged.

Counted as gensim counts them: of the first 300,000 words, without regard to case, and what has a
word that is not among them is left out and told.  q questions, v words, d width.
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
_FOUR, _PAIR = 4, 3


@dataclass(frozen=True, kw_only=True)
class Question:
    """a is to b as c is to d."""

    section: str
    words: tuple[str, str, str, str]


@dataclass(frozen=True, kw_only=True)
class AnalogyScores:
    """Which questions were answered rightly, of those whose words are all known."""

    questions: Sequence[Question]
    correct: NDArray[np.float64]  # q; 1 or 0
    unknown: int  # questions left out

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean()) if len(self.correct) else float("nan")

    def sections(self) -> dict[str, tuple[int, int]]:
        """Right, and asked, of each section."""
        found: dict[str, tuple[int, int]] = {}
        for question, right in zip(self.questions, self.correct, strict=True):
            good, all_ = found.get(question.section, (0, 0))
            found[question.section] = good + int(right), all_ + 1
        return found


@dataclass(frozen=True, kw_only=True)
class SimilarityScores:
    """Judged and computed similarities of the pairs whose words are both known."""

    ratings: NDArray[np.float64]
    cosines: NDArray[np.float64]
    unknown: int

    @property
    def spearman(self) -> float:
        return spearman(self.ratings, self.cosines)

    @property
    def pearson(self) -> float:
        return pearson(self.ratings, self.cosines)

    def metric(self, chosen: NDArray[np.int64]) -> float:
        """Spearman's correlation of the pairs with these numbers, for the bootstrap."""
        return spearman(self.ratings[chosen], self.cosines[chosen])


def read_questions(path: PathLike) -> list[Question]:
    """A file as questions-words.txt: `: section`, then four words a line."""
    questions, section = [], ""
    for at, line in _rows(path):
        if line.startswith(":"):
            section = line[1:].strip()
            continue
        words = line.split()
        if len(words) != _FOUR:
            raise InputError(f"{path}:{at}: {len(words)} words, not four", fix="mend the line")
        a, b, c, d = words
        questions.append(Question(section=section, words=(a, b, c, d)))
    return questions


def read_pairs(path: PathLike) -> list[tuple[str, str, float]]:
    """Two words and a number in the last columns of a table with tabs or commas."""
    found: list[tuple[str, str, float]] = []
    for at, line in _rows(path):
        if line.startswith("#"):
            continue
        cells = line.split("\t") if "\t" in line else next(csv.reader([line]))
        if len(cells) < _PAIR:
            raise InputError(f"{path}:{at}: {len(cells)} columns, not three", fix="mend the line")
        *_, first, second, number = (cell.strip() for cell in cells)
        if not (first or second or number):  # a blank row of a table
            continue
        try:
            found.append((first, second, float(number)))
        except ValueError:
            if at > 1:  # else it is the header
                raise InputError(f"{path}:{at}: {number!r} is no number", fix="mend it") from None
    return found


def score_analogies(
    model: WordVectors, questions: Sequence[Question], *, restrict: int = RESTRICT
) -> AnalogyScores:
    """3CosAdd (Mikolov et al. 2013): d is the word nearest to b − a + c, itself none of them."""
    unit = model.unit[:restrict]
    rows, same = _folded(model, restrict)
    known = [q for q in questions if all(word.upper() in rows for word in q.words)]
    right = np.zeros(len(known))
    for first in range(0, len(known), _BATCH):
        part = known[first : first + _BATCH]
        ids = np.array([[rows[word.upper()] for word in q.words] for q in part])  # q 4
        a, b, c = (unit[ids[:, at]] for at in range(3))
        scores = (b - a + c) @ unit.T  # q v
        for number, (*asked, answer) in enumerate(ids):
            for row in asked:
                scores[number, same[row]] = -np.inf
            right[first + number] = rows[_folded_name(model, scores[number])] == answer
    return AnalogyScores(questions=known, correct=right, unknown=len(questions) - len(known))


def score_similarities(
    model: WordVectors, pairs: Sequence[tuple[str, str, float]], *, restrict: int = RESTRICT
) -> SimilarityScores:
    """The cosine of each pair beside what people judged."""
    rows, _ = _folded(model, restrict)
    known = [
        (rows[a.upper()], rows[b.upper()], number)
        for a, b, number in pairs
        if a.upper() in rows and b.upper() in rows
    ]
    if len(known) < 2:  # noqa: PLR2004
        raise InputError(
            f"{len(known)} of {len(pairs)} pairs have both words among these vectors",
            fix="a correlation needs two: are they of the same language?",
        )
    first, second, judged = zip(*known, strict=True)
    cosines = np.einsum("nd,nd->n", model.unit[list(first)], model.unit[list(second)])
    return SimilarityScores(
        ratings=np.array(judged, np.float64),
        cosines=cosines.astype(np.float64),
        unknown=len(pairs) - len(known),
    )


def known_words(model: WordVectors, restrict: int = RESTRICT) -> frozenset[str]:
    """The words that may be asked about, in upper case."""
    return frozenset(word.upper() for word in model.words[:restrict])


def _folded(model: WordVectors, restrict: int) -> tuple[dict[str, int], dict[int, list[int]]]:
    """Rows by word in upper case, the most frequent of several; and all rows of one spelling."""
    rows: dict[str, int] = {}
    same: dict[int, list[int]] = {}
    for row, word in enumerate(model.words[:restrict]):
        first = rows.setdefault(word.upper(), row)
        same.setdefault(first, []).append(row)
    return rows, same


def _folded_name(model: WordVectors, scores: NDArray[np.float32]) -> str:
    return model.words[int(scores.argmax())].upper()


def _rows(path: PathLike) -> Iterator[tuple[int, str]]:
    return ((row.line, row.text) for row in read_all_lines(path) if row.text.strip())
