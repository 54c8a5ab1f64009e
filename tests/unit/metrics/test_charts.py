import re

import pytest

from cloze.errors import InputError
from cloze.metrics.charts import plot_calibration, plot_confusion_matrix
from cloze.metrics.labels import compute_calibration
from helpers import raises


def test_a_confusion_matrix_shows_counts_and_shades_rows():
    gold = ["cat"] * 90 + ["eel"] * 2
    predictions = ["cat"] * 90 + ["eel", "cat"]
    made = plot_confusion_matrix(gold, predictions)
    assert made.data["values"] == [[90, 0], [1, 1]]
    assert (made.data["rows"], made.data["row_title"]) == (["cat", "eel"], "gold")
    assert re.findall(r'fill-opacity="([\d.]+)"', str(made.svg())) == [
        "1.000",
        "0.000",
        "0.500",
        "0.500",
    ]
    assert "92 examples, 91 of them correct" in str(made.element())
    assert "gold: eel, predicted: cat – 1 (50.0\xa0% of its row)" in str(made.svg())


def test_labels_keep_their_order():
    made = plot_confusion_matrix([0, 1], [0, 0], [2, 1, 0])
    assert made.data["rows"] == ["2", "1", "0"]
    assert made.data["values"] == [[0, 0, 0], [0, 0, 1], [0, 0, 1]]
    with raises(InputError, "label", "1", "0"):
        plot_confusion_matrix([0, 1], [0, 0], [0])


def test_a_reliability_curve_has_one_point_per_bin():
    made = compute_calibration([0.55, 0.65, 0.65, 0.95], [True, False, True, True])
    chart = plot_calibration(made)
    accuracy, diagonal, shares = chart.data["series"]
    assert accuracy["x"] == [0.55, 0.65, 0.95]
    assert accuracy["y"] == [1, 0.5, 1]
    assert diagonal["x"] == diagonal["y"] == [0.5, 1]
    assert shares["x"][:4] == pytest.approx([0.5, 0.6, 0.6, 0.7])
    assert shares["y"] == [0.25, 0.25, 0.5, 0.5, 0, 0, 0, 0, 0.25, 0.25]
    assert f"expected calibration error {100 * made.error:.1f}\xa0%" in str(chart.svg())
    assert "4 predictions in 10 bins" in str(chart.element())
