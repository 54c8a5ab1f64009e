import numpy as np
import pytest
from scipy import stats

from cloze.errors import ConfigError, InputError
from cloze.metrics import bootstrap
from cloze.metrics.bootstrap import bootstrap_difference, bootstrap_interval
from cloze.metrics.scorer import make_scorer
from helpers import raises


def rng(seed=0):
    return np.random.default_rng(seed)


def test_values_and_their_mean_as_a_function_give_the_same_interval(monkeypatch):
    values = rng(1).normal(size=37)
    at_once = bootstrap_interval(values, 37, rng=rng())
    one_by_one = bootstrap_interval(lambda chosen: float(values[chosen].mean()), 37, rng=rng())
    assert at_once.value == pytest.approx(values.mean())
    assert (one_by_one.low, one_by_one.high) == pytest.approx((at_once.low, at_once.high))
    monkeypatch.setattr(bootstrap, "_MAX_DRAWS", 100)  # two resamples at once
    assert bootstrap_interval(values, 37, rng=rng()) == at_once


def test_the_same_generator_gives_the_same_interval():
    values = rng(1).normal(size=50)
    assert bootstrap_interval(values, 50, rng=rng(4)) == bootstrap_interval(values, 50, rng=rng(4))
    assert bootstrap_interval(values, 50, rng=rng(4)) != bootstrap_interval(values, 50, rng=rng(5))


def test_the_interval_is_that_of_the_normal_distribution():
    values = rng(2).normal(3, 2, 2_000)
    found = bootstrap_interval(values, 2_000, rng=rng(), resamples=4_000)
    error = values.std() / np.sqrt(2_000)
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.1 * error)


def test_the_coverage_of_the_interval():
    """500 samples of a normal; the count of hits lies within exact binomial bounds."""
    source, draws = rng(11), rng(12)
    hits = 0
    for _ in range(500):
        found = bootstrap_interval(source.normal(1, 3, 150), 150, rng=draws, resamples=300)
        hits += found.low <= 1 <= found.high
    # short of 95 % by what 150 values and 300 resamples cost; the bounds are of one in a thousand
    low, high = stats.binom.ppf([0.0005, 0.9995], 500, 0.942)
    assert low <= hits <= high


def test_a_score_that_is_not_a_mean():
    gold = (["yes"] * 30 + ["no"] * 70) * 3
    said = (["yes"] * 20 + ["no"] * 60 + ["yes"] * 20) * 3
    made = make_scorer("classify", gold, said)
    found = bootstrap_interval(made.metric("matthews_correlation"), made.count, rng=rng())
    assert found.low < found.value == made.scores["matthews_correlation"] < found.high
    assert 0.05 < found.high - found.low < 0.4
    assert str(found).startswith(f"{found.value:.4f} [{found.low:.4f}, ")


def test_two_models_on_the_same_examples():
    """Both fail on the same hard ones: apart they overlap, paired they do not."""
    hard = rng(1).random(1_000) < 0.4
    b = np.where(hard, 0.0, 1.0)
    a = b.copy()
    a[np.flatnonzero(hard)[:15]] = 1.0
    alone = bootstrap_interval(a, 1_000, rng=rng()), bootstrap_interval(b, 1_000, rng=rng())
    assert alone[0].low < alone[1].high
    found = bootstrap_difference(a, b, 1_000, rng=rng())
    assert found.value == pytest.approx(0.015)
    assert 0 < found.low < found.value < found.high
    assert found.p == 2 / 1_001  # no draw speaks for the other side, and the data count as one
    turned = bootstrap_difference(b, a, 1_000, rng=rng())
    assert (turned.value, turned.low, turned.high) == pytest.approx(
        (-found.value, -found.high, -found.low)
    )
    assert turned.p == found.p  # as sure a difference, the other way
    assert bootstrap_difference(a, a, 1_000, rng=rng()).p == 1


def test_p_is_two_sided():
    values = rng(3).normal(0.05, 1.0, 200)
    gaps = np.array([values[draw].mean() for draw in rng(4).integers(0, 200, (1_000, 200))])
    wanted = 2 * (min((gaps <= 0).sum(), (gaps >= 0).sum()) + 1) / 1_001
    assert 0.1 < wanted < 1
    none = np.zeros(200)
    assert bootstrap_difference(values, none, 200, rng=rng(4)).p == pytest.approx(wanted)
    assert bootstrap_difference(none, values, 200, rng=rng(4)).p == pytest.approx(wanted)


def test_resamples_without_a_value_are_left_out():
    made = make_scorer("answer", [["a b"]] * 5 + [[]], ["b"] * 4 + ["", ""])
    found = bootstrap_interval(made.metric("no_answer_accuracy"), 6, rng=rng())
    assert (found.value, found.low, found.high) == (1, 1, 1)
    with raises(InputError, "NaN"):
        bootstrap_interval(np.array([np.nan]), 1, rng=rng())


def test_invalid_arguments():
    with raises(InputError, "2", "3 examples"):
        bootstrap_interval(np.zeros(2), 3, rng=rng())
    with raises(ConfigError, "resamples", "0"):
        bootstrap_interval(np.zeros(2), 2, rng=rng(), resamples=0)
    with raises(ConfigError, "examples", "0"):
        bootstrap_difference(np.zeros(0), np.zeros(0), 0, rng=rng())
