"""`explain.embeddings`: the vectors of tokens or texts as colored cells and as a map.

t tokens, d width of a layer.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interpret.projection import Projection, compute_cosines, project_vectors
from cloze.models.word2vec import normalize_vectors
from cloze.plot.format import format_percent, shorten_text
from cloze.plot.heatmap import Heatmap
from cloze.plot.page import PagePart
from cloze.plot.scatter import Point, Scatter
from cloze.plot.vector_heatmap import VectorHeatmap
from cloze.plot.view import View
from cloze.tasks.embed import embed
from cloze.tasks.explain.inputs import check_text, show_token
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.features import (
    LayerSelection,
    measure_features,
    prepare_source,
    select_layers,
)

Vectors = NDArray[np.float32]
MAX_ROWS = 128  # vectors that are drawn as cells, and texts in the matrix of similarities
_NAME = 40  # characters of a text in a figure


def embeddings(
    model: Model | PathLike,
    text: str | Sequence[str],
    *,
    layers: str | int | Sequence[int] = "last",
    pooling: str | None = None,
    map: str = "pca",
    special_tokens: bool = False,
    seed: int = 0,
) -> View:
    """Show the vectors of the tokens of a text, or of several texts, in one or several layers.

    Each vector is a row of colored cells, and a point of a map in two dimensions. Several texts
    also have a matrix of their cosine similarities.

    Args:
        model: a model with vectors of tokens, its folder, or the name of a built-in model.
        text: a text, whose tokens are shown; or several texts, each of which has one vector.
        layers: 0 or "embeddings" (below the first layer), layer numbers such as 3 or "1,6,12",
            "last" or "all"; each layer has figures of its own.
        pooling: how the vector of each of several texts is computed, as for `embed`.
        map: pca (principal components) or umap (extra umap).
        special_tokens: include special tokens such as [CLS].
        seed: seed of UMAP.
    """
    opened = open_model(model, "embeddings")
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise InputError("no text is given", fix="give one or more texts")
    for one in texts:
        check_text("text", one)
    numbers = list_layers(layers, prepare_source(opened).module.num_layers)
    if len(texts) == 1:
        names, by_layer = _embed_tokens(opened, texts[0], numbers, special_tokens)
        what, data = "tokens", {"tokens": names}
    else:
        names = [shorten_text(one, _NAME) for one in texts]
        by_layer = [embed(opened, texts, layers=number, pooling=pooling) for number in numbers]
        what, data = "texts", {"texts": texts}
    figures: list[PagePart] = []
    found: list[dict[str, Any]] = []
    for number, vectors in zip(numbers, by_layer, strict=True):
        projection = project_vectors(normalize_vectors(vectors), map, seed=seed)
        entry: dict[str, Any] = {
            "layer": number,
            "vectors": vectors.astype(np.float64).tolist(),
            "map": projection.positions.tolist(),
            "explained": projection.explained,
        }
        title = describe_layer(number)
        figures += [_draw_cells(f"{title}: {what}", names, vectors)]
        if len(texts) > 1:
            cosines = compute_cosines(vectors)
            entry["cosines"] = cosines.tolist()
            figures.append(_draw_cosines(f"{title}: cosine similarity", names, cosines))
        figures.append(_draw_map(f"{title}: map", names, projection))
        found.append(entry)
    hidden = f"Only the first {MAX_ROWS} are drawn as cells." if len(names) > MAX_ROWS else ""
    return View(
        title=f"Embeddings of {what}",
        figures=figures,
        data={**data, "map_method": map, "layers": found},
        note=hidden,
    )


def list_layers(layers: str | int | Sequence[int], num_layers: int) -> list[int]:
    """The numbers of layers that are shown: 0 is below the first layer."""
    if layers == "all":
        return list(range(num_layers + 1))
    found = select_layers(layers, num_layers)
    if found.add:
        raise InputError(
            f"layers is {layers!r}, a sum of layers", fix="give layer numbers, last or all"
        )
    return list(dict.fromkeys(found.numbers))


def describe_layer(number: int) -> str:
    """The name of a layer in a title."""
    return f"Layer {number}" if number else "Embeddings, below the first layer"


def embed_token_layers(
    model: Model, texts: Sequence[str], numbers: Sequence[int]
) -> "list[tuple[Any, list[Vectors]]]":
    """The alignment of each text, and the vectors of its tokens in each layer (t d).

    All layers are computed in one pass; they may have different sizes.
    """
    source = prepare_source(model)
    sizes = [measure_features(source, LayerSelection((number,))) for number in numbers]
    found = embed(model, list(texts), pooling="none", layers=list(numbers), normalize=False)
    edges = np.cumsum(sizes)[:-1]
    return [
        (one.encoding, np.split(one.vectors, edges, axis=1)) for one in found if one is not None
    ]


def _embed_tokens(
    model: Model, text: str, numbers: Sequence[int], special_tokens: bool
) -> tuple[list[str], list[Vectors]]:
    ((encoding, layers),) = embed_token_layers(model, [text], numbers)
    special = encoding.special_tokens_mask
    kept = [n for n, one in enumerate(special) if special_tokens or not one]
    if not kept:
        raise InputError(
            "the text has no tokens besides special ones", fix="give a text of some words"
        )
    names = [show_token(encoding.tokens[n], model.tokenizer) for n in kept]
    return names, [layer[kept] for layer in layers]


def _draw_cells(title: str, names: Sequence[str], vectors: Vectors) -> VectorHeatmap:
    values = vectors[:MAX_ROWS].astype(np.float64)
    deviation = float(np.sqrt(np.square(values).mean())) or 1.0
    return VectorHeatmap(
        title=title, rows=list(names[:MAX_ROWS]), values=(values / deviation).tolist()
    )


def _draw_cosines(title: str, names: Sequence[str], cosines: NDArray[np.float64]) -> Heatmap:
    shown = cosines[:MAX_ROWS, :MAX_ROWS]
    low = float(shown.min())
    shades = (shown - low) / max(1 - low, 1e-9)
    numbers = [f"{n}" for n in range(1, len(shown) + 1)]
    return Heatmap(
        title=title,
        values=shown.tolist(),
        shades=shades.tolist(),
        rows=[f"{n} {name}" for n, name in zip(numbers, names, strict=False)],
        columns=numbers,
        note="The shade begins at the smallest similarity.",
    )


def _draw_map(title: str, names: Sequence[str], projection: Projection) -> Scatter:
    return Scatter(
        title=title,
        detail=describe_map(projection),
        points=[
            Point(name=name, x=float(x), y=float(y))
            for name, (x, y) in zip(names, projection.positions, strict=True)
        ],
    )


def describe_map(projection: Projection) -> str:
    """What the axes of a map are."""
    if projection.explained is None:
        return "UMAP by cosine distance"
    return (
        f"first two principal components, {format_percent(projection.explained, 0)} of the variance"
    )
