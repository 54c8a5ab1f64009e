"""Check the built documentation site: complete, without files of other hosts, with a search.

python tools/check_site.py site
"""

import inspect
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import cloze
from cloze.cli.app import COMMANDS

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
QUERY = "perplexity"


class Loads(HTMLParser):
    """Collects the addresses that a page loads by itself, and the ids of its elements."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one tag."""
        values = {name: value or "" for name, value in attrs}
        self.ids.add(values.get("id", ""))
        is_page = tag == "link" and values.get("rel") in ("canonical", "prev", "next")
        if not is_page and (name := LOADED.get(tag, "href" if tag == "link" else "")):
            self.addresses.append(values.get(name, ""))


def find_id(name: str) -> str:
    """The id of a public name in the reference; of `explain`, an object, that of its class."""
    value = getattr(cloze, name)
    is_object = callable(value) and not (inspect.isfunction(value) or inspect.isclass(value))
    return f"{cloze._MODULES[name]}.{type(value).__name__ if is_object else name}"


def main(site: Path) -> list[str]:
    """What is wrong with a site."""
    problems, ids = [], set()
    for path in site.glob("**/*.html"):
        page = Loads()
        page.feed(path.read_text("utf-8"))
        ids |= page.ids
        foreign = [one for one in page.addresses if re.match(r"(https?:)?//", one)]
        problems += [f"{path.relative_to(site)} loads {one}" for one in foreign]
    for path in site.glob("**/*.css"):
        foreign = re.findall(
            r"(?:url\(|@import )['\"]?((?:https?:)?//[^)'\"]+)", path.read_text("utf-8")
        )
        problems += [f"{path.relative_to(site)} loads {one}" for one in foreign]
    public = {find_id(name) for name in cloze.__all__}
    problems += [f"{name} is not in the reference" for name in sorted(public - ids)]
    problems += [
        f"cloze {name} is not in the reference" for name in COMMANDS if f"cloze-{name}" not in ids
    ]
    return problems + check_search(site)


def check_search(site: Path) -> list[str]:
    """Search in a page that a browser opens as a file."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("no Chromium: the search is not checked")
        return []
    address = f"{(site / 'index.html').resolve().as_uri()}?q={QUERY}"
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=15000",
         "--dump-dom", address],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    results = re.findall(r'class="md-search-result__link" href="([^"]*)"', done.stdout)
    results += re.findall(r'href="([^"]*)" class="md-search-result__link"', done.stdout)
    print(f"a search for {QUERY} finds {len(results)} pages")
    return [] if results else [f"a search for {QUERY} finds nothing"]


if __name__ == "__main__":
    found = main(Path(sys.argv[1] if len(sys.argv) > 1 else "site"))
    print("\n".join(found) or "the site is complete and loads nothing from other hosts")
    sys.exit(bool(found))
