"""Tables on terminals of any width: numbers are never split."""

import io
import re

import pytest

from cloze.cli.format import print_table

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
    print_table(COLUMNS, ROWS)
    said = shown.getvalue()
    assert said.count("┏") == tables
    for cell in (*COLUMNS, *ROWS[0], *ROWS[1]):
        assert cell in said  # none of them is broken
    assert said.count("against the first") == 1


def test_elsewhere_it_is_one_table(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    print_table(COLUMNS, ROWS)
    assert capsys.readouterr().out.splitlines() == ["\t".join(row) for row in (COLUMNS, *ROWS)]


LONG = "a very long review of a film that goes on and on, and never ends, as films do"
WIDE = {
    "errors": (
        ("text", "gold", "probability", "source"),
        [(LONG, "positive", "0.9876", "/some/long/path/to/the/data/dev.tsv:123")],
    ),
    "tasks": (
        ("task", "metrics", "score", "±", "training", "dev", "seconds", "note"),
        [
            ("CoLA", "matthews_correlation 0.5213", "52.13", "0.32", 8551, 1043, "1,234", "new"),
            (
                "MNLI",
                "accuracy, matched 0.8123, mismatched 0.8200",
                "81.60",
                "",
                392702,
                19647,
                "12,345",
                "",
            ),
        ],
    ),
}


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("kind", WIDE)
def test_numbers_are_not_split_and_nothing_is_lost(monkeypatch, width, kind):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", shown := Terminal())
    columns, rows = WIDE[kind]
    print_table(columns, rows)
    said = re.sub(r"\x1b\[[\d;]*m", "", shown.getvalue())
    assert max(map(len, said.splitlines())) <= width
    for row in rows:
        for cell in row:
            if isinstance(cell, int) or re.fullmatch(r"[\d.,]+", cell):
                assert (f"{cell:,}" if isinstance(cell, int) else cell) in said
    for word in (*columns, "review" if kind == "errors" else "mismatched"):
        assert word in said
