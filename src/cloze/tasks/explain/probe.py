"""`explain.probe`: what a linear classifier reads from each layer, with a control task.

n examples, d width.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.data.labelled.senses import is_sense_data, read_sense_examples
from cloze.data.labelled.tags import read_tagged_examples
from cloze.data.sources import Source
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interpret.probes import DEFAULT_C, ProbeData, ProbeResult, fit_probe
from cloze.metrics.bootstrap import Interval, bootstrap_difference, bootstrap_interval
from cloze.plot.format import format_percent
from cloze.plot.line_chart import LineChart, Series
from cloze.plot.page import PagePart, Table
from cloze.plot.view import View
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.tasks.explain.corpus import Span, check_corpus_size, iterate_word_vectors
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.features import prepare_source

MAX_TRAIN, MAX_TEST = 5000, 2000
_TEST_FRACTION = 0.2
_MIN_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class ProbeExample:
    """Words of a text, or of a pair of texts, with a label each."""

    texts: tuple[str, ...]  # one, or a pair
    words: tuple[tuple[Span, ...], ...]  # of each text; of a pair one word in each
    labels: tuple[str, ...]
    types: tuple[Hashable, ...]  # decide the label of the control task


def probe(
    model: Model | PathLike,
    data: Source,
    *,
    test: Source | None = None,
    tag_column: str | int | None = None,
    max_train: int = MAX_TRAIN,
    max_test: int = MAX_TEST,
    c: float = DEFAULT_C,
    seed: int = 0,
    progress: ProgressOption = None,
) -> View:
    """Show how well a linear classifier predicts labels of words from the vectors of each layer.

    The probe is a logistic regression on the standardized vector of a word, the mean of its tokens.
    The control task (Hewitt & Liang 2019) has a random label for each word type; selectivity is the
    difference of both accuracies, and low if a probe only memorizes words.

    Args:
        model: an encoder or another model with vectors of each layer, or its folder.
        data: tagged sentences (CoNLL-U, CoNLL columns, JSON), or word senses: NAME.data.txt with
            NAME.gold.txt (CoarseWSD-20, WiC). Of a pair the probe reads [|u − v|; u·v].
        test: data to test on (default: a fifth of the sentences).
        tag_column: column of the tags (default: upos, or the last).
        max_train: the maximum number of words to train on, drawn at random.
        max_test: the maximum number of words to test on.
        c: inverse strength of the L2 regularization, as in scikit-learn.
        seed: of the random choices.
        progress: show a progress bar (default: on a terminal or in a notebook).
    """
    in_range("max_train", max_train, _MIN_EXAMPLES, 10_000_000)
    in_range("max_test", max_test, _MIN_EXAMPLES, 10_000_000)
    if not 0 < c < float("inf"):
        raise InputError(f"c is {c}, which is not a positive number", fix="use a value such as 1")
    return _probe(
        prepare_source(open_model(model, "probe")),
        *_read_both(data, test, tag_column, seed),
        max_train=max_train,
        max_test=max_test,
        c=c,
        seed=seed,
        progress=progress,
    )


@with_progress
def _probe(
    model: Model,
    train: list[ProbeExample],
    test: list[ProbeExample],
    *,
    max_train: int,
    max_test: int,
    c: float,
    seed: int,
    progress: ProgressCallback | None = None,
) -> View:
    rng = np.random.default_rng(seed)
    fitted = _compute_vectors(model, _draw(train, max_train, rng))
    tested = _compute_vectors(model, _draw(test, max_test, rng))
    for name, one in (("training", fitted), ("test", tested)):
        check_corpus_size(len(one.labels), _MIN_EXAMPLES, f"{name} words")
    results: list[ProbeResult] = []
    for layer, (x, y) in enumerate(zip(fitted.layers, tested.layers, strict=True)):
        results.append(fit_probe(fitted.select(x), tested.select(y), c=c, seed=seed))
        if progress:
            progress("layers", layer + 1, len(fitted.layers))
    return _make_view(results, fitted, tested)


@dataclass(frozen=True)
class _Vectors:
    """The vectors of words in each layer, their labels, and their sentences."""

    layers: list[NDArray[np.float32]]  # n d each
    labels: list[str]
    types: list[Hashable]
    sentences: NDArray[np.int64]  # n

    def select(self, vectors: NDArray[np.float32]) -> ProbeData:
        return ProbeData(vectors=vectors, labels=self.labels, types=self.types)


def _read_both(
    data: Source, test: Source | None, tag_column: str | int | None, seed: int
) -> tuple[list[ProbeExample], list[ProbeExample]]:
    examples = list(_read(data, tag_column))
    if test is not None:
        return examples, list(_read(test, tag_column))
    order = np.random.default_rng(seed).permutation(len(examples))
    count = int(len(examples) * _TEST_FRACTION)
    return [examples[n] for n in order[count:]], [examples[n] for n in order[:count]]


def _read(data: Source, tag_column: str | int | None) -> Iterator[ProbeExample]:
    if is_sense_data(data):
        for one in read_sense_examples(data):  # type: ignore[arg-type]
            words: tuple[tuple[Span, ...], ...] = ((one.word,),)
            texts: tuple[str, ...] = (one.text,)
            before = one.text[: one.word[0]].split()[-1:]
            # all words may be of one type: then the word before it decides the control task
            type_: Hashable = (one.lemma, *before)
            if one.pair is not None and one.pair_word is not None:
                words, texts, type_ = (*words, (one.pair_word,)), (*texts, one.pair), one.lemma
            yield ProbeExample(texts, words, (one.label,), (type_,))
        return
    for sentence in read_tagged_examples(data, tag_column=tag_column):
        if sentence.tags is None:
            raise InputError(f"{sentence.origin}: the words have no tags", fix="add a tag column")
        names = tuple(sentence.text[slice(*span)].lower() for span in sentence.words)
        yield ProbeExample((sentence.text,), (sentence.words,), sentence.tags, names)


def _draw(
    examples: Sequence[ProbeExample], limit: int, rng: np.random.Generator
) -> list[ProbeExample]:
    """Whole sentences in random order, until there are enough words; the last is shortened."""
    found: list[ProbeExample] = []
    count = 0
    for number in rng.permutation(len(examples)):
        one = examples[number]
        room = limit - count
        if room <= 0:
            break
        if len(one.labels) > room:
            one = ProbeExample(
                one.texts, (one.words[0][:room],), one.labels[:room], one.types[:room]
            )
        found.append(one)
        count += len(one.labels)
    return found


def _compute_vectors(model: Model, examples: Sequence[ProbeExample]) -> _Vectors:
    """The vectors of all words, of pairs [|u − v|; u·v]; words without one are left out."""
    size = len(examples[0].texts) if examples else 1
    sides = [_collect(model, examples, side) for side in range(size)]
    known = torch.stack([flags for flags, _ in sides]).all(0)  # of all words
    parts = [[layer[known[flags]] for layer in layers] for flags, layers in sides]
    layers = parts[0]
    if size > 1:
        layers = [torch.cat([(u - v).abs(), u * v], -1) for u, v in zip(*parts, strict=True)]
    keep = known.tolist()
    owners = [n for n, one in enumerate(examples) for _ in one.labels]
    labels = [label for one in examples for label in one.labels]
    types = [type_ for one in examples for type_ in one.types]
    return _Vectors(
        layers=[layer.numpy() for layer in layers],
        labels=[label for label, kept in zip(labels, keep, strict=True) if kept],
        types=[type_ for type_, kept in zip(types, keep, strict=True) if kept],
        sentences=np.array([n for n, kept in zip(owners, keep, strict=True) if kept], np.int64),
    )


def _collect(
    model: Model, examples: Sequence[ProbeExample], side: int
) -> tuple[Tensor, list[Tensor]]:
    """Which words of the first or second texts have a vector, and these vectors by layer."""
    flags: list[bool] = []
    chunks: list[list[Tensor]] = []
    items = ((one.texts[side], one.words[side]) for one in examples)
    for known, vectors in iterate_word_vectors(model, items):
        flags += [one for some in known for one in some]
        chunks.append(vectors)
    return torch.tensor(flags), [torch.cat(parts) for parts in zip(*chunks, strict=True)]


def _make_view(results: Sequence[ProbeResult], train: _Vectors, test: _Vectors) -> View:
    names, counts = np.unique(np.array(train.labels), return_counts=True)
    common = names[counts.argmax()]
    majority = float((np.array(test.labels) == common).mean())
    rows = [_summarize(layer, result, test.sentences) for layer, result in enumerate(results)]
    numbers = [float(row["layer"]) for row in rows]

    def draw(name: str, key: str) -> Series:
        values = {end: [row[key][end] for row in rows] for end in ("value", "low", "high")}
        return Series(
            name=name, x=numbers, y=values["value"], low=values["low"], high=values["high"]
        )

    best = max(rows, key=lambda row: row["accuracy"]["value"])
    selective = max(rows, key=lambda row: row["selectivity"]["value"])
    figures: list[PagePart] = [
        LineChart(
            title="Accuracy of linear probes",
            x_label="layer",
            percent=True,
            wide=True,
            series=[
                draw("accuracy", "accuracy"),
                draw("control task", "control_accuracy"),
                draw("selectivity", "selectivity"),
                Series(
                    name=f"majority ({common})",
                    x=[numbers[0], numbers[-1]],
                    y=[majority, majority],
                    style="reference",
                ),
            ],
            include=(0.0, 1.0),
            note="Bands: 95 % intervals by the bootstrap over sentences.",
        ),
        Table(
            title="By layer",
            columns=("layer", "accuracy", "control task", "selectivity"),
            rows=[
                (
                    row["layer"],
                    *(_format(row[key]) for key in ("accuracy", "control_accuracy", "selectivity")),
                )
                for row in rows
            ],
        ),
    ]
    note = (
        f"{len(names)} labels; trained on {len(train.labels):,} words, tested on "
        f"{len(test.labels):,}. Best layer: {best['layer']}; most selective: {selective['layer']}."
    )
    if not all(result.has_converged for result in results):
        note += " Some probes did not converge; a smaller c helps."
    data: dict[str, Any] = {
        "labels": names.tolist(),
        "train_words": len(train.labels),
        "test_words": len(test.labels),
        "majority_baseline": majority,
        "layers": rows,
    }
    return View(title="Linear probes", figures=figures, data=data, note=note)


def _summarize(layer: int, result: ProbeResult, sentences: NDArray[np.int64]) -> dict[str, Any]:
    """Accuracies with intervals, by the bootstrap over sentences."""
    rng = np.random.default_rng(0)
    owners, index = np.unique(sentences, return_inverse=True)
    count = np.bincount(index)
    right = np.bincount(index, result.correct).astype(np.float64)
    control = np.bincount(index, result.control_correct).astype(np.float64)

    def accuracy(sums: NDArray[np.float64], chosen: NDArray[np.int64]) -> float:
        return float(sums[chosen].sum() / count[chosen].sum())

    def interval(sums: NDArray[np.float64]) -> Interval:
        return bootstrap_interval(lambda chosen: accuracy(sums, chosen), len(owners), rng=rng)

    difference = bootstrap_difference(
        lambda chosen: accuracy(right, chosen),
        lambda chosen: accuracy(control, chosen),
        len(owners),
        rng=rng,
    )
    found = {
        "accuracy": interval(right),
        "control_accuracy": interval(control),
        "selectivity": difference,
    }
    return {
        "layer": layer,
        **{
            key: {"value": one.value, "low": one.low, "high": one.high}
            for key, one in found.items()
        },
        "has_converged": result.has_converged,
    }


def _format(interval: dict[str, float]) -> str:
    value, low, high = (format_percent(interval[end]) for end in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"
