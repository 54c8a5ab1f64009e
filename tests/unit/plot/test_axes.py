import pytest

from cloze.plot.axes import Scale


def axis(*values: float, log: bool = False) -> Scale:
    return Scale.fit(values, start=0, end=100, log=log)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((0, 10), [0, 2, 4, 6, 8, 10]),
        ((0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ((2.2, 9.1), [4, 6, 8]),
        ((-3, 7), [-2, 0, 2, 4, 6]),
        ((0, 0.001), [0, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3]),
        ((0, 123_456), [0, 50_000, 100_000]),
    ],
)
def test_ticks_are_round(values: tuple[float, float], ticks: list[float]) -> None:
    assert axis(*values).ticks(5) == pytest.approx(ticks)


def test_what_has_no_halves_gets_none() -> None:
    steps = Scale.fit([1, 3], start=0, end=100, integer=True)
    assert steps.ticks(8) == [1, 2, 3]
    assert axis(1, 3).ticks(4) == [1, 1.5, 2, 2.5, 3]


def test_an_axis_can_reach_to_round_numbers() -> None:
    rounded = axis(2.2, 9.1).round_outward(5)
    assert (rounded.low, rounded.high) == (2, 10)
    assert (rounded(2), rounded(6), rounded(10)) == (0, 50, 100)


@pytest.mark.parametrize(
    ("value", "low", "high"), [(0.0, 0, 1), (0.5, 0.25, 0.75), (-4.0, -6, -2), (1e-320, 0, 1)]
)
def test_one_value_stands_within_its_axis(value: float, low: float, high: float) -> None:
    made = axis(value, value)
    assert (made.low, made.high) == (low, high)


def test_values_that_differ_by_rounding_are_one() -> None:
    made = axis(0.3, 0.1 + 0.2)
    assert made.high - made.low == pytest.approx(0.3)


def test_an_axis_of_nothing_is_an_axis() -> None:
    assert axis().ticks(5)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((0.5, 2000), [1, 10, 100, 1000]),
        ((1, 12), [1, 2, 5, 10]),
        ((2.1, 4.3), [2.5, 3, 3.5, 4]),
        ((1e-9, 1e9), [1e-9, 1e-7, 1e-5, 1e-3, 0.1, 10, 1000, 1e5, 1e7, 1e9]),
    ],
)
def test_ticks_of_a_logarithmic_axis(values: tuple[float, float], ticks: list[float]) -> None:
    assert axis(*values, log=True).ticks(5) == pytest.approx(ticks)


def test_equal_ratios_are_equal_distances() -> None:
    made = axis(1, 100, log=True)
    assert (made(1), made(10), made(100)) == pytest.approx((0, 50, 100))
    assert axis(8, 8, log=True)(8) == pytest.approx(50)
