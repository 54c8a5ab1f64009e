import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cloze.errors import InputError
from cloze.plot.line_chart import LineChart, Series
from cloze.plot.page import (
    Bars,
    Card,
    Fact,
    Facts,
    Grid,
    Page,
    PagePart,
    Paragraph,
    Quote,
    Section,
    Table,
)
from cloze.plot.svg import load_asset
from helpers import raises

HOSTILE = "</script></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'>&lt;"


class Reader(HTMLParser):
    """What a browser would find."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self.inside: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.inside.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.inside[-1] if self.inside else "", []).append(data)


def page(text: str = "some text") -> Page:
    chart = LineChart(
        title=text,
        x_label=text,
        y_label=text,
        note=text,
        series=[Series(name=text, x=[0, 1], y=[1, 2]), Series(name=f"{text}2", x=[0], y=[1])],
    )
    parts: list[PagePart] = [
        chart,
        Facts([Fact(label=text, text=text, value=text, detail=text)]),
        Table(title=text, columns=[text, "n"], rows=[[text, 1], [text, None]]),
        Bars(title=text, rows=[(text, 0.5)]),
        Card(head=Quote(text=f"{text} [MASK] {text}", highlighted=["[MASK]", text]), parts=[]),
        Grid(parts=[Paragraph(text=text)], packed=True),
    ]
    return Page(title=text, note=text, sections=[Section(title=text, note=text, parts=parts)])


def test_hostile_text_is_only_text() -> None:
    harmless, hostile = Reader(page().html()), Reader(page(HOSTILE).html())
    assert hostile.tags == harmless.tags
    assert [name for name, _ in hostile.attributes] == [name for name, _ in harmless.attributes]
    assert hostile.texts["h1"] == [HOSTILE]
    assert hostile.texts["h2"] == [HOSTILE]
    assert HOSTILE in hostile.texts["td"]
    assert hostile.texts["mark"].count(HOSTILE) == 2


def test_nothing_is_loaded_from_anywhere() -> None:
    found = Reader(page().html())
    assert not {"link", "iframe", "object", "embed", "base", "img", "form"} & set(found.tags)
    names = {name for name, _ in found.attributes}
    assert not names & {"src", "href", "xlink:href", "srcset", "style", "background"}
    style, script = found.texts["style"][0], found.texts["script"][-1]
    assert not re.search(r"url\(|@import|@font-face", style)
    assert not re.search(r"fetch|XMLHttp|import\(|innerHTML|\beval\(|document\.write", script)


def test_the_policy_allows_this_style_and_this_script_only() -> None:
    found = Reader(page().html())
    policy = next(value for _, value in found.attributes if value and "default-src" in value)

    def hashed(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    assert policy == (
        "default-src 'none'; "
        f"style-src 'sha256-{hashed(found.texts['style'][0])}'; "
        f"script-src 'sha256-{hashed(found.texts['script'][-1])}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert "meta" in found.tags[: found.tags.index("style")]


def test_the_script_is_there_once_and_data_once_for_each_chart() -> None:
    chart = LineChart(title="a", series=[Series(name="a", x=[0], y=[0])])
    made = Page(title="t", sections=[Section(title="s", parts=[chart, chart])])
    assert Reader(made.html()).tags.count("script") == 3


def test_the_data_are_plain_and_exact() -> None:
    made = page()
    assert json.loads(json.dumps(made.data, allow_nan=False)) == made.data
    (section,) = made.data["sections"]
    kinds = [part["kind"] for part in section["parts"]]
    assert kinds == ["lines", "facts", "table", "bars", "card", "grid"]
    assert section["parts"][3]["rows"] == [["some text", 0.5]]


def test_a_page_is_saved_whole(tmp_path: Path) -> None:
    path = page("größe 北京 \ud800").save(tmp_path / "a" / "b.html")
    assert path.read_text(encoding="utf-8") == page("größe 北京 \ud800").html()
    page("new").save(path)
    assert path.read_text(encoding="utf-8") == page("new").html()
    assert [found.name for found in path.parent.iterdir()] == ["b.html"]


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = page("old").save(tmp_path / "b.html")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with raises(OSError, "disk"):
        page("new").save(path)
    assert path.read_text(encoding="utf-8") == page("old").html()
    assert [found.name for found in tmp_path.iterdir()] == ["b.html"]


def test_a_notebook_shows_the_page_in_a_frame_of_its_own() -> None:
    made = page(HOSTILE)
    found = Reader(made._repr_html_())
    assert found.tags == ["iframe"]
    attributes = dict(found.attributes)
    assert attributes["srcdoc"] == made.html()
    assert attributes["sandbox"] == "allow-scripts"  # and not: the same origin


def test_columns_of_numbers_stand_to_the_right() -> None:
    html = str(Table(columns=["a", "b"], rows=[["x", 12_000], ["y", None], ["z", 1e-12]]).element())
    assert '<th scope="col">a</th><th scope="col" class="number">b</th>' in html
    assert re.findall(r'class="number" dir="auto">([^<]*)', html) == ["12,000", "–", "1e-12"]


def test_settings_of_several_kinds_stand_to_the_left() -> None:
    html = str(Table(rows=[["a", True], ["b", "x"], ["c", 1]]).element())
    assert "number" not in html
    assert ">true<" in html


def test_a_table_may_have_no_rows() -> None:
    assert "<th" in str(Table(rows=[], columns=["a", "b"]).element())


def test_rows_are_of_one_length() -> None:
    with raises(InputError, "'t'", "1", "2"):
        Table(title="t", columns=["a", "b"], rows=[["x"]])


@pytest.mark.parametrize(
    ("value", "width", "shown"),
    [
        (0.25, "25", "25.0\xa0%"),
        (0.001, "0.1", "0.10\xa0%"),
        (7.0, "100", "700.0\xa0%"),
        (-1.0, "0", "-100.00\xa0%"),
        (float("nan"), "0", "–"),
    ],
)
def test_bars_stay_within_their_bounds(value: float, width: str, shown: str) -> None:
    html = str(Bars(rows=[("word", value)]).element())
    assert f'<rect width="{width}"' in html
    assert f">{shown}<" in html


def test_only_long_text_is_broken():
    rows = [["a " * 50, "0.5 [0.4, 0.6]", 7], ["b", None, 8]]
    drawn = str(Table(columns=["text", "score", "n"], rows=rows).element())
    assert drawn.count('<td class="long"') == 2
    assert drawn.count('<td class="short"') == 2
    assert drawn.count('<td class="number"') == 2
    assert '<th scope="col">score</th>' in drawn


def test_a_small_chart_alone_is_not_blown_up_and_what_is_wide_scrolls():
    style = load_asset("page.css")
    assert "figure:not(.wide) { max-width: 38.4rem; }" in style
    assert re.search(r"\.card, figure {\s+overflow-x: auto;", style)


def test_numbers_of_a_column_have_the_same_number_of_decimals() -> None:
    table = str(Table(rows=[["a", 0.5, 3], ["b", 0.8261, None]], columns=["x", "y", "z"]).element())
    assert ">0.5000<" in table
    assert ">0.8261<" in table
    assert ">3<" in table


def test_formatted_numbers_are_right_aligned() -> None:
    table = str(Table(rows=[["a1", "15.58"], ["b", "<0.1 %"]], columns=["x", "y"]).element())
    assert '<td class="number" dir="auto">15.58</td>' in table
    assert '<td class="short" dir="auto">a1</td>' in table


def test_a_wide_table_becomes_blocks_of_lines_in_a_small_window() -> None:
    wide = str(Table(rows=[["a" * 30, "b" * 30]], columns=["x", "y"]).element())
    assert 'class="stacks"' in wide
    assert 'data-name="y"' in wide
    narrow = str(Table(rows=[["a", "b"]], columns=["x", "y"]).element())
    assert "stacks" not in narrow
    assert "data-name" not in narrow


def test_a_wide_chart_is_drawn_a_second_time_for_small_windows() -> None:
    chart = LineChart(title="Loss", series=[Series(name="a", x=[1, 2], y=[3.0, 4.0])], wide=True)
    html = str(chart.element())
    assert html.count("<figure") == html.count("<svg") == 2
    assert 'class="wide"' in html
    assert 'class="narrow"' in html
    assert len(chart.data["series"]) == 1
