import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from cloze.errors import InputError
from cloze.plot.heatmap import Heatmap
from cloze.plot.line_chart import LineChart, Series
from cloze.plot.page import Page, Section
from cloze.plot.svg import NARROW, WIDE, load_asset
from helpers import raises

HOSTILE = "</text></svg><script>alert(1)</script>\"'>&lt;"


def heat(values, **settings) -> Heatmap:
    rows = settings.pop("rows", [f"r{n}" for n in range(len(values))])
    columns = settings.pop("columns", [f"c{n}" for n in range(len(values[0]) if values else 0)])
    return Heatmap(title="Map", values=values, rows=rows, columns=columns, **settings)


def drawn(made: Heatmap) -> ElementTree.Element:
    """The picture, after checking that all of it lies inside."""
    root = ElementTree.fromstring(str(made.svg()))
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    for cell in root.iter("rect"):
        x, y, w, h = (float(cell.attrib[key]) for key in ("x", "y", "width", "height"))
        assert left <= x <= x + w <= left + width
        assert top <= y <= y + h <= top + height
    return root


def opacities(made: Heatmap) -> list[float]:
    return [float(cell.attrib["fill-opacity"]) for cell in drawn(made).iter("rect")]


def written(made: Heatmap) -> list[str]:
    return [node.text or "" for node in drawn(made).iterfind("g[@class='data']/text")]


def test_every_cell_has_its_number_and_its_shade():
    made = heat([[4, 0], [1, 2]])
    assert written(made) == ["4", "0", "1", "2"]
    assert opacities(made) == [1, 0, 0.25, 0.5]


def test_shades_can_be_said():
    made = heat([[4, 0], [1, 2]], shades=[[0.5, 2.0], [-1.0, math.nan]], shade_title="of its row")
    assert opacities(made) == [0.5, 1, 0, 0]
    assert next(drawn(made).iter("title")).text == "r0, c0 – 4 (50.0\xa0% of its row)"


@pytest.mark.parametrize("values", [[[None, math.nan], [math.inf, 3]], [[-1, -2], [-3, 0]]])
def test_what_has_no_shade_is_left_without(values):
    assert "nan" not in str(heat(values).element())
    assert max(opacities(heat(values))) in (0, 1)
    assert opacities(heat([[-1, 2]])) == [0, 1]
    assert written(heat([[None, math.nan, math.inf, 3]])) == ["3"]


@pytest.mark.parametrize("values", [[], [[]], [[], []]])
def test_without_values_it_says_so(values):
    made = heat(values)
    assert written(made) == ["no values"]
    assert made.element()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 15, 25, 40])
@pytest.mark.parametrize("name", ["a", "news_entertainment", "一个很长很长的标签名字就是这样"])
def test_from_one_label_to_forty(count, name):
    """Every number is there, in letters that can be read, inside its cell."""
    values = [[1000 * (row == column) + row for column in range(count)] for row in range(count)]
    names = [f"{name}{n}" for n in range(count)]
    made = heat(values, rows=names, columns=names, row_title="actual", column_title="predicted")
    root = drawn(made)
    numbers = root.findall("g[@class='data']/text")
    assert len(numbers) >= count**2 - count  # where room is short zeros are left out
    cells = {cell.attrib["width"] for cell in root.iter("rect")}
    assert len(cells) == 1
    (cell,) = map(float, cells)
    for number in numbers:
        size = float(number.attrib["font-size"])
        assert size >= 7
        assert 0.55 * size * len(number.text or "") <= cell
    assert made.width in (NARROW, WIDE)
    assert made.wide == (made.width == WIDE)
    assert ('class="wide"' in str(made.element())) == made.wide


def test_names_slant_where_they_do_not_fit():
    assert "rotate(-45)" not in str(heat([[1] * 3] * 3).svg())
    long = [f"a long name {n}" for n in range(9)]
    assert str(heat([[1] * 9] * 9, columns=long).svg()).count("rotate(-45)") == 9


def test_long_names_are_cut_and_told_in_full():
    made = heat([[1]], rows=["x" * 30], columns=["字" * 30], row_title="from", column_title="to")
    names = [node.text for node in drawn(made).iter("text")]
    assert "x" * 17 + "…" in names
    assert "字" * 8 + "…" in names
    told = next(drawn(made).iter("title")).text
    assert told == f"from: {'x' * 30}, to: {'字' * 30} – 1"


def test_numbers_are_as_long_as_there_is_room_for():
    assert written(heat([[12345]])) == ["12,345"]
    assert set(written(heat([[12345] * 30]))) == {"12.3k"}
    assert set(written(heat([[12345] * 40]))) == {"12k"}
    assert set(written(heat([[0.1234] * 40]))) == {".12"}
    assert written(heat([[0.1234]], percent=True)) == ["12.3\xa0%"]
    assert set(written(heat([[0.1234] * 40], percent=True))) == {"12"}
    assert written(heat([[1234] * 200])) == []  # too many to be read: shades alone


def test_numbers_can_have_the_same_decimals():
    made = heat([[28.734, 0.0084, 0.0], [3.48e-5, 4.5, 12.0]], same_decimals=True)
    words = {text.text for text in drawn(made).iter("text")}
    assert {"28.7", "0", "4.5", "12.0"} <= words
    assert "0.0084" not in words
    assert made.data["values"][0][1] == 0.0084


def test_the_data_are_exact_and_plain():
    made = heat([[0.1 + 0.2, math.nan], [np.float32(0.1), None]], row_title="a", column_title="b")
    assert made.data == {
        "kind": "heat",
        "title": "Map",
        "rows": ["r0", "r1"],
        "columns": ["c0", "c1"],
        "row_title": "a",
        "column_title": "b",
        "values": [[0.1 + 0.2, None], [float(np.float32(0.1)), None]],
    }
    assert json.loads(json.dumps(made.data)) == made.data


def test_names_and_numbers_must_fit():
    with raises(InputError, "Map", "1 × 2", "3", fix="row"):
        heat([[1, 2, 3]], columns=["a", "b"])
    with raises(InputError, "2 × 2", "1"):
        heat([[1, 2], [3, 4]], shades=[[1, 1]])


def test_hostile_names_are_only_text():
    names = [HOSTILE, "b"]
    made = heat([[1, 2], [3, 4]], rows=names, columns=names, row_title=HOSTILE, note=HOSTILE)
    harmless = heat([[1, 2], [3, 4]], row_title="x", note="x")
    tags = [re.findall(r"<(\w+)", str(one.element())) for one in (made, harmless)]
    assert tags[0] == tags[1]
    page = Page(title="p", sections=[Section(title="s", parts=[made])])
    assert "alert(1)</script>" not in page.html()
    assert page.data["sections"][0]["parts"][0]["rows"] == names


def test_a_picture_stands_alone_in_a_file_and_in_a_notebook(tmp_path: Path):
    chart = LineChart(title="t", series=[Series(name="a", x=[0, 1], y=[1, 2])], wide=True)
    for made, width in ((heat([[1, 2]]), NARROW), (chart, WIDE)):
        root = ElementTree.parse(made.save(tmp_path / "made.svg")).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "prefers-color-scheme: dark" in "".join(root.itertext())
        shown = made._repr_html_()
        assert shown.startswith(f'<div style="max-width: {width + 8}px"><svg')
        assert "svg.heat" in shown


def parts(colour: str) -> np.ndarray:
    return np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])


def luminance(colour: np.ndarray) -> float:
    light = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return float(light @ (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_the_ink_stands_out_on_every_shade(scheme):
    """4.5 : 1, what WCAG 2 asks of small text; full and empty cells are 2.5 : 1 apart."""
    css = load_asset("chart.css")
    ground, ink, full = (
        parts(re.findall(rf"--{name}: (#\w{{6}})", css)[scheme])
        for name in ("ground", "ink", "heat")
    )

    def contrast(a: np.ndarray, b: np.ndarray) -> float:
        dim, bright = sorted((luminance(a), luminance(b)))
        return (bright + 0.05) / (dim + 0.05)

    for shade in np.linspace(0, 1, 21):
        assert contrast(ink, ground + shade * (full - ground)) >= 4.5
    assert contrast(full, ground) >= 2.5
