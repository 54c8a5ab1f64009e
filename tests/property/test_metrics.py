"""Properties of metrics and confidence intervals, for any input."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cloze.metrics.bootstrap import bootstrap_interval
from cloze.metrics.labels import (
    compute_calibration,
    confusion_matrix,
    matthews_correlation,
    score_labels,
    sum_scores,
)
from cloze.metrics.regression import pearson, spearman
from cloze.metrics.scorer import compute_scores
from cloze.metrics.squad import chinese_f1, english_f1, normalize_answer, score_answer
from generated_examples import examples

numbers = st.floats(-1e300, 1e300)
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30)
labels = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), min_size=1)
texts = st.text(st.sampled_from("abthe .,'’-北京大学《》 nAnT12"), max_size=20)


@examples(40)
@given(st.lists(st.booleans(), min_size=3, max_size=200), st.integers(0, 1000))
def test_an_interval_contains_its_score(right, seed):
    values = np.array(right, float)
    found = bootstrap_interval(values, len(values), rng=np.random.default_rng(seed), resamples=400)
    assert 0 <= found.low <= found.value <= found.high <= 1


@given(pairs)
def test_correlations_are_between_minus_one_and_one(both):
    x, y = zip(*both, strict=True)
    for correlation in (pearson, spearman):
        assert -1 <= correlation(x, y) <= 1
        assert abs(correlation(x, y) - correlation(y, x)) < 1e-12
        assert correlation(x, x) > 1 - 1e-9 or len({*x}) == 1


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1))
def test_ranks_depend_on_order_only(both):
    x, y = zip(*both, strict=True)
    assert abs(spearman(x, y) - spearman([one**3 for one in x], y)) < 1e-12
    assert abs(spearman(x, y) + spearman([-one for one in x], y)) < 1e-12


@given(labels)
def test_names_of_labels_do_not_matter(both):
    gold, predicted = zip(*both, strict=True)
    names = dict(zip("abcd", "zyxw", strict=True))
    renamed = [[names[one] for one in side] for side in (gold, predicted)]
    found, same = (compute_scores("classify", *both) for both in ((gold, predicted), renamed))
    assert found["accuracy"] == same["accuracy"]
    assert abs(found["f1_macro"] - same["f1_macro"]) < 1e-12
    assert sum_scores(score_labels(gold, predicted).values()).f1 == found["accuracy"]
    matthews = matthews_correlation(confusion_matrix(gold, predicted))
    assert abs(matthews - matthews_correlation(confusion_matrix(*renamed))) < 1e-12
    assert -1 <= matthews <= 1


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1), st.integers(1, 20))
def test_every_prediction_is_in_its_bin(both, bins):
    sure, right = zip(*both, strict=True)
    made = compute_calibration(sure, right, bins)
    assert made.count == len(sure)
    assert len(made.bins) == bins
    for one in made.bins:
        inside = [s for s in sure if one.low < s <= one.high or (s == 0 and one.low == 0)]
        assert one.count == len(inside)
    assert 0 <= made.error <= 1


@given(texts, texts)
def test_scores_of_answers_are_symmetric(a, b):
    for rule in (english_f1, chinese_f1):
        assert rule(a, b) == rule(b, a)
        assert 0 <= rule(a, b) <= 1
        assert rule(a, a) == 1
    assert normalize_answer(normalize_answer(a)) == normalize_answer(a)
    assert score_answer([a, b], b).exact_match == 1 or not normalize_answer(b)
