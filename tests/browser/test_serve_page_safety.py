"""The page of `cloze serve` with hostile texts, with a key, and after its server has ended."""

from selenium.webdriver.common.keys import Keys

from page_checks import HOSTILE
from served_models import make_models, save_models
from served_page import STATES, Page
from servers import run_server


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


def test_a_server_that_has_ended_is_named(browser, models, tmp_path):
    folder = models["mlm"].save(tmp_path / "mlm")
    with run_server({"mlm": folder}) as server:
        page = Page(browser, server).open("fill")
    browser.click(page.find("#panel-fill button.primary"))
    page.wait(lambda: page.problem)
    assert "The server does not answer." in page.problem
    assert "cloze serve" in page.problem
    assert all("ERR_" in one for one in browser.errors())
