"""Make the built-in model from the folder of a run: float8 weights and a model card.

    python bench/builtin.py runs/cloze-en --earlier runs/first runs/second --fit text/*.txt.xz \\
        --scores scores.json --machine "one NVIDIA H200"

writes src/cloze/builtin/cloze-en, at most 24 MB in total. Scores are a JSON object of names and
fractions ({"SST-2 dev, accuracy": 0.9}); `--storage` is the result of `bench/storage.py` in words.
The weights are quantized with GPTQ on some hundred texts of `--fit`.
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

MAX_BYTES = 24_000_000
MIN_CHARACTERS = 80  # of a text
NUM_FITTED, MAX_CHARACTERS = 400, 600  # number of texts for GPTQ, and their maximum length
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
SUMMARY = (
    "A small English encoder that is part of the cloze package. It predicts masked tokens, "
    "computes embeddings for search and similarity, and is a base model for fine-tuning, without "
    "a download."
)
LIMITATIONS = [
    "The training text is an encyclopedia of 2015 and old books, in lower case; the model knows "
    "nothing newer, no other language and no code.",
    "The model is small and was trained for 13 minutes. For search, similarity and difficult "
    "tasks, models that were trained longer are better.",
    "It was trained contrastively on titles, sentences and paragraphs of Wikipedia, without "
    "labelled data. It predicts masked words a little worse than before that run.",
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument(
        "--earlier",
        type=Path,
        nargs="*",
        default=[],
        help="runs that it was initialized from, the first one first",
    )
    parser.add_argument("--out", type=Path, default=BUILTIN / "cloze-en")
    parser.add_argument("--fit", nargs="+", required=True, help="text to quantize the weights on")
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--storage", default="")
    parser.add_argument("--force", action="store_true")
    given = parser.parse_args()
    facts = ModelFacts(
        summary=SUMMARY,
        texts=TEXTS,
        machine=given.machine,
        limitations=LIMITATIONS,
        storage=given.storage,
    )
    model = round_weights(cloze.load(given.run, device="cpu"), select_texts(given.fit))
    with tempfile.TemporaryDirectory() as work:
        made = save_float8(model, Path(work) / given.out.name)
        write_model_card(given.run, made, facts, read_scores(given.scores), earlier=given.earlier)
        files = sorted(path for path in made.rglob("*") if path.is_file())
        total = sum(path.stat().st_size for path in files)
        for path in files:
            print(f"{path.stat().st_size:>12,}  {path.relative_to(made)}")
        print(f"{total:>12,}  in total; the maximum is {MAX_BYTES:,}")
        if total > MAX_BYTES:
            raise InputError(
                "the folder is too large",
                fix="use a smaller vocabulary, fewer layers or a smaller hidden size",
            )
        with atomic_folder(given.out, force=given.force) as folder:
            shutil.copytree(made, folder, dirs_exist_ok=True)


def select_texts(sources: list[str]) -> list[str]:
    """Texts for GPTQ, the same number of each file; half of them with masked words."""
    each = NUM_FITTED // len(sources)
    texts = [
        text[:MAX_CHARACTERS] for source in sources for text in islice(long_texts(source), each)
    ]
    return [_mask_words(text) if number % 2 else text for number, text in enumerate(texts)]


def long_texts(sources: str | list[str]) -> Iterator[str]:
    """The texts that are long enough."""
    return (row.text for row in read_rows(sources) if len(row.text) >= MIN_CHARACTERS)


def _mask_words(text: str) -> str:
    words = text.split()
    return " ".join("[MASK]" if n % 7 == 3 else word for n, word in enumerate(words))


if __name__ == "__main__":
    main()
