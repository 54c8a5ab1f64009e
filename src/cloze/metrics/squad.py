"""Exact match and F1 of answers: SQuAD (Rajpurkar et al. 2016, 2018), and CMRC for Chinese.

An answer is a text; "" means that the context has no answer. Both versions of SQuAD are scored by
the script of version 2.0. It differs from 1.1 only for texts that are empty after normalization:
gold answers such as "the" are ignored, and two empty answers have F1 = 1.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cloze.errors import InputError
from cloze.metrics.labels import check_paired
from cloze.metrics.regression import Numbers

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only, as in the official script
_ARTICLES = re.compile(r"\b(a|an|the)\b")

# CMRC's list also has "……", which equals no single character and so removes nothing.
_CHINESE_PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CHINESE = re.compile("[\u4e00-\u9fa5]")
# Words and numbers (o'neil, 3.5, 1,000), or single punctuation characters.
_LATIN = re.compile(r"\w+(?:[.,'’]\w+)*|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class AnswerScore:
    """Exact match and F1 of an answer, with the gold answer that fits best."""

    exact_match: float
    f1: float


def normalize_answer(text: str) -> str:
    """Lowercase; remove ASCII punctuation, articles and extra whitespace."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def score_answer(gold: Sequence[str], predicted: str, *, chinese: bool = False) -> AnswerScore:
    """The maximum over the gold answers; without any, the correct answer is ""."""
    exact, f1 = (chinese_exact_match, chinese_f1) if chinese else (english_exact_match, english_f1)
    answers = [text for text in gold if chinese or normalize_answer(text)] or [""]
    return AnswerScore(
        exact_match=max(exact(text, predicted) for text in answers),
        f1=max(f1(text, predicted) for text in answers),
    )


def score_answers(
    gold: Sequence[Sequence[str]], predicted: Sequence[str], *, chinese: bool = False
) -> list[AnswerScore]:
    """The score of each question."""
    check_paired(gold, predicted)
    pairs = zip(gold, predicted, strict=True)
    return [score_answer(answers, answer, chinese=chinese) for answers, answer in pairs]


def english_exact_match(gold: str, predicted: str) -> float:
    """1 if both are equal after normalization, else 0."""
    return float(normalize_answer(gold) == normalize_answer(predicted))


def english_f1(gold: str, predicted: str) -> float:
    """F1 of the bags of words."""
    expected, found = normalize_answer(gold).split(), normalize_answer(predicted).split()
    if not expected or not found:
        return float(expected == found)
    return _compute_f1((Counter(expected) & Counter(found)).total(), len(expected), len(found))


def chinese_exact_match(gold: str, predicted: str) -> float:
    """1 if both are equal in lower case and without punctuation, else 0.  Cui et al. 2019."""
    return float(_remove_punctuation(gold) == _remove_punctuation(predicted))


def chinese_f1(gold: str, predicted: str) -> float:
    """F1 of the longest common substring, counted in characters and Latin words.

    Cui et al. 2019. Their function `find_lcs` computes a substring, not a subsequence. Their script
    tokenizes other text with NLTK; here a regular expression does, which agrees on plain words and
    numbers. Two empty answers have F1 = 1, as in SQuAD 2.0; all questions of CMRC have answers.
    """
    expected, found = segment_text(gold), segment_text(predicted)
    if not expected or not found:
        return float(expected == found)
    return _compute_f1(_longest_common_substring(expected, found), len(expected), len(found))


def segment_text(text: str) -> list[str]:
    """Chinese characters and words of other scripts, without CMRC's punctuation."""
    spaced = _CHINESE.sub(r" \g<0> ", _remove_punctuation(text))
    return _LATIN.findall(spaced)


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A threshold for "no answer", and the mean score with it."""

    threshold: float
    score: float


def find_best_threshold(
    null_score_diffs: Numbers, answer_scores: Numbers, no_answer_scores: Numbers
) -> Threshold:
    """The threshold with the best mean score; "no answer" is predicted if difference > threshold.

    The official script for SQuAD 2.0 moves through equal differences one by one, and may choose a
    split between them that no threshold can produce; here they are kept together.

    Args:
        null_score_diffs: the score of "no answer" minus that of the best answer, per question.
        answer_scores: the metric of each question if the best answer is predicted.
        no_answer_scores: the metric if "no answer" is predicted: 1 without a gold answer, else 0.
    """
    check_paired(null_score_diffs, answer_scores)
    check_paired(null_score_diffs, no_answer_scores)
    differences = np.asarray(null_score_diffs, np.float64)
    order = np.argsort(differences, kind="stable")
    ordered = differences[order]
    if not np.isfinite(ordered).all():
        raise InputError("a score of “no answer” is NaN or infinite", fix="remove that question")
    gains = np.asarray(answer_scores, np.float64) - np.asarray(no_answer_scores, np.float64)
    is_last = np.append(ordered[1:] > ordered[:-1], True)  # of a group of equal differences
    totals = np.concatenate([[0.0], gains[order].cumsum()[is_last]])
    thresholds = np.concatenate([[np.nextafter(ordered[0], -np.inf)], ordered[is_last]])
    best = int(totals.argmax())
    mean = (float(np.sum(no_answer_scores)) + totals[best]) / len(ordered)
    return Threshold(threshold=float(thresholds[best]), score=float(mean))


def is_chinese(texts: Iterable[str]) -> bool:
    """Whether most letters are Chinese characters, so that answers are scored by CMRC's rules."""
    chinese = letters = 0
    for text in dict.fromkeys(texts):  # several questions share a context
        chinese += len(_CHINESE.findall(text))
        letters += sum(map(str.isalpha, text))
    return 2 * chinese > letters


def _compute_f1(shared: int, expected: int, found: int) -> float:
    return 2 * shared / (expected + found)


def _remove_punctuation(text: str) -> str:
    return "".join(letter for letter in text.lower().strip() if letter not in _CHINESE_PUNCTUATION)


def _longest_common_substring(a: Sequence[str], b: Sequence[str]) -> int:
    longest = 0
    previous = [0] * (len(b) + 1)  # lengths of common substrings that end at the element before
    for one in a:
        current = [0] * (len(b) + 1)
        for index, other in enumerate(b, 1):
            if one == other:
                current[index] = previous[index - 1] + 1
        longest = max(longest, *current)
        previous = current
    return longest
