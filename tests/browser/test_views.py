"""Every view of `cloze.explain`, saved and opened without a network."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from chromium import Browser
from cloze.plot.view import View
from cloze.tasks.explain import VIEWS
from page_checks import HOSTILE, check_accessibility, check_page
from view_examples import EXAMPLES

STATUS = "return arguments[0].querySelector('[role=status]')?.textContent ?? ''"
PINNED = "return arguments[0].querySelectorAll('.pinned, svg [aria-pressed=true]').length"
ARROWS = (Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
CHOICES = {"data", "color", "dash"}  # fields that are not shown as text
CONTROL = "button, select, input, summary, a"


@cache
def make_view(name: str) -> View:
    return EXAMPLES[name]()


@pytest.fixture
def open_view(browser: Browser, tmp_path: Path) -> Callable[..., Browser]:
    """Saves an example and opens the file."""

    def open_(name: str, **options: object) -> Browser:
        browser.open(make_view(name).save(tmp_path / "view.html"), **options)
        return browser

    return open_


def figures(browser: Browser) -> list:
    """The figures that a script makes interactive."""
    return browser.find_all("figure[data-kind]:not([data-kind=lines])")


def test_every_view_has_an_example():
    assert {name.partition(":")[0] for name in EXAMPLES} == set(VIEWS)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_view_loads_nothing_and_can_be_read(open_view, name: str, dark: bool):
    browser = open_view(name, dark=dark)
    check_page(browser)
    check_accessibility(browser)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_view_fits_into_a_small_window(open_view, name: str):
    """The page itself does not scroll sideways: wide figures do."""
    browser = open_view(name, size=(500, 800))
    assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_arrow_keys_are_read_aloud(open_view, name: str):
    browser = open_view(name)
    for figure in figures(browser):
        reach(browser, figure)
        said = set()
        for key in (*ARROWS, *ARROWS, Keys.TAB, *ARROWS):
            browser.press(key)
            said.add(browser.run(STATUS, figure))
        assert len(said - {""}) >= 2
    check_page(browser)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if not name.startswith("saliency")])
def test_enter_pins_and_escape_releases(open_view, name: str):
    browser = open_view(name)
    for figure in figures(browser):
        reach(browser, figure)
        browser.press(Keys.ESCAPE)
        assert browser.run(PINNED, figure) == 0
        browser.press(Keys.ARROW_DOWN, Keys.ENTER)
        assert browser.run(PINNED, figure) > 0
        browser.press(Keys.ESCAPE)
        assert browser.run(PINNED, figure) == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_click_pins_and_the_next_releases(open_view, name: str):
    """What is pinned stays when the pointer leaves."""
    browser = open_view(name)
    for figure in figures(browser):
        if target := find_target(figure):
            browser.click(target)
            browser.hover(browser.find("h1"))
            assert browser.run(PINNED, figure) > 0
            assert browser.run(STATUS, figure) != ""
            browser.click(target)
            assert browser.run(PINNED, figure) == 0


def test_an_output_is_pinned_instead_of_another(open_view):
    """One output of saliency is always shown; Escape returns to the first."""
    browser = open_view("saliency: generated tokens")
    which = "return [...document.querySelectorAll('.output')].map((e) => e.matches('.pinned'))"
    first = [True, False, False, False]
    assert browser.run(which) == first
    browser.click(browser.find_all(".output")[2])
    browser.hover(browser.find("h1"))
    assert browser.run(which) == [False, False, True, False]
    reach(browser, figures(browser)[0])
    browser.press(Keys.ESCAPE)
    assert browser.run(which) == first


def find_target(figure: object) -> object:
    """What can be pinned: a curve, a token, a cell; the outputs of saliency have their own test."""
    found = figure.find_elements(
        "css selector", ".curve .row, [role=option], svg.heat g.data rect, .dot, .mark"
    )
    return found[min(3, len(found) - 1)] if found else None


@pytest.mark.parametrize("name", EXAMPLES)
def test_in_a_notebook(browser, in_notebook, name: str):
    browser.open(in_notebook(make_view(name)))
    browser.driver.switch_to.frame(0)
    check_page(browser)
    for figure in figures(browser):
        reach(browser, figure)
        browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
        assert browser.run(STATUS, figure) != ""
    check_page(browser)
    browser.driver.switch_to.default_content()


@pytest.mark.parametrize("name", EXAMPLES)
def test_hostile_text_is_shown_literally(browser, tmp_path: Path, name: str):
    """Tokens, words, labels, titles: every text of a view is a hostile one."""
    poisoned = replace_texts(make_view(name), itertools.cycle(HOSTILE))
    browser.open(poisoned.save(tmp_path / "view.html"))
    check_page(browser)
    assert "</script><" in browser.run("return document.querySelector('main').textContent")
    for figure in figures(browser):
        reach(browser, figure)
        for key in (*ARROWS, Keys.ENTER, Keys.TAB, *ARROWS):
            browser.press(key)
        if target := find_target(figure):
            browser.click(target)
    check_page(browser)
    assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0


def replace_texts(value: object, texts: Iterator[str]) -> object:
    """The same view, figure or list with other texts; names that select a color or a kind stay."""
    if isinstance(value, str):
        return next(texts) if value else value
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        changed = {name: getattr(value, name) for name in fields if name not in CHOICES}
        return dataclasses.replace(
            value, **{name: replace_texts(one, texts) for name, one in changed.items()}
        )
    if isinstance(value, list | tuple):
        return type(value)(replace_texts(one, texts) for one in value)
    return value


def reach(browser: Browser, figure: object) -> None:
    """Press Tab until the focus is in a figure, past its buttons and other controls."""
    browser.run("document.activeElement.blur(); getSelection().collapse(document.body, 0)")
    inside = "return arguments[0].contains(document.activeElement)"
    for _ in range(80):
        browser.press(Keys.TAB)
        if browser.run(inside, figure) and not browser.run(
            "return document.activeElement.matches(arguments[0])", CONTROL
        ):
            return
    pytest.fail("Tab does not reach the tokens or cells")
