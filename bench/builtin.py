"""From the folder of a run to the model that comes built in: small weights, and a card.

    python bench/builtin.py runs/cloze-en --fit text/*.txt.xz --scores scores.json \\
        --machine "one NVIDIA H200"

writes src/cloze/builtin/cloze-en, at most 24 MB in all. Scores are a JSON object of names and
shares ({"SST-2 dev, accuracy": 0.9}); `--storage` says what `bench/storage.py` measured. The
weights are rounded so that they say the same of some hundred texts of `--fit`.
"""

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import cloze
from cloze.checkpoint.atomic import atomic_folder
from cloze.checkpoint.source import BUILTIN
from cloze.data.sources import read_rows
from cloze.errors import InputError
from cloze.make.float8 import round_weights, save_float8
from cloze.report.model_card import ModelFacts, TrainingText, read_scores, write_model_card

ROOM = 24_000_000  # bytes
SHORTEST = 80  # characters of a text
FITTED, LONGEST = 400, 600  # texts to round weights on, and characters of each
TEXTS = [
    TrainingText(
        name="English Wikipedia, long and short articles of 2015",
        licence="CC BY-SA 3.0",
        source="the authors of Wikipedia, https://en.wikipedia.org",
    ),
    TrainingText(
        name="English books",
        licence="public domain",
        source="Project Gutenberg, https://www.gutenberg.org",
    ),
]
LIMITATIONS = [
    "It knows the English of an encyclopedia of 2015 and of old books, in lower case; nothing "
    "newer, no other language, no code.",
    "It is small and learned for minutes: for vectors of sentences and for hard tasks, a larger "
    "model that was trained for longer is better.",
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument(
        "--earlier", type=Path, nargs="*", default=[], help="runs that it went on from"
    )
    parser.add_argument("--out", type=Path, default=BUILTIN / "cloze-en")
    parser.add_argument("--fit", nargs="+", required=True, help="text to round the weights on")
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--storage", default="")
    parser.add_argument("--force", action="store_true")
    given = parser.parse_args()
    facts = ModelFacts(
        summary="A small English encoder that comes with cloze: it fills blanks, makes vectors "
        "and is a start for tasks of your own, with no download.",
        texts=TEXTS,
        machine=given.machine,
        limitations=LIMITATIONS,
        storage=given.storage,
    )
    model = round_weights(cloze.load(given.run, device="cpu"), fitting(given.fit))
    with tempfile.TemporaryDirectory() as work:
        made = save_float8(model, Path(work) / given.out.name)
        write_model_card(given.run, made, facts, read_scores(given.scores), earlier=given.earlier)
        files = sorted(path for path in made.rglob("*") if path.is_file())
        total = sum(path.stat().st_size for path in files)
        for path in files:
            print(f"{path.stat().st_size:>12,}  {path.relative_to(made)}")
        print(f"{total:>12,}  in all, of {ROOM:,}")
        if total > ROOM:
            raise InputError(
                "the folder is too large",
                fix="use a smaller vocabulary, fewer layers or a smaller hidden size",
            )
        with atomic_folder(given.out, overwrite=given.force) as place:
            shutil.copytree(made, place, dirs_exist_ok=True)


def fitting(sources: list[str]) -> list[str]:
    """Texts to round weights on, as many of each file; half of them with words that are hidden."""
    each = FITTED // len(sources)
    texts = [text[:LONGEST] for source in sources for text in islice(long_texts(source), each)]
    return [_mask_words(text) if number % 2 else text for number, text in enumerate(texts)]


def long_texts(sources: str | list[str]) -> Iterator[str]:
    """Those with some words in them."""
    return (row.text for row in read_rows(sources) if len(row.text) >= SHORTEST)


def _mask_words(text: str) -> str:
    words = text.split()
    return " ".join("[MASK]" if n % 7 == 3 else word for n, word in enumerate(words))


if __name__ == "__main__":
    main()
