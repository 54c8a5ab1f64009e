"""ROUGE: n-grams and common subsequences that summaries share with their references.

Lin 2004; the scores are those of the package rouge-score without stemming.
r reference words, p words of a summary, n pairs.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cloze.config import one_of
from cloze.errors import InputError
from cloze.text.sentences import split_sentences

NAMES = ("rouge_1", "rouge_2", "rouge_l", "rouge_lsum")
LEAD = 3  # sentences of the lead baseline
_NOT_ASCII_WORD = re.compile(r"[^a-z0-9]+")
# a Chinese or Japanese character is a word; words of other scripts are letters and digits
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")


def tokenize_ascii(text: str) -> list[str]:
    """The words of a text, as in rouge-score: lower case, runs of ASCII letters and digits."""
    return _NOT_ASCII_WORD.sub(" ", text.lower()).split()


def tokenize_unicode(text: str) -> list[str]:
    """The words of a text in any script, in lower case; each Chinese character is a word."""
    return _WORD.findall(text.lower())


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "ascii": tokenize_ascii,
    "unicode": tokenize_unicode,
}


def choose_tokenizer(references: Iterable[str]) -> str:
    """`unicode` if most letters of the references are not ASCII, else `ascii`."""
    ascii_letters = others = 0
    for text in references:
        for letter in text:
            if letter.isascii():
                ascii_letters += letter.isalnum()
            else:
                others += letter.isalnum()
    return "unicode" if others > ascii_letters else "ascii"


@dataclass(frozen=True, kw_only=True)
class RougeScore:
    """Precision, recall and F1 of one summary."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Rouge:
    """The scores of several summaries."""

    f1: Mapping[str, NDArray[np.float64]] = field(repr=False)  # of each pair, by name
    tokenize: str

    @property
    def scores(self) -> dict[str, float]:
        """The mean F1 over the pairs, from 0 to 1, by name."""
        return {name: float(values.mean()) for name, values in self.f1.items()}


def compute_rouge(
    summaries: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "ascii",
    find_sentences: bool = False,
) -> Rouge:
    """ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum of each summary.

    Args:
        summaries: the summaries.
        references: their references, in the same order.
        tokenize: ascii, as in rouge-score, or unicode for other scripts.
        find_sentences: find the sentences that ROUGE-Lsum compares, instead of splitting the texts
            at newlines.
    """
    if len(summaries) != len(references):
        raise InputError(
            f"{len(summaries):,} summaries have {len(references):,} references",
            fix="pass one reference for each summary",
        )
    if not summaries:
        raise InputError("there is no summary to score", fix="pass one or more")
    rows = [
        score_summary(one, other, tokenize=tokenize, find_sentences=find_sentences)
        for one, other in zip(summaries, references, strict=True)
    ]
    return Rouge(
        f1={name: np.array([row[name].f1 for row in rows]) for name in NAMES}, tokenize=tokenize
    )


def score_summary(
    summary: str, reference: str, *, tokenize: str = "ascii", find_sentences: bool = False
) -> dict[str, RougeScore]:
    """The scores of one summary by name; for the options see `compute_rouge`."""
    words = TOKENIZERS[one_of("tokenizer of ROUGE", tokenize, TOKENIZERS)]
    split = split_sentences if find_sentences else (lambda text: text.split("\n"))
    ours, theirs = words(summary), words(reference)
    sentences = [[words(one) for one in split(text) if one] for text in (summary, reference)]
    return {
        "rouge_1": _score_ngrams(ours, theirs, 1),
        "rouge_2": _score_ngrams(ours, theirs, 2),
        "rouge_l": _score_hits(len(_find_common(theirs, ours)), len(ours), len(theirs)),
        "rouge_lsum": _score_sentences(*sentences),
    }


def take_lead(text: str, count: int = LEAD) -> str:
    """The first sentences of a text, one per line: the baseline of summaries."""
    return "\n".join(split_sentences(text)[:count])


def _score_hits(hits: int, length: int, reference_length: int) -> RougeScore:
    return RougeScore(precision=hits / max(length, 1), recall=hits / max(reference_length, 1))


def _score_ngrams(words: list[str], reference: list[str], size: int) -> RougeScore:
    ours, theirs = (
        Counter(zip(*(one[n:] for n in range(size)), strict=False)) for one in (words, reference)
    )
    return _score_hits((ours & theirs).total(), ours.total(), theirs.total())


def _score_sentences(summary: list[list[str]], reference: list[list[str]]) -> RougeScore:
    """Summary-level ROUGE-L: the union of the words that a reference sentence shares.

    Lin 2004, §3.2; as in ROUGE 1.5.5, a word counts as often as both texts have it, at most.
    """
    left, right = (Counter(word for one in side for word in one) for side in (summary, reference))
    length, reference_length, hits = left.total(), right.total(), 0
    for sentence in reference:
        union = {n for other in summary for n in _find_common(sentence, other)}
        for word in (sentence[n] for n in sorted(union)):
            if left[word] > 0 and right[word] > 0:
                hits += 1
                left[word] -= 1
                right[word] -= 1
    return _score_hits(hits, length, reference_length)


def _find_common(reference: list[str], words: list[str]) -> list[int]:
    """The indices in the reference of a longest common subsequence."""
    if not reference or not words:
        return []
    numbers = {word: n for n, word in enumerate(dict.fromkeys([*reference, *words]))}
    columns = np.array([numbers[word] for word in words])
    table = np.zeros((len(reference) + 1, len(words) + 1), np.int64)  # r+1 p+1
    for n, word in enumerate(reference):
        extended = np.maximum(table[n, 1:], table[n, :-1] + (columns == numbers[word]))
        table[n + 1, 1:] = np.maximum.accumulate(extended)
    found, row, column = list[int](), len(reference), len(words)
    while row and column:
        if reference[row - 1] == words[column - 1]:
            found.append(row - 1)
            row, column = row - 1, column - 1
        elif table[row, column - 1] > table[row - 1, column]:
            column -= 1
        else:
            row -= 1
    return found[::-1]
