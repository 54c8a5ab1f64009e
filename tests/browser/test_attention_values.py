"""The page of `explain.attention` for small models: numbers, words, pairs, translators."""

import re
from pathlib import Path

import pytest

import cloze
from chromium import Browser
from helpers import tiny_model
from page_checks import check_page
from translators import TEXTS, translator

TEXT = "the cats sat."


@pytest.fixture(scope="module")
def model():
    return tiny_model("mlm", num_layers=3)


@pytest.fixture
def page(browser: Browser, tmp_path: Path, model):
    def open_(*texts: str, model=model, **options):
        view = cloze.explain.attention(model, *texts, **options)
        browser.open(view.save(tmp_path / "view.html"))
        return view

    return open_


def status(browser: Browser) -> str:
    return browser.find("[role=status]").text


def legend(browser: Browser) -> str:
    return browser.find(".att-lines h4 small").text


def find_button(browser: Browser, text: str):
    return next(one for one in browser.find_all(".att button") if one.text == text)


def find_token(browser: Browser, side: str, n: int):
    return browser.find_all(f".att-side.{side} > div")[n]


def percents(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"([\d.]+)\s%", text)]


def test_a_token_that_is_pointed_at_shows_its_weights(page, browser):
    view = page(TEXT)
    weights = view.figures[0].maps[0].weights[1].mean(0)  # of the layer shown first
    browser.hover(find_token(browser, "queries", 2))
    largest = sorted(100 * weights[2], reverse=True)[:5]
    assert percents(status(browser)) == pytest.approx(largest, abs=0.51)
    browser.hover(find_token(browser, "keys", 4))
    assert "gets attention from" in status(browser)
    largest = sorted(100 * weights[:, 4], reverse=True)[:5]
    assert percents(status(browser)) == pytest.approx(largest, abs=0.51)
    check_page(browser)


def test_words_and_texts_of_a_pair(page, browser):
    view = page("the cats", "sat.")
    found = view.data["attention"][0]
    browser.click(find_button(browser, "A → B"))
    share = sum(found["between_texts"]["A → B"][1]) / 2
    assert percents(legend(browser))[0] == pytest.approx(100 * share, abs=0.51)
    browser.click(find_button(browser, "all"))
    browser.click(find_button(browser, "words"))
    tokens = [one.text for one in browser.find_all(".att-side.queries > div")]
    assert tokens == ["[CLS]", "the", "cats", "[SEP]", "sat", ".", "[SEP]"]
    browser.hover(find_token(browser, "queries", 2))
    weights = [sum(heads[2][key] for heads in found["word_weights"][1]) / 2 for key in range(7)]
    expected = sorted((100 * weight for weight in weights), reverse=True)[:5]
    assert percents(status(browser)) == pytest.approx(expected, abs=0.51)


def test_the_vectors_of_a_token_are_shown(page, browser):
    page(TEXT, layer=2, head=1, token="sat", key="cat")
    canvas = browser.find(".att-vectors canvas")
    assert canvas.is_displayed()
    assert "layer 2, head 1" in browser.find(".att-vectors h4").text
    browser.click(find_button(browser, "differences from the mean key"))
    browser.hover(canvas)
    assert "sat →" in browser.find(".att > .hover").text
    browser.click(find_token(browser, "queries", 4))  # released
    browser.hover(browser.find(".att > h3"))
    assert not canvas.is_displayed()


def test_all_kinds_of_attention_of_a_translator(page, browser):
    view = page(TEXTS[0], model=translator("transformer"), target_text="zwei Hund")
    for one in view.data["attention"]:
        browser.click(find_button(browser, one["name"]))
        tokens = [option.text for option in browser.find_all(".att-side.queries > div")]
        assert tokens == one["queries"]["tokens"]
        assert one["name"] in legend(browser)
    check_page(browser)
