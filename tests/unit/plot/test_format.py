import math
import re
from pathlib import Path

import pytest

from cloze.plot.format import (
    format_bytes,
    format_duration,
    format_number,
    format_percent,
    format_ticks,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (2.34567, "2.346"),
        (-12, "-12"),
        (999.96, "1,000"),
        (1234.4, "1,234"),
        (12_345, "12.3k"),
        (999_960, "1M"),
        (30_451_229, "30.5M"),
        (1e15, "1e15"),
        (0.00031, "3.1e-4"),
        (math.nan, "NaN"),
        (-math.inf, "-∞"),
    ],
)
def test_short(value: float, text: str) -> None:
    assert format_number(value) == text


def test_a_share_that_is_not_nothing_is_not_written_as_nothing() -> None:
    texts = [
        format_percent(0.4123),
        format_percent(0.5, 0),
        format_percent(0.0),
        format_percent(2e-5, 2),
        format_percent(math.nan),
    ]
    assert texts == ["41.2\xa0%", "50\xa0%", "0.0\xa0%", "<0.01\xa0%", "–"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0:00"),
        (245, "4:05"),
        (3723, "1:02:03"),
        (183_845, "2 d 3:04:05"),
        (-5, "0:00"),
        (math.inf, "–"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_sizes() -> None:
    assert [format_bytes(512), format_bytes(67_123_456)] == ["512 bytes", "67.1\xa0MB"]


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        ([0, 2, 4], ["0", "2", "4"]),
        ([2.5, 3, 3.5], ["2.5", "3.0", "3.5"]),
        ([0, 5000, 10_000], ["0", "5k", "10k"]),
        ([-5e8, 0, 5e8, 1e9], ["-0.5G", "0", "0.5G", "1.0G"]),
        ([0, 5e-4, 1e-3], ["0", "5e-4", "1e-3"]),
        ([3 * 0.1 - 0.3, 0.1, 0.2], ["0", "0.1", "0.2"]),
        ([7], ["7"]),
        ([], []),
    ],
)
def test_labels_of_an_axis_agree(ticks: list[float], labels: list[str]) -> None:
    assert format_ticks(ticks) == labels


def test_labels_in_per_cent() -> None:
    assert format_ticks([0.1, 0.105], percents=True) == ["10.0\xa0%", "10.5\xa0%"]


def test_shares_are_written_in_one_way():
    root = Path(__file__).parents[3]
    files = [*root.glob("src/**/*.py"), *root.glob("bench/*.py")]
    others = [
        file.name for file in files if re.search(r":[.,\d]*%}|\d?f} ?%", file.read_text("utf-8"))
    ]
    assert others == []
