"""Make the pictures of docs/explain.md: python docs/img/explain.py --sst2 ../shared/data/sst2.

Two small models are trained first, in about two minutes each on one core, and kept in `--runs`: a
GPT that counts, and a sentiment classifier. Pictures are taken of the saved pages in Chromium
(tools/install_browser.sh) and reduced to a palette; the numbers in the document are printed.
"""

import argparse
import io
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

import cloze
from cloze.plot.view import View

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from chromium import Browser, start_browser
from common import minilm

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ANIMAL = "The animal didn't cross the street because it was too {}."
REVIEW = "A charming and often funny film, ruined by a lazy ending."
COUNT = "10 20 30 40"
STEPS = (1, 2, 3, 5, 10)
LANGUAGE = [
    "He wrote the program in Python over a weekend.",
    "Python has lists, tuples and dictionaries.",
    "The script runs with Python on every computer in the office.",
    "She learned Python before she learned Java.",
    "Our software is written in Python and C.",
    "A function in Python begins with the word def.",
    "The students use Python to analyse the data.",
    "Python code is easy to read.",
    "The library has an interface for Python and other languages.",
    "He installed a new version of Python on the server.",
    "The web site was programmed in Python.",
    "Python is a language for beginners and for scientists.",
]
SNAKE = [
    "The python swallowed a small deer.",
    "A python has no venom and kills by constriction.",
    "They found a python asleep under a bridge.",
    "The python lay coiled on a warm rock.",
    "A large python may eat a goat or a pig.",
    "The zoo keeps a python and two crocodiles.",
    "The skin of the python was brown and yellow.",
    "The python laid thirty eggs in the sand.",
    "Hunters caught a python near the river.",
    "A python can live for twenty years in the forest.",
    "The bird was eaten by a python in the night.",
    "The python slid silently through the grass.",
]


@dataclass(frozen=True)
class Models:
    """The models of the pictures; those that are trained here are trained when first used."""

    runs: Path
    sst2: Path
    minutes: float

    def counter(self) -> Path:
        """A GPT of three layers that has read rows of numbers with a step of 1, 2, 3, 5 or 10."""
        out = self.runs / "counting"
        if not out.exists():
            self.runs.mkdir(parents=True, exist_ok=True)
            text = self.runs / "counting.txt"
            text.write_text("\n\n".join(count_up(random.Random(0), 20_000)), "utf-8")
            sizes = {"num_layers": 3, "hidden_size": 96, "num_heads": 4, "intermediate_size": 384}
            cloze.pretrain(
                text,
                out,
                recipe="gpt",
                minutes=self.minutes,
                vocabulary_size=600,
                max_length=32,
                settings=[f"model.{name}={value}" for name, value in sizes.items()],
            )
        return out

    def classifier(self) -> Path:
        """`cloze-en`, fine-tuned on the sentences of SST-2 for one epoch."""
        out = self.runs / "sentiment"
        if not out.exists():
            self.runs.mkdir(parents=True, exist_ok=True)
            for name in ("train", "dev"):
                rows = (self.sst2 / f"{name}.tsv").read_text("utf-8").splitlines()
                pairs = [row.rsplit("\t", 1) for row in rows]
                named = [f"{text}\t{('negative', 'positive')[int(n)]}" for text, n in pairs]
                (self.runs / f"{name}.tsv").write_text("\n".join(named) + "\n", "utf-8")
            train, dev = self.runs / "train.tsv", self.runs / "dev.tsv"
            cloze.finetune("classify", "cloze-en", train, out, dev=dev, epochs=1)
        return out


def count_up(rng: random.Random, rows: int) -> list[str]:
    """Rows such as "10 15 20 25 30 35"."""
    found = []
    for _ in range(rows):
        first, step, count = rng.randint(1, 40), rng.choice(STEPS), rng.randint(6, 12)
        found.append(" ".join(str(first + step * n) for n in range(count)))
    return found


def show_pronoun(_: Models) -> View:
    for name, model, layer, head in (("MiniLM", minilm(), 4, 2), ("cloze-en", "cloze-en", 6, 1)):
        for last in ("tired", "wide"):
            (found,) = cloze.explain.attention(model, ANIMAL.format(last)).data["attention"]
            tokens = found["queries"]["tokens"]
            row = found["weights"][layer - 1][head - 1][tokens.index("it")]
            nouns = {word: f"{100 * row[tokens.index(word)]:.0f}" for word in ("animal", "street")}
            print(f"{name}, layer {layer}, head {head}, {last}: {nouns}")
    return cloze.explain.attention("cloze-en", ANIMAL.format("tired"), layer=6, head=1, token="it")


def show_counting(models: Models) -> View:
    return cloze.explain.saliency(models.counter(), COUNT, new_tokens=4)


def show_sentiment(models: Models) -> View:
    return cloze.explain.saliency(
        models.classifier(), REVIEW, method="integrated", signed=True, faithfulness=True
    )


def show_python(_: Models) -> View:
    senses = ["language"] * len(LANGUAGE) + ["snake"] * len(SNAKE)
    for name, model in (("cloze-en", "cloze-en"), ("MiniLM", minilm())):
        found = cloze.explain.occurrences(model, LANGUAGE + SNAKE, word="Python", senses=senses)
        for one in found.data["layers"]:
            print(
                f"{name}, layer {one['layer']}: silhouette {one['silhouette']:.2f}, "
                f"nearest {100 * one['neighbor_accuracy']:.0f}"
            )
    return cloze.explain.occurrences(
        "cloze-en", LANGUAGE + SNAKE, word="Python", senses=senses, layers="0,1,6,12"
    )


def show_layers(_: Models) -> View:
    return cloze.explain.layers("cloze-en", "The capital of France is [MASK].")


PICTURES: dict[str, Callable[[Models], View]] = {
    "pronoun": show_pronoun,
    "counting": show_counting,
    "sentiment": show_sentiment,
    "python": show_python,
    "layers": show_layers,
}
CROPS = {"pronoun": ".att-lines, .att-matrix, [role=status]"}
"""Parts of a page that its picture shows, if not all of it."""


def take_picture(browser: Browser, page: Path, name: str, *, dark: bool) -> bytes:
    """The page, or a part of it, as a PNG file of 256 colors."""
    browser.open(page, dark=dark, size=(1000, 600))
    shot = browser.screenshot(page.with_suffix(".png"))
    image = Image.open(shot).convert("RGB")
    image = image.crop((0, 0, image.width, find_bottom(browser, name)))
    packed = io.BytesIO()
    image.quantize(256, Image.Quantize.MAXCOVERAGE, 8, dither=Image.Dither.NONE).save(
        packed, "PNG", optimize=True
    )
    return packed.getvalue()


def find_bottom(browser: Browser, name: str) -> int:
    """The lower end of what a picture shows, in pixels."""
    parts = browser.find_all(CROPS.get(name, "figure"))
    return int(max(part.rect["y"] + part.rect["height"] for part in parts)) + 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sst2", type=Path, default=ROOT.parent / "shared" / "data" / "sst2")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "explain")
    parser.add_argument("--minutes", type=float, default=2.0, help="to train the GPT that counts")
    parser.add_argument("--only", choices=PICTURES, nargs="+", default=[*PICTURES])
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the pictures")
    parser.add_argument("--dark", action="store_true", help="take pictures in dark colors, too")
    given = parser.parse_args()
    models = Models(given.runs, given.sst2, given.minutes)
    with TemporaryDirectory() as folder, start_browser() as browser:
        for name in given.only:
            view = PICTURES[name](models)
            page = view.save(Path(folder) / "view.html")
            for dark in (False, True)[: 1 + given.dark]:
                path = given.out / f"explain-{name}{'-dark' if dark else ''}.png"
                path.write_bytes(take_picture(browser, page, name, dark=dark))
                print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
