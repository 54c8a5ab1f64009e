import math
import re

import pytest

from cloze.errors import InputError
from cloze.plot.scatter import Point, Scatter
from helpers import raises


def places(scatter: Scatter) -> list[tuple[float, float]]:
    found = re.findall(r'<circle cx="([\d.-]+)" cy="([\d.-]+)"', str(scatter.svg()))
    return [(float(x), float(y)) for x, y in found]


def dots(*points) -> list[Point]:
    return [Point(name=f"w{n}", x=x, y=y) for n, (x, y) in enumerate(points)]


def test_distances_are_true_and_up_is_up():
    (ax, ay), (bx, by), (cx, cy) = places(Scatter(title="t", points=dots((0, 0), (3, 4), (3, 0))))
    assert by < ay
    assert bx > ax
    ratio = math.dist((ax, ay), (bx, by)) / math.dist((bx, by), (cx, cy))
    assert ratio == pytest.approx(5 / 4, abs=0.01)


def test_names_give_way_to_one_another():
    scatter = Scatter(
        title="t", points=dots(*((n % 5 * 0.02, n // 5 * 0.02) for n in range(20)), (9, 9))
    )
    found = re.findall(r'<text x="([\d.-]+)" y="([\d.-]+)"[^>]*>w(\d+)', str(scatter.svg()))
    assert len(found) == 21
    assert len({(x, y) for x, y, _ in found}) == 21


def test_far_apart_no_name_hides_another():
    scatter = Scatter(title="t", points=dots(*((n % 4, n // 4) for n in range(16))))
    found = re.findall(r'<text x="([\d.-]+)" y="([\d.-]+)"[^>]*>w\d+', str(scatter.svg()))
    boxes = [(float(x), float(y)) for x, y in found]
    assert all(
        abs(a[0] - b[0]) > 20 or abs(a[1] - b[1]) > 12
        for n, a in enumerate(boxes)
        for b in boxes[:n]
    )


def test_strange_names_are_text(tmp_path):
    scatter = Scatter(title="t", points=[Point(name="<script>", x=0, y=0, bold=True, color=7)])
    text = scatter.save(tmp_path / "x.svg").read_text()
    assert "<script>" not in text
    assert "mark c1" in text
    assert scatter.data["points"] == [{"name": "<script>", "x": 0, "y": 0}]
    assert "figure" in str(scatter.element())


def test_nothing_to_draw_says_so():
    assert "no values" in str(Scatter(title="t", points=[]).svg())


def test_a_dot_without_a_place_is_told():
    with raises(InputError, "'x'"):
        Scatter(title="t", points=[Point(name="x", x=math.nan, y=0)])


def test_groups_have_a_legend_and_shapes_and_points_have_details():
    points = [
        Point(name="a", x=0, y=0, color=0, detail="<i>first</i>"),
        Point(name="b", x=1, y=0, color=1, detail="second"),
    ]
    scatter = Scatter(title="t", points=points, legend=["snake", "code"], has_names=False)
    text = str(scatter.svg())
    assert ">snake</text>" in text
    assert ">a</text>" not in text
    shapes = re.findall(r'<path d="([^"]+)" class="mark c(\d)"', text)
    assert len(shapes) == 4  # two in the legend
    assert len(set(shapes)) == 2
    assert scatter.data["points"][1] == {
        "name": "b",
        "x": 1,
        "y": 0,
        "detail": "second",
        "group": "code",
    }
    page = str(scatter.element())
    assert "<i>first" not in page
    assert 'data-kind="scatter"' in page
