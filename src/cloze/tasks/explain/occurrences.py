"""`explain.occurrences`: the vectors of one word in many sentences, by sense and by layer.

n occurrences, d width of a layer.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.config import in_range, one_of
from cloze.data.labelled.tables import read_text_examples
from cloze.data.sources import Source, read_rows
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interpret.projection import (
    Projection,
    Separation,
    measure_separation,
    project_vectors,
)
from cloze.models.word2vec import normalize_vectors
from cloze.plot.format import format_percent
from cloze.plot.line_chart import LineChart, Series
from cloze.plot.page import Grid, PagePart
from cloze.plot.scatter import Point, Scatter
from cloze.plot.view import View
from cloze.tasks.explain.embeddings import (
    Vectors,
    describe_layer,
    describe_map,
    embed_token_layers,
    list_layers,
)
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.features import prepare_source

COLORS = ("sense", "layer")
MAX_OCCURRENCES = 2000
_CHUNK = 256  # texts that are embedded together
_CONTEXT = 60  # characters around a word in its point's details
_SAME = 1e-4  # points that are closer, of vectors of length 1, are the same
_MAX_NAMED = 24  # points with a name beside them


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """A word in a text."""

    text: str
    start: int
    end: int
    sense: str | None


def occurrences(
    model: Model | PathLike,
    text: Source | Sequence[str],
    *,
    word: str,
    senses: Sequence[str] | None = None,
    label_column: str | int | None = None,
    text_column: str | int | None = None,
    layers: str | int | Sequence[int] = "all",
    color: str = "sense",
    map: str = "pca",
    seed: int = 0,
    limit: int = MAX_OCCURRENCES,
) -> View:
    """Show the vectors of one word in many sentences, on a map for each layer.

    A static vector would be the same everywhere; a contextual model separates the senses of a word.
    With senses, two numbers say how well, in each layer: the silhouette by cosine distance, and how
    often the nearest other occurrence has the same sense.

    Args:
        model: a model with vectors of tokens, its folder, or the name of a built-in model.
        text: a file with a text in each line or row, a data frame, or a list of texts.
        word: the word; upper and lower case are the same.
        senses: the sense of the word in each of a list of texts.
        label_column: the column of the sense in a file or table: name or 1-based number.
        text_column: the column of the text (default: auto-detected).
        layers: layer numbers such as 0 or "1,6,12", "last" or "all".
        color: sense (a map for each layer), or layer (one map of all layers).
        map: pca (principal components) or umap (extra umap).
        seed: seed of UMAP.
        limit: maximum number of occurrences.
    """
    opened = open_model(model, "occurrences")
    one_of("color", color, COLORS)
    in_range("limit", limit, 2, 1 << 20)
    if not word.strip():
        raise InputError("the word is empty", fix="give a word that occurs in the texts")
    numbers = list_layers(layers, prepare_source(opened).module.num_layers)
    texts = _read_texts(text, senses, label_column, text_column)
    places = find_occurrences(texts, word)
    found, vectors = _embed_occurrences(opened, places, numbers, limit)
    if len(found) < 2:  # noqa: PLR2004
        raise InputError(
            f"the word {word!r} occurs {len(found)} times in the texts that the model reads",
            fix="give texts in which it occurs twice or more",
        )
    names = _list_senses(found)
    labels = [one.sense or "" for one in found]
    separations = [measure_separation(one, labels) if names else None for one in vectors]
    maps = (
        [project_vectors(normalize_vectors(one), map, seed=seed) for one in vectors]
        if color == "sense"
        else [_project_together(vectors, numbers, map, seed)]
    )
    figures = _draw(word, found, numbers, names, maps, separations)
    data: dict[str, Any] = {
        "word": word,
        "occurrences": [
            {"text": one.text, "start": one.start, "end": one.end, "sense": one.sense}
            for one in found
        ],
        "map_method": map,
        "layers": [
            {
                "layer": number,
                "map": _select_map(maps, position, len(found)).tolist(),
                "silhouette": separation.silhouette if separation else None,
                "neighbor_accuracy": separation.neighbor_accuracy if separation else None,
                "majority": separation.majority if separation else None,
            }
            for position, (number, separation) in enumerate(zip(numbers, separations, strict=True))
        ],
    }
    return View(
        title=f"“{word}” in {len(found):,} sentences", figures=figures, data=data, note=_note(names)
    )


def find_occurrences(
    texts: Iterable[tuple[str, str | None]], word: str
) -> Iterator[list[Occurrence]]:
    """The occurrences of a word in each text, as a whole word in any case.

    In scripts without spaces a word may be a part of a longer run of letters.
    """
    edge = r"\b" if word.isascii() else ""
    pattern = re.compile(f"{edge}{re.escape(word)}{edge}", re.IGNORECASE)
    for text, sense in texts:
        yield [
            Occurrence(text=text, start=one.start(), end=one.end(), sense=sense)
            for one in pattern.finditer(text)
        ]


def _read_texts(
    source: Any,  # noqa: ANN401
    senses: Sequence[str] | None,
    label_column: str | int | None,
    text_column: str | int | None,
) -> Iterator[tuple[str, str | None]]:
    is_list = isinstance(source, list | tuple) and all(isinstance(one, str) for one in source)
    if senses is not None:
        if not is_list or len(senses) != len(source):
            raise InputError(
                f"{len(senses)} senses do not belong to the texts",
                fix="give a list of texts and as many senses, or name the label column of a table",
            )
        return zip(source, map(str, senses), strict=True)
    if is_list:
        return ((one, None) for one in source)
    if label_column is None:
        return ((row.text, None) for row in read_rows(source, text_column=text_column))
    examples = read_text_examples(
        source,
        text_column=text_column,
        label_column=label_column,
        is_label_required=True,
        is_regression=False,
        is_multi_label=False,
    )
    return ((one.text, str(one.label)) for one in examples)


def _embed_occurrences(
    model: Model, places: Iterator[list[Occurrence]], numbers: Sequence[int], limit: int
) -> tuple[list[Occurrence], list[Vectors]]:
    """The occurrences that the model reads, and the mean vector of the tokens of each, by layer."""
    found: list[Occurrence] = []
    rows: list[list[Vectors]] = [[] for _ in numbers]
    several = filter(None, places)
    while len(found) < limit and (batch := list(islice(several, _CHUNK))):
        texts = [one[0].text for one in batch]
        for each, (encoding, layers) in zip(
            batch, embed_token_layers(model, texts, numbers), strict=True
        ):
            for one in each:
                tokens = list(encoding.tokens_in_span(one.start, one.end))
                if not tokens or len(found) == limit:  # truncated
                    continue
                found.append(one)
                for row, layer in zip(rows, layers, strict=True):
                    row.append(layer[tokens].mean(0))
    return found, [np.stack(row) if row else np.zeros((0, 1), np.float32) for row in rows]


def _list_senses(found: Sequence[Occurrence]) -> list[str]:
    """The senses in order of their first occurrence; empty if the texts have none."""
    return list(dict.fromkeys(one.sense for one in found if one.sense is not None))


def _project_together(
    vectors: Sequence[Vectors], numbers: Sequence[int], method: str, seed: int
) -> Projection:
    sizes = {one.shape[1] for one in vectors}
    if len(sizes) > 1:
        raise InputError(
            f"layers {', '.join(map(str, numbers))} have vectors of different sizes",
            fix="use the color sense, or choose layers of the same size",
        )
    return project_vectors(normalize_vectors(np.concatenate(vectors)), method, seed=seed)


def _select_map(maps: Sequence[Projection], position: int, count: int) -> NDArray[np.float64]:
    if len(maps) > position:
        shared = maps[position].positions
        if len(shared) == count:
            return shared
    return maps[0].positions[count * position : count * (position + 1)]


def _draw(
    word: str,
    found: Sequence[Occurrence],
    numbers: Sequence[int],
    senses: Sequence[str],
    maps: Sequence[Projection],
    separations: Sequence[Separation | None],
) -> list[PagePart]:
    figures: list[PagePart] = []
    if senses and len(numbers) > 1:
        figures.append(_draw_separation(word, numbers, separations))
    if len(maps) < len(numbers) or len(maps[0].positions) > len(found):
        groups = [describe_layer(number) for number in numbers]
        repeated = [(one, n) for n in range(len(numbers)) for one in found]
        figures.append(
            _draw_map(
                "All layers",
                maps[0],
                [one for one, _ in repeated],
                [n for _, n in repeated],
                groups,
                wide=True,
            )
        )
        return figures
    colors = [senses.index(one.sense) if one.sense is not None else 0 for one in found]
    drawn = []
    for number, projection, separation in zip(numbers, maps, separations, strict=True):
        title = describe_layer(number)
        if separation is not None:
            title += f": {format_percent(separation.neighbor_accuracy, 0)}"
        drawn.append(_draw_map(title, projection, found, colors, senses, wide=len(numbers) == 1))
    figures += drawn if len(drawn) == 1 else [Grid(parts=drawn)]
    return figures


def _draw_map(
    title: str,
    projection: Projection,
    found: Sequence[Occurrence],
    colors: Sequence[int],
    groups: Sequence[str],
    *,
    wide: bool,
) -> Scatter:
    named = wide and len(found) <= _MAX_NAMED
    points = [
        Point(
            name=_shorten(one, _CONTEXT // 2) if named else one.text[one.start : one.end],
            x=float(x),
            y=float(y),
            color=color,
            detail=_shorten(one, _CONTEXT),
        )
        for one, color, (x, y) in zip(found, colors, projection.positions, strict=True)
    ]
    return Scatter(
        title=title,
        detail=_describe_points(projection, wide=wide),
        points=points,
        legend=groups,
        has_names=named,
        wide=wide,
    )


def _describe_points(projection: Projection, *, wide: bool) -> str:
    """What the axes are, where there is space; and whether all vectors are the same."""
    if np.ptp(projection.positions, axis=0).max() < _SAME:
        return "the same vector everywhere"
    return describe_map(projection) if wide else ""


def _draw_separation(
    word: str, numbers: Sequence[int], separations: Sequence[Separation | None]
) -> LineChart:
    known = [(n, one) for n, one in zip(numbers, separations, strict=True) if one is not None]
    x = [float(n) for n, _ in known]
    series = [
        Series(
            name="nearest other occurrence has the same sense",
            x=x,
            y=[one.neighbor_accuracy for _, one in known],
        ),
        Series(name="silhouette", x=x, y=[one.silhouette for _, one in known]),
        Series(
            name="fraction of the most frequent sense",
            x=x,
            y=[one.majority for _, one in known],
            style="reference",
        ),
    ]
    return LineChart(
        title=f"Separation of the senses of “{word}”",
        series=series,
        x_label="layer",
        include=[0.0, 1.0],
        wide=True,
    )


def _note(senses: Sequence[str]) -> str:
    """What the number in the title of a map means."""
    if not senses:
        return "Point at an occurrence to see its sentence."
    return (
        "Point at an occurrence to see its sentence. The percentage beside a layer says how often "
        "the nearest other occurrence, by cosine, has the same sense."
    )


def _shorten(one: Occurrence, context: int) -> str:
    first, last = max(0, one.start - context), min(len(one.text), one.end + context)
    before, after = "…" if first else "", "…" if last < len(one.text) else ""
    return f"{before}{one.text[first:last]}{after}"
