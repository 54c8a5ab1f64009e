"""The page of `cloze serve` in a browser: every panel, with a real server and small models."""

import contextlib
import io
import json
import subprocess

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import cloze
from cloze.data.images.decode import encode_png
from cloze.tasks.pictures import Picture
from page_checks import HOSTILE, check_accessibility
from served_models import make_models, save_models
from served_page import NARROW, STATES, Page, percent
from servers import run_server


@pytest.fixture(scope="module")
def models():
    return make_models()


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):
    folders = save_models(models, tmp_path_factory.mktemp("served"))
    with run_server(folders) as running:
        yield running


@pytest.fixture
def page(browser, server):
    return Page(browser, server)


def check_panel(page, panel, models):
    """What a panel shows is what the Python function returns."""
    name, values = STATES[panel]
    model = models[name]
    rows = page.texts(".bar-row")
    if panel == "fill":
        masks = cloze.fill(model, values["text"], top=8).to_dict()["masks"]
        predictions = [one for mask in masks for one in mask["predictions"]]
        assert rows == [f"{one['word']}{percent(one['score'])}" for one in predictions]
    elif panel == "similarity":
        texts = values["text"].split("\n")
        scores = cloze.similarity(model, texts).to_dict()["scores"]
        assert page.texts(".matrix tbody td") == [f"{x:.2f}" for row in scores for x in row]
    elif panel == "rerank":
        found = cloze.rerank(model, values["query"], values["documents"].split("\n"))
        assert rows == [f"{one.text}{one.score:.3f}" for one in found.documents]
    elif panel == "classify":
        found = cloze.classify(model, values["text"], values["pair"]).to_dict()
        assert rows == [f"{one['label']}{percent(one['score'])}" for one in found["labels"]]
    elif panel == "tag":
        spans = cloze.tag(model, values["text"]).to_dict()["spans"]
        assert spans
        assert page.texts(".marked mark") == [f"{one['text']}{one['label']}" for one in spans]
        assert page.texts(".legend li") == [f"X {len(spans)}"]
    elif panel == "answer":
        found = cloze.answer(model, values["question"], values["context"], top=3).to_dict()
        expected = [f"{one['text']}{percent(one['probability'])}" for one in found["answers"]]
        assert rows == expected
        assert page.texts(".marked mark") == [found["answers"][0]["text"]]
    elif panel == "choose":
        found = cloze.choose(model, values["text"], values["options"].split("\n")).to_dict()
        assert rows == [f"{one['text']}{percent(one['score'])}" for one in found["choices"]]
    elif panel == "generate":
        found = cloze.generate(model, values["text"], max_new_tokens=8, seed=1).to_dict()
        (best,) = found["continuations"]
        assert page.texts(".written .added") == [best["continuation"]]
        following = cloze.suggest(model, best["full_text"])
        expected = [percent(one.probability) for one in following.suggestions]
        assert page.texts(".next .bar-value") == expected
    elif panel == "score":
        found = cloze.score(model, values["text"]).to_dict()
        assert len(page.texts(".token")) == len(found["tokens"])
        assert page.texts(".fact .value")[0] == f"{found['perplexity']:.2f}"
    elif panel == "translate":
        found = cloze.translate(model, values["text"], beam=1, align=True).to_dict()
        (best,) = found["translations"]
        assert page.texts(".written") == [best["text"]]
        assert page.texts(".alignment .token") == list(best["alignment"]["source"])
        assert page.texts(".alignment button.word") == list(best["alignment"]["target"])
    elif panel == "summarize":
        found = cloze.summarize(model, values["text"]).to_dict()["summaries"][0]
        assert page.texts(".written") == [found["text"] or "(empty)"]
    elif panel == "draw":
        found = cloze.draw(model, values["text"], samples=2, steps=2).to_dict()["pictures"]
        sources = page.browser.run(
            "return [...document.querySelectorAll('.pictures img')].map((one) => one.src)"
        )
        assert sources == [f"data:image/png;base64,{one['png']}" for one in found]
    elif panel == "similar":
        found = cloze.similar(model, values["word"]).to_dict()
        assert rows == [f"{one['word']}{one['score']:.3f}" for one in found["words"]]
    else:
        document = page.find("iframe.view").get_attribute("srcdoc")
        assert document == cloze.explain.attention(model, values["text"]).html()


@pytest.mark.parametrize("panel", STATES)
def test_a_panel_shows_the_result_of_python(page, models, panel):
    page.open(panel)
    assert page.problem == page.notice == ""
    check_panel(page, panel, models)
    page.check()
    check_accessibility(page.browser)
    for name, value in STATES[panel][1].items():
        assert page.value(name) == value


@pytest.mark.parametrize("panel", STATES)
def test_a_panel_in_a_narrow_window_and_in_the_dark(page, panel):
    page.open(panel, size=NARROW, dark=True)
    width = page.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    check_accessibility(page.browser)
    outside = page.browser.run(
        "return [...document.querySelectorAll('.panel:not([hidden]) :is(button, input, select)')]"
        ".filter((e) => e.offsetParent && e.getBoundingClientRect().right > innerWidth + 1)"
        ".map((e) => e.textContent)"
    )
    assert outside == []
    page.check()


@pytest.mark.parametrize("panel", STATES)
def test_requests_can_be_copied(page, server, panel):
    page.open(panel)
    curl = page.copied("Copy as curl")
    assert curl.startswith("curl ")
    folder_free = curl.replace("-o view.html", "")
    answer = subprocess.run(
        ["bash", "-c", folder_free.replace("curl ", "curl -sS ", 1)],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    program = page.copied("Copy as Python").replace(
        'open("view.html", "w", encoding="utf-8").write(answer.text)', "print(answer.text)"
    )
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, panel, "exec"), {})
    if panel == "explain":
        assert answer.strip() == printed.getvalue().strip()
    elif panel in ("generate", "draw"):
        assert answer.rstrip().endswith("data: [DONE]")
        assert printed.getvalue().split() == answer.split()
    else:
        assert "error" not in json.loads(answer)
        assert len(printed.getvalue()) > 10
    page.check()


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


def test_hostile_texts_are_only_text(browser, tmp_path):
    payloads = list(dict.fromkeys(one for one in HOSTILE if one.strip() and one != "\ud800"))
    tags = ("O", f"B-{payloads[0]}", f"I-{payloads[0]}")
    models = make_models(labels=tuple(payloads), tags=tags, positions=2048)
    prefix = "<img src=x onerror=window.ran=9>"
    named = {prefix + name: folder for name, folder in save_models(models, tmp_path).items()}
    text, lines = " ".join(payloads), "\n".join(payloads)
    values = {
        **dict.fromkeys(("text", "context", "query", "pair", "word"), text),
        "question": payloads[3],
        "options": lines,
        "documents": lines,
        "view": "saliency",
    }
    with run_server(named) as server:
        page = Page(browser, server)
        for panel, (name, fields) in STATES.items():
            given = {key: values.get(key, value) for key, value in fields.items()}
            if panel in ("similarity", "fill"):
                given["text"] = lines if panel == "similarity" else f"{text} [MASK]"
            page.open(panel, model=prefix + name, values=given)
            assert browser.run("return window.ran === undefined"), panel
            assert page.find_all("img") == []
            errors = browser.errors()  # a word of many, or a text for a model of words
            assert not errors or page.problem, panel
            if panel in ("tag", "answer"):
                field = "context" if panel == "answer" else "text"
                shown = browser.run(
                    "const copy = document.querySelector('.panel:not([hidden]) .marked')"
                    ".cloneNode(true);"
                    "for (const label of copy.querySelectorAll('small')) label.remove();"
                    "return copy.textContent"
                )
                assert shown == given[field]
            if panel == "classify":
                assert sorted(page.texts(".bar-label")) == sorted(payloads)
            if panel == "tag":
                assert tags[1][2:] in page.texts(".marked small")
        page.check()


def test_hostile_words_are_only_text(browser, tmp_path):
    words = ["cat", *dict.fromkeys(one for one in HOSTILE if one.split() == [one])][:10]
    words = [one for one in words if one.isprintable()]
    folders = save_models({"vectors": make_models(words=words)["vectors"]}, tmp_path)
    with run_server(folders) as server:
        page = Page(browser, server).open("similar")
        assert set(page.texts(".bar-label")) == set(words) - {"cat"}
        page.check()


def test_the_key_is_asked_for_and_kept_in_memory(browser, models, tmp_path):
    key = "a-secret-key"
    folder = models["mlm"].save(tmp_path / "mlm")
    with run_server({"mlm": folder}, api_keys=(key,)) as server:
        address = server.url.replace("http://", f"http://any:{key}@")
        browser.open(f"{address}/#panel=fill&model=mlm&text=the+[MASK]")
        page = Page(browser, server)
        page.wait(lambda: page.find_all(".bar-row"))  # the browser sends the key
        assert not page.find("#key-form").is_displayed()
        assert "$CLOZE_API_KEY" in page.copied("Copy as curl")
        browser.run(
            "const real = window.fetch;"
            "window.fetch = (url, options) => real(url, {...options, credentials: 'omit'})"
        )
        browser.click(page.find("#panel-fill button.primary"))
        page.wait(lambda: page.problem)
        assert "The API key is missing or wrong." in page.problem
        assert "401" in browser.errors()[0]
        page.find("#key").send_keys(key, Keys.ENTER)
        page.wait(lambda: page.find_all(".bar-row"))
        assert page.problem == ""
        assert "$CLOZE_API_KEY" in page.copied("Copy as curl")
        assert key not in page.copied("Copy as Python")
        assert key not in page.copied("Copy link")
        assert browser.run("return localStorage.length + sessionStorage.length") == 0
        assert browser.driver.get_cookies() == []


@pytest.mark.parametrize("size", [(1280, 900), NARROW], ids=["wide", "narrow"])
def test_the_page_of_the_routes(page, server, size):
    page.browser.open(f"{server.url}/docs", size=size)
    paths = server.client.get("/openapi.json").json()["paths"]
    page.wait(lambda: len(page.find_all("details.route")) == sum(map(len, paths.values())))
    page.browser.run("for (const e of document.querySelectorAll('details')) e.open = true")
    fields = page.browser.run(
        "return [...document.querySelectorAll('.fields-table tbody th')].map((e) => e.textContent)"
    )
    assert {"text", "top", "view", "input", "documents"} <= set(fields)
    curl = page.browser.run(
        "return [...document.querySelectorAll('.route > .code')].map((e) => e.textContent)"
    )
    assert any("/api/fill" in one and "[MASK]" in one for one in curl)
    width = page.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    check_accessibility(page.browser)
    page.check()


def test_a_server_that_has_ended_is_named(browser, models, tmp_path):
    folder = models["mlm"].save(tmp_path / "mlm")
    with run_server({"mlm": folder}) as server:
        page = Page(browser, server).open("fill")
    browser.click(page.find("#panel-fill button.primary"))
    page.wait(lambda: page.problem)
    assert "The server does not answer." in page.problem
    assert "cloze serve" in page.problem
    assert all("ERR_" in one for one in browser.errors())


def test_documents_of_an_index_are_found(browser, models, tmp_path):
    folders = save_models({"mlm": models["mlm"]}, tmp_path)
    rows = [
        {"id": "<b>a</b>", "text": "The 👩‍👩‍👧 cat sat. The dog ran <img src=x onerror=alert(1)>."},
        {"id": "b", "title": "Mats", "text": "A mat."},
    ]
    made = cloze.index(str(folders["mlm"]), rows, tmp_path / "notes", store="exact")
    with run_server(folders, indexes=(made.folder,)) as server:
        page = Page(browser, server).open("search", "mlm", {"query": "dog", "mode": "bm25"})
        (hit,) = cloze.search(made.folder, "dog", mode="bm25").hits
        start, end = hit.highlight
        assert page.texts(".hits mark") == [hit.snippet[start:end]]
        assert page.texts(".hits strong") == ["<b>a</b>"]
        page.check()
        page.open("search", "mlm", {"query": "nothing here", "mode": "bm25"})
        assert "Nothing was found." in page.texts(".output p")
