"""`demo`: text to a trained model in about three minutes, on text that every Python carries."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from cloze.checkpoint.load import load
from cloze.checkpoint.source import builtin
from cloze.data.python_docs import read_documents, split_paragraphs
from cloze.files import check_output_path, read_json, write_json, write_text
from cloze.make.look import Look, Near, Ranked, look, neighbours
from cloze.make.pretrain.job import pretrain_encoder
from cloze.make.pretrain.recipe import recipe
from cloze.report.page import write_report
from cloze.text.sentences import split_sentences
from cloze.train.fit import Callbacks, RunResult
from cloze.train.run_files import FILLS, NEIGHBOURS

BUILT_IN, TOPICS = "cloze-en", "topics"
TEXT = "python-documentation.txt"
QUERIES = (
    "Return a new list containing the items of the sequence.",
    "An exception is raised if the file cannot be opened.",
    "The default value of the argument is None.",
)
CANDIDATES = 4000  # sentences to look for neighbours among
SHORTEST, LONGEST = 30, 120  # characters of a sentence worth showing


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A text with a blank, the word that stood there, and guesses before and after training."""

    text: str
    truth: str
    before: Ranked
    after: Ranked


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo made and saw."""

    trained: RunResult
    fills: list[Learned]
    neighbours: list[Near]
    look: Look | None  # at the built-in model, where there is one


def demo(
    out: str | os.PathLike[str] = "cloze-demo",
    *,
    minutes: float = 2.5,
    seed: int = 0,
    force: bool = False,
    device: str | None = None,
    callbacks: Callbacks | None = None,
) -> Demo:
    """A vocabulary, a small BERT with both of its tasks, fills and neighbours: no download.

    Before that, a look at what the built-in model can do, where there is one. The run is an
    ordinary one (recipe `demo`); its folder opens in every verb.
    """
    folder, callbacks = check_output_path(out, force), callbacks or Callbacks()
    folder.mkdir(parents=True, exist_ok=True)
    seen = None
    if BUILT_IN in builtin():
        callbacks.log(f"looking at {BUILT_IN}, which came with the package")
        seen = look(builtin()[BUILT_IN], folder / TOPICS, device=device)
    callbacks.log("reading the documentation that Python carries")
    texts = [text for document in read_documents() if (text := split_paragraphs(document))]
    file = write_text(folder / TEXT, "\n\n".join("\n".join(text) for text in texts) + "\n")
    made = recipe("demo", flags={"run": {"minutes": minutes, "seed": seed, "device": device}})
    trained = pretrain_encoder(file, folder, made, force=True, callbacks=callbacks)
    model = load(folder, device=device)
    every = [one for text in texts for paragraph in text for one in split_sentences(paragraph)]
    found = neighbours(model, QUERIES, some(every, seed=seed))
    write_json(folder / NEIGHBOURS, [asdict(one) for one in found])
    write_report(folder)
    fills = [Learned(**one) for one in read_json(folder / FILLS)]
    return Demo(trained=trained, fills=fills, neighbours=found, look=seen)


def some(among: Sequence[str], *, seed: int) -> list[str]:
    """A random few thousand of the sentences that are neither short nor long."""
    fit = sorted({text for text in among if SHORTEST <= len(text) <= LONGEST} - set(QUERIES))
    chosen = np.random.default_rng(seed).permutation(len(fit))[:CANDIDATES]
    return [fit[number] for number in chosen.tolist()]
