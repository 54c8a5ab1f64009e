"""How well answers were told: SQuAD's own rules (Rajpurkar et al. 2016, 2018), and CMRC's.

An answer is a text; "" says that the context has none. Version 2.0's script is followed for both
versions. It differs from 1.1's only where nothing is left of a text: gold answers such as "the"
are put aside, and nothing against nothing is F1 = 1.
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

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII's only, in the official script too
_ARTICLES = re.compile(r"\b(a|an|the)\b")

# CMRC's list holds "……" too, which no single character can be: it never leaves anything out.
_CHINESE_MARKS = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CHINESE = re.compile("[\u4e00-\u9fa5]")
# Words and numbers whole (o'neil, 3.5, 1,000); any other mark by itself.
_LATIN = re.compile(r"\w+(?:[.,'’]\w+)*|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class AnswerScore:
    """One answer against the best gold answer for it."""

    exact: float
    f1: float


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, without a, an, the, and with single blanks."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def score_answer(gold: Sequence[str], predicted: str, *, chinese: bool = False) -> AnswerScore:
    """The best over the gold answers; none of them means that the context does not say."""
    exact, f1 = (chinese_exact, chinese_f1) if chinese else (english_exact, english_f1)
    real = [text for text in gold if chinese or normalize_answer(text)] or [""]
    return AnswerScore(
        exact=max(exact(text, predicted) for text in real),
        f1=max(f1(text, predicted) for text in real),
    )


def score_answers(
    gold: Sequence[Sequence[str]], predicted: Sequence[str], *, chinese: bool = False
) -> list[AnswerScore]:
    """The score of each question."""
    check_paired(gold, predicted)
    pairs = zip(gold, predicted, strict=True)
    return [score_answer(answers, said, chinese=chinese) for answers, said in pairs]


def english_exact(gold: str, predicted: str) -> float:
    """Whether both are the same once normalised."""
    return float(normalize_answer(gold) == normalize_answer(predicted))


def english_f1(gold: str, predicted: str) -> float:
    """F1 of the bags of words."""
    wanted, found = normalize_answer(gold).split(), normalize_answer(predicted).split()
    if not wanted or not found:
        return float(wanted == found)
    return _f1((Counter(wanted) & Counter(found)).total(), len(wanted), len(found))


def chinese_exact(gold: str, predicted: str) -> float:
    """Whether both are the same in lower case and without CMRC's marks.  Cui et al. 2019."""
    return float(_unmarked(gold) == _unmarked(predicted))


def chinese_f1(gold: str, predicted: str) -> float:
    """F1 of the longest stretch that both share, counted in characters and Latin words.

    Cui et al. 2019, as their script has it: a stretch without gaps, whatever its name `find_lcs`
    says. It splits what is not Chinese by NLTK, here a rule splits it that agrees on plain words
    and numbers. Nothing against nothing is 1, as in SQuAD 2.0; their questions all have answers.
    """
    wanted, found = split_segments(gold), split_segments(predicted)
    if not wanted or not found:
        return float(wanted == found)
    return _f1(_longest_shared(wanted, found), len(wanted), len(found))


def split_segments(text: str) -> list[str]:
    """Each Chinese character by itself, other text in words; CMRC's marks are left out."""
    spaced = _CHINESE.sub(r" \g<0> ", _unmarked(text))
    return _LATIN.findall(spaced)


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Where to fall silent, and the mean score that this brings."""

    threshold: float
    score: float


def best_threshold(leads: Numbers, spoken: Numbers, silent: Numbers) -> Threshold:
    """The threshold of SQuAD 2.0 that scores best: "no answer" is said where lead > threshold.

    The official search walks through equal leads one by one and may stop between them, where no
    threshold can; here they go together.

    Args:
        leads: by how much "no answer" beats the best answer, or its probability.
        spoken: the score of each question if its best answer is given.
        silent: its score if "no answer" is said: 1 where there is none, else 0.
    """
    check_paired(leads, spoken)
    check_paired(leads, silent)
    order = np.argsort(np.asarray(leads, np.float64), kind="stable")
    ordered = np.asarray(leads, np.float64)[order]
    if not np.isfinite(ordered).all():
        raise InputError("the lead of “no answer” is NaN or infinite", fix="leave that one out")
    gains = (np.asarray(spoken, np.float64) - np.asarray(silent, np.float64))[order]
    last = np.append(ordered[1:] > ordered[:-1], True)  # of its group of equals
    totals = np.concatenate([[0.0], gains.cumsum()[last]])
    choices = np.concatenate([[np.nextafter(ordered[0], -np.inf)], ordered[last]])
    best = int(totals.argmax())
    mean = (float(np.sum(silent)) + totals[best]) / len(ordered)
    return Threshold(threshold=float(choices[best]), score=float(mean))


def is_chinese(texts: Iterable[str]) -> bool:
    """Whether more letters are Chinese characters than not: then CMRC's rules are meant."""
    chinese = letters = 0
    for text in dict.fromkeys(texts):  # a context has several questions
        chinese += len(_CHINESE.findall(text))
        letters += sum(map(str.isalpha, text))
    return 2 * chinese > letters


def _f1(shared: int, wanted: int, found: int) -> float:
    return 2 * shared / (wanted + found)


def _unmarked(text: str) -> str:
    return "".join(letter for letter in text.lower().strip() if letter not in _CHINESE_MARKS)


def _longest_shared(a: Sequence[str], b: Sequence[str]) -> int:
    longest = 0
    before = [0] * (len(b) + 1)  # lengths of the stretches that end with the one before in a
    for one in a:
        here = [0] * (len(b) + 1)
        for place, other in enumerate(b, 1):
            if one == other:
                here[place] = before[place - 1] + 1
        longest = max(longest, *here)
        before = here
    return longest
