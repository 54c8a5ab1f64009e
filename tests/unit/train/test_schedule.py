import pytest

from cloze.errors import ConfigError
from cloze.train.schedule import SHAPES, Budget, Progress, Schedule
from helpers import raises


def test_a_budget_counts_what_it_is_in():
    progress = Progress(step=5, tokens=300, seconds=90.0)
    assert Budget(steps=20).fraction(progress) == 0.25
    assert Budget(tokens=400).fraction(progress) == 0.75
    assert Budget(minutes=3).fraction(progress) == 0.5


def test_a_budget_is_spent_exactly_at_its_end():
    budget = Budget(steps=7)
    assert [budget.is_spent(Progress(step=n)) for n in (0, 6, 7, 8)] == [False, False, True, True]
    assert budget.fraction(Progress(step=9)) == 1.0


@pytest.mark.parametrize("given", [{}, {"steps": 1, "minutes": 2.0}])
def test_a_budget_is_one_thing(given):
    with raises(ConfigError, "steps", "tokens", "minutes"):
        Budget(**given)


@pytest.mark.parametrize("value", [0, -3, float("nan"), float("inf")])
def test_a_budget_is_above_zero(value):
    with raises(ConfigError, "above"):
        Budget(minutes=value)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_schedule_rises_to_one_and_never_above(shape):
    schedule = Schedule(shape=shape, warmup=0.2)
    assert schedule(0.0) == 0.0
    assert schedule(0.1) == 0.5
    assert schedule(0.2) == 1.0
    assert all(0 <= schedule(n / 1000) <= 1 for n in range(1001))


@pytest.mark.parametrize("shape", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0.0, 0.3])
def test_a_falling_schedule_ends_at_zero(shape, warmup):
    falling = [Schedule(shape=shape, warmup=warmup)(warmup + n / 1000) for n in range(701)]
    assert falling == sorted(falling, reverse=True)
    assert Schedule(shape=shape, warmup=warmup)(1.0) == pytest.approx(0.0, abs=1e-15)


def test_the_rate_of_a_step_is_that_of_its_middle():
    """So neither the first step nor the last is spent on a rate of zero."""
    budget, schedule = Budget(steps=4), Schedule(warmup=0.5)
    rates = [schedule(budget.fraction_at_next_step(Progress(step=n), 0)) for n in range(4)]
    assert rates == [0.25, 0.75, 0.75, 0.25]
    assert Budget(tokens=100).fraction_at_next_step(Progress(tokens=40), 20) == 0.5


def test_constant_stays():
    assert Schedule(shape="constant", warmup=0.0)(1.0) == 1.0


def test_a_schedule_that_only_rises():
    assert [Schedule(warmup=1.0)(x) for x in (0.0, 0.5, 1.0)] == [0.0, 0.5, 0.0]


def test_an_unknown_shape_suggests_the_near_one():
    with raises(ConfigError, "cosine"):
        Schedule(shape="cosin")


def test_the_slanted_triangular_schedule():
    """Howard & Ruder 2018, eq. 3, with its T, cut_frac and ratio."""
    total, cut_frac, ratio = 200, 0.1, 32
    schedule = Schedule(shape="linear", warmup=cut_frac, min_factor=1 / ratio)
    cut = int(total * cut_frac)
    for t in range(total + 1):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
        assert schedule(t / total) == pytest.approx((1 + p * (ratio - 1)) / ratio)
