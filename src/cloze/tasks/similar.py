"""`similar`: nearest words, sums, analogies, odd one out, cosine similarity of two words.

q queries, v words, d dimensions of the vectors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interpret.projection import principal_components
from cloze.models.word2vec import Floats, WordVectors, normalize_vectors
from cloze.plot.format import format_percent
from cloze.plot.scatter import Point, Scatter
from cloze.plot.vector_heatmap import VectorHeatmap
from cloze.results import Result, Results
from cloze.tasks.inputs import OnError, check_texts, open_model

_EPSILON = 0.001  # avoids division by zero, as in Levy and Goldberg 2014
_MAX_SCORES = 1 << 25  # number of cosines that are computed at a time


@dataclass(frozen=True, kw_only=True)
class Neighbor:
    """A word and its similarity to the query."""

    word: str
    score: float  # cosine, or the value of 3CosMul


@dataclass(frozen=True, kw_only=True, repr=False)
class Similar(Result):
    """A query and its nearest words, without the words of the query."""

    query: str
    words: tuple[Neighbor, ...]

    record_columns = ("query", "word", "score")

    def to_records(self) -> list[dict[str, Any]]:
        """A row per word, nearest first."""
        return _make_records(self.query, self.words)

    def _repr_html_(self) -> str:
        return _render_neighbors(self.query, self.words)


@dataclass(frozen=True, kw_only=True, repr=False)
class OddOneOut(Result):
    """The word that fits the others least, and the cosine of each word to their mean."""

    query: str
    word: str
    fits: tuple[Neighbor, ...]  # lowest cosine first

    record_columns = ("query", "word", "score")

    def to_records(self) -> list[dict[str, Any]]:
        """A row per word, the odd one first; the score is its cosine to the mean of all."""
        return _make_records(self.query, self.fits)

    def _repr_html_(self) -> str:
        return _render_neighbors(f"the odd one out: {self.word}", self.fits)


def _make_records(query: str, words: Sequence[Neighbor]) -> list[dict[str, Any]]:
    return [{"query": query, "word": one.word, "score": one.score} for one in words]


def _render_neighbors(title: str, words: Sequence[Neighbor]) -> str:
    from cloze.plot.notebook import render_bars, render_heading, render_result

    bars = render_bars(((one.word, one.score) for one in words), as_percent=False)
    return render_result(render_heading(title), bars)


@overload
def similar(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | WordVectors | PathLike, word: str, *, top: int = 10
) -> Similar: ...
@overload
def similar(
    model: Model | WordVectors | PathLike,
    word: Iterable[str],
    *,
    top: int = 10,
    on_error: OnError | None = None,
) -> Results[Similar]: ...
def similar(
    model: Model | WordVectors | PathLike,
    word: str | Iterable[str],
    *,
    top: int = 10,
    on_error: OnError | None = None,
) -> Similar | Results[Similar]:
    """Find the nearest words of a word, or of each of several words, by exact search.

    Args:
        model: word vectors, or their folder or file.
        word: a word, or several.
        top: number of neighbors of each word.
        on_error: called with the index and the error of one of several words that has no vector;
            it has no neighbors in the result. Default: the error is raised.
    """
    model = open_vectors(model)
    in_range("top", top, 1, 1 << 31)
    words = check_texts(word, "word")
    vectors = _find_vectors(model, words, None if isinstance(word, str) else on_error)
    known, some = list(vectors), max(1, _MAX_SCORES // len(model))
    near: dict[int, tuple[Neighbor, ...]] = {}
    for begin in range(0, len(known), some):
        numbers = known[begin : begin + some]
        queries = normalize_vectors(np.stack([vectors[number] for number in numbers]))
        for number, scores in zip(numbers, queries @ model.unit_vectors.T, strict=True):  # q v
            row = model.find_row(words[number])
            near[number] = _nearest_words(model, scores, top, [] if row is None else [row])
    found = Results(Similar(query=each, words=near.get(n, ())) for n, each in enumerate(words))
    return found[0] if isinstance(word, str) else found


def combine(
    model: Model | WordVectors | PathLike,
    plus: str | Iterable[str],
    minus: str | Iterable[str] = (),
    *,
    top: int = 10,
    product: bool = False,
) -> Similar:
    """Find the words nearest to a sum of words, such as king − man + woman.

    3CosAdd (Mikolov et al. 2013) maximizes cos(x, Σ plus − Σ minus), with vectors of length 1.
    `product` uses 3CosMul (Levy and Goldberg 2014): Π cos(x, plus) / (Π cos(x, minus) + ε), with
    cosines scaled to 0 … 1, so that no single term dominates.
    """
    model = open_vectors(model, "combine")
    plus, minus = check_texts(plus, "word"), check_texts(minus, "word")
    words = [*plus, *minus]
    vectors = _unit_vectors(model, words)
    if product:
        cosines = (1 + vectors @ model.unit_vectors.T) / 2  # scaled to 0 … 1
        numerator, denominator = cosines[: len(plus)].prod(0), cosines[len(plus) :].prod(0)
        scores = numerator / (denominator + _EPSILON) if minus else numerator
    else:
        signs = np.array([1.0] * len(plus) + [-1.0] * len(minus), np.float32)
        scores = model.unit_vectors @ normalize_vectors(signs @ vectors)
    rows = [row for word in words if (row := model.find_row(word)) is not None]
    query = " + ".join(plus) + "".join(f" − {word}" for word in minus)
    return Similar(query=query, words=_nearest_words(model, scores, top, rows))


def analogy(
    model: Model | WordVectors | PathLike,
    a: str,
    b: str,
    c: str,
    *,
    top: int = 10,
    product: bool = False,
) -> Similar:
    """Complete an analogy: a is to b as c is to …; man, king, woman → queen."""
    model = open_vectors(model, "analogy")
    found = combine(model, [b, c], [a], top=top, product=product)
    return Similar(query=f"{a} : {b} = {c} : ?", words=found.words)


def cosine(model: Model | WordVectors | PathLike, word: str, other: str) -> float:
    """The cosine similarity of two words, from −1 to 1."""
    model = open_vectors(model, "cosine")
    first, second = _unit_vectors(model, [word, other])
    return float(first @ second)


def odd_one_out(model: Model | WordVectors | PathLike, words: Iterable[str]) -> OddOneOut:
    """Find the word whose vector has the lowest cosine to the mean of all."""
    model, words = open_vectors(model, "odd_one_out"), check_texts(words, "word")
    if len(words) < 3:  # noqa: PLR2004
        raise InputError(
            f"finding the odd one out needs three or more words, not {len(words)}",
            fix="give three or more words",
        )
    vectors = _unit_vectors(model, words)
    cosines = vectors @ normalize_vectors(vectors.mean(0))
    order = np.argsort(cosines, kind="stable")
    fits = tuple(Neighbor(word=words[index], score=float(cosines[index])) for index in order)
    return OddOneOut(query=", ".join(words), word=fits[0].word, fits=fits)


def plot_words(
    model: Model | WordVectors | PathLike, words: Iterable[str], found: Iterable[Similar] = ()
) -> Scatter:
    """Plot words and their neighbors by their first two principal components.

    Neighbors have the color of their query.
    """
    model, words = open_vectors(model, "plot_words"), check_texts(words, "word")
    colors = {word: number for number, word in enumerate(dict.fromkeys(words))}
    num_queries = len(colors)
    for each in found:
        for near in each.words:
            colors.setdefault(near.word, colors.get(each.query, num_queries))
    positions, explained = principal_components(_unit_vectors(model, list(colors)))
    rows = zip(colors.items(), positions, strict=True)
    points = [
        Point(name=name, x=float(x), y=float(y), color=color, bold=number < num_queries)
        for number, ((name, color), (x, y)) in enumerate(rows)
    ]
    detail = f"first two principal components, {format_percent(explained, 0)} of the variance"
    return Scatter(title=", ".join(dict.fromkeys(words)), detail=detail, points=points)


def plot_vectors(model: Model | WordVectors | PathLike, words: Iterable[str]) -> VectorHeatmap:
    """Plot vectors as a heat map, in units of the root mean square of all values."""
    model, words = open_vectors(model, "plot_vectors"), check_texts(words, "word")
    values = np.stack(list(_find_vectors(model, words, None).values())).astype(np.float64)
    deviation = float(np.sqrt(np.square(values).mean())) or 1.0
    return VectorHeatmap(title=", ".join(words), rows=words, values=(values / deviation).tolist())


def _find_vectors(
    model: WordVectors, words: Sequence[str], on_error: OnError | None
) -> dict[int, Floats]:
    """The vectors of the words that have one, by index."""
    if not words:
        raise InputError("no word was given", fix="give one or more words")
    found = {}
    for number, word in enumerate(words):
        try:
            found[number] = model[word]
        except InputError as error:
            if on_error is None:
                raise
            on_error(number, error)
    return found


def _unit_vectors(model: WordVectors, words: Sequence[str]) -> Floats:
    """The vectors of all words, scaled to length 1 (q d)."""
    return normalize_vectors(np.stack(list(_find_vectors(model, words, None).values())))


def _nearest_words(
    model: WordVectors, scores: Floats, top: int, left_out: Sequence[int]
) -> tuple[Neighbor, ...]:
    in_range("top", top, 1, 1 << 31)
    count = min(top + len(left_out), len(model))
    scores[list(left_out)] = -np.inf
    best = np.argpartition(-scores, count - 1)[:count]
    order = best[np.lexsort((best, -scores[best]))][:top]  # ties: the more frequent word first
    return tuple(
        Neighbor(word=model.words[row], score=float(scores[row]))
        for row in order
        if np.isfinite(scores[row])
    )


def open_vectors(model: object, function: str = "similar") -> WordVectors:
    """The word vectors of a model or its folder; `function` needs them."""
    found: WordVectors = open_model(model, function, "word_vectors").module
    return found
