"""Every view of `cloze.explain`, saved and opened without a network."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from chromium import Browser
from cloze.plot.view import View
from cloze.tasks.explain import VIEWS
from page_checks import HOSTILE, check_accessibility, check_page, visible_form
from view_examples import EXAMPLES

STATUS = "return arguments[0].querySelector('[role=status]')?.textContent ?? ''"
PINNED = "return arguments[0].querySelectorAll('.pinned, [aria-pressed=true]').length"


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
def test_the_keyboard_selects_pins_and_releases(open_view, name: str):
    browser = open_view(name)
    for figure in figures(browser):
        assert browser.run(STATUS, figure) == ""
        reach(browser, figure)
        said = set()
        for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_DOWN):
            browser.press(key)
            said.add(browser.run(STATUS, figure))
        assert len(said - {""}) >= 2, "the arrow keys select nothing that is read aloud"
        assert browser.run(PINNED, figure) == 0
        browser.press(Keys.ENTER)
        assert browser.run(PINNED, figure) > 0
        browser.press(Keys.ESCAPE)
        assert browser.run(PINNED, figure) == 0
    check_page(browser)


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
def test_hostile_tokens_are_shown_literally(browser, tmp_path: Path, monkeypatch, name: str):
    """Each token is a hostile text, wherever a view may write it."""
    shown = iter(HOSTILE * 10_000)
    monkeypatch.setattr("cloze.tasks.explain.inputs.show_token", lambda *_: next(shown))
    browser.open(EXAMPLES[name]().save(tmp_path / "view.html"))
    check_page(browser)
    text = browser.run("return document.body.textContent")
    assert visible_form(HOSTILE[1])[:6] in text or not figures(browser)  # no tokens are shown
    for figure in figures(browser):
        reach(browser, figure)
        for key in (Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ENTER, Keys.ARROW_RIGHT):
            browser.press(key)
    check_page(browser)


def reach(browser: Browser, figure: object) -> None:
    """Press Tab until the focus is in the drawing of a figure."""
    browser.run("document.activeElement.blur(); arguments[0].scrollIntoView()", figure)
    inside = (
        "return [...arguments[0].querySelectorAll('svg, [role=listbox]')]"
        ".some((part) => part.contains(document.activeElement))"
    )
    browser.run("getSelection().collapse(document.body, 0)")
    for _ in range(60):
        browser.press(Keys.TAB)
        if browser.run(inside, figure):
            return
    pytest.fail("Tab does not reach the drawing")
