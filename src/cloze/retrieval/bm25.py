"""BM25: terms of a text, postings of many texts, and scores of a query.

score(q, d) = Σ_t ln(1 + (N − n_t + 0.5) / (n_t + 0.5)) · f_td · (k1 + 1) / (f_td + k1 · (1 − b + b · |d| / avg))

Robertson and Zaragoza 2009, with the inverse document frequency of Lucene, which is never negative.
N texts, n_t of them with the term t, which is f_td times in d; |d| terms, avg on average.
"""  # noqa: E501

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import FolderError
from cloze.files import atomic_file
from cloze.text.words import IDEOGRAPHS

K1, B = 1.2, 0.75
_MAX_UNCHANGED = 3  # characters of a word, which is too short for a plural
_MAX_TERM = 64  # characters of a term; the rest of a longer one, such as an address, is left out
_KANA = "\u3040-\u30ff\uff66-\uff9f"
_TERM = re.compile(rf"[{IDEOGRAPHS}{_KANA}]+|(?:(?![{IDEOGRAPHS}{_KANA}])[^\W_])+")
_WIDE = re.compile(rf"[{IDEOGRAPHS}{_KANA}]")
_ACCENTS = re.compile("[\u0300-\u036f]")


def find_terms(text: str) -> list[str]:
    """The terms of a text: words in lower case without accents; of Chinese pairs of characters.

    English plurals become singulars by the S stemmer of Harman 1991.

    >>> find_terms("Cafés in 東京都")
    ['cafe', 'in', '東京', '京都']
    """
    if not text.isascii():
        text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
        text = unicodedata.normalize("NFC", text)
    return [term for found in _TERM.findall(text.lower()) for term in _split_term(found)]


def _split_term(found: str) -> Iterator[str]:
    if len(found) > 1 and _WIDE.match(found):
        yield from (first + second for first, second in pairwise(found))
    else:
        yield remove_plural(found[:_MAX_TERM])


def remove_plural(word: str) -> str:
    """The singular of an English plural; short words and those in -ss, -us, -oes … stay."""
    if len(word) <= _MAX_UNCHANGED or word[-1] != "s":
        return word
    if word.endswith("ies"):
        return word if word.endswith(("eies", "aies")) else f"{word[:-3]}y"
    return word if word.endswith(("us", "ss", "aes", "ees", "oes")) else word[:-1]


@dataclass(frozen=True, kw_only=True, eq=False)
class Postings:
    """The texts that contain each term, and how often; text n is a row."""

    terms: dict[str, int]  # the number of each term
    starts: NDArray[np.int64]  # where the postings of each term start; one more at the end
    rows: NDArray[np.int32]
    counts: NDArray[np.int32]
    lengths: NDArray[np.int32]  # number of terms of each text

    @classmethod
    def from_terms(cls, texts: Iterable[Sequence[str]]) -> "Postings":
        """Count the terms of texts."""
        numbers: dict[str, int] = {}
        of_terms: list[int] = []
        rows: list[int] = []
        counts: list[int] = []
        lengths: list[int] = []
        for row, terms in enumerate(texts):
            lengths.append(len(terms))
            for term, count in Counter(terms).items():
                of_terms.append(numbers.setdefault(term, len(numbers)))
                rows.append(row)
                counts.append(count)
        order = np.argsort(np.array(of_terms, np.int64), kind="stable")
        sizes = np.bincount(np.array(of_terms, np.int64), minlength=len(numbers))
        return cls(
            terms=numbers,
            starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            rows=np.array(rows, np.int32)[order],
            counts=np.array(counts, np.int32)[order],
            lengths=np.array(lengths, np.int32),
        )

    def find(self, term: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The rows that contain a term, in order, and how often each contains it."""
        number = self.terms.get(term)
        if number is None:
            return self.rows[:0], self.counts[:0]
        where = slice(self.starts[number], self.starts[number + 1])
        return self.rows[where], self.counts[where]

    def save(self, path: Path) -> None:
        """Write an .npz file."""
        words = np.frombuffer("\n".join(self.terms).encode(), np.uint8)
        with atomic_file(path) as file:
            np.savez(
                file,
                terms=words,
                starts=self.starts,
                rows=self.rows,
                counts=self.counts,
                lengths=self.lengths,
            )

    @classmethod
    def load(cls, path: Path) -> "Postings":
        """Read an .npz file, which is checked: nothing in it is trusted."""
        names = ("terms", "starts", "rows", "counts", "lengths")
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                words, starts, rows, counts, lengths = (stored[name] for name in names)
            listed = bytes(words.astype(np.uint8)).decode().split("\n") if len(words) else []
        except FileNotFoundError:
            raise
        except Exception as error:  # a damaged archive raises errors of many kinds
            raise _damaged_error(path, error) from error
        found = cls(
            terms={term: number for number, term in enumerate(listed)},
            starts=starts,
            rows=rows,
            counts=counts,
            lengths=lengths,
        )
        if not found._is_valid():
            raise _damaged_error(path, "its parts do not fit together")
        return found

    def _is_valid(self) -> bool:
        arrays: list[NDArray[Any]] = [self.starts, self.rows, self.counts, self.lengths]
        if any(one.ndim != 1 or one.dtype.kind != "i" for one in arrays):
            return False
        total = len(self.rows)
        if len(self.starts) != len(self.terms) + 1 or len(self.counts) != total:
            return False
        if self.starts[0] != 0 or self.starts[-1] != total or (np.diff(self.starts) < 0).any():
            return False
        return not total or bool(self.rows.min() >= 0 and self.rows.max() < len(self.lengths))


def _damaged_error(path: Path, reason: object) -> FolderError:
    return FolderError(f"{path} is damaged: {reason}", fix="build the index again")


@dataclass(frozen=True, kw_only=True)
class BM25:
    """BM25 over one or several parts of a collection, of which some texts may be deleted."""

    parts: Sequence[Postings]
    is_alive: Sequence[NDArray[np.bool_]]  # of each part, whether each text is not deleted
    k1: float = K1
    b: float = B

    @classmethod
    def from_texts(cls, texts: Iterable[str], *, k1: float = K1, b: float = B) -> "BM25":
        """BM25 over texts."""
        made = Postings.from_terms(find_terms(text) for text in texts)
        return cls(parts=[made], is_alive=[np.ones(len(made.lengths), bool)], k1=k1, b=b)

    def score(self, terms: Iterable[str]) -> NDArray[np.float64]:
        """The score of every text, part after part; a repeated term of the query counts once."""
        count = sum(int(alive.sum()) for alive in self.is_alive)
        both = list(zip(self.parts, self.is_alive, strict=True))
        total = sum(int(part.lengths[alive].sum()) for part, alive in both)
        average = total / count if total else 1.0
        scores = [np.zeros(len(part.lengths)) for part in self.parts]
        for term in dict.fromkeys(terms):
            found = [part.find(term) for part in self.parts]
            frequency = sum(
                int(alive[rows].sum())
                for (rows, _), alive in zip(found, self.is_alive, strict=True)
            )
            idf = np.log(1 + (count - frequency + 0.5) / (frequency + 0.5))
            for (rows, counts), part, into in zip(found, self.parts, scores, strict=True):
                norm = self.k1 * (1 - self.b + self.b * part.lengths[rows] / average)
                into[rows] += idf * counts * (self.k1 + 1) / (counts + norm)
        return np.concatenate(scores) if scores else np.zeros(0)

    def search(
        self, terms: Iterable[str], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Scores and rows of the k best texts, the best first; texts without a term are left out.

        Texts with equal scores are in their order.
        """
        scores = self.score(terms)
        usable = scores > 0
        if self.is_alive:
            usable &= np.concatenate(list(self.is_alive))
        if allowed is not None:
            usable &= allowed
        return select_top(scores, np.flatnonzero(usable), k)


def select_top(
    scores: NDArray[np.float64], candidates: NDArray[np.int64], k: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The k best of the candidate rows: their scores and the rows; ties in the order of rows."""
    values = scores[candidates]
    if len(values) > k:
        least = np.partition(values, len(values) - k)[len(values) - k]
        candidates = candidates[values >= least]
        values = scores[candidates]
    order = np.argsort(-values, kind="stable")[:k]
    return values[order], candidates[order]
