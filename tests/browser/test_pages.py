"""Pages of reports and figures, as a person meets them."""

from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from cloze.plot.alignment import AlignmentLines, alignment_heatmap
from cloze.plot.line_chart import LineChart, Series
from cloze.plot.page import Bars, Card, Fact, Facts, Grid, Page, PagePart, Quote, Section, Table
from cloze.plot.scatter import Point, Scatter
from page_checks import (
    HOSTILE,
    check_accessibility,
    check_page,
    find_poor_contrast,
    run_axe,
    visible_form,
)

WORDS = ["A", "cat", "sat", "."]
WEIGHTS = [[0.7, 0.1, 0.1, 0.1], [0.05, 0.9, 0.05, 0.0], [0.2, 0.2, 0.6, 0.0], [0.0, 0.0, 0.1, 0.9]]


def make_page(words: list[str], text: str = "a text") -> Page:
    size = len(words)
    weights = [[1 / (1 + abs(row - column)) for column in range(size)] for row in range(size)]
    series = [
        Series(name=text, x=[0, 1, 2], y=[3.0, 2.0, 1.5]),
        Series(name="b", x=[0, 2], y=[1.0, 1.2]),
    ]
    parts: list[PagePart] = [
        LineChart(title=text, x_label="step", y_label="loss", series=series, note=text),
        alignment_heatmap(words, words, weights, title=text),
        AlignmentLines(title=text, source=words, target=words, weights=weights),
        Scatter(
            title=text, points=[Point(name=word, x=n, y=n % 3) for n, word in enumerate(words)]
        ),
        Facts([Fact(label=text, text=text, value=text, detail=text)]),
        Table(title=text, columns=[text, "n"], rows=[[word, n] for n, word in enumerate(words)]),
        Bars(title=text, rows=[(word, 0.5) for word in words]),
        Card(head=Quote(text=f"{text} [MASK]", highlighted=["[MASK]"]), parts=[]),
        Grid(parts=[Bars(rows=[(text, 0.2)])]),
    ]
    return Page(title=text, note=text, sections=[Section(title=text, parts=parts)])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_loads_nothing_and_can_be_read(browser, tmp_path: Path, dark: bool):
    browser.open(make_page(WORDS).save(tmp_path / "page.html"), dark=dark)
    check_page(browser)
    check_accessibility(browser)
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(18, 22, 28)") is dark


def test_hostile_text_is_shown_literally(browser, tmp_path: Path):
    text = " ".join(HOSTILE)
    browser.open(make_page(HOSTILE, text).save(tmp_path / "page.html"))
    check_page(browser)
    shown = browser.run("return [...document.querySelectorAll('td')].map((e) => e.textContent)")
    assert {visible_form(word) for word in HOSTILE} <= set(shown)
    assert browser.run("return document.title.includes('<script>window.ran=1</script>')")
    for element in browser.find_all("svg text, svg path, svg rect")[:40]:
        if element.is_displayed():
            browser.hover(element)
    check_page(browser)


def test_a_line_chart_shows_its_values(browser, tmp_path: Path):
    browser.open(make_page(WORDS).save(tmp_path / "page.html"))
    box = "const e = document.querySelector('.hover'); return e.hidden ? '' : e.textContent"
    chart = browser.find("figure[data-kind=lines] > svg")
    assert browser.run(box) == ""
    browser.hover(chart)
    assert "step 1" in browser.run(box)
    assert "a text2" in browser.run(box)
    browser.hover(browser.find("h1"))
    assert browser.run(box) == ""
    browser.press(Keys.TAB)
    assert browser.run("return document.activeElement === arguments[0]", chart)
    browser.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert "step 0" in browser.run(box)
    browser.press(Keys.ARROW_RIGHT)
    assert "step 1" in browser.run(box)
    check_page(browser)


def test_in_a_notebook(browser, in_notebook):
    """The page is isolated: its styles and scripts do not reach the notebook, nor its texts."""
    browser.open(in_notebook(make_page(WORDS, HOSTILE[1])))
    assert browser.run("return window.ran === undefined")
    assert (
        browser.run("return getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
    )
    browser.driver.switch_to.frame(0)
    check_page(browser)
    browser.hover(browser.find("figure[data-kind=lines] > svg"))
    assert "step 1" in browser.find(".hover").text
    check_page(browser)
    browser.driver.switch_to.default_content()


def test_faults_would_be_found(browser, tmp_path: Path):
    """The checks themselves: a request, an error, a text that runs, and letters nobody can read."""
    svg = "<svg width=9 height=9><rect width=9 height=9 fill=#555 /><text y=9>x</text></svg>"
    path = tmp_path / "bad.html"
    path.write_text(
        f"<!doctype html><title>t</title><img src=http://x.test/a.png onerror=window.ran=1>{svg}"
        "<p style='color:#999;background:#888'>words</p><script>console.error('e')</script>",
        encoding="utf-8",
    )
    browser.open(path)
    assert browser.requests() == ["http://x.test/a.png"]
    assert any('"e"' in line for line in browser.errors())
    assert browser.run("return window.ran") == 1
    assert {"image-alt", "html-has-lang", "color-contrast"} <= {r["id"] for r in run_axe(browser)}
    assert [row[:2] for row in find_poor_contrast(browser)] == [["x", 2.82]]
