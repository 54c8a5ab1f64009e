"""One browser for all tests of pages; each test opens its own files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chromium import Browser, missing_browser, start_browser

pytest.register_assert_rewrite("page_checks")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def session_browser() -> Iterator[Browser]:
    if reason := missing_browser():
        pytest.skip(reason)
    with start_browser() as browser:
        yield browser


@pytest.fixture
def browser(session_browser: Browser) -> Iterator[Browser]:
    """The window; what a test leaves in its console is a failure."""
    yield session_browser
    errors = session_browser.errors()
    session_browser.driver.get("about:blank")
    assert errors == []


@pytest.fixture
def in_notebook(tmp_path: Path) -> Callable[[object], Path]:
    """Writes a result as a notebook shows it: in the middle of another page."""

    def write(result: object) -> Path:
        html = result._repr_html_()
        path = tmp_path / "notebook.html"
        path.write_text(
            f"<!doctype html><meta charset=utf-8><title>cell</title><p>before</p><div>{html}</div>",
            encoding="utf-8",
        )
        return path

    return write
