"""The table of `compare` on terminals of any width."""

import io

import pytest

from cloze.cli.format_evaluation import print_wide_table

COLUMNS = ("model", "accuracy", "against the first")
ROWS = [
    ["runs/one", "0.6617 [0.5993, 0.7330]", ""],
    ["runs/two", "0.6368 [0.5821, 0.7103]", "-0.0249 [-0.0785, +0.0414]"],
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("width", "tables"), [(50, 2), (66, 2), (67, 1)])
def test_a_table_that_does_not_fit_becomes_one_to_a_model(monkeypatch, width, tables):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", shown := Terminal())
    print_wide_table(COLUMNS, ROWS)
    said = shown.getvalue()
    assert said.count("┏") == tables
    for cell in (*COLUMNS, *ROWS[0], *ROWS[1]):
        assert cell in said  # none of them is broken
    assert said.count("against the first") == 1


def test_elsewhere_it_is_one_table(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    print_wide_table(COLUMNS, ROWS)
    assert capsys.readouterr().out.splitlines() == ["\t".join(row) for row in (COLUMNS, *ROWS)]
