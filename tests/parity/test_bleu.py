"""BLEU against sacreBLEU."""

import gzip
import lzma
import random

import pytest
from sacrebleu.metrics import BLEU

from cloze.metrics.bleu import TOKENIZERS, compute_bleu
from texts import ODD

pytestmark = pytest.mark.parity


def theirs(found, told, tokenize):
    return BLEU(tokenize=tokenize, force=True).corpus_score(found, [told])


def same(found, told, tokenize="13a"):
    mine, other = compute_bleu(found, told, tokenize=tokenize), theirs(found, told, tokenize)
    assert mine.score == pytest.approx(other.score, abs=1e-9)
    assert mine.precisions == pytest.approx(other.precisions, abs=1e-9)
    assert mine.brevity_penalty == pytest.approx(other.bp, abs=1e-12)
    assert (mine.length, mine.reference_length) == (other.sys_len, other.ref_len)


def shuffle_words(lines, rng):
    """The lines with words lost, doubled and swapped."""
    found = []
    for line in lines:
        words = [word for word in line.split(" ") for _ in range(rng.choice([0, 1, 1, 1, 1, 2]))]
        if len(words) > 2 and rng.random() < 0.5:
            at = rng.randrange(len(words) - 1)
            words[at], words[at + 1] = words[at + 1], words[at]
        found.append(" ".join(words))
    return found


@pytest.mark.parametrize("tokenize", TOKENIZERS)
def test_generated_lines(tokenize):
    rng = random.Random(0)
    letters = [
        *ODD,
        "&quot;",
        "&amp;lt;",
        "<skipped>",
        "3.14",
        "1,000",
        "2-3",
        "a-b",
        "$5",
        "「",
        "。",
    ]
    for _ in range(40):
        told = [
            " ".join(rng.choices(letters, k=rng.randrange(12))).replace("\r", " ").strip()
            for _ in range(5)
        ]
        same(shuffle_words(told, rng), told, tokenize)


def test_edge_cases():
    for found, told in (
        (["a"], ["a"]),
        (["a b c d"], ["a b c d"]),
        ([""], ["a b"]),
        (["a b"], [""]),
        (["a b c d e"], ["f g h"]),
        (["a b c"], ["a b c d e f"]),
    ):
        same(found, told)


@pytest.mark.data
@pytest.mark.parametrize("language", ["de", "fr", "en"])
def test_real_lines(data_dir, language):
    with gzip.open(data_dir / f"multi30k/val.{language}.gz", "rt", encoding="utf-8") as file:
        told = file.read().split("\n")[:-1]
    same(shuffle_words(told, random.Random(1)), told)
    same(told, told)


@pytest.mark.data
def test_real_chinese_lines(data_dir):
    (file,) = (data_dir / "bilingual").glob("*.xz")
    with lzma.open(file, "rt", encoding="utf-8-sig") as lines:
        told = [line.split("\t")[1] for line, _ in zip(lines, range(500), strict=False)]
    same([line[:-2] + line[-1:] for line in told], told, "zh")
