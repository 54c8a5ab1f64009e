"""What a model can do as it is: fill blanks, find sentences alike, be read by a classifier.

The sentences were written for this, so that the package has some to show.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.files import write_text
from cloze.make.finetune.encoder import finetune_encoder
from cloze.tasks.embed import embed
from cloze.tasks.fill import fill

BLANKS = (
    "The capital of France is [MASK].",
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
JUDGED = 6  # sentences of each topic that the classifier does not learn from
NEAREST = 3


Ranked = Sequence[tuple[str, float]]  # words or texts with their scores, best first


@dataclass(frozen=True, kw_only=True)
class Fill:
    """A text with a blank, and words for it."""

    text: str
    words: Ranked


@dataclass(frozen=True, kw_only=True)
class Near:
    """A text, and those whose vectors lie nearest."""

    text: str
    neighbours: Ranked


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen."""

    name: str
    fills: list[Fill]
    neighbours: list[Near]
    accuracy: float  # of the classifier
    judged: int  # sentences that tell it
    classifier: Path  # a folder


def look(source: Path, out: Path, *, device: str | None = None) -> Look:
    """Fills, neighbours and a classifier on a model's vectors, which is left in a folder."""
    model = load(source, device=device, quiet=True)
    files = {part: out.with_name(f"{out.name}-{part}.tsv") for part in ("train", "dev")}
    for part, span in (("train", slice(JUDGED, None)), ("dev", slice(JUDGED))):
        rows = [f"{text}\t{topic}\n" for topic, texts in TOPICS.items() for text in texts[span]]
        write_text(files[part], "text\tlabel\n" + "".join(rows))
    place = [] if device is None else [f"run.device={device}"]
    made = finetune_encoder(
        "classify",
        source,
        files["train"],
        out,
        "features",
        dev=files["dev"],
        settings=["transfer.pooling=mean", *place],
        force=True,
    )
    filled = fill(model, list(BLANKS), top=NEAREST)
    return Look(
        name=source.name,
        fills=[
            Fill(text=one.text, words=[(g.word, g.score) for g in one.masks[0].predictions])
            for one in filled
        ],
        neighbours=neighbours(model, QUERIES, [text for of in TOPICS.values() for text in of]),
        accuracy=made.scores["accuracy"],
        judged=JUDGED * len(TOPICS),
        classifier=out,
    )


def neighbours(model: Model, queries: Sequence[str], texts: Sequence[str]) -> list[Near]:
    """For each query the texts whose vectors lie nearest, with their cosines."""
    # Mean vectors of a BERT share a large common part; without it the differences show.
    vectors = embed(model, [*queries, *texts], pooling="mean", truncation="head")
    vectors -= vectors.mean(0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    likeness = vectors[: len(queries)] @ vectors[len(queries) :].T
    best = np.argsort(-likeness, axis=1)[:, :NEAREST]
    return [
        Near(text=query, neighbours=[(texts[n], float(row[n])) for n in places.tolist()])
        for query, row, places in zip(queries, likeness, best, strict=True)
    ]
