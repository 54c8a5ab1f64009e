"""`explain.cka`: similarity of the layers of one model, or of two.

n words, d width, l layers.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.config import in_range, one_of
from cloze.data.sources import Source
from cloze.files import PathLike
from cloze.interpret.similarity import MIN_EXAMPLES, MinibatchCKA, compute_cka
from cloze.plot.value_grid import ValueGrid
from cloze.plot.view import View
from cloze.tasks.explain.corpus import check_corpus_size, iterate_word_vectors, read_corpus
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.features import prepare_source
from cloze.text.words import find_words

ESTIMATORS = ("minibatch", "exact")
MAX_TEXTS = 2000
BATCH_SIZE = 512
MAX_EXACT = 20_000  # words whose vectors are in memory together


def cka(
    model: Model | PathLike,
    data: Source | Sequence[str],
    *,
    other_model: Model | PathLike | None = None,
    estimator: str = "minibatch",
    batch_size: int = BATCH_SIZE,
    max_texts: int = MAX_TEXTS,
    text_column: str | int | None = None,
) -> View:
    """Show how similar the layers of a model are to each other, or to those of another model.

    The similarity is linear CKA (Kornblith et al. 2019) of the vectors of the same tokens of a
    corpus; two models are compared on the same words, a word being the mean of its tokens.

    Args:
        model: an encoder or another model with vectors of each layer, or its folder.
        data: texts: a file (a text per line), a folder, a table, or a list of texts.
        other_model: a second model, or its folder; its tokenizer may differ.
        estimator: minibatch (unbiased, any number of texts) or exact (all vectors at once; up to
            20,000 words; high if there are fewer words than dimensions).
        batch_size: number of words of a minibatch.
        max_texts: the maximum number of texts.
        text_column: column of the text if `data` is a table (default: auto-detected).
    """
    first = prepare_source(open_model(model, "cka"))
    second = None if other_model is None else prepare_source(open_model(other_model, "cka"))
    one_of("estimator", estimator, ESTIMATORS)
    in_range("batch_size", batch_size, MIN_EXAMPLES, 100_000)
    in_range("max_texts", max_texts, 1, 100_000_000)
    texts = list(read_corpus(data, limit=max_texts, text_column=text_column))
    batches = _iterate_batches(
        first, second, texts, MAX_EXACT if estimator == "exact" else batch_size
    )
    values, count = (
        _compute_exact(batches) if estimator == "exact" else _compute_minibatches(batches)
    )
    names = [_name_model(first), _name_model(second or first)]
    titles = [f"layer of {name}" for name in names] if second else ["layer", "layer"]
    unit = "words" if second else "tokens"
    figure = ValueGrid(
        title="Similarity of layers (linear CKA)",
        values=values.tolist(),
        rows=[str(n) for n in range(len(values))],
        columns=[str(n) for n in range(values.shape[1])],
        row_title=titles[0],
        column_title=titles[1],
        value_title="CKA",
        signed=True,  # the unbiased estimator may be below 0
        shades=values.nan_to_num().clamp(0, 1).tolist(),
        note="1: the same up to rotation and scale; layer 0 are the embeddings.",
    )
    return View(
        title="Similarity of layers" if second is None else f"Layers of {names[0]} and {names[1]}",
        figures=[figure],
        data={
            "estimator": estimator,
            "models": names if second else names[:1],
            unit: count,
            "texts": len(texts),
            "cka": values.tolist(),
        },
        note=f"From {count:,} {unit} of {len(texts):,} texts.",
    )


def _name_model(model: Model) -> str:
    return model.folder.name if model.folder else model.family.name


def _iterate_batches(
    first: Model, second: Model | None, texts: Sequence[str], size: int
) -> Iterator[tuple[list[Tensor], list[Tensor] | None]]:
    """Minibatches of the vectors of both models (n d of each layer), of the same words."""
    waiting: list[list[Tensor]] = []
    ahead = 0  # words of `waiting`
    for vectors in _iterate_both(first, second, texts):
        waiting.append(vectors)
        ahead += len(vectors[0])
        if ahead < size:
            continue
        joined = [torch.cat(parts) for parts in zip(*waiting, strict=True)]
        full = ahead - ahead % size
        for start in range(0, full, size):
            yield _split_models([one[start : start + size] for one in joined], first, second)
        waiting, ahead = [[one[full:] for one in joined]], ahead - full
    if waiting and ahead >= MIN_EXAMPLES:
        rest = [torch.cat(parts) for parts in zip(*waiting, strict=True)]
        yield _split_models(rest, first, second)


def _split_models(
    vectors: list[Tensor], first: Model, second: Model | None
) -> tuple[list[Tensor], list[Tensor] | None]:
    if second is None:
        return vectors, None
    count = int(first.module.num_layers) + 1
    return vectors[:count], vectors[count:]


def _iterate_both(
    first: Model, second: Model | None, texts: Sequence[str]
) -> Iterator[list[Tensor]]:
    """The vectors of all layers of the first model, then of the second, of words both have."""
    if second is None:
        for _, vectors in iterate_word_vectors(first, ((text, None) for text in texts)):
            yield vectors
        return
    items = [(text, find_words(text)) for text in texts]
    pairs = zip(
        iterate_word_vectors(first, items), iterate_word_vectors(second, items), strict=True
    )
    for (known, vectors), (other_known, others) in pairs:
        masks = [
            torch.tensor([one for some in flags for one in some]) for flags in (known, other_known)
        ]
        both = masks[0] & masks[1]
        yield [one[both[masks[0]]] for one in vectors] + [one[both[masks[1]]] for one in others]


def _compute_minibatches(batches: Iterator[Any]) -> tuple[Tensor, int]:
    sums: MinibatchCKA | None = None
    for first, second in batches:
        if sums is None:
            sums = MinibatchCKA(len(first), None if second is None else len(second))
        sums.update(first, second)
    check_corpus_size(sums.count if sums else 0, MIN_EXAMPLES, "words")
    assert sums is not None
    return sums.compute(), sums.count


def _compute_exact(batches: Iterator[Any]) -> tuple[Tensor, int]:
    first, second = next(batches, ([], None))
    check_corpus_size(len(first[0]) if first else 0, MIN_EXAMPLES, "words")
    others = first if second is None else second
    values = torch.tensor([[compute_cka(x, y) for y in others] for x in first])
    return values, len(first[0])
