"""`demo`: what the built-in model can do, then a new model from text that comes with Python.

It takes about three minutes and downloads nothing. The example sentences were written for it.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.checkpoint.source import builtin
from cloze.data.python_docs import read_documents, split_paragraphs
from cloze.files import check_output_path, read_json, write_json, write_text
from cloze.make.finetune.encoder import finetune_encoder
from cloze.make.pretrain.job import pretrain_encoder
from cloze.make.recipe.complete import recipe
from cloze.make.recipe.pretrain import PretrainRecipe
from cloze.report.display import open_callbacks
from cloze.report.page import write_report
from cloze.tasks.embed import embed
from cloze.tasks.fill import fill
from cloze.text.sentences import split_sentences
from cloze.train.callbacks import Callback, CallbackList
from cloze.train.result import RunResult
from cloze.train.run_files import FILLS, NEIGHBOURS

BUILT_IN, CLASSIFIER = "cloze-en", "topics"
TEXT = "python-documentation.txt"
DOCUMENTATION_QUERIES = (
    "Return a new list containing the items of the sequence.",
    "An exception is raised if the file cannot be opened.",
    "The default value of the argument is None.",
)
NUM_CANDIDATES = 4000  # sentences to search for neighbours
MIN_LENGTH, MAX_LENGTH = 30, 120  # characters of such a sentence
NUM_DEV = 6  # sentences of each topic that the classifier is evaluated on
TOP = 3  # predictions and neighbours that are shown

MASKED_SENTENCES = (
    "In winter the lake is covered with [MASK].",
    "She opened the door and [MASK] into the garden.",
    "It was so cold that the river had turned to [MASK].",
    "He is the [MASK] of a small village in the mountains.",
)
QUERIES = (
    "She stirred the soup and added some salt.",
    "We missed the last train and slept at the station.",
)
TOPICS = {
    "kitchen": (
        "The bread should rest under a cloth for an hour.",
        "He cut the onions and cried a little.",
        "Boil the potatoes until a fork goes in without effort.",
        "My aunt bakes an apple cake every Sunday.",
        "There was too much pepper in the sauce.",
        "Wash the rice twice before you cook it.",
        "The knife was dull, so the tomatoes were crushed.",
        "A pinch of sugar takes the edge off the vinegar.",
        "They ate cold chicken with their fingers.",
        "The oven was still warm from the morning's rolls.",
        "Pour the milk slowly and keep stirring.",
        "She burned the first pancake, as always.",
        "The cheese had been ripening in the cellar for months.",
        "Garlic and butter make almost anything taste good.",
        "He likes his eggs soft and his toast dark.",
        "We picked beans and cooked them the same evening.",
        "The recipe asks for two cups of flour and some yeast.",
        "Grandmother kept her spices in small glass jars.",
        "The stew simmered on the stove all afternoon.",
        "Please set the table, the fish is nearly done.",
    ),
    "journey": (
        "The ferry crosses to the island twice a day.",
        "Our plane was delayed by fog for three hours.",
        "They walked along the coast until it was dark.",
        "She packed one small bag and left for the north.",
        "The road over the pass is closed in winter.",
        "He lost his ticket somewhere between the two cities.",
        "From the bus we could see the first mountains.",
        "The border guard looked at my passport for a long time.",
        "We rented bicycles and followed the river.",
        "The hotel stood next to the harbour, full of sailors.",
        "It took us two days to drive across the desert.",
        "The captain said that we would reach the port by noon.",
        "A stranger showed them the way to the old bridge.",
        "The map was wrong, and the path ended in a forest.",
        "I slept through the whole flight to the capital.",
        "The caravan moved on before the sun came up.",
        "Tourists come here in summer to see the castle.",
        "The railway runs along the lake for many miles.",
        "She sent us a postcard from every town she visited.",
        "Our guide knew each village on the way south.",
    ),
}

Ranked = Sequence[tuple[str, float]]  # words or texts with their scores, best first


@dataclass(frozen=True, kw_only=True)
class Fill:
    """A text with a mask, and the words predicted for it."""

    text: str
    words: Ranked


@dataclass(frozen=True, kw_only=True)
class TrainedFill:
    """A text with a mask, the word that stood there, and predictions before and after training."""

    text: str
    truth: str
    before: Ranked
    after: Ranked


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """A text, and the texts with the nearest vectors."""

    text: str
    neighbours: Ranked


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What a model can do without further training."""

    name: str
    fills: list[Fill]
    neighbours: list[Neighbours]
    accuracy: float  # of a classifier on its vectors
    num_dev: int  # sentences that the accuracy is measured on
    classifier: Path  # a folder


@dataclass(frozen=True, kw_only=True)
class Demo:
    """The results of the demo."""

    result: RunResult
    fills: list[TrainedFill]
    neighbours: list[Neighbours]
    preview: Preview | None  # of the built-in model, if there is one


def demo(
    out: str | os.PathLike[str] = "cloze-demo",
    *,
    minutes: float = 2.5,
    seed: int = 0,
    force: bool = False,
    device: str | None = None,
    progress: bool = True,
    callbacks: Callback | Iterable[Callback] = (),
) -> Demo:
    """Show the built-in model, then pre-train a small BERT and show its fills and neighbours.

    The run is an ordinary one (recipe `demo`), and its folder can be used with every command.

    Args:
        out: the run's and the model's folder.
        minutes: training time.
        seed: seed of the random number generator.
        force: overwrite what is in `out`.
        device: cpu, cuda, cuda:1 or mps (default: auto-detected).
        progress: show progress bars and metrics on a terminal or in a notebook, else log lines.
        callbacks: called while the run is prepared and trained, and when it ends.
    """
    made = recipe("demo", minutes=minutes, seed=seed, device=device)
    assert isinstance(made, PretrainRecipe)
    folder = check_output_path(out, force)
    folder.mkdir(parents=True, exist_ok=True)
    with open_callbacks(progress, callbacks) as opened:
        return _run(folder, made, seed=seed, device=device, callbacks=opened)


def _run(
    folder: Path,
    made: PretrainRecipe,
    *,
    seed: int,
    device: str | None,
    callbacks: CallbackList,
) -> Demo:
    preview = None
    if BUILT_IN in builtin():
        callbacks.on_log(f"trying {BUILT_IN}, which comes with the package")
        preview = preview_model(builtin()[BUILT_IN], folder / CLASSIFIER, device=device)
    callbacks.on_log("reading the documentation that comes with Python")
    texts = [text for document in read_documents() if (text := split_paragraphs(document))]
    file = write_text(folder / TEXT, "\n\n".join("\n".join(text) for text in texts) + "\n")
    result = pretrain_encoder(file, folder, made, force=True, callbacks=callbacks)
    model = load(folder, device=device)
    sentences = [one for text in texts for paragraph in text for one in split_sentences(paragraph)]
    candidates = sample_sentences(sentences, seed=seed)
    found = find_neighbours(model, DOCUMENTATION_QUERIES, candidates)
    write_json(folder / NEIGHBOURS, [asdict(one) for one in found])
    write_report(folder)
    fills = [TrainedFill(**one) for one in read_json(folder / FILLS)]
    return Demo(result=result, fills=fills, neighbours=found, preview=preview)


def sample_sentences(sentences: Sequence[str], *, seed: int) -> list[str]:
    """A random sample of the sentences that are neither short nor long."""
    usable = {text for text in sentences if MIN_LENGTH <= len(text) <= MAX_LENGTH}
    ordered = sorted(usable - set(DOCUMENTATION_QUERIES))
    chosen = np.random.default_rng(seed).permutation(len(ordered))[:NUM_CANDIDATES]
    return [ordered[number] for number in chosen.tolist()]


def preview_model(source: Path, out: Path, *, device: str | None = None) -> Preview:
    """Fills, neighbours and a classifier on the vectors of a model, which is saved in `out`."""
    model = load(source, device=device, quiet=True)
    files = {part: out.with_name(f"{out.name}-{part}.tsv") for part in ("train", "dev")}
    for part, span in (("train", slice(NUM_DEV, None)), ("dev", slice(NUM_DEV))):
        rows = [f"{text}\t{topic}\n" for topic, texts in TOPICS.items() for text in texts[span]]
        write_text(files[part], "text\tlabel\n" + "".join(rows))
    result = finetune_encoder(
        source,
        [files["train"]],
        out,
        recipe("features", pooling="mean", device=device),
        dev=[files["dev"]],
        force=True,
    )
    return Preview(
        name=source.name,
        fills=[
            Fill(text=one.text, words=[(p.word, p.score) for p in one.masks[0].predictions])
            for one in fill(model, list(MASKED_SENTENCES), top=TOP)
        ],
        neighbours=find_neighbours(
            model, QUERIES, [one for some in TOPICS.values() for one in some]
        ),
        accuracy=result.scores["accuracy"],
        num_dev=NUM_DEV * len(TOPICS),
        classifier=out,
    )


def find_neighbours(model: Model, queries: Sequence[str], texts: Sequence[str]) -> list[Neighbours]:
    """For each query the texts with the highest cosine similarity."""
    vectors = embed(model, [*queries, *texts], pooling="mean", truncation="head")
    vectors -= vectors.mean(0)  # mean vectors of a BERT have a large common part
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors[: len(queries)] @ vectors[len(queries) :].T
    best = np.argsort(-cosines, axis=1)[:, :TOP]
    return [
        Neighbours(text=query, neighbours=[(texts[n], float(row[n])) for n in indices.tolist()])
        for query, row, indices in zip(queries, cosines, best, strict=True)
    ]
