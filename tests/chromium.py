"""Chromium without a network, driven by selenium: what a page shows, logs and asks for."""

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

# Without these Chromium looks for updates and its maker's hosts by itself. No host name resolves,
# and no address but that of a server in the test can be reached.
_FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


def missing_browser() -> str:
    """Why no browser can be started, or an empty string."""
    absent = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"{' and '.join(absent)} missing: run tools/install_browser.sh" if absent else ""


class Browser:
    """One window; everything that a page logs or asks for is recorded."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        driver.execute_cdp_cmd("Network.enable", {})

    def _set_network(self, *, offline: bool) -> None:
        self.driver.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
        )

    def open(
        self, page: Path | str, *, dark: bool = False, size: tuple[int, int] = (1280, 900)
    ) -> None:
        """Open a file without a network, or the address of a server, with light or dark colors.

        What earlier pages did is forgotten.
        """
        self._set_network(offline=isinstance(page, Path))
        self.driver.set_window_size(*size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get("about:blank")
        self.driver.get_log("performance")
        self.driver.get_log("browser")
        self.driver.get(page.resolve().as_uri() if isinstance(page, Path) else page)
        WebDriverWait(self.driver, 60).until(
            lambda driver: driver.execute_script("return document.readyState") == "complete"
        )

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a script, run in the page."""
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def hover(self, element: WebElement) -> None:
        self.run("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
        ActionChains(self.driver, duration=20).move_to_element(element).perform()

    def press(self, *keys: str) -> None:
        ActionChains(self.driver, duration=20).send_keys(*keys).perform()

    def click(self, element: WebElement) -> None:
        self.hover(element)
        ActionChains(self.driver, duration=20).click().perform()

    def requests(self) -> list[str]:
        """What the page asked for besides itself, from the protocol's own log."""
        events = [
            json.loads(row["message"])["message"] for row in self.driver.get_log("performance")
        ]
        sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
        urls = [params["request"]["url"] for params in sent]
        return [url for url in urls if not url.startswith(("data:", "about:"))][1:]

    def errors(self) -> list[str]:
        """What the console shows as an error or a warning, refused scripts and styles included."""
        return [f"{row['level']}: {row['message']}" for row in self.driver.get_log("browser")]

    def screenshot(
        self, path: Path, element: WebElement | None = None, *, scale: float = 1
    ) -> Path:
        """A picture of the whole page, or of one element."""
        if element is None:
            box = self.run(
                "const e = document.documentElement;"
                "return {x: 0, y: 0, width: e.scrollWidth, height: e.scrollHeight}"
            )
        else:
            box = self.run(
                "const b = arguments[0].getBoundingClientRect();"
                "return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height}",
                element,
            )
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot",
            {"captureBeyondViewport": True, "clip": box | {"scale": scale}},
        )
        path.write_bytes(base64.b64decode(shot["data"]))
        return path


@contextmanager
def start_browser() -> Iterator[Browser]:
    """A window in a new profile; the browser ends with the block."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in [*_FLAGS, f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            yield Browser(driver)
        finally:
            driver.quit()
