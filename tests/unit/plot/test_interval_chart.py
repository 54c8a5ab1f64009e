"""Interval charts: nothing is drawn outside, long names keep their ends."""

import math
import re

import pytest

from cloze.plot.interval_chart import IntervalChart, IntervalRow
from cloze.plot.svg import NARROW


def rows(*values):
    return [
        IntervalRow(name=f"m{n}", value=value, low=value - 0.1, high=value + 0.1)
        for n, value in enumerate(values)
    ]


def test_values_and_intervals_are_inside_the_figure_in_their_order():
    chart = IntervalChart(title="accuracy", rows=rows(0.5, 0.7), percent=True)
    svg = str(chart.svg())
    dots = [float(x) for x in re.findall(r'cx="([\d.]+)"', svg)]
    assert dots == sorted(dots)
    assert all(0 < x < NARROW for x in dots)
    assert svg.count('class="line c') == 2
    assert "50.00\xa0%" in svg
    assert chart.data["rows"][1] == {"name": "m1", "value": 0.7, "low": 0.6, "high": 0.7 + 0.1}


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, 1e-9, -3.0, 1e12])
def test_any_value_can_be_drawn(value):
    chart = IntervalChart(title="t", rows=[IntervalRow(name="a", value=value), *rows(value)])
    drawn = "".join(re.findall(r' (?:d|x|y|cx|cy)="([^"]*)"', str(chart.svg())))
    assert "n" not in drawn.lower()  # of nan and inf
    assert chart.data["rows"][0]["value"] == (value if math.isfinite(value) else None)


def test_a_long_name_is_shortened_at_its_start():
    name = "runs/" + "x" * 80 + "/last"
    svg = str(IntervalChart(title="t", rows=[IntervalRow(name=name, value=1.0)]).svg())
    assert re.search(r">…x+/last<", svg)
    assert f"<title>{name}</title>" in svg
