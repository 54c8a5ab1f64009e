import re

import pytest

from cloze.errors import InputError
from cloze.plot.vector_heatmap import VectorHeatmap, cell_color
from helpers import raises


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "#ffffff"),
        (2, "#b2182b"),
        (-2, "#2166ac"),
        (9, "#b2182b"),
        (-9, "#2166ac"),
        (1, "#d88c95"),
        (float("nan"), "#999999"),
    ],
)
def test_red_white_and_blue(value, shown):
    assert cell_color(value) == shown


def test_every_number_is_a_cell(tmp_path):
    cells = VectorHeatmap(title="words", rows=["king", "<b>"], values=[[0, 1, 2], [-1, 0, -2]])
    text = cells.save(tmp_path / "cells.svg").read_text()
    assert text.count('height="23"') == 6
    assert "&lt;b&gt;" in text
    assert cells.data["values"] == [[0, 1, 2], [-1, 0, -2]]
    assert "figure" in str(cells.element())


def test_a_limit_and_many_rows(tmp_path):
    names = [str(n) for n in range(20)]
    cells = VectorHeatmap(title="waves", rows=names, values=[[1.0]] * 20, limit=1.0, unit="")
    text = cells.save(tmp_path / "waves.svg").read_text()
    assert text.count('height="13"') == 20
    assert text.count('fill="#b2182b"') == 21  # the key's end among them
    assert ">−1<" in text
    assert ">1<" in text


@pytest.mark.parametrize(
    ("rows", "values"), [(["a"], []), (["a", "b"], [[1], [1, 2]]), (["a"], [[]])]
)
def test_names_and_rows_that_do_not_fit(rows, values):
    with raises(InputError, "row", "name"):
        VectorHeatmap(title="x", rows=rows, values=values)


def test_very_many_cells_are_paths_of_few_colors(tmp_path):
    values = [[(row * column % 41) / 10 - 2 for column in range(500)] for row in range(20)]
    cells = VectorHeatmap(title="t", rows=[str(n) for n in range(20)], values=values)
    text = cells.save(tmp_path / "cells.svg").read_text()
    assert text.count("v13") == 10_000  # a cell each
    assert len(set(re.findall(r'<g fill="(#\w+)"', text))) <= 33
    assert len(text) < 400_000
