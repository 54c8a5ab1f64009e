"""Images on the page of `cloze serve`: zero-shot classification, and search by an image."""

import contextlib
import io
import json
import subprocess
from urllib.parse import urlencode

import pytest

import cloze
from cloze.data.images.decode import encode_png
from cloze.data.images.drawings import make_drawing
from helpers import tiny_model
from images import clip_model
from page_checks import check_accessibility
from served_page import NARROW, Page, percent
from servers import run_server

LABELS = ["<img src=x onerror=window.ran=1>", "a b", "$(touch ran) `touch ran` \\ \" '"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = tmp_path_factory.mktemp("images")
    clip_model().save(made / "clip")
    tiny_model("mlm").save(made / "mlm")
    (made / "pictures").mkdir()
    for number in range(4):
        drawing, pixels = make_drawing(0, number, 32)
        (made / "pictures" / f"{drawing.caption}.png").write_bytes(encode_png(pixels))
    cloze.index(str(made / "clip"), made / "pictures", made / "index", store="exact")
    return made


@pytest.fixture(scope="module")
def server(place):
    sources = {name: place / name for name in ("clip", "mlm")}
    with run_server(sources, indexes=(str(place / "index"),)) as running:
        yield running


@pytest.fixture
def page(browser, server):
    return Page(browser, server)


def open_panel(page, panel, values, **options):
    """Open a panel that does not run before an image is chosen."""
    state = urlencode({"panel": panel, "model": "clip", **values})
    page.browser.open(f"{page.server.url}/#{state}", **options)
    page.wait(lambda: page.find("[role=tab][aria-selected=true]"))


def choose(page, path):
    page.field("image").send_keys(str(path))
    page.wait(lambda: page.find(".panel:not([hidden]) .preview img"))


def list_pictures(place):
    return sorted((place / "pictures").iterdir())


@pytest.mark.parametrize("options", [{}, {"size": NARROW, "dark": True}])
def test_an_image_is_classified_by_labels_that_are_written(page, place, options):
    first = list_pictures(place)[0]
    open_panel(page, "classify-images", {"labels": "\n".join(LABELS)}, **options)
    page.wait(lambda: page.status == "Choose an image.")
    choose(page, first)
    page.run()
    found = cloze.classify(str(place / "clip"), images=first, labels=LABELS)
    expected = [f"{label}{percent(score)}" for label, score in found.scores.items()]
    assert page.texts(".bar-row") == expected
    page.check()
    check_accessibility(page.browser)
    width = page.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    assert "data%3A" not in page.browser.run("return location.hash")
    page.click("Remove")
    page.browser.click(page.find(".panel:not([hidden]) button.primary"))
    page.wait(lambda: page.status == "Choose an image.")
    page.check()


def test_the_request_can_be_copied(page, place, tmp_path, monkeypatch):
    first = list_pictures(place)[0]
    open_panel(page, "classify-images", {"labels": "\n".join(LABELS)})
    choose(page, first)
    page.run()
    (tmp_path / first.name).write_bytes(first.read_bytes())
    monkeypatch.chdir(tmp_path)
    curl = page.copied("Copy as curl").replace("curl ", "curl -sS ", 1)
    answer = subprocess.run(["bash", "-c", curl], capture_output=True, check=True, text=True)
    assert {one["label"] for one in json.loads(answer.stdout)["labels"]} == set(LABELS)
    assert [one.name for one in tmp_path.iterdir()] == [first.name]  # no label ran
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(page.copied("Copy as Python"), "copied", "exec"), {})
    assert "labels" in printed.getvalue()


def test_a_file_that_is_no_image(page, tmp_path):
    (tmp_path / "x.png").write_bytes(b"no image")
    open_panel(page, "classify-images", {})
    choose(page, tmp_path / "x.png")
    page.run()
    assert "not a readable image" in page.problem
    assert "400" in page.browser.errors()[0]


@pytest.mark.parametrize("options", [{}, {"size": NARROW}])
def test_images_are_found_by_a_text_and_by_an_image(page, place, options):
    second = list_pictures(place)[1]
    open_panel(page, "search", {"query": second.stem, "mode": "bm25"}, **options)
    page.finish()
    assert second.name in page.texts(".hits li")[0]
    choose(page, second)
    page.run()
    found = cloze.search(place / "index", images=second)
    assert [hit.text in text for hit, text in zip(found.hits, page.texts(".hits li"), strict=True)]
    assert page.texts(".hits li strong") == [hit.id for hit in found.hits]
    shown = page.browser.run("return [...document.querySelectorAll('.hits img')].map((e) => e.alt)")
    assert shown == [hit.text for hit in found.hits]
    width = page.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    page.check()
    check_accessibility(page.browser)


def test_models_without_images_say_what_is_needed(page):
    page.open("classify-images", model="mlm", values={})
    assert "model of texts and images" in page.notice
    page.open("classify", model="clip", values={})
    assert "Classify images" in page.notice
