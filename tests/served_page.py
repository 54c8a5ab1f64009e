"""The page of `cloze serve` in a browser, as a person uses it."""

import re
from urllib.parse import urlencode

from selenium.webdriver.support.wait import WebDriverWait

from page_checks import check_served_page

NARROW = (400, 860)
STATES = {
    "fill": ("mlm", {"text": "the [MASK] sat on the [MASK]"}),
    "similarity": ("mlm", {"text": "the cat sat\na cat\nthe mat"}),
    "rerank": ("mlm", {"query": "a cat", "documents": "the cat sat\nthe mat"}),
    "classify": ("labels", {"text": "the cat sat", "pair": "a cat"}),
    "tag": ("tags", {"text": "the cat 👩‍👩‍👧 sat"}),
    "answer": ("spans", {"question": "a cat", "context": "🏳️‍🌈 the cat sat on the mat"}),
    "choose": ("choices", {"text": "the cat", "options": "sat\nran"}),
    "generate": ("ngram", {"text": "the cat", "max_new_tokens": "8", "seed": "1"}),
    "score": ("gpt", {"text": "the cat sat"}),
    "translate": ("translator", {"text": "the cat sat", "beam": "1"}),
    "summarize": ("summarizer", {"text": "the cat sat"}),
    "similar": ("vectors", {"word": "cat"}),
    "draw": ("pictures", {"text": "a b", "samples": "2", "steps": "2"}),
    "explain": ("mlm", {"text": "the cat sat", "view": "attention"}),
}


class Page:
    """The page in the browser, as a person uses it."""

    def __init__(self, browser, server) -> None:
        self.browser, self.server = browser, server

    def open(self, panel="", model=None, values=None, **options):
        """Open a link to a panel, and wait for its result."""
        name, fields = STATES.get(panel, ("mlm", {}))
        state = {"panel": panel, "model": model or name, **(fields if values is None else values)}
        state = urlencode({key: value for key, value in state.items() if panel or key == "x"})
        self.browser.open(f"{self.server.url}/#{state}", **options)
        self.wait(lambda: self.find("[role=tab][aria-selected=true]"))
        if panel:
            self.finish()
        return self

    def wait(self, condition):
        return WebDriverWait(self.browser.driver, 20, 0.02).until(lambda _: condition())

    def find(self, selector):
        found = self.find_all(selector)
        return found[0] if found else None

    def find_all(self, selector):
        return self.browser.find_all(selector)

    @property
    def status(self):
        return self.find(".panel:not([hidden]) .actions .status").text

    @property
    def problem(self):
        found = self.find(".panel:not([hidden]) > .problem:not([hidden])")
        return found.text if found else ""

    @property
    def notice(self):
        found = self.find(".panel:not([hidden]) > .notice:not([hidden])")
        return found.text if found else ""

    def finish(self):
        self.wait(lambda: re.search(r"\d s$", self.status) or self.problem or self.notice)

    def texts(self, selector):
        script = (
            "const panel = document.querySelector('.panel:not([hidden])');"
            "return [...panel.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        )
        return self.browser.run(script, selector)

    def click(self, text, selector="button"):
        found = [
            one
            for one in self.find_all(f".panel:not([hidden]) {selector}")
            if one.text == text and one.is_displayed()
        ]
        self.browser.click(found[0])

    def field(self, name):
        panel = self.find(".panel:not([hidden])").get_attribute("id").removeprefix("panel-")
        return self.find(f"#{panel}-{name}")

    def value(self, name):
        return self.field(name).get_attribute("value")

    def write(self, name, text):
        field = self.field(name)
        field.clear()
        field.send_keys(text)

    def run(self):
        button = self.find(".panel:not([hidden]) button.primary")
        self.browser.run("document.querySelector('.panel:not([hidden]) .status').textContent = ''")
        self.browser.click(button)
        self.finish()

    def copied(self, button):
        """What a button copies."""
        self.browser.run(
            "navigator.clipboard.writeText = (t) => { window.copied = t; return Promise.resolve() }"
        )
        self.click(button)
        self.wait(lambda: self.status == "Copied.")
        return self.browser.run("return window.copied")

    def check(self):
        check_served_page(self.browser, self.server.url)


def percent(value):
    return f"{100 * value:.{1 if value >= 0.01 or value == 0 else 2}f} %"
