"""`similar`: nearest words, sums, analogies, the odd one out, the cosine of two words.

q queries, v words, d width.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.models.word2vec import Floats, WordVectors, normalize_vectors
from cloze.plot.format import format_percent
from cloze.plot.scatter import Point, Scatter
from cloze.plot.vector_heatmap import VectorHeatmap
from cloze.tasks.inputs import OnError, check_texts, open_model

_EPSILON = 0.001  # Levy and Goldberg's, against division by zero
_SCORES = 1 << 25  # cosines that are held at a time


@dataclass(frozen=True, kw_only=True)
class Neighbor:
    """A word and how near it is."""

    word: str
    score: float  # the cosine; for a product, Levy and Goldberg's quotient


@dataclass(frozen=True, kw_only=True)
class Similar:
    """What was asked and the nearest words, without those that were asked for."""

    query: str
    words: tuple[Neighbor, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the query."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class OddOneOut:
    """The word that fits the others least, and how well each fits their mean, worst first."""

    query: str
    word: str
    fits: tuple[Neighbor, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the query."""
        return asdict(self)


@overload
def similar(model: Model | WordVectors | PathLike, word: str, *, top: int = 10) -> Similar: ...
@overload
def similar(
    model: Model | WordVectors | PathLike,
    word: list[str],
    *,
    top: int = 10,
    on_error: OnError | None = None,
) -> list[Similar]: ...
def similar(
    model: Model | WordVectors | PathLike,
    word: str | list[str],
    *,
    top: int = 10,
    on_error: OnError | None = None,
) -> Similar | list[Similar]:
    """The nearest words of one word, or of each of several: exact, many in one matrix product.

    Of several, one that has no vector is an error; with `on_error` it is reported, has no words
    near it, and the others go on.
    """
    model = open_vectors(model)
    in_range("top", top, 1, 1 << 31)
    words = check_texts(word, "word")
    vectors = _known(model, words, None if isinstance(word, str) else on_error)
    known, some = list(vectors), max(1, _SCORES // len(model))
    near: dict[int, tuple[Neighbor, ...]] = {}
    for begin in range(0, len(known), some):
        numbers = known[begin : begin + some]
        queries = normalize_vectors(np.stack([vectors[number] for number in numbers]))
        for number, scores in zip(numbers, queries @ model.unit_vectors.T, strict=True):  # q v
            row = model.find_row(words[number])
            near[number] = _best(model, scores, top, [] if row is None else [row])
    found = [Similar(query=each, words=near.get(n, ())) for n, each in enumerate(words)]
    return found[0] if isinstance(word, str) else found


def combine(
    model: Model | WordVectors | PathLike,
    plus: Sequence[str],
    minus: Sequence[str] = (),
    *,
    top: int = 10,
    product: bool = False,
) -> Similar:
    """The words nearest to a sum of words: king − man + woman.

    3CosAdd (Mikolov et al. 2013) looks for the greatest cos(x, Σ plus − Σ minus), vectors of length
    1. With `product` it is 3CosMul (Levy and Goldberg 2014), Π cos(x, plus) / (Π cos(x, minus) + ε)
    with cosines brought to 0 … 1, where no one term outweighs the others.
    """
    model = open_vectors(model)
    words = [*plus, *minus]
    vectors = _vectors(model, words)
    if product:
        shares = (1 + vectors @ model.unit_vectors.T) / 2
        above, below = shares[: len(plus)].prod(0), shares[len(plus) :].prod(0)
        scores = above / (below + _EPSILON) if minus else above
    else:
        signs = np.array([1.0] * len(plus) + [-1.0] * len(minus), np.float32)
        scores = model.unit_vectors @ normalize_vectors(signs @ vectors)
    rows = [row for word in words if (row := model.find_row(word)) is not None]
    query = " + ".join(plus) + "".join(f" − {word}" for word in minus)
    return Similar(query=query, words=_best(model, scores, top, rows))


def analogy(
    model: Model | WordVectors | PathLike,
    a: str,
    b: str,
    c: str,
    *,
    top: int = 10,
    product: bool = False,
) -> Similar:
    """A is to b as c is to …: man, king, woman → queen."""
    found = combine(model, [b, c], [a], top=top, product=product)
    return Similar(query=f"{a} : {b} = {c} : ?", words=found.words)


def cosine(model: Model | WordVectors | PathLike, word: str, other: str) -> float:
    """How alike two words are: the cosine between their vectors, from −1 to 1."""
    model = open_vectors(model)
    first, second = _vectors(model, [word, other])
    return float(first @ second)


def odd_one_out(model: Model | WordVectors | PathLike, words: Sequence[str]) -> OddOneOut:
    """The word whose vector is farthest from the mean of all."""
    model = open_vectors(model)
    if len(words) < 3:  # noqa: PLR2004
        raise InputError(f"{len(words)} words have no odd one", fix="give three or more")
    vectors = _vectors(model, words)
    cosines = vectors @ normalize_vectors(vectors.mean(0))
    order = np.argsort(cosines, kind="stable")
    fits = tuple(Neighbor(word=words[at], score=float(cosines[at])) for at in order)
    return OddOneOut(query=", ".join(words), word=fits[0].word, fits=fits)


def plot_words(
    model: Model | WordVectors | PathLike, words: Sequence[str], found: Sequence[Similar] = ()
) -> Scatter:
    """Words, and those found near them, on a plane: the first two principal components of the lot.

    What was found near a word has its colour.
    """
    model = open_vectors(model)
    colours = {word: number for number, word in enumerate(dict.fromkeys(words))}
    asked = len(colours)
    for each in found:
        for near in each.words:
            colours.setdefault(near.word, colours.get(each.query, asked))
    places, explained = principal_components(_vectors(model, list(colours)))
    dots = [
        Point(name=name, x=float(x), y=float(y), color=colour, bold=number < asked)
        for number, ((name, colour), (x, y)) in enumerate(zip(colours.items(), places, strict=True))
    ]
    detail = (
        f"two of {model.hidden_size} directions: {format_percent(explained, 0)} of the variance"
    )
    return Scatter(title=", ".join(dict.fromkeys(words)), detail=detail, points=dots)


def plot_vectors(model: Model | WordVectors | PathLike, words: Sequence[str]) -> VectorHeatmap:
    """Vectors as rows of coloured cells, in deviations from 0 of all the numbers shown."""
    model = open_vectors(model)
    values = np.stack(list(_known(model, words, None).values())).astype(np.float64)
    deviation = float(np.sqrt(np.square(values).mean())) or 1.0
    return VectorHeatmap(title=", ".join(words), rows=words, values=(values / deviation).tolist())


def principal_components(vectors: Floats) -> tuple[NDArray[np.float64], float]:
    """Principal components 1 and 2 of each vector, and the share of the variance they hold."""
    centred = vectors.astype(np.float64) - vectors.mean(0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] if len(axes) > 1 else np.vstack([axes, np.zeros_like(axes)])
    # an axis has no sign of its own: the largest number on it is positive, whatever the library
    signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(1)])
    variance = np.square(sizes)
    share = float(variance[:2].sum() / variance.sum()) if variance.sum() else 0.0
    return centred @ (axes * signs[:, None]).T, share


def _known(model: WordVectors, words: Sequence[str], on_error: OnError | None) -> dict[int, Floats]:
    """The vector of each word that has one, by its number."""
    if not words:
        raise InputError("no word was given", fix="name one")
    found = {}
    for number, word in enumerate(words):
        try:
            found[number] = model[word]
        except InputError as error:
            if on_error is None:
                raise
            on_error(number, error)
    return found


def _vectors(model: WordVectors, words: Sequence[str]) -> Floats:
    """Of length 1 each (q d)."""
    return normalize_vectors(np.stack(list(_known(model, words, None).values())))


def _best(
    model: WordVectors, scores: Floats, top: int, left_out: Sequence[int]
) -> tuple[Neighbor, ...]:
    in_range("top", top, 1, 1 << 31)
    count = min(top + len(left_out), len(model))
    scores[list(left_out)] = -np.inf
    best = np.argpartition(-scores, count - 1)[:count]
    order = best[np.lexsort((best, -scores[best]))][:top]  # of equals, the more frequent first
    return tuple(
        Neighbor(word=model.words[row], score=float(scores[row]))
        for row in order
        if np.isfinite(scores[row])
    )


def open_vectors(model: object) -> WordVectors:
    """The word vectors of a model or its folder."""
    found: WordVectors = open_model(model, "similar", "word_vectors").module
    return found
