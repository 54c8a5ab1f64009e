"""SQuAD's rules on hard cases: expected values worked out by hand from the official script.

Lower case, then string.punctuation (ASCII's 32 marks) away, then the words matched by
\\b(a|an|the)\\b, then white space joined.
"""

import math

import numpy as np
import pytest

from cloze.errors import InputError
from cloze.metrics.squad import (
    chinese_exact_match,
    chinese_f1,
    english_f1,
    find_best_threshold,
    normalize_answer,
    score_answer,
    score_answers,
    segment_text,
)
from helpers import raises


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The Eiffel Tower!", "eiffel tower"),
        ("the the", ""),
        ("An", ""),
        ("A", ""),
        ("vitamin A", "vitamin"),
        ("an apple a day", "apple day"),
        ("Anne and the theatre", "anne and theatre"),
        ("U.S.", "us"),
        ("a.b", "ab"),  # marks go first, so no article is left
        ("a. b.", "b"),
        ("the-end", "theend"),
        ("a_b", "ab"),  # the underscore is punctuation too
        ("the 'a'", ""),
        ("Beyoncé's", "beyoncés"),
        ("Beyoncé’s", "beyoncé’s"),  # a mark beyond ASCII stays
        ("the’s", "’s"),  # and parts words for the articles
        ("“The” end", "“ ” end"),
        ("5–7", "5–7"),
        ("5-7", "57"),
        ("10,000", "10000"),
        ("$3.5 million", "35 million"),
        ("1990's", "1990s"),
        ("x² + y²", "x² y²"),
        ("rock & roll", "rock roll"),
        ("à la carte", "à la carte"),
        ("l'an 2000", "lan 2000"),
        ("Straße", "straße"),
        ("  many \t spaces\nhere ", "many spaces here"),
        ("no\N{NO-BREAK SPACE}break", "no break"),
        ("...", ""),
        ("", ""),
        ("东京", "东京"),
    ],
)
def test_normalize_answer(text, left):
    assert normalize_answer(text) == left


@pytest.mark.parametrize(
    ("gold", "predicted", "f1"),
    [
        ("the big dog", "big dogs", 2 * 1 / (2 + 2)),
        ("no no no", "no", 2 * 1 / (3 + 1)),  # bags: one of three
        ("dog big", "big dog", 1),  # order does not count
        ("cat", "dog", 0),
        ("the", "a", 1),  # nothing against nothing
        ("the", "cat", 0),
        ("10,000 men", "10000 men", 1),
    ],
)
def test_f1(gold, predicted, f1):
    assert english_f1(gold, predicted) == pytest.approx(f1)


def test_the_best_gold_answer_counts():
    found = score_answer(["in the Paris of today", "Paris"], "the paris")
    assert (found.exact_match, found.f1) == (1, 1)
    found = score_answer(["New York City", "York"], "New York")
    assert (found.exact_match, found.f1) == (0, pytest.approx(4 / 5))


def test_no_answer():
    assert score_answer([], "").f1 == score_answer([], "").exact_match == 1
    assert score_answer([], "something").f1 == 0
    assert score_answer(["something"], "").exact_match == 0
    # a gold answer that is empty after normalization is ignored
    assert score_answer(["the"], "").exact_match == 1
    assert score_answer([], "the").exact_match == 1


def test_every_question_has_its_score():
    assert [one.exact_match for one in score_answers([["a b"], []], ["b", "x"])] == [1, 0]
    with raises(InputError, "1 example", "0 predictions"):
        score_answers([["a"]], [])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("2008年8月8日", ["2008", "年", "8", "月", "8", "日"]),
        ("《红楼梦》", ["红", "楼", "梦"]),
        (
            "光荣和ω-Force",
            ["光", "荣", "和", "ωforce"],
        ),  # the dash goes, and nothing takes its place
        ("iPhone 6s", ["iphone", "6s"]),
        ("3.5%", ["3.5", "%"]),
        ("1,000人", ["1,000", "人"]),
        ("a“b”c", ["abc"]),
        ("是‘好’的", ["是", "‘", "好", "的"]),  # ’ is on CMRC's list, ‘ is not
        ("，。", []),
    ],
)
def test_segments_of_chinese(text, parts):
    assert segment_text(text) == parts


@pytest.mark.parametrize(
    ("gold", "predicted", "exact", "f1"),
    [
        ("《红楼梦》", "红楼梦", 1, 1),
        ("10月1日。", "10月1日", 1, 1),
        ("北京大学", "大学", 0, 2 * 2 / (4 + 2)),
        ("我爱北京", "我北京", 0, 2 * 2 / (4 + 3)),  # without gaps: 北京, not 我…北京
        ("一九九一年", "1991年", 0, 2 * 1 / (5 + 2)),
        ("NBA总决赛", "nba", 0, 2 * 1 / (4 + 1)),
        ("NBA", "nba", 1, 1),
        ("天", "地", 0, 0),
        ("a,b", "ab", 0, 0),  # the ASCII comma is not on the list
        ("", "，", 1, 1),
        ("天", "", 0, 0),
    ],
)
def test_chinese_answers(gold, predicted, exact, f1):
    assert chinese_exact_match(gold, predicted) == exact
    assert chinese_f1(gold, predicted) == pytest.approx(f1)
    found = score_answer([gold, "不是这个"], predicted, chinese=True)
    assert found.f1 == pytest.approx(max(f1, chinese_f1("不是这个", predicted)))


def test_the_best_of_several_chinese_answers():
    found = score_answer(["村雨城", "任天堂游戏谜之村雨城"], "《谜之村雨城》", chinese=True)
    assert (found.exact_match, found.f1) == (0, pytest.approx(2 * 3 / (3 + 5)))


def mean_at(threshold, leads, spoken, silent):
    return np.where(np.array(leads) > threshold, silent, spoken).mean()


def test_the_best_threshold_equals_exhaustive_search():
    rng = np.random.default_rng(3)
    for _ in range(300):
        count = int(rng.integers(1, 9))
        leads = rng.integers(-3, 4, count).astype(float)  # many are equal
        spoken, silent = rng.random(count), rng.integers(0, 2, count).astype(float)
        found = find_best_threshold(leads, spoken, silent)
        tried = [*leads, leads.min() - 1, leads.max() + 1]
        assert found.score == pytest.approx(max(mean_at(t, leads, spoken, silent) for t in tried))
        assert mean_at(found.threshold, leads, spoken, silent) == pytest.approx(found.score)
        assert math.isfinite(found.threshold)


def test_always_no_answer_can_be_best():
    found = find_best_threshold([2.0, 1.0], [0.0, 0.0], [1.0, 1.0])
    assert found.score == 1
    assert found.threshold < 1


def test_nan_scores_are_errors():
    with raises(InputError, "NaN"):
        find_best_threshold([math.nan], [1.0], [0.0])
    with raises(InputError, "1 example", "2 predictions"):
        find_best_threshold([1.0], [1.0], [0.0, 1.0])
