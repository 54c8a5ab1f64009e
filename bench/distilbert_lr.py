"""The DistilBERT experiment: logistic regression on embeddings of a frozen model.

    python bench/distilbert_lr.py runs/student runs/teacher --json out.json

As in Jay Alammar's notebook "A Visual Guide to Using BERT for the First Time": the first 2,000
sentences of SST-2's training file, `train_test_split` with its defaults (a quarter for testing),
the [CLS] vector of the last layer, scikit-learn's LogisticRegression. Mean pooling and the majority
baseline are shown for comparison. `±` is the standard error of the accuracy. Without arguments the
model is all-MiniLM-L6-v2.
"""

import argparse
import math
import time
from pathlib import Path

from rich.table import Table
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import cloze
from cloze.data.labelled.tables import read_text_examples
from cloze.plot.format import format_percent
from cloze.sklearn import Embedder
from common import DATA, minilm, print_result, versions

POOLINGS = ("cls", "mean")


def measure(estimator, parts) -> dict[str, float]:
    train, test, train_labels, test_labels = parts
    start = time.perf_counter()
    accuracy = estimator.fit(train, train_labels).score(test, test_labels)
    return {
        "accuracy": accuracy,
        "error": math.sqrt(accuracy * (1 - accuracy) / len(test)),
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*")
    parser.add_argument("--data", type=Path, default=DATA / "sst2" / "train.tsv")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--device")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    examples = list(read_text_examples(given.data))[: given.sentences]
    texts, labels = [one.text for one in examples], [one.label for one in examples]
    parts = train_test_split(texts, labels, random_state=0)
    results = [
        {"model": "majority baseline", "pooling": "", **measure(DummyClassifier(), parts)},
    ]
    models = {name: name for name in given.models} or {"all-MiniLM-L6-v2": minilm()}
    for name, source in models.items():
        model = cloze.load(source, device=given.device, quiet=True)
        for pooling in POOLINGS:
            # a folder may ask for vectors of length one; the experiment takes them as they are
            embedder = Embedder(model, pooling=pooling, normalize=False)
            found = measure(make_pipeline(embedder, LogisticRegression(max_iter=5000)), parts)
            results.append({"model": name, "pooling": pooling, **found})
    table = Table("model", "pooling", "accuracy", "seconds", title="SST-2, frozen vectors")
    for row in results:
        score = f"{format_percent(row['accuracy'])} ± {format_percent(row['error'])}"
        table.add_row(row["model"], row["pooling"], score, f"{row['seconds']:.1f}")
    print_result(
        table,
        f"{len(parts[0]):,} sentences to learn from, {len(parts[1]):,} to test, "
        + versions("torch", "scikit-learn"),
        results=results,
        file=given.json,
    )


if __name__ == "__main__":
    main()
