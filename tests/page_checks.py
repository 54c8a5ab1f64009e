"""What must hold for every page in a browser: see `check_page`."""

import json
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from chromium import Browser

# Texts that would run, load, end an element or disturb their neighbours if they were not only text.
HOSTILE = [
    "<script>window.ran=1</script>",
    "</script><script>window.ran=2</script>",
    "</style></svg></title></iframe><script>window.ran=3</script>",
    "<img src=http://evil.test/x.png onerror=window.ran=4>",
    "<svg/onload=window.ran=5>",
    '"\' onmouseover=window.ran=6 onfocus=window.ran=6 autofocus x="',
    "javascript:window.ran=7",
    "${window.ran=8}",
    "<!--",
    "]]>",
    "&lt;b&gt;",
    "__proto__",
    "constructor",
    "\u202egnp.tac",  # right to left from here on
    "\u2066\u2067",  # isolates that nobody closes
    "nul\0l\x1b[31m",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "Z" + "\u0301\u0323\u0335" * 12,
    "w" * 600,
    "\u2028line\u2029",
    "العربية",
    "\ud800",
    "",
    " ",
]

_CONTRAST = (Path(__file__).parent / "browser" / "contrast.js").read_text(encoding="utf-8")


def check_page(browser: Browser) -> None:
    """The page asked for nothing, logged nothing, and no text of it ran."""
    assert browser.run("return document.readyState") == "complete"
    assert browser.requests() == []
    assert browser.errors() == []
    assert browser.run("return window.ran === undefined"), "a text of the page ran as a script"
    assert (
        browser.run("return document.querySelectorAll('img, iframe, object, link, base').length")
        == 0
    )


def check_served_page(browser: Browser, url: str) -> None:
    """The page asked only its own server, logged nothing, and no text of it ran."""
    assert [
        one
        for one in browser.requests()
        if not one.startswith((url, "blob:", "data:image/png;base64,"))
    ] == []
    assert browser.errors() == []
    assert browser.run("return window.ran === undefined"), "a text of the page ran as a script"
    others = 'img:not([src^="data:image/png;base64,"]), object, base, embed'
    assert browser.run(f"return document.querySelectorAll('{others}').length") == 0


def check_accessibility(browser: Browser) -> None:
    """No violation of WCAG 2.1 A and AA that axe-core finds; texts of drawings can be read."""
    found = [
        (rule["id"], [node["html"][:200] for node in rule["nodes"][:3]])
        for rule in run_axe(browser)
    ]
    assert found == []
    assert find_poor_contrast(browser) == [], "contrast under 4.5 : 1"
    unnamed = browser.run(
        "return [...document.querySelectorAll('svg[role=img], [tabindex], button, select, input')]"
        ".filter((e) => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') ||"
        " e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML.slice(0, 120))"
    )
    assert unnamed == [], "not named for a screen reader"


def find_poor_contrast(browser: Browser, limit: float = 4.5, most: int = 300) -> list[Any]:
    """Text, ratio and element of texts in drawings whose contrast is under the limit."""
    return browser.run(_CONTRAST, limit, most)


def run_axe(browser: Browser) -> list[dict[str, Any]]:
    """The violations that axe-core finds."""
    browser.run(_axe_source())
    options = {
        "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
        "resultTypes": ["violations"],
    }
    result = browser.driver.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, arguments[0]).then((r) => done(JSON.stringify(r.violations)), "
        "(e) => done(JSON.stringify([{id: String(e), nodes: []}])));",
        options,
    )
    return json.loads(result)


def visible_form(text: str) -> str:
    """The text as a page shows it: characters that no page can hold are replaced."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)


@cache
def _axe_source() -> str:
    return (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
