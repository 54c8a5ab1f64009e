"""BLEU, counted as sacreBLEU counts it: n-grams that a translation shares with its reference.

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
# mteval-v13a: marks stand alone, but for what parts digits
_MARKS = (
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
# sacreBLEU's table of Chinese characters, first and last of each range. Its two ranges beyond
# U+FFFF are written there with four digits, and so mean these of U+2001 and U+2F81.
_RANGES = (
    "3400-4db5 4e00-9fbb f900-fa2d fa30-fa6a fa70-fad9 2001-2a6d 2f81-2fa1 ff00-ffef 2e80-2eff "
    "3000-303f 31c0-31ef 2f00-2fdf 2ff0-2fff 3100-312f 31a0-31bf fe10-fe1f fe30-fe4f 2600-27bf "
    "3200-33ff"
)
_CHINESE = re.compile(
    f"([{re.sub('([0-9a-f]{4})', lambda m: chr(int(m[1], 16)), _RANGES.replace(' ', ''))}])"
)


def tokenize_13a(line: str) -> list[str]:
    """The words of a line as WMT's scorer, mteval-v13a, takes them."""
    line = line.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, sign in _ENTITIES.items():
        line = line.replace(entity, sign)
    return _apart(f" {line} ")


def tokenize_zh(line: str) -> list[str]:
    """Every Chinese character a word, the rest as in 13a."""
    return _apart(_CHINESE.sub(r" \1 ", line.strip()))


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "13a": tokenize_13a,
    "zh": tokenize_zh,
    "none": str.split,
}


@dataclass(frozen=True, kw_only=True)
class Bleu:
    """A score, and what it is made of."""

    score: float  # 0 to 100
    precisions: tuple[float, ...]  # of n-grams of 1 to 4 words, in per cent
    brevity_penalty: float  # the penalty: below 1 for translations shorter than their references
    length: int  # words of the translations
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
    """BLEU of a whole text: exp(Σ ¼ log pₙ) · min(1, e^(1 − r/c)), case kept.

    Orders with no match are smoothed as NIST does: 1/2, 1/4 … of a match. `tokenize`: 13a for
    languages with spaces, zh for Chinese, none for text that is split already.
    """
    return bleu_from_counts(
        count_ngrams(translations, references, tokenize=tokenize), tokenize=tokenize
    )


def count_ngrams(
    translations: Sequence[str], references: Sequence[str], *, tokenize: str = "13a"
) -> NDArray[np.int64]:
    """What each line adds to the score: matches and n-grams of each order, and both lengths (n 10).

    Any choice of lines, drawn again or by their length, is scored by `bleu_of` of its rows.
    """
    if len(translations) != len(references):
        raise InputError(
            f"{len(translations):,} translations have {len(references):,} references",
            fix="give each translation one reference",
        )
    words = TOKENIZERS[one_of("tokenizer of BLEU", tokenize, TOKENIZERS)]
    rows = [
        _line(words(one.rstrip()), words(other.rstrip()))
        for one, other in zip(translations, references, strict=True)
    ]
    return np.array(rows, np.int64).reshape(-1, 2 * ORDER + 2)


def bleu_from_counts(counts: NDArray[np.int64], *, tokenize: str = "13a") -> Bleu:
    """The score of some rows of `bleu_counts`."""
    *grams, length, reference = counts.sum(0).tolist()
    matches, totals = grams[:ORDER], grams[ORDER:]
    brevity = 1.0
    if length < reference:
        brevity = math.exp(1 - reference / length) if length else 0.0
    precisions = _precisions(matches, totals)
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


def bleu_by_length(
    counts: NDArray[np.int64],
    lengths: Sequence[int],
    edges: Sequence[int],
    *,
    tokenize: str = "13a",
) -> list[Bleu | None]:
    """The score of the lines whose length is from each edge to below the next; None: no line.

    `lengths` are whatever is of interest, such as words of the source.
    """
    sizes = np.asarray(lengths)
    found: list[Bleu | None] = []
    for low, high in pairwise(edges):
        chosen = counts[(sizes >= low) & (sizes < high)]
        found.append(bleu_from_counts(chosen, tokenize=tokenize) if len(chosen) else None)
    return found


def _precisions(matches: Sequence[int], totals: Sequence[int]) -> list[float]:
    found = [0.0] * ORDER
    if not any(matches):
        return found
    smooth = 1.0
    for at, (match, total) in enumerate(zip(matches, totals, strict=True)):
        if not total:
            break
        if not match:
            smooth *= 2
        found[at] = 100 * match / total if match else 100 / (smooth * total)
    return found


def _line(one: list[str], other: list[str]) -> list[int]:
    mine, theirs = _grams(one), _grams(other)
    shared = Counter(map(len, (mine & theirs).elements()))
    own = [max(len(one) - n + 1, 0) for n in range(1, ORDER + 1)]
    return [*(shared[n] for n in range(1, ORDER + 1)), *own, len(one), len(other)]


def _grams(words: list[str]) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(words[at : at + n]) for n in range(1, ORDER + 1) for at in range(len(words) - n + 1)
    )


def _apart(line: str) -> list[str]:
    for pattern, replacement in _MARKS:
        line = pattern.sub(replacement, line)
    return line.split()
