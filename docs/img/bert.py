"""Draw contextual.svg for README.md and docs/bert.md: python docs/img/bert.py."""

import argparse
from pathlib import Path

import numpy as np

import cloze
from cloze.plot.scatter import Point, Scatter

WORD = "spring"
SENTENCES = [  # one list for each meaning
    [
        "The birds come back in the spring of each year.",
        "In the spring of 1863 the army moved north.",
        "Every spring the river floods the fields.",
        "They were married in the spring of that year.",
    ],
    [
        "They drank from a cold spring in the hills.",
        "A hot spring rises near the village.",
        "The spring supplies the town with water.",
    ],
    [
        "The watch has a broken spring.",
        "A steel spring pushes the lever back.",
        "The clock is driven by a coiled spring.",
    ],
]


def plot_meanings(model: cloze.Model) -> Scatter:
    """The vectors of one word in several sentences, on their first two principal components."""
    sentences = [text for texts in SENTENCES for text in texts]
    meanings = [n for n, texts in enumerate(SENTENCES) for _ in texts]
    vectors = []
    for text, tokens in zip(sentences, cloze.embed(model, sentences, pooling="none"), strict=True):
        offsets = model.tokenizer.encode(text).offsets
        index = [text[start:end] for start, end in offsets].index(WORD)
        vectors.append(tokens.vectors[index])
    centered = np.array(vectors) - np.mean(vectors, axis=0)
    left, scale, _ = np.linalg.svd(centered, full_matrices=False)
    points = left * scale
    return Scatter(
        title=f"“{WORD}” in ten sentences",
        detail="vectors of cloze-en, last layer, first two principal components",
        points=[
            Point(name=text, x=float(x), y=float(y), color=meaning)
            for text, meaning, (x, y) in zip(sentences, meanings, points[:, :2], strict=True)
        ],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    plot_meanings(cloze.load("cloze-en")).save(given.out / "contextual.svg")
