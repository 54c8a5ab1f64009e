import itertools
import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from cloze.errors import InputError
from cloze.plot.line_chart import LineChart, Series, thin_points
from cloze.plot.svg import load_asset
from helpers import raises

NAN, INF = math.nan, math.inf


def chart(*ys: list[float | None], **settings: object) -> LineChart:
    series = [Series(name=f"line {n}", x=range(len(y)), y=y) for n, y in enumerate(ys)]
    return LineChart(title="Loss", series=series, **settings)  # type: ignore[arg-type]


def drawn(made: LineChart) -> list[ElementTree.Element]:
    """The paths of the lines themselves, after checking that the picture is sound."""
    root = ElementTree.fromstring(str(made.svg()))
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", str(made.svg())):
        if not (-5 <= float(x) <= 5 and -5 <= float(y) <= 5):  # marks are drawn around zero
            assert left <= float(x) <= left + width
            assert top <= float(y) <= top + height
    paths = root.iterfind("g[@class='data']/path")
    return [path for path in paths if path.get("class", "").startswith(("line", "dot"))]


def texts(made: LineChart) -> list[str]:
    root = ElementTree.fromstring(str(made.svg()))
    return ["".join(node.itertext()) for node in root.iter("text")]


def test_one_point_is_a_dot() -> None:
    line, dot = drawn(chart([3.2]))
    assert line.get("d") == ""
    assert re.fullmatch(r"M[\d.]+ [\d.]+h0", dot.get("d", ""))
    assert dot.get("class") == "dot line c0"


def test_a_constant_lies_in_the_middle() -> None:
    (line,) = drawn(chart([0.5, 0.5, 0.5], percent=True))
    heights = {y for _, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", line.get("d", ""))}
    assert len(heights) == 1
    assert {"40\xa0%", "60\xa0%"} <= set(texts(chart([0.5, 0.5], percent=True)))


def test_what_is_not_a_number_leaves_a_gap() -> None:
    line, dot = drawn(chart([1, 2, NAN, 4, None, INF, 2, 3]))
    assert line.get("d", "").count("M") == 2
    assert dot.get("d", "").count("M") == 1


@pytest.mark.parametrize("ys", [[], [[]], [[NAN, NAN]], [[None], [INF, -INF]], [[1e301]]])
def test_without_values_it_says_so(ys: list[list[float | None]]) -> None:
    made = chart(*ys, x_label="step")
    assert drawn(made) == []
    assert texts(made) == ["Loss", "no values"]
    assert made.svg()
    assert made.element()


def test_a_logarithmic_axis_leaves_out_what_it_has_no_place_for() -> None:
    (line,) = drawn(chart([100.0, 10.0, 0.0, -5.0, 1.0, 0.1], log=True))
    assert line.get("d", "").count("M") == 2
    assert {"100", "10", "1", "0.1"} <= set(texts(chart([100.0, 0.1], log=True)))


def test_extremes_are_survived() -> None:
    for values in ([-1e300, 1e300], [5e-324, 1e-310], [1.0, 1.0 + 1e-16], [1e17, 1e17 + 64]):
        assert drawn(chart(values))
        assert drawn(chart([abs(value) for value in values], [1.0, 2.0]))


def test_one_line_needs_no_legend_and_several_have_one() -> None:
    assert "line 0" not in texts(chart([1, 2]))
    assert [text for text in texts(chart([1, 2], [2, 3])) if "line" in text] == ["line 0", "line 1"]


def test_long_legends_take_rows_and_long_names_are_cut() -> None:
    series = [Series(name=f"{n}" + "字" * 80, x=[0, 1], y=[0, n]) for n in range(3)]
    made = LineChart(title="", series=series)
    root = ElementTree.fromstring(str(made.svg()))
    named = [node for node in root.iter("text") if "字" in (node.text or "")]
    assert len({node.get("y") for node in named}) == 3
    assert all((node.text or "").endswith("字…") for node in named)


def test_lines_can_be_told_apart_without_colour() -> None:
    made = chart(*([n, n + 1.0] for n in range(12)))
    looks = []
    root = ElementTree.fromstring(str(made.svg()))
    marks = {
        path.get("class", ""): path.get("d")
        for path in root.iter("path")
        if "mark" in path.get("class", "")
    }
    for path in drawn(made):
        css = path.get("class", "")
        looks.append((marks.get(f"mark {css}"), "again" in css))
    assert len(set(looks)) == 12


def test_the_last_point_is_always_marked() -> None:
    made = chart([0.0] * 100, [float(n) for n in range(100)])
    root = ElementTree.fromstring(str(made.svg()))
    marks = [p.get("transform", "") for p in root.iter("path") if p.get("class") == "mark line c1"]
    end = drawn(made)[1].get("d", "").rpartition("L")[2]
    assert 10 <= len(marks) <= 32  # with the legend's
    assert marks[-1] == f"translate({end})"


def test_a_reference_is_grey_and_takes_no_colour() -> None:
    made = LineChart(
        title="",
        series=[
            Series(name="chance", x=[0, 1], y=[0.5, 0.5], style="reference"),
            Series(name="model", x=[0, 1], y=[0.5, 0.7]),
        ],
    )
    assert [path.get("class") for path in drawn(made)] == ["line c0"]
    assert 'class="reference"' in str(made.svg())


def test_the_axis_reaches_to_what_it_shall_include() -> None:
    assert "2" not in texts(chart([5, 6]))
    assert {"0", "2", "4", "6"} <= set(texts(chart([5, 6], include=[0, NAN])))


def test_a_long_line_keeps_its_peaks_and_gaps() -> None:
    points: list[tuple[float, float | None]] = [(float(n), math.sin(n)) for n in range(100_000)]
    points[54_321] = (54_321.0, 99.0)
    points[12_345] = (12_345.0, -99.0)
    points[77_777] = (77_777.0, None)
    kept = thin_points(points)
    assert len(kept) <= 2_000
    assert {points[54_321], points[12_345], points[77_777], points[0], points[-1]} <= set(kept)
    assert list(kept) == sorted(kept, key=lambda point: point[0])
    assert thin_points(points[:1600]) == points[:1600]


def test_the_data_are_exact_and_plain() -> None:
    y = [0.1 + 0.2, NAN, None, np.float32(0.1)]
    made = LineChart(title="t", series=[Series(name="a", x=[1, 2, 3, 2**53 + 1], y=y)])
    assert made.data["series"] == [
        {
            "name": "a",
            "x": [1, 2, 3, 2**53 + 1],
            "y": [0.1 + 0.2, None, None, float(np.float32(0.1))],
        }
    ]
    assert json.loads(json.dumps(made.data)) == made.data


def test_hovering_shows_exact_values() -> None:
    block = re.search(r'json">(.*)</script>', str(chart([1 / 3, None, 2.0]).element()))
    assert block is not None
    points = json.loads(block[1])["series"][0]["points"]
    assert [point[2:] for point in points] == [[0, 1 / 3], [2, 2.0]]


def test_every_x_needs_a_y() -> None:
    with raises(InputError, "'a'", "2 x", "1 y"):
        Series(name="a", x=[1, 2], y=[1])


def test_a_saved_picture_stands_alone(tmp_path: Path) -> None:
    path = chart([1, 2]).save(tmp_path / "new" / "loss.svg")
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in "".join(root.itertext())
    assert [found.name for found in path.parent.iterdir()] == ["loss.svg"]


# The colours, for eyes of every kind. Machado, Oliveira and Fernandes 2009, for a missing cone.
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no L": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no M": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no S": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE = (0.95047, 1.0, 1.08883)


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    x, y, z = np.cbrt(np.array(TO_XYZ) @ light.clip(0, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_stand_out_and_apart_for_all_eyes(scheme: int) -> None:
    css = load_asset("chart.css")
    ground = linear(re.findall(r"--ground: (#\w{6})", css)[scheme])
    colours = [linear(re.findall(rf"--c{n}: (#\w{{6}})", css)[scheme]) for n in range(6)]
    for colour in colours:
        dim, bright = sorted(float(TO_XYZ[1] @ light) + 0.05 for light in (colour, ground))
        assert bright / dim >= 3
    for eye in EYES.values():
        seen = [lab(np.array(eye) @ colour) for colour in colours]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) >= 18


def test_a_place_is_marked_quietly():
    made = chart([1, 2, 3, 4], x_label="step", marker=(3, "kept"))
    lines = drawn(made)
    assert [one.get("class") for one in lines] == [
        one.get("class") for one in drawn(chart([1, 2, 3, 4]))
    ]
    assert ">step 3" not in str(made.svg())
    assert "<title>kept: step 3</title>" in str(made.svg())
    assert made.data["mark"] == [3, "kept"]
    assert "kept" not in str(chart([None], marker=(3, "kept")).svg())
