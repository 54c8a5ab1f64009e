"""Plots of alignments."""

import xml.etree.ElementTree as ET

from cloze.errors import InputError
from cloze.plot.alignment import AlignmentLines, alignment_heatmap
from helpers import raises

SOURCE, TARGET = ["Tom", "chase", "Jerry"], ["汤姆", "追逐", "杰瑞"]
WEIGHTS = [[0.6, 0.2, 0.2], [0.2, 0.7, 0.1], [0.3, 0.2, 0.5]]


def test_the_map_has_the_words_on_its_axes():
    heat = alignment_heatmap(SOURCE, TARGET, WEIGHTS, title="Tom chase Jerry")
    assert heat.data["rows"] == TARGET
    assert heat.data["columns"] == SOURCE
    assert heat.data["values"] == WEIGHTS
    assert "60.0\N{NO-BREAK SPACE}%" in str(heat.svg())


def test_each_target_word_has_one_line_to_where_it_looks_most(tmp_path):
    lines = AlignmentLines(title="A", source=SOURCE, target=TARGET, weights=WEIGHTS)
    assert lines.links == [(0, 0, 0.6), (1, 1, 0.7), (2, 2, 0.5)]
    assert lines.data["links"] == [[0, 0, 0.6], [1, 1, 0.7], [2, 2, 0.5]]
    tree = ET.parse(lines.save(tmp_path / "a.svg"))
    paths = tree.findall(".//{http://www.w3.org/2000/svg}path")
    assert [path.get("stroke-opacity") for path in paths] == ["0.600", "0.700", "0.500"]
    texts = {text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")}
    assert {*SOURCE, *TARGET} <= texts
    assert "figure" in str(lines.element())


def test_a_long_sentence_makes_a_wide_picture():
    words = ["Donaudampfschifffahrt"] * 20
    lines = AlignmentLines(title="A", source=words, target=["x"], weights=[[0.05] * 20])
    assert lines.width > 2000
    assert "wide" in str(lines.element())


def test_nothing_to_align():
    lines = AlignmentLines(title="A", source=[], target=["x"], weights=[[]])
    assert lines.links == []
    assert "<path" not in str(lines.svg())


def test_weights_that_do_not_fit():
    with raises(InputError, "'A'", "2 × 3", "3"):
        AlignmentLines(title="A", source=SOURCE, target=["x", "y"], weights=WEIGHTS)
