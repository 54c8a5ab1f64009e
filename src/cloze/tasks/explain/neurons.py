"""`explain.neurons`: which neurons are active where, and what they have in common.

n neurons, t tokens, k factors or clusters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.data.sources import Sources, read_rows
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interpret.activations import (
    NeuronLayer,
    capture_activations,
    list_neuron_layers,
    parse_neuron,
    select_neuron_layers,
)
from cloze.interpret.neurons import (
    MIN_GROUPS,
    cluster_neurons,
    factorize_activations,
    select_active_neurons,
)
from cloze.plot.format import format_percent
from cloze.plot.page import PagePart
from cloze.plot.token_contexts import TokenContext, TokenContexts
from cloze.plot.token_curves import Curve, TokenCurves
from cloze.plot.value_grid import ValueGrid
from cloze.plot.view import View
from cloze.progress import ProgressOption
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.explain.read_text import read_text
from cloze.tasks.explain.top_tokens import find_top_tokens
from cloze.tasks.features import prepare_source

DEFAULT_GROUPS = 6
_LISTED = 10  # neurons with the largest weight of a factor


def neurons(
    model: Model | PathLike,
    text: str | None = None,
    pair: str | None = None,
    *,
    target_text: str | None = None,
    layers: str | int | Sequence[str | int] | None = None,
    factors: int | str | Sequence[int] | None = None,
    clusters: int | None = None,
    shown: int = 40,
    special_tokens: bool = False,
    seed: int = 0,
    neuron: str | Sequence[str] | None = None,
    corpus: Sources | None = None,
    text_column: str | int | None = None,
    top: int = 20,
    progress: ProgressOption = None,
) -> View:
    """Show the activations of the neurons of feed-forward or recurrent layers.

    Of a text: groups of neurons that are active together (non-negative matrix factorization),
    clusters of neurons with the same pattern (k-means), and a heat map of the most active neurons.
    Of a corpus: the tokens that excite a neuron most, each in its context. Activations are those
    after the activation function, without their negative part.

    Args:
        model: a model, its folder, or the name of a built-in model.
        text: the text; it may be left out if a corpus is given.
        pair: the second text of a pair.
        target_text: of a translator, what its decoder reads (default: its own translation).
        layers: numbers of layers, such as 1, "1,2" or "2-4"; -1 is the last one (default: all; of
            a translator encoder.1 … and decoder.1 …, default: those of the encoder).
        factors: number of factors, or several such as "2-8" (default: 6, fewer for a short text).
        clusters: number of clusters, 0 for none (default: 6, fewer for a short text).
        shown: number of neurons in the heat map.
        special_tokens: include special tokens such as [CLS], which often dominate.
        seed: seed of factors and clusters.
        neuron: a neuron as LAYER:NUMBER, such as "3:120", or several.
        corpus: texts in which to find the tokens that excite `neuron` most: a file, folder or
            glob, or a table in memory.
        text_column: column of the text in tables (default: auto-detected).
        top: number of tokens of the corpus for each neuron.
        progress: show a progress bar, or not; a function is called with stage, done and total.
    """
    opened = open_model(model, "neurons")
    in_range("shown", shown, 1, 1000)
    in_range("top", top, 1, 10_000)
    wanted = [] if neuron is None else [neuron] if isinstance(neuron, str) else list(neuron)
    if corpus is not None and not wanted:
        raise InputError(
            "a corpus needs a neuron to search for", fix="give a neuron, such as --neuron 3:120"
        )
    if text is None and corpus is None:
        raise InputError("no text is given", fix="give a text, or a corpus and a neuron")
    figures: list[PagePart] = []
    data: dict[str, Any] = {}
    note = ""
    if text is not None:
        read = _read_activations(opened, text, pair, target_text, layers, special_tokens)
        note = read.note
        data, figures = _explain_text(read, factors, clusters, shown, wanted, seed)
    if corpus is not None:
        texts = (row.text for row in read_rows(corpus, text_column=text_column))
        source = prepare_source(opened)
        known = list_neuron_layers(source.module)
        chosen = [parse_neuron(one, known) for one in wanted]
        _check_encoder_layers(chosen)
        found = find_top_tokens(source, texts, chosen, top=top, progress=progress)
        data["top_tokens"] = [
            {"neuron": name, "tokens": [asdict(one) for one in tokens]}
            for name, tokens in zip(wanted, found, strict=True)
        ]
        figures += [
            TokenContexts(
                title=f"Neuron {name}",
                detail="the tokens of the corpus that excite it most",
                contexts=[
                    TokenContext(
                        tokens=one.tokens,
                        values=one.values,
                        index=one.index,
                        label=f"text {one.row:,}",
                    )
                    for one in tokens
                ],
            )
            for name, tokens in zip(wanted, found, strict=True)
        ]
    return View(title="Neurons", figures=figures, data=data, note=note)


class _Activations:
    """The activations of layers at the tokens of a text."""

    def __init__(
        self, layers: Sequence[NeuronLayer], tokens: list[str], values: list[Any], note: str
    ) -> None:
        self.layers, self.tokens, self.note = layers, tokens, note
        self.values: NDArray[np.float64] = np.concatenate(values, 1).T  # n t

    def name(self, row: int) -> str:
        """The name of a neuron by its row, such as 3:120."""
        for layer in self.layers:
            if row < layer.size:
                return f"{layer.name}:{row}"
            row -= layer.size
        raise IndexError(row)

    def find_row(self, name: str) -> int:
        """The row of a neuron."""
        layer, number = parse_neuron(name, self.layers)
        before = self.layers[: list(self.layers).index(layer)]
        return sum(one.size for one in before) + number


def _read_activations(
    model: Model,
    text: str,
    pair: str | None,
    target_text: str | None,
    layers: str | int | Sequence[str | int] | None,
    special_tokens: bool,
) -> _Activations:
    read = read_text(model, text, pair, target_text)
    known = list_neuron_layers(read.source.module)
    names = list(_parse_names(layers))
    if read.target is not None and not names:
        names = [one.name for one in known if not one.name.startswith("decoder")]
    chosen = select_neuron_layers(known, names or None)
    sides = {layer.name.startswith("decoder") for layer in chosen}
    if len(sides) > 1:
        raise InputError(
            "layers of the encoder and of the decoder read different tokens",
            fix="choose layers of one of them, such as decoder.1,decoder.2",
        )
    with capture_activations(chosen) as captured:
        read.run()
    tokens, special = read.tokens, read.special
    if sides == {True} and read.target is not None:
        tokens, special = read.target, [False] * len(read.target)
    kept = [n for n, one in enumerate(special) if special_tokens or not one]
    if not kept:
        raise InputError(
            "the text has no tokens besides special ones", fix="give a text of some words"
        )
    values = [captured[layer.name].flatten(0, -2)[kept].double().cpu().numpy() for layer in chosen]
    return _Activations(chosen, [tokens[n] for n in kept], values, read.note)


def _explain_text(
    read: _Activations,
    factors: int | str | Sequence[int] | None,
    clusters: int | None,
    shown: int,
    wanted: Sequence[str],
    seed: int,
) -> tuple[dict[str, Any], list[PagePart]]:
    largest = min(read.values.shape)
    usual = max(min(DEFAULT_GROUPS, largest), 0)
    counts = list(_parse_counts(factors)) if factors is not None else [usual]
    num_clusters = usual if clusters is None else clusters
    data: dict[str, Any] = {
        "tokens": read.tokens,
        "layers": [{"name": layer.name, "neurons": layer.size} for layer in read.layers],
        "factorizations": [],
        "clusters": None,
    }
    figures: list[PagePart] = []
    for count in counts if largest >= MIN_GROUPS or factors is not None else ():
        found, figure = _show_factors(read, count, seed)
        data["factorizations"].append(found)
        figures.append(figure)
    rows = list(select_active_neurons(read.values, shown))
    labels = np.zeros(len(read.values), np.int64)
    if num_clusters and (largest >= MIN_GROUPS or clusters is not None):
        data["clusters"], figure, labels = _show_clusters(read, num_clusters, seed)
        figures.append(figure)
        rows.sort(key=lambda row: (labels[row], row))
    named = [read.find_row(name) for name in wanted]
    rows = [*named, *(row for row in rows if row not in named)][: max(shown, len(named))]
    names = [read.name(row) for row in rows]
    data["neurons"] = [
        {
            "neuron": name,
            "cluster": int(labels[row]) + 1 if data["clusters"] else None,
            "activations": read.values[row].tolist(),
        }
        for name, row in zip(names, rows, strict=True)
    ]
    figures.append(
        ValueGrid(
            title=f"The {len(rows)} most active neurons",
            rows=names,
            columns=read.tokens,
            row_title="neuron",
            column_title="token",
            value_title="activation",
            values=[read.values[row].tolist() for row in rows],
            same_decimals=True,
            note="A neuron is written LAYER:NUMBER"
            + ("; neurons of the same cluster are together." if data["clusters"] else "."),
        )
    )
    return data, figures


def _show_factors(read: _Activations, count: int, seed: int) -> tuple[dict[str, Any], TokenCurves]:
    found = factorize_activations(read.values, count, seed=seed)
    names = [
        [
            (read.name(int(row)), float(found.neurons[row, number]))
            for row in np.argsort(-found.neurons[:, number], kind="stable")[:_LISTED]
        ]
        for number in range(count)
    ]
    data = {
        "factors": [
            {
                "tokens": found.tokens[number].tolist(),
                "neurons": [{"neuron": name, "weight": weight} for name, weight in names[number]],
            }
            for number in range(count)
        ],
        "strongest": [None if one is None else one + 1 for one in found.strongest],
        "explained": found.explained,
    }
    curves = [
        Curve(
            name=f"factor {number + 1}",
            values=found.tokens[number].tolist(),
            detail="neurons " + ", ".join(name for name, _ in names[number][:2]),
        )
        for number in range(count)
    ]
    figure = TokenCurves(
        title=f"{count} factors of the activations",
        detail=f"{_describe_layers(read.layers)}; they explain "
        f"{format_percent(found.explained, 0)} of the activations",
        tokens=read.tokens,
        curves=curves,
        note="Each token has the color and the number of its strongest factor. Point at a factor "
        "to see where it is active; click to keep it.",
    )
    return data, figure


def _show_clusters(
    read: _Activations, count: int, seed: int
) -> tuple[dict[str, Any], TokenCurves, NDArray[np.int64]]:
    found = cluster_neurons(read.values, count, seed=seed)
    data = {
        "sizes": list(found.sizes),
        "tokens": found.tokens.tolist(),
        "inactive": int((found.labels < 0).sum()),
    }
    curves = [
        Curve(
            name=f"cluster {number + 1}",
            values=found.tokens[number].tolist(),
            detail=f"{size:,} neuron{'s' if size > 1 else ''}",
        )
        for number, size in enumerate(found.sizes)
    ]
    figure = TokenCurves(
        title=f"{count} clusters of neurons",
        detail=f"{_describe_layers(read.layers)}; mean activation of the neurons of each cluster",
        tokens=read.tokens,
        curves=curves,
    )
    return data, figure, found.labels


def _describe_layers(layers: Sequence[NeuronLayer]) -> str:
    names = [layer.name for layer in layers]
    count = sum(layer.size for layer in layers)
    shown = f"{names[0]} … {names[-1]}" if len(names) > 3 else ", ".join(names)  # noqa: PLR2004
    return f"layer{'s' if len(names) > 1 else ''} {shown}, {count:,} neurons"


def _check_encoder_layers(chosen: Sequence[tuple[NeuronLayer, int]]) -> None:
    for layer, _ in chosen:
        if layer.name.startswith("decoder"):
            raise InputError(
                f"layer {layer.name} reads translations, which a corpus does not have",
                fix="choose a neuron of the encoder, such as encoder.1:0",
            )


def _parse_names(layers: str | int | Sequence[str | int] | None) -> Iterator[str]:
    """The names in 3, "1,2", "2-4" or a list of such."""
    if layers is None:
        return
    given = [layers] if isinstance(layers, str | int) else layers
    for part in (one.strip() for each in given for one in str(each).split(",")):
        first, dash, last = part.partition("-")
        if dash and first.isdigit() and last.isdigit():
            yield from map(str, range(int(first), int(last) + 1))
        elif part:
            yield part


def _parse_counts(factors: int | str | Sequence[int]) -> Iterator[int]:
    given = factors if isinstance(factors, str | int) else [*factors]
    for part in _parse_names(given):
        if not part.isdigit():
            raise InputError(
                f"the number of factors is {part!r}", fix="use a number, or several such as 2-8"
            )
        yield int(part)
