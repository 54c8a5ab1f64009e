"""Views: pages with scripts, files by suffix, and views side by side."""

import base64
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from cloze.errors import ClozeError, InputError, MissingExtraError
from cloze.plot import static
from cloze.plot import svg as svg_module
from cloze.plot.heatmap import Heatmap
from cloze.plot.page import Grid, Table
from cloze.plot.static import resolve_style
from cloze.plot.view import View, put_side_by_side
from helpers import raises


class Interactive(Heatmap):
    script: ClassVar[str] = "test"


def heatmap(kind: type[Heatmap] = Heatmap, title: str = "Weights") -> Heatmap:
    return kind(title=title, values=[[0.25, 0.75]], rows=["a"], columns=["b", "<script>"])


def make_view(*figures: object, title: str = "A view") -> View:
    found = figures or (heatmap(),)
    return View(title=title, figures=found, data={"weights": [[0.25, float("nan")]]})  # type: ignore[arg-type]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A figure's script and style, in place of those of the package."""
    (tmp_path / "scripts").mkdir()
    for name in ("page.css", "chart.css", "page.js"):
        (tmp_path / name).write_text(svg_module.load_asset(name), encoding="utf-8")
    text = '"use strict";\n(() => { cloze.register("test", () => {}); })();\n'
    (tmp_path / "scripts" / "test.js").write_text(text)
    (tmp_path / "scripts" / "test.css").write_text("svg .selected { stroke: var(--ink); }")
    monkeypatch.setattr(svg_module.resources, "files", lambda _: tmp_path)
    svg_module.load_asset.cache_clear()
    svg_module.load_style.cache_clear()
    yield text
    svg_module.load_asset.cache_clear()
    svg_module.load_style.cache_clear()


def test_page_has_each_script_and_style_once_and_allows_only_them(script: str) -> None:
    view = make_view(heatmap(Interactive), Grid(parts=[heatmap(Interactive), heatmap()]))
    html = view.html()
    assert html.count(script) == 1
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    for tag in ("script", "style"):
        contents = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)
        digests = [hashlib.sha256(one.encode()).digest() for one in contents]
        hashes = [f"&#x27;sha256-{base64.b64encode(one).decode()}&#x27;" for one in digests]
        assert f"{tag}-src {' '.join(hashes)};" in policy[1]
        assert len(contents) == 2


def test_a_page_without_interactive_figures_has_no_more_scripts() -> None:
    assert make_view().html().count("<script>") == 1


def test_save_writes_the_format_of_the_suffix(tmp_path: Path) -> None:
    view = make_view()
    assert view.save(tmp_path / "v.html").read_text().startswith("<!doctype html>")
    assert view.save(tmp_path / "v.svg").read_text().startswith("<svg xmlns=")
    assert json.loads(view.save(tmp_path / "v.json").read_text()) == {"weights": [[0.25, None]]}
    with raises(InputError, "v.pdf", fix=".html, .svg, .png, .json"):
        view.save(tmp_path / "v.pdf")
    with pytest.raises(OSError, match="v.json"):  # it is no folder
        view.save(tmp_path / "v.json" / "v.html")


@pytest.mark.usefixtures("font")
def test_png_has_drawings_and_text_in_light_and_dark(tmp_path: Path) -> None:
    """With another title the picture is another one: letters are drawn."""
    pictures = [
        make_view(heatmap(title=name)).save(tmp_path / "v.png").read_bytes()
        for name in ("mmmm", "wwww")
    ]
    assert all(one.startswith(b"\x89PNG") for one in pictures)
    assert pictures[0] != pictures[1]
    assert make_view().png(dark=True) != make_view().png()
    assert len(make_view().png(scale=4)) > len(make_view().png(scale=1))


def test_png_without_a_font_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "has_font", lambda: False)
    with raises(ClozeError, "font", fix=(".svg", "DejaVu")):
        make_view().png()


def test_png_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with raises(MissingExtraError, "PNG", fix="cloze[explain]"):
        make_view().png()


def test_svg_has_all_drawings_and_no_overlap() -> None:
    first, second = make_view(title="One"), make_view(heatmap(title="Other"), title="Two")
    view = put_side_by_side("Both", [first, second])
    svg = view.svg()
    assert "One" in svg
    assert "Other" in svg
    boxes = re.findall(r'<svg x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)">', svg)
    (x, y, width, _), (x2, y2, _, _) = ([*map(float, box)] for box in boxes)
    assert y == y2
    assert x2 >= x + width
    assert "&lt;script>" in svg or "&lt;script&gt;" in svg
    assert view.data["views"][1]["title"] == "Two"


def test_a_view_without_drawing_says_so() -> None:
    with raises(InputError, "A view", fix=".html"):
        make_view(Table(rows=[("a", 1)])).svg()


@pytest.mark.parametrize(("dark", "ink"), [(False, "#111"), (True, "#eee")])
def test_resolved_styles_have_neither_variables_nor_queries(dark: bool, ink: str) -> None:
    style = """/* a comment */
    svg.a, svg.b { --ink: #111; fill: var(--ink); width: 100% }
    @media (prefers-color-scheme: dark) { svg.a, svg.b { --ink: #eee; } }
    @media (max-width: 9rem) { svg.a { fill: red } }
    :is(svg.a, svg.b) text:not(.x) { stroke: var(--other, blue); }
    svg.a rect:hover { fill: green }"""
    assert resolve_style(style, dark=dark).split("\n") == [
        f"svg.a, svg.b {{ fill: {ink} }}",
        "svg.a text, svg.b text { stroke: blue }",
    ]


def test_notebook_shows_the_page_in_a_frame() -> None:
    shown = make_view()._repr_html_()
    assert shown.startswith("<iframe")
    assert 'sandbox="allow-scripts"' in shown
