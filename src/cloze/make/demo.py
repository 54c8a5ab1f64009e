"""`demo`: the way from text to vectors in a minute, on text that every Python carries."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.data.files import fresh_path
from cloze.data.pydocs import documents, paragraphs
from cloze.models import BertConfig
from cloze.tasks.embed import Vectors, embed
from cloze.text.counting import Progress
from cloze.text.learn import learn

SENTENCES = (
    "Return a new list containing the items of the sequence.",
    "Raise an error if the key is not found.",
    "The file is opened for reading in text mode.",
    "Open the file and read its text.",
)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo made and saw."""

    folder: Path
    paragraphs: int
    characters: int
    sentences: tuple[str, ...]
    vectors: Vectors


def demo(
    out: str | os.PathLike[str] = "cloze-demo",
    *,
    force: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Demo:
    """A vocabulary from Python's documentation, a small BERT saved, opened and embedded with.

    The model is new: its weights are random, and it has learned nothing yet.
    """
    folder = fresh_path(out, force)
    tell("reading the documentation that Python carries")
    texts = [text for document in documents() for text in paragraphs(document)]
    tell(f"learning a vocabulary from {len(texts):,} paragraphs")
    tokenizer = learn(texts, size=4000, progress=progress).with_limit(128)
    config = BertConfig.preset("tiny", vocab_size=tokenizer.size, positions=128)
    tell("making a small BERT, saving it and opening it again")
    rng = torch.Generator().manual_seed(seed)
    Model.new(config, tokenizer, ("mlm", "nsp"), rng=rng).save(folder, overwrite=force)
    vectors = embed(load(folder), SENTENCES, normalize=True)
    return Demo(
        folder=folder,
        paragraphs=len(texts),
        characters=sum(map(len, texts)),
        sentences=SENTENCES,
        vectors=vectors,
    )
