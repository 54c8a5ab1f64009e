"""Opening saved views in Chromium, without a network: size of the file and time until it responds.

    python bench/views.py [--runs 5] [--only attention]

One row per view of `cloze.explain`, with the built-in model and a sentence, and two large ones: 512
tokens × 12 layers × 12 heads, and 512 tokens × 24 layers. `open` is the time from navigation until
the page is drawn and its scripts have run (the later of first contentful paint and the end of the
load event); `respond` from a key press until the next frame. Best of several runs, each in a new
page. `tools/install_browser.sh` installs Chromium.
"""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.table import Table
from selenium.webdriver.common.keys import Keys

from common import print_result, versions

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from chromium import Browser, start_browser
from view_examples import EXAMPLES, LARGE

_OPENED = """
const done = arguments[arguments.length - 1];
const read = () => {
  const load = performance.getEntriesByType('navigation')[0].loadEventEnd;
  const paint = performance.getEntriesByName('first-contentful-paint')[0]?.startTime;
  if (load && paint) done(Math.max(load, paint)); else requestAnimationFrame(read);
};
read();
"""
_LISTEN = """
window.responded = new Promise((done) => addEventListener('keydown', (event) =>
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - event.timeStamp))),
  {capture: true, once: true}));
const first = document.querySelector('figure [tabindex="0"]');
if (first) first.focus();
return Boolean(first);
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="times each view is opened (default 5)")
    parser.add_argument("--only", help="only views whose names begin with this")
    args = parser.parse_args()
    table = Table(
        "view", "make, s", "file, MB", "open, s", "respond, ms", title="Views in Chromium"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    with TemporaryDirectory() as folder, start_browser() as browser:
        for name, example in (EXAMPLES | LARGE).items():
            if args.only and not name.startswith(args.only):
                continue
            start = time.perf_counter()
            path = example().save(Path(folder) / "view.html")
            made = time.perf_counter() - start
            runs = [measure(browser, path) for _ in range(args.runs)]
            opened = min(run[0] for run in runs)
            responses = [run[1] for run in runs if run[1] is not None]
            table.add_row(
                name,
                f"{made:.1f}",
                f"{path.stat().st_size / 1e6:.2f}",
                f"{opened / 1000:.2f}",
                f"{min(responses):.0f}" if responses else "–",
            )
        release = browser.driver.capabilities["browserVersion"]
    print_result(table, f"Chromium {release}, {versions('torch', 'selenium')}; best of {args.runs}")


def measure(browser: Browser, path: Path) -> tuple[float, float | None]:
    """Milliseconds until the page is open, and until a key press is answered."""
    browser.open(path)
    opened = browser.driver.execute_async_script(_OPENED)
    if not browser.run(_LISTEN):
        return opened, None
    browser.press(Keys.ARROW_RIGHT)
    wait = "responded.then(arguments[arguments.length - 1])"
    return opened, browser.driver.execute_async_script(wait)


if __name__ == "__main__":
    main()
