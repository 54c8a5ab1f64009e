"""BLEU, as sacreBLEU computes it: n-grams that translations share with their references.

Papineni et al. 2002; Post 2018 for the tokenizers and the signature. n lines.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cloze.config import one_of
from cloze.errors import InputError

ORDER = 4  # the longest n-gram

_ENTITIES = {"&quot;": '"', "&amp;": "&", "&lt;": "<", "&gt;": ">"}
# mteval-v13a: separate punctuation, except between digits
_PUNCTUATION = (
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
# sacreBLEU's ranges of Chinese characters. It writes two ranges beyond U+FFFF with four digits, so
# that they begin at U+2001 and U+2F81.
_RANGES = (
    "3400-4db5 4e00-9fbb f900-fa2d fa30-fa6a fa70-fad9 2001-2a6d 2f81-2fa1 ff00-ffef 2e80-2eff "
    "3000-303f 31c0-31ef 2f00-2fdf 2ff0-2fff 3100-312f 31a0-31bf fe10-fe1f fe30-fe4f 2600-27bf "
    "3200-33ff"
)
_CHINESE = re.compile(
    f"([{re.sub('([0-9a-f]{4})', lambda m: chr(int(m[1], 16)), _RANGES.replace(' ', ''))}])"
)


def tokenize_13a(line: str) -> list[str]:
    """The words of a line, as in WMT's script mteval-v13a."""
    line = line.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, sign in _ENTITIES.items():
        line = line.replace(entity, sign)
    return _separate_punctuation(f" {line} ")


def tokenize_zh(line: str) -> list[str]:
    """Each Chinese character is a word; the rest as in 13a."""
    return _separate_punctuation(_CHINESE.sub(r" \1 ", line.strip()))


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "13a": tokenize_13a,
    "zh": tokenize_zh,
    "none": str.split,
}


@dataclass(frozen=True, kw_only=True)
class Bleu:
    """A BLEU score and its components."""

    score: float  # 0 to 100
    precisions: tuple[float, ...]  # of 1-grams to 4-grams, in percent
    brevity_penalty: float  # below 1 if the translations are shorter than the references
    length: int  # words in the translations
    reference_length: int
    signature: str

    def __str__(self) -> str:
        parts = "/".join(f"{one:.1f}" for one in self.precisions)
        ratio = self.length / self.reference_length if self.reference_length else math.nan
        return (
            f"BLEU = {self.score:.2f} {parts} (BP = {self.brevity_penalty:.3f} ratio = {ratio:.3f} "
            f"hyp_len = {self.length} ref_len = {self.reference_length}) {self.signature}"
        )


def compute_bleu(
    translations: Sequence[str], references: Sequence[str], *, tokenize: str = "13a"
) -> Bleu:
    """Corpus BLEU: exp(Σ ¼ log pₙ) · min(1, e^(1 − r/c)), case-sensitive.

    Orders without a match are smoothed as by NIST, with 1/2, 1/4 … of a match. `tokenize`: 13a for
    languages with spaces, zh for Chinese, none for text that is already tokenized.
    """
    return compute_bleu_from_counts(
        count_ngrams(translations, references, tokenize=tokenize), tokenize=tokenize
    )


def count_ngrams(
    translations: Sequence[str], references: Sequence[str], *, tokenize: str = "13a"
) -> NDArray[np.int64]:
    """The counts of each line: matches and n-grams of each order, and both lengths (n 10).

    `compute_bleu_from_counts` scores any subset of the rows, such as a bootstrap resample.
    """
    if len(translations) != len(references):
        raise InputError(
            f"{len(translations):,} translations have {len(references):,} references",
            fix="pass one reference for each translation",
        )
    words = TOKENIZERS[one_of("tokenizer of BLEU", tokenize, TOKENIZERS)]
    rows = [
        _count_line(words(one.rstrip()), words(other.rstrip()))
        for one, other in zip(translations, references, strict=True)
    ]
    return np.array(rows, np.int64).reshape(-1, 2 * ORDER + 2)


def compute_bleu_from_counts(counts: NDArray[np.int64], *, tokenize: str = "13a") -> Bleu:
    """The score of rows of `count_ngrams`."""
    *ngrams, length, reference = counts.sum(0).tolist()
    matches, totals = ngrams[:ORDER], ngrams[ORDER:]
    brevity = 1.0
    if length < reference:
        brevity = math.exp(1 - reference / length) if length else 0.0
    precisions = _compute_precisions(matches, totals)
    score = 0.0
    if all(precisions):
        score = brevity * math.exp(sum(map(math.log, precisions)) / ORDER)
    return Bleu(
        score=score,
        precisions=tuple(precisions),
        brevity_penalty=brevity,
        length=length,
        reference_length=reference,
        signature=f"nrefs:1|case:mixed|eff:no|tok:{tokenize}|smooth:exp|by:cloze",
    )


def compute_bleu_by_length(
    counts: NDArray[np.int64],
    lengths: Sequence[int],
    edges: Sequence[int],
    *,
    tokenize: str = "13a",
) -> list[Bleu | None]:
    """The score of the lines with low <= length < high, for neighbouring edges; None without lines.

    `lengths` has one number per line, such as the number of source words.
    """
    sizes = np.asarray(lengths)
    found: list[Bleu | None] = []
    for low, high in pairwise(edges):
        chosen = counts[(sizes >= low) & (sizes < high)]
        found.append(compute_bleu_from_counts(chosen, tokenize=tokenize) if len(chosen) else None)
    return found


def _compute_precisions(matches: Sequence[int], totals: Sequence[int]) -> list[float]:
    found = [0.0] * ORDER
    if not any(matches):
        return found
    smooth = 1.0
    for index, (match, total) in enumerate(zip(matches, totals, strict=True)):
        if not total:
            break
        if not match:
            smooth *= 2
        found[index] = 100 * match / total if match else 100 / (smooth * total)
    return found


def _count_line(translation: list[str], reference: list[str]) -> list[int]:
    shared_ngrams = _count_line_ngrams(translation) & _count_line_ngrams(reference)
    matches = Counter(map(len, shared_ngrams.elements()))
    totals = [max(len(translation) - n + 1, 0) for n in range(1, ORDER + 1)]
    counts = [*(matches[n] for n in range(1, ORDER + 1)), *totals]
    return [*counts, len(translation), len(reference)]


def _count_line_ngrams(words: list[str]) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(words[start : start + n])
        for n in range(1, ORDER + 1)
        for start in range(len(words) - n + 1)
    )


def _separate_punctuation(line: str) -> list[str]:
    for pattern, replacement in _PUNCTUATION:
        line = pattern.sub(replacement, line)
    return line.split()
