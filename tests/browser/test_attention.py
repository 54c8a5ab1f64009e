"""The page of `explain.attention`: pointer, buttons, pictures of heads, and long texts."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from chromium import Browser
from cloze.plot.view import View
from page_checks import check_page
from view_examples import EXAMPLES, LARGE


@cache
def make_view(name: str) -> View:
    return (EXAMPLES | LARGE)[name]()


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    browser.open(make_view("attention").save(tmp_path / "view.html"))
    return browser


def status(browser: Browser) -> str:
    return browser.find("[role=status]").text


def legend(browser: Browser) -> str:
    """Which layers and heads are shown."""
    return browser.find(".att-lines h4").text


def token(browser: Browser, side: str, text: str):
    """The first token of that text."""
    found = browser.find_all(f".att-side.{side} [role=option]")
    return next(one for one in found if one.text == text)


def button(browser: Browser, group: str, text: str):
    (found,) = browser.find_all(f"[aria-label='{group}']")
    return next(one for one in found.find_elements("tag name", "button") if one.text == text)


def weights(view: View, layer: int) -> tuple[list[str], np.ndarray]:
    (one,) = view.data["attention"]
    return one["queries"]["tokens"], np.array(one["weights"])[layer - 1]


def largest(text: str) -> tuple[str, float]:
    """The token that is named first in the status, and its weight."""
    found = re.search(r"attends to (\S+) ([\d.]+)\s%", text)
    assert found, text
    return found[1], float(found[2])


def test_the_pointer_shows_the_weights_of_a_token(page):
    page.hover(token(page, "queries", "it"))
    tokens, values = weights(make_view("attention"), 7)
    mean = values.mean(0)[tokens.index("it")]
    said, percent = largest(status(page))
    assert said == tokens[mean.argmax()]
    assert percent == pytest.approx(100 * mean.max(), abs=0.51)
    page.hover(page.find("h1"))
    assert status(page) == ""


def test_a_click_pins_a_token_and_the_next_selects_a_pair(page):
    page.click(token(page, "queries", "it"))
    page.hover(page.find("h1"))
    assert "“it” attends to" in status(page)
    canvas = page.find(".att-vectors canvas")
    assert canvas.is_displayed()
    page.hover(token(page, "keys", "animal"))
    assert "Selected: it → animal" in status(page)
    page.press(Keys.TAB)
    page.click(token(page, "queries", "it"))
    assert page.find_all(".pinned") == []
    assert not canvas.is_displayed()


def test_layers_and_heads(page):
    page.click(button(page, "Layers", "6"))
    ActionChains(page.driver).double_click(button(page, "Heads", "1")).perform()
    page.hover(token(page, "queries", "it"))
    tokens, values = weights(make_view("attention"), 6)
    row = values[0][tokens.index("it")]
    said, percent = largest(status(page))
    assert said == tokens[row.argmax()] == "animal"
    assert percent == pytest.approx(100 * row.max(), abs=0.51)
    assert "layer 6, head 1" in status(page)
    page.click(button(page, "Layers", "mean of all"))
    assert "mean of 12 layers" in legend(page)
    check_page(page)


def test_a_picture_opens_its_head(page):
    grid = page.find(".att-grid canvas")
    page.run("arguments[0].scrollIntoView({block: 'center'})", grid)
    box = grid.rect
    # layers are columns here: the middle of the one at layer 6, head 1
    x = 58 + (box["width"] - 58) * 5.5 / 12 - box["width"] / 2
    y = 22 + (box["height"] - 22) * 0.5 / 5 - box["height"] / 2
    pointer = ActionChains(page.driver, duration=20).move_to_element_with_offset(grid, x, y)
    pointer.perform()
    assert "Layer 6, head 1" in page.find(".att > .hover").text
    pointer.click().perform()
    assert "layer 6, head 1" in legend(page)
    page.run("arguments[0].focus()", grid)
    page.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert "Layer 7, head 2" in status(page)
    page.press(Keys.ENTER)
    assert "layer 7, head 2" in legend(page)


def test_the_matrix_shows_a_weight(page):
    matrix = page.find(".att-matrix canvas")
    page.hover(matrix)
    tip = page.find(".att > .hover").text
    found = re.fullmatch(r"(\S+) → (\S+): ([\d.]+)\s%", tip)
    assert found, tip
    tokens, values = weights(make_view("attention"), 7)
    mean = 100 * values.mean(0)
    pairs = [
        (q, k)
        for q, query in enumerate(tokens)
        for k, key in enumerate(tokens)
        if (query, key) == (found[1], found[2])
    ]
    assert any(mean[pair] == pytest.approx(float(found[3]), abs=0.51) for pair in pairs)


def test_special_tokens_can_be_hidden(page):
    special = re.compile(r"\[(CLS|SEP)\]")  # which of them it attends to is up to the model
    page.hover(token(page, "queries", "it"))
    assert special.search(status(page))
    page.click(button(page, "Special tokens", "hidden"))
    page.hover(token(page, "queries", "it"))
    assert not special.search(status(page))


def test_the_parts_of_a_pair(browser, tmp_path):
    browser.open(make_view("attention: a pair").save(tmp_path / "view.html"))
    browser.hover(token(browser, "queries", "sat"))
    assert "[SEP]" in status(browser)
    browser.click(button(browser, "From → to", "A → B"))
    browser.hover(token(browser, "queries", "sat"))
    named = set(re.findall(r"(\S+) [\d.]+\s%", status(browser)))
    assert named <= {"a", "cat", "sat", "##s", "."}
    check_page(browser)


@pytest.mark.parametrize("name", [name for name in LARGE if name.startswith("attention")])
def test_a_long_text_is_one_small_file(browser, tmp_path, name):
    path = make_view(name).save(tmp_path / "view.html")
    assert path.stat().st_size < 10e6
    browser.open(path)
    check_page(browser)
    caption = browser.find("figcaption").text
    assert re.search(r"are left out, .*; the others are [\d.]+\s% of the attention", caption)
    assert len(browser.find_all(".att-side.queries [role=option]")) == 512
    browser.find(".att-side.queries").send_keys(Keys.END)
    assert "“[SEP]” attends to" in status(browser)
    browser.click(button(browser, "Layers", "2"))
    assert "layer 2" in status(browser)
    check_page(browser)
