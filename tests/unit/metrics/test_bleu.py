"""BLEU, with expected values computed by hand."""

import math

import pytest

from cloze.errors import ConfigError, InputError
from cloze.metrics.bleu import (
    compute_bleu,
    compute_bleu_by_length,
    compute_bleu_from_counts,
    count_ngrams,
    tokenize_13a,
    tokenize_zh,
)
from helpers import raises


def test_words():
    assert tokenize_13a("Don't, he said: 3.14 (or 2-3) &quot;x&quot;.") == [
        *("Don't", ",", "he", "said", ":", "3.14", "(", "or", "2", "-", "3", ")"),
        *('"', "x", '"', "."),
    ]
    assert tokenize_zh("汤姆追 Jerry。") == ["汤", "姆", "追", "Jerry", "。"]


def test_a_worked_example():
    """6 of 7 words, 4 of 6 pairs, 2 of 5 triples, 1 of 4 fours."""
    found = compute_bleu(["the cat sat on a mat ."], ["the cat sat on the mat ."])
    assert found.precisions == pytest.approx((600 / 7, 400 / 6, 200 / 5, 100 / 4))
    expected = 100 * (6 / 7 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25
    assert found.score == pytest.approx(expected)
    assert found.brevity_penalty == 1.0


def test_short_translations_have_a_brevity_penalty():
    found = compute_bleu(["a b c d"], ["a b c d e f"])
    assert found.brevity_penalty == pytest.approx(math.exp(1 - 6 / 4))
    assert found.score == pytest.approx(100 * found.brevity_penalty)


def test_a_repeated_word_matches_once():
    assert count_ngrams(["the the the"], ["the cat"])[0, 0] == 1


def test_the_counts_of_lines_add_up():
    found, references = ["a b c d e", "x", "f g h i"], ["a b c d f", "y z", "f g h j"]
    counts = count_ngrams(found, references)
    assert counts.shape == (3, 10)
    assert compute_bleu_from_counts(counts) == compute_bleu(found, references)
    assert compute_bleu_from_counts(counts[:1]) == compute_bleu(found[:1], references[:1])


def test_scores_by_length():
    found, references = ["a b c d e", "x", "f g h i"], ["a b c d f", "y z", "f g h j"]
    short, middle, none = compute_bleu_by_length(
        count_ngrams(found, references), [1, 5, 2], [0, 3, 6, 9]
    )
    assert short == compute_bleu([found[0], found[2]], [references[0], references[2]])
    assert middle == compute_bleu(found[1:2], references[1:2])
    assert none is None


def test_the_signature():
    found = compute_bleu(["你好"], ["你好"], tokenize="zh")
    assert found.signature == "nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|by:cloze"
    assert str(compute_bleu(["a b c d"], ["a b c d"])).startswith(
        "BLEU = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000 hyp_len = 4 ref_len = 4)"
    )


def test_invalid_arguments():
    with raises(InputError, "2", "1", "reference"):
        compute_bleu(["a", "b"], ["a"])
    with raises(ConfigError, "BLEU", "12a"):
        compute_bleu(["a"], ["a"], tokenize="12a")
    assert compute_bleu([], []).score == 0.0
