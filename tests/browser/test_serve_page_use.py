"""The page of `cloze serve` in use: typing, clicking, the keyboard, links."""

import numpy as np
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import cloze
from cloze.data.images.decode import encode_png
from cloze.tasks.pictures import Picture
from page_checks import check_accessibility
from served_page import percent


def test_words_are_masked_and_filled_in(page):
    page.open("fill", values={"text": "the cat sat"})
    assert "there is no [MASK]" in page.problem.replace("There", "there")
    assert "Fix: write [MASK]" in page.problem
    assert "400" in page.browser.errors()[0]
    page.click("cat", ".words button")
    page.wait(lambda: page.find_all(".bar-row"))
    assert page.value("text") == "the [MASK] sat"
    assert page.problem == ""
    page.browser.click(page.find(".words .mask"))
    page.wait(lambda: page.value("text") == "the cat sat")
    page.click("sat", ".words button")
    page.click("the", ".words button")
    page.wait(lambda: len(page.texts(".bar-list")) == 2)
    assert page.value("text") == "[MASK] cat [MASK]"
    chosen = page.texts(".bar-list:first-of-type .bar-label")[0]
    page.browser.click(page.find(".output .bar-row"))
    page.wait(lambda: len(page.texts(".bar-list")) == 1)
    assert page.value("text") == f"{chosen} cat [MASK]"
    page.browser.click(page.find(".words .mask"))
    page.wait(lambda: page.value("text") == f"{chosen} cat sat")
    page.check()


def test_next_words_can_be_clicked_through(page, models):
    page.open("generate")
    page.write("text", "the cat")
    page.click("Show the next 10 words")
    text = "the cat"

    def shows_next(text):
        best = cloze.suggest(models["ngram"], text).suggestions[0].word
        return page.texts(".next .bar-label")[0].startswith(best)

    for _ in range(3):
        page.wait(lambda text=text: shows_next(text))
        buttons = page.find_all(".next button.bar-row")
        word = buttons[0].find_element(By.CSS_SELECTOR, ".bar-label").text
        page.browser.click(buttons[0])
        text = f"{text} {word}"
        page.wait(lambda text=text: page.value("text") == text)
    page.check()


def test_generation_can_be_stopped(page):
    page.open("generate", model="gpt", values={"text": "the cat", "max_new_tokens": "12"})
    page.browser.run(
        "const real = window.fetch; window.fetch = async (...all) => {"
        "  const { signal } = all[1]; return new Promise((_, no) => {"
        "    signal.addEventListener('abort', () => no(new DOMException('', 'AbortError'))) }) }"
    )
    page.browser.click(page.find(".panel:not([hidden]) button.primary"))
    page.click("Stop")
    page.wait(lambda: page.status == "Stopped.")
    page.check()


def test_pictures_form_step_by_step_from_an_image(page, models, tmp_path):
    image = tmp_path / "start.png"
    image.write_bytes(encode_png(np.random.default_rng(0).integers(0, 255, (16, 16, 3), np.uint8)))
    page.open("draw", values={"text": "a b", "samples": "2", "steps": "10", "strength": "0.5"})
    page.browser.find("#draw-image").send_keys(str(image))
    page.wait(lambda: page.find(".preview img"))
    page.browser.run(
        "window.seen = {images: [], texts: []};"
        "const panel = document.querySelector('#panel-draw');"
        "new MutationObserver((all) => all.forEach(({ target }) => {"
        "  if (target.matches?.('.pictures img')) seen.images.push(target.src);"
        "  if (target.matches?.('.status')) seen.texts.push(target.textContent);"
        "})).observe(panel, {subtree: true, childList: true, attributes: true})"
    )
    page.run()
    seen = page.browser.run("return window.seen")
    steps = []
    result = cloze.draw(
        models["pictures"], "a b", samples=2, steps=10, strength=0.5, image=image,
        on_step=lambda *step: steps.append(step),
    )  # fmt: skip
    shown = [make_url(Picture(0, one)) for _, _, images in steps for one in images]
    assert [one for one in shown if one not in seen["images"]] == []
    assert "Step 5 of 5" in seen["texts"]
    found = [one.get_attribute("src") for one in page.find_all(".pictures img")]
    assert found == [make_url(one) for one in result.pictures]
    page.check()
    check_accessibility(page.browser)
    page.click("Remove")
    large = tmp_path / "large.png"
    large.write_bytes(bytes((4 << 20) + 1))
    page.browser.find("#draw-image").send_keys(str(large))
    page.wait(lambda: any("larger than 4 MiB" in one for one in page.texts(".image-input")))


def make_url(picture):
    return f"data:image/png;base64,{picture.to_dict()['png']}"


def test_an_answer_is_chosen_and_an_alignment_is_shown(page, models):
    page.open("answer")
    candidates = page.texts(".bar-label")
    page.browser.click(page.find_all(".panel:not([hidden]) .bar-row")[1])
    page.wait(lambda: page.texts(".marked mark") == [candidates[1]])
    page.open("translate")
    page.browser.hover(page.find(".alignment button.word"))
    found = cloze.translate(models["translator"], "the cat sat", beam=1, align=True).to_dict()
    weights = found["translations"][0]["alignment"]["weights"][0]
    assert f"({percent(max(weights))})" in page.texts(".alignment .status")[0]
    page.check()


def test_a_view_is_interactive_and_follows_the_text(page):
    page.open("explain")
    driver = page.browser.driver
    driver.switch_to.frame(page.find("iframe.view"))
    try:
        assert page.browser.run("return self.origin") == "null"  # it cannot reach the server
        tokens = page.find_all(".att-side.queries [role=option]")
        page.browser.hover(next(one for one in tokens if one.text == "cat"))
        assert "“cat” attends to" in page.find("[role=status]").text
        height = page.browser.run("return document.documentElement.offsetHeight")
    finally:
        driver.switch_to.default_content()
    measure = "return document.querySelector('iframe.view').offsetHeight"
    page.wait(lambda: page.browser.run(measure) >= height)
    page.write("text", "a cat")
    page.wait(lambda: "a cat" in page.find("iframe.view").get_attribute("srcdoc"))
    page.finish()
    page.field("view").send_keys("layers")
    page.wait(lambda: "layers of" in page.find("iframe.view").get_attribute("title"))
    options = page.find_all("#explain-view option[disabled]")
    assert any("n-gram" in one.text for one in options)
    page.check()


def test_a_model_that_cannot_do_this_is_named_with_one_that_can(page):
    page.open("classify", model="mlm")
    assert "mlm (a BERT) cannot do this. It needs a model that cloze finetune" in page.notice
    assert not page.find("#panel-classify button.primary").is_enabled()
    assert "unsupported" in page.find("#tab-classify").get_attribute("class")
    page.click("Use labels")
    page.wait(lambda: not page.notice)
    assert page.find("#model").get_attribute("value") == "labels"
    page.run()
    assert len(page.texts(".bar-row")) == 2
    page.check()


def test_the_keyboard_is_enough(page):
    page.open()
    browser = page.browser
    assert page.find("#tab-fill").get_attribute("aria-selected") == "true"
    browser.press(Keys.TAB)  # the link to the panel
    browser.press(Keys.ENTER)
    assert browser.run("return document.activeElement.id") == "panel"
    browser.run("document.activeElement.blur(); document.querySelector('[role=tab]').focus()")
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.END, Keys.HOME)
    assert browser.run("return document.activeElement.id") == "tab-fill"
    browser.press(Keys.TAB)  # the text
    assert browser.run("return document.activeElement.id") == "fill-text"
    browser.driver.switch_to.active_element.send_keys(Keys.CONTROL + "a")
    browser.driver.switch_to.active_element.send_keys("the cat sat")
    browser.press(Keys.TAB)  # the words: one stop
    browser.press(Keys.ARROW_RIGHT)
    focused = "return document.activeElement.getAttribute('aria-label')"
    assert browser.run(focused) == "cat: mask it"
    outline = browser.run("return getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "2px"
    browser.press(Keys.ENTER)
    page.wait(lambda: page.find_all(".bar-row"))
    assert browser.run(focused) == "Mask in place of cat: undo"
    browser.press(Keys.TAB)
    assert browser.run("return document.activeElement.id") == "fill-top"
    for _ in range(5):  # the button, three copies, the first prediction
        browser.press(Keys.TAB)
    word = browser.run("return document.activeElement.querySelector('.bar-label').textContent")
    browser.press(Keys.ENTER)
    assert page.value("text") == f"the {word} sat"
    page.check()


def test_a_link_reproduces_the_page(page, browser):
    page.open("similar", values={"word": "dog", "top": "3"})
    rows = page.texts(".bar-row")
    link = page.copied("Copy link")
    assert "word=dog" in link
    page.browser.click(page.find("#tab-tag"))
    assert "panel=tag" in browser.driver.current_url
    browser.driver.back()
    page.finish()
    assert page.value("word") == "dog"
    browser.open(link)
    page.wait(lambda: page.find_all(".bar-row"))
    assert page.texts(".bar-row") == rows
    page.check()
