"""Take the screenshots of docs/serve.md: python docs/img/serve_page.py DATA, with Chromium.

DATA is a folder with SST-2 (`sst2/train.tsv`), CoNLL-2003 (`conll2003/eng.train.xz`) and English
text (`text/books-00.txt.xz`). Small models are trained first, in minutes, and kept in --models.
"""

import argparse
import io
import lzma
import sys
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import cloze

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

from chromium import Browser, start_browser  # noqa: E402
from servers import TestServer, run_server  # noqa: E402

WIDE, NARROW = 1120, 400  # of the window; the picture is as high as the page
REVIEW = "It starts slowly, but the ending is one of the most moving I have seen."
NAMES = "Reuters reported from Brussels that Boris Becker of Germany beat Pete Sampras in Paris."
PROMPT = {"text": "The old king", "max_new_tokens": "24", "temperature": "0.7", "seed": "10"}
ANIMAL = "The animal didn't cross the street because it was too tired."
LABELS = {"0": "negative", "1": "positive"}
# file name: model, panel, fields, dark, width
SHOTS = {
    "serve-fill": ("cloze-en", "fill", {"top": "6"}, False, WIDE),
    "serve-similarity": ("cloze-en", "similarity", {}, False, WIDE),
    "serve-tag": ("ner", "tag", {"text": NAMES}, True, WIDE),
    "serve-generate": ("books", "generate", PROMPT, False, WIDE),
    "serve-classify": ("sst2", "classify", {"text": REVIEW}, False, NARROW),
    "serve-explain": ("cloze-en", "explain", {"text": ANIMAL, "view": "attention"}, True, WIDE),
}
READY = """
const panel = document.querySelector(".panel:not([hidden])");
return panel && / s$/.test(panel.querySelector(".actions .status").textContent);
"""


def train_models(data: Path, place: Path) -> dict[str, str]:
    """Small models, unless they are there; the sources of the server."""
    sources = {"cloze-en": "cloze-en"}
    for name in ("sst2", "ner", "books"):
        sources[name] = str(place / name)
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "books/config.json").exists():
        text = _copy_lines(data / "text/books-00.txt.xz", place / "books.txt", 20_000)
        cloze.pretrain(text, place / "books", family="ngram", force=True)
    budget = {"tokens": 45_000, "lr": 2e-4, "batch_size": 16}
    settings: dict[str, Any] = {**budget, "transfer": "last-6", "force": True}
    if not (place / "ner/model.safetensors").exists():
        train = _copy_lines(data / "conll2003/eng.train.xz", place / "conll.txt", 28_000)
        cloze.finetune("tag", "cloze-en", train, place / "ner", **settings)
    if not (place / "sst2/model.safetensors").exists():
        train = _copy_lines(data / "sst2/train.tsv", place / "sst2.tsv", 1500)
        rows = [line.rsplit("\t", 1) for line in train.read_text("utf-8").splitlines()]
        named = [{"text": text, "label": LABELS[label]} for text, label in rows]
        cloze.finetune("classify", "cloze-en", named, place / "sst2", **settings)
    return sources


def _copy_lines(source: Path, target: Path, count: int) -> Path:
    opened = lzma.open if source.suffix == ".xz" else open
    with opened(source, "rt", encoding="utf-8") as lines:
        target.write_text("".join(islice(lines, count)), encoding="utf-8")
    return target


def take_shot(browser: Browser, server: TestServer, name: str) -> None:
    """Open a link, wait for its result, and write the picture with few colors."""
    from PIL import Image

    model, panel, fields, dark, width = SHOTS[name]
    state = urlencode({"panel": panel, "model": model, **fields})
    browser.open(f"{server.url}/#{state}", dark=dark, size=(width, 500))
    WebDriverWait(browser.driver, 60).until(lambda _: browser.run(READY))
    if panel == "explain":
        browser.driver.set_window_size(width, 2600)  # so that all of the frame is drawn
        WebDriverWait(browser.driver, 5).until(
            lambda _: browser.run("return document.querySelector('iframe.view').offsetHeight > 900")
        )
    path = browser.screenshot(HERE / f"{name}.png")
    picture = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
    height = min(picture.height, 1050 if panel == "explain" else picture.height)
    few = picture.crop((0, 0, picture.width, height)).quantize(192, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(path, f"{path.stat().st_size / 1000:.0f} kB", picture.size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--models", type=Path, default=Path("runs/serve-page"))
    parser.add_argument("--only", nargs="*", default=list(SHOTS))
    parser.add_argument("--train-only", action="store_true")
    given = parser.parse_args()
    sources = train_models(given.data, given.models)
    if given.train_only:
        return
    with run_server(sources) as server, start_browser() as browser:
        for name in given.only:
            take_shot(browser, server, name)


if __name__ == "__main__":
    main()
