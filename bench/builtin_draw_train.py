"""Train the built-in diffusion model, on emoji and drawings, and measure what it draws.

    PYTHONPATH=src python bench/builtin_draw_train.py OPENMOJI --out runs/draw --minutes 7
    PYTHONPATH=src python bench/builtin_draw.py runs/draw --scores runs/draw/scores.json \\
        --machine "one NVIDIA H200"

OPENMOJI is a folder with color_72x72.tar.xz and openmoji.json.xz. Each of its pictures is there
with several captions: its name, with and without an article, and with some of its tags. Of people
in five skin tones each single tone is there once, with its name alone, so that they are a tenth of
the emoji; combinations of two tones, logos of companies and letters are left out. Drawings of the
project's script with exact captions are added (--drawings). Nothing is held out: the model is to
draw emoji by their names, and the last weights are kept.

Writes details.json into the run: how often a classifier (see bench/draw_classifier.py) says that
the sample of a drawing's caption has the color, shape, count and position asked for; and how often
the nearest picture of all emoji, by their pixels, is the one whose name was asked for. The most
important ones are in scores.json, for the model card. And grids: samples-drawings.png;
samples-emoji.png (samples above the pictures of their names); prompts.png, for the texts in
prompts.txt; autoencoder.png (pictures above what the autoencoder makes of them).
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from draw import recall_names
from draw_classifier import Images, list_prompts, make_drawings, train_classifier
from torch.backends import cudnn

import cloze
from cloze.checkpoint.model import Model
from cloze.data.images.read import CaptionColumns, ImageExample, read_images
from cloze.metrics.memorization import find_nearest
from cloze.objectives.diffusion import scale_pixels
from cloze.tasks.image_batches import to_pixels
from cloze.tasks.pictures import save_grid
from common import pretrain_images

COPIES = 2  # of each picture with its name, and with its name and an article
NUM_TAGS = 3
LEFT_OUT = {"brand", "regional-indicator", "skin-tone", "hair-style"}  # subgroups
WITHOUT_ARTICLE = {"flags", "symbols", "extras-unicode"}  # groups
SEED, TEST_SEED = 0, 2
GUIDANCES = (1.0, 3.0)
PROMPTS = (
    *("a red heart", "a blue heart", "a broken heart", "two blue stars", "a green triangle"),
    *("three yellow circles", "a red square on the left", "a cat", "a dog", "a pig", "a fish"),
    *("a butterfly", "a snail", "a tree", "a rose", "a sunflower", "a mushroom", "a cactus"),
    *("a red apple", "a green apple", "a banana", "a strawberry", "a pizza", "a hamburger"),
    *("a cup of tea", "a birthday cake", "an ice cream", "a smiling face", "a crying face"),
    *("an angry face", "a face with sunglasses", "a ghost", "a robot", "an alien"),
    *("a castle", "a car", "a red car", "a bus", "a bicycle", "an airplane", "a rocket", "a ship"),
    *(
        "the sun",
        "a cloud with rain",
        "a rainbow",
        "a snowman",
        "fire",
        "a crescent moon",
        "a star",
    ),
    *("an umbrella", "a key", "a light bulb", "a book", "a pencil", "scissors", "a clock"),
    *("a guitar", "a soccer ball", "a trophy", "a waving hand", "thumbs up", "an eye"),
    *("the flag of France", "the flag of Japan"),
)
COLUMNS = 8


@dataclass(frozen=True, eq=False)
class Emoji:
    """A picture with what the table says of it."""

    name: str
    pixels: Images  # y x 3
    tags: tuple[str, ...]
    group: str
    has_skin_tone: bool

    def list_captions(self, rng: np.random.Generator) -> Iterator[str]:
        """The captions that the picture is trained with."""
        name = tidy_name(self.name)
        if self.has_skin_tone:
            yield name
            return
        for _ in range(COPIES):
            yield name
            yield self.add_article(name)
        if self.tags:
            chosen = rng.permutation(self.tags).tolist()
            yield ", ".join([name, *chosen[: NUM_TAGS - 1]])
            yield ", ".join(chosen[:NUM_TAGS])

    def add_article(self, name: str) -> str:
        """A name as one would write it in a sentence, or the name itself."""
        if name.startswith("flag of "):
            return f"the {name}"
        is_plural = name.endswith("s") and not name.endswith(("ss", "us"))
        is_noun = self.group not in WITHOUT_ARTICLE or name.split()[-1] in (
            *("circle", "square", "triangle", "star", "heart", "diamond", "arrow", "symbol"),
        )
        if is_plural or not is_noun or not name[0].islower():
            return f"a picture of {name}"
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def tidy_name(name: str) -> str:
    """A name without colons, such as "flag of France" or "man with red hair"."""
    name = name.strip().replace("’", "'")
    first, colon, rest = name.partition(": ")
    if not colon:
        return name
    if first == "flag":
        return f"flag of {rest}"
    if rest.endswith((" hair", " tone")) and "," not in rest:
        return f"{first} with {rest}"
    return f"{first}, {rest}"


def read_emoji(folder: Path, size: int, every: int = 1) -> list[Emoji]:
    """The pictures that are used, in the order of the archive."""
    columns = CaptionColumns(image="hexcode", caption="annotation")
    source, table = folder / "color_72x72.tar.xz", folder / "openmoji.json.xz"
    found = []
    for number, one in enumerate(read_images([source], captions=table, columns=columns)):
        tone = str(one.metadata.get("skintone") or "")
        if number % every or "," in tone or one.metadata.get("subgroups") in LEFT_OUT:
            continue
        cells = (str(one.metadata.get(name) or "") for name in ("tags", "openmoji_tags"))
        tags = dict.fromkeys(word.strip() for cell in cells for word in cell.split(","))
        found.append(
            Emoji(
                name=one.caption,
                pixels=one.load(size),
                tags=tuple(word for word in tags if word and not word.isdigit()),
                group=str(one.metadata.get("group")),
                has_skin_tone=bool(tone),
            )
        )
    return found


def make_examples(emoji: Sequence[Emoji], given: argparse.Namespace) -> list[ImageExample]:
    rng = np.random.default_rng(SEED)
    found = [
        ImageExample(f"{one.name} {number}", one.pixels, caption, one.name)
        for one in emoji
        for number, caption in enumerate(one.list_captions(rng))
    ]
    count = len(found)
    drawings, pixels = make_drawings(SEED, given.drawings, given.size, given.cache)
    found += [
        ImageExample(f"drawing {n}", image, drawing.caption, f"drawing {n}")
        for n, (drawing, image) in enumerate(zip(drawings, pixels, strict=True))
    ]
    captions = len({one.caption for one in found})
    print(
        f"{len(emoji):,} emoji with {count:,} captions, {given.drawings:,} drawings; "
        f"{captions:,} different captions",
        flush=True,
    )
    return found


def draw(model: Model, texts: Sequence[str], guidance: float, given: argparse.Namespace) -> Images:
    found = cloze.draw(model, list(texts), guidance=guidance, steps=given.steps, progress=False)
    return np.stack([one.pixels for one in found])


def choose(items: Sequence[Any], count: int) -> list[Any]:
    """Some of the items, at equal distances."""
    return list(items[:: max(1, len(items) // count)][:count])


def score_drawings(model: Model, given: argparse.Namespace) -> dict[str, float]:
    classifier = train_classifier(
        10_000 if not given.tiny else 30,
        given.size,
        given.device,
        600 if not given.tiny else 5,
        given.cache,
    )
    prompts, found = list_prompts(6 if given.tiny else None), {}
    for guidance in GUIDANCES:
        pixels = draw(model, [one.caption for one in prompts], guidance, given)
        found |= {
            f"drawings, {name}, guidance {guidance:g}": value
            for name, value in classifier.score(pixels, prompts).items()
        }
    save_grid(given.out / "samples-drawings.png", choose(pixels, COLUMNS**2), COLUMNS)
    return found


def score_emoji(
    model: Model, emoji: Sequence[Emoji], given: argparse.Namespace
) -> dict[str, float]:
    """How often the nearest of all pictures is the one whose name was asked for."""
    plain = [one for one in emoji if not one.has_skin_tone]
    pictures = np.stack([one.pixels for one in plain])
    names = [tidy_name(one.name) for one in plain]
    chosen = choose(range(len(plain)), given.samples)
    texts, found = [names[n] for n in chosen], {}
    encoder = cloze.load(given.encoder, device=given.device, quiet=True) if given.encoder else None
    for guidance in GUIDANCES:
        pixels = draw(model, texts, guidance, given)
        nearest = [names[n] for n in find_nearest(pixels, pictures).indices]
        right = np.mean([one == text for one, text in zip(nearest, texts, strict=True)])
        found[f"emoji, nearest of {len(plain):,} is the right one, guidance {guidance:g}"] = right
        if encoder is not None:
            found |= {
                f"emoji, CLIP: {name}, guidance {guidance:g}": value
                for name, value in recall_names(pixels, texts, encoder, names).items()
            }
    if encoder is not None:
        real = recall_names(pictures[chosen], texts, encoder, names)
        found |= {
            f"emoji, CLIP: {name}, the pictures themselves": value for name, value in real.items()
        }
    rows: list[Any] = []
    for first in range(0, min(len(chosen), 64), COLUMNS):
        rows += [*pixels[first : first + COLUMNS], *pictures[chosen[first : first + COLUMNS]]]
    save_grid(given.out / "samples-emoji.png", rows, COLUMNS)
    lines = [", ".join(texts[n : n + COLUMNS]) for n in range(0, min(len(texts), 64), COLUMNS)]
    (given.out / "samples-emoji.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return {name: float(value) for name, value in found.items()}


@torch.inference_mode()
def score_autoencoder(
    model: Model, emoji: Sequence[Emoji], given: argparse.Namespace
) -> dict[str, float]:
    pictures = np.stack([one.pixels for one in choose(emoji, 64)])
    x = scale_pixels(torch.from_numpy(pictures).to(model.device))
    decoded = model.module.decode_images(model.module.encode_images(x))
    error = float((decoded - x).square().mean())
    rows: list[Any] = []
    made = to_pixels(decoded)
    for first in range(0, min(len(made), 32), COLUMNS):
        rows += [*pictures[first : first + COLUMNS], *made[first : first + COLUMNS]]
    save_grid(given.out / "autoencoder.png", rows, COLUMNS)
    return {"autoencoder, squared error": error}


def choose_scores(scores: dict[str, float]) -> dict[str, float]:
    """Those of the model card."""
    return {
        name: value
        for name, value in scores.items()
        if "guidance 3" in name and any(one in name for one in ("color and", "count", "nearest"))
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("openmoji", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--drawings", type=int, default=7000)
    parser.add_argument("--preset", default="micro")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--samples", type=int, default=384, help="names that are drawn")
    parser.add_argument("--steps", type=int, default=25, help="of sampling")
    parser.add_argument("--settings", nargs="*", default=[], help="of the recipe")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--encoder", type=Path, help="a CLIP that knows emoji")
    parser.add_argument("--cache", type=Path, help="folder that keeps drawings and the classifier")
    parser.add_argument("--stage", choices=("all", "train", "evaluate"), default="all")
    parser.add_argument("--tune", action="store_true", help="let cuDNN try its algorithms")
    parser.add_argument("--tiny", action="store_true", help="everything once, on a CPU")
    given = parser.parse_args()
    cudnn.benchmark = given.tune
    if given.tiny:
        given.drawings, given.size, given.batch_size, given.dtype = 40, 32, 8, "float32"
        given.steps, given.samples = 3, 8
    emoji = read_emoji(given.openmoji, given.size, 40 if given.tiny else 1)
    if given.stage != "evaluate":
        settings: dict[str, Any] = {
            "model.image_size": given.size,
            "data.hold_out": 0.0,
            "data.keyword_prob": 0.0,
            "run.batch_size": given.batch_size,
            "run.autoencoder_fraction": 0.2,
            "run.log_every": 1 if given.tiny else 50,
            "run.save_minutes": 1000.0,
        }
        examples = make_examples(emoji, given)
        begin = time.monotonic()
        result = pretrain_images(examples, given.out, "diffusion", settings, given, tiny_steps=6)
        print(result, f"{time.monotonic() - begin:.1f} s in all", flush=True)
    if given.stage == "train":
        return
    model = cloze.load(given.out, device=given.device, quiet=True)
    scores = score_autoencoder(model, emoji, given) | score_drawings(model, given)
    scores |= score_emoji(model, emoji, given)
    (given.out / "details.json").write_text(json.dumps(scores, indent=1), "utf-8")
    (given.out / "scores.json").write_text(json.dumps(choose_scores(scores), indent=1), "utf-8")
    print(json.dumps(scores, indent=1), flush=True)
    save_grid(given.out / "prompts.png", list(draw(model, PROMPTS, 3.0, given)), COLUMNS)
    lines = [", ".join(PROMPTS[n : n + COLUMNS]) for n in range(0, len(PROMPTS), COLUMNS)]
    (given.out / "prompts.txt").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
