"""Measure the perplexity of n-gram models by order and draw ngram-orders.svg.

python docs/img/ngram_orders.py ../shared/data/ptb
"""

import argparse
import tempfile
from pathlib import Path

import cloze
from cloze.plot.line_chart import LineChart, Series

SPLIT = ["vocabulary.kind=spaced", "vocabulary.min_count=1"]  # the text is already split into words


def measure_orders(folder: Path) -> dict[str, list[float]]:
    """Perplexity of the validation and the training text, for each order from 1 to 5."""
    train, valid = folder / "ptb.train.txt.xz", folder / "ptb.valid.txt.xz"
    found: dict[str, list[float]] = {"validation": [], "training text": []}
    for order in range(1, 6):
        with tempfile.TemporaryDirectory() as out:
            settings = [*SPLIT, f"model.order={order}"]
            cloze.pretrain(train, Path(out) / "ngram", family="ngram", settings=settings)
            for name, text in zip(found, (valid, train), strict=True):
                scores = cloze.evaluate(Path(out) / "ngram", text)
                found[name].append(scores.metrics["perplexity"])
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of the Penn Treebank")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    LineChart(
        title="n-gram perplexity by order, Penn Treebank",
        x_label="order",
        y_label="perplexity",
        log=True,
        series=[
            Series(name=name, x=[1, 2, 3, 4, 5], y=values)
            for name, values in measure_orders(given.data).items()
        ],
    ).save(given.out / "ngram-orders.svg")
