"""Take the screenshots of docs/serve.md: python docs/img/serve_page.py DATA, with Chromium.

DATA is a folder with SST-2 (`sst2/train.tsv`), CoNLL-2003 (`conll2003/eng.train.xz`) and English
text (`text/books-00.txt.xz`). Small models are trained first, in minutes, and kept in --models:
those of the screenshots in --only. Models of images learn drawings of the project, and need no
DATA: python docs/img/serve_page.py --only serve-draw serve-classify-images serve-search-images.
"""

import argparse
import io
import lzma
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import cloze
from cloze.data.images.decode import encode_png
from cloze.data.images.drawings import make_drawing
from cloze.data.images.read import ImageExample

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
DRAWN = {"text": "a blue star", "samples": "8", "guidance": "2", "seed": "1"}
CHOICES = {"template": "{}", "labels": "a red heart\na red circle\ntwo red hearts\na blue heart"}
STARS = {"query": "two green stars", "mode": "dense"}
IMAGE_SIZE, NUM_DRAWINGS, TRAIN_SEED, INDEX_SEED = 32, 3000, 0, 5
# file name: model, panel, fields, dark, width
SHOTS = {
    "serve-fill": ("cloze-en", "fill", {"top": "6"}, False, WIDE),
    "serve-similarity": ("cloze-en", "similarity", {}, False, WIDE),
    "serve-tag": ("ner", "tag", {"text": NAMES}, True, WIDE),
    "serve-generate": ("books", "generate", PROMPT, False, WIDE),
    "serve-classify": ("sst2", "classify", {"text": REVIEW}, False, NARROW),
    "serve-draw": ("draw", "draw", DRAWN, False, WIDE),
    "serve-classify-images": ("clip", "classify-images", CHOICES, False, WIDE),
    "serve-search-images": ("clip", "search", STARS, False, WIDE),
    "serve-explain": ("cloze-en", "explain", {"text": ANIMAL, "view": "attention"}, True, WIDE),
}
HEIGHTS = {"explain": 1050}  # of pictures that end before the page does
READY = """
const panel = document.querySelector(".panel:not([hidden])");
return panel && / s$/.test(panel.querySelector(".actions .status").textContent);
"""


def train_models(names: set[str], data: Path | None, place: Path) -> dict[str, str]:
    """Small models with these names, unless they are there; the sources of the server."""
    place.mkdir(parents=True, exist_ok=True)
    for name in sorted(names - {"cloze-en"}):
        if (place / name / "config.json").exists():
            continue
        if name in ("clip", "draw"):
            _train_on_drawings(name, place)
        elif data is None:
            sys.exit("these screenshots need DATA")
        else:
            _train_on_texts(name, data, place)
    return {name: name if name == "cloze-en" else str(place / name) for name in sorted(names)}


def _train_on_texts(name: str, data: Path, place: Path) -> None:
    if name == "books":
        text = _copy_lines(data / "text/books-00.txt.xz", place / "books.txt", 20_000)
        cloze.pretrain(text, place / "books", family="ngram", force=True)
        return
    budget = {"tokens": 45_000, "lr": 2e-4, "batch_size": 16}
    settings: dict[str, Any] = {**budget, "transfer": "last-6", "force": True}
    if name == "ner":
        train = _copy_lines(data / "conll2003/eng.train.xz", place / "conll.txt", 28_000)
        cloze.finetune("tag", "cloze-en", train, place / "ner", **settings)
    else:
        train = _copy_lines(data / "sst2/train.tsv", place / "sst2.tsv", 1500)
        rows = [line.rsplit("\t", 1) for line in train.read_text("utf-8").splitlines()]
        named = [{"text": text, "label": LABELS[label]} for text, label in rows]
        cloze.finetune("classify", "cloze-en", named, place / "sst2", **settings)


def _train_on_drawings(name: str, place: Path) -> None:
    """A CLIP in five minutes, and a diffusion model that reads texts with it in half an hour."""
    options: dict[str, Any] = {"preset": "tiny", "device": "cpu", "force": True}
    size = {"model.image_size": IMAGE_SIZE}
    drawings = list(_list_drawings(TRAIN_SEED, NUM_DRAWINGS))
    if name == "clip" or not (place / "clip/config.json").exists():
        text = {"text_encoder.architecture": "clip-text", "text_encoder.preset": "tiny"}
        settings = {**size, **text, "model.vision": "resnet", "optimizer.lr": 3e-3}
        settings |= {"run.batch_size": 128}
        cloze.pretrain(drawings, place / "clip", "clip", settings=settings, minutes=5, **options)
    if name == "draw":
        settings = {**size, "text_encoder.init_from": str(place / "clip"), "optimizer.lr": 2e-3}
        settings |= {"run.ema_decay": 0.995, "run.autoencoder_fraction": 0.25}
        cloze.pretrain(
            drawings, place / "draw", "diffusion", settings=settings, minutes=24, **options
        )


def _list_drawings(seed: int, count: int) -> Iterator[ImageExample]:
    for number in range(count):
        drawing, pixels = make_drawing(seed, number, IMAGE_SIZE)
        yield ImageExample(f"{number:06}.png", pixels, drawing.caption, str(number))


def index_drawings(place: Path) -> Path:
    """An index of other drawings, and a picture of a heart (heart.png) beside it."""
    rows = [
        {"id": one.name, "image": encode_png(one.content), "caption": one.caption}
        for one in _list_drawings(INDEX_SEED, 500)
    ]
    heart = next(one["image"] for one in rows if one["caption"] == "a red heart")
    (place / "heart.png").write_bytes(heart)
    cloze.index(
        str(place / "clip"), rows, place / "index", id_column="id", store="exact", force=True
    )
    return place / "index"


def _copy_lines(source: Path, target: Path, count: int) -> Path:
    opened = lzma.open if source.suffix == ".xz" else open
    with opened(source, "rt", encoding="utf-8") as lines:
        target.write_text("".join(islice(lines, count)), encoding="utf-8")
    return target


def take_shot(browser: Browser, server: TestServer, name: str, image: Path) -> None:
    """Open a link, wait for its result, and write the picture with few colors."""
    from PIL import Image

    model, panel, fields, dark, width = SHOTS[name]
    state = urlencode({"panel": panel, "model": model, **fields})
    browser.open(f"{server.url}/#{state}", dark=dark, size=(width, 500))
    if panel == "classify-images":
        choose_image(browser, image)
    WebDriverWait(browser.driver, 60).until(lambda _: browser.run(READY))
    if panel == "explain":
        browser.driver.set_window_size(width, 2600)  # so that all of the frame is drawn
        WebDriverWait(browser.driver, 5).until(
            lambda _: browser.run("return document.querySelector('iframe.view').offsetHeight > 900")
        )
    path = browser.screenshot(HERE / f"{name}.png")
    picture = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
    height = min(picture.height, HEIGHTS.get(panel, picture.height))
    few = picture.crop((0, 0, picture.width, height)).quantize(192, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(path, f"{path.stat().st_size / 1000:.0f} kB", picture.size)


def choose_image(browser: Browser, image: Path) -> None:
    """Choose a file, and classify it."""
    panel = ".panel:not([hidden])"
    wait = WebDriverWait(browser.driver, 10)
    wait.until(lambda _: browser.find_all(f"{panel} input[type=file]"))
    browser.find(f"{panel} input[type=file]").send_keys(str(image.resolve()))
    wait.until(lambda _: browser.find_all(f"{panel} .preview img"))
    browser.click(browser.find(f"{panel} button.primary"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--models", type=Path, default=Path("runs/serve-page"))
    parser.add_argument("--only", nargs="*", default=list(SHOTS))
    parser.add_argument("--train-only", action="store_true")
    given = parser.parse_args()
    sources = train_models({SHOTS[name][0] for name in given.only}, given.data, given.models)
    if given.train_only:
        return
    indexes = (str(index_drawings(given.models)),) if "clip" in sources else ()
    with run_server(sources, indexes=indexes) as server, start_browser() as browser:
        for name in given.only:
            take_shot(browser, server, name, given.models / "heart.png")


if __name__ == "__main__":
    main()
