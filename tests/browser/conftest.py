"""One browser for all tests of pages, and one server for those of its page."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chromium import Browser, missing_browser, start_browser
from served_models import make_models, save_models
from servers import Models, TestServer, run_server

if TYPE_CHECKING:
    from served_page import Page

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


@pytest.fixture(scope="package")
def models() -> Models:
    """A small model for every panel of the page of `cloze serve`."""
    return make_models()


@pytest.fixture(scope="package")
def server(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    folders = save_models(models, tmp_path_factory.mktemp("served"))
    with run_server(folders) as running:
        yield running


@pytest.fixture
def page(browser: Browser, server: TestServer) -> "Page":
    from served_page import Page  # its assertions are rewritten

    return Page(browser, server)


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
