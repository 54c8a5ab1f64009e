"""`explain.gates`: the gates and cell states of an LSTM or GRU at each token of a text.

t tokens, h units.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interpret.gates import Gates
from cloze.interpret.recurrent import RecurrentLayer, capture_gates, list_recurrent_layers
from cloze.plot.heatmap import Heatmap
from cloze.plot.page import PagePart
from cloze.plot.vector_heatmap import VectorHeatmap
from cloze.plot.view import View
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.explain.read_text import read_text

Values = NDArray[np.float64]
MAX_TOKENS = 128  # that are drawn


def gates(
    model: Model | PathLike,
    text: str,
    *,
    layers: str | int | Sequence[str | int] | None = None,
    units: int = 200,
) -> View:
    """Show the gates of recurrent layers: what they let in, keep and let out at each token.

    An LSTM has input, forget and output gates and a cell state, a GRU has reset and update gates.
    They are computed again from the weights and equal those that the layer uses.

    Args:
        model: a recurrent model (LSTM, GRU, ELMo, recurrent translator), or its folder.
        text: the text.
        layers: numbers of layers, such as 1 or "1,2"; of a bidirectional layer also 1.forward or
            1.backward (default: all).
        units: maximum number of units of a layer to show; if it has more, those whose cell state
            changes most.
    """
    opened = open_model(model, "gates")
    in_range("units", units, 1, 10_000)
    read = read_text(opened, text)
    known = list_recurrent_layers(read.source.module)
    chosen = _select_layers(known, layers)
    with capture_gates(chosen) as captured:
        read.run()
    tokens = read.tokens
    figures: list[PagePart] = []
    found: list[dict[str, Any]] = []
    for layer, values in zip(chosen, captured, strict=True):
        if not values.gates:
            continue
        entry = _select_units(values, units, len(tokens))
        found.append({"layer": layer.name, **entry})
        figures += _draw_layer(layer, tokens, entry)
    if not found:
        raise InputError(
            "the recurrent layers of this model are plain ones, which have no gates",
            fix="use a model with the cell lstm or gru",
        )
    note = read.note
    if len(tokens) > MAX_TOKENS:
        note = f"{note} Only the first {MAX_TOKENS} tokens are drawn.".strip()
    return View(title="Gates", figures=figures, data={"tokens": tokens, "layers": found}, note=note)


def _select_layers(
    known: Sequence[RecurrentLayer], layers: str | int | Sequence[str | int] | None
) -> list[RecurrentLayer]:
    if layers is None:
        return list(known)
    given = [layers] if isinstance(layers, str | int) else layers
    names = [name.strip() for one in given for name in str(one).split(",")]
    found = []
    for name in names:
        matching = [one for one in known if name in (one.name, one.name.partition(".")[0])]
        if not matching:
            raise InputError(
                f"there is no recurrent layer {name!r}",
                fix=f"use {', '.join(one.name for one in known)}",
            )
        found += matching
    return list(dict.fromkeys(found))


def _select_units(values: Gates, units: int, count: int) -> dict[str, Any]:
    """The values of the units to show, t h each, and the mean of each gate over all units."""

    def convert(tensor: Any) -> Values:  # noqa: ANN401
        array: Values = tensor[0, :count].double().cpu().numpy()
        return array

    states = {name: convert(one) for name, one in values.states.items()}
    changing = states.get("cell", states["candidate"])
    order = np.argsort(-changing.var(0), kind="stable")[:units]
    kept = np.sort(order)
    gates_of = {name: convert(one) for name, one in values.gates.items()}
    return {
        "units": kept.tolist(),
        "gates": {name: one[:, kept].tolist() for name, one in gates_of.items()},
        "states": {name: one[:, kept].tolist() for name, one in states.items()},
        "mean_gates": {name: one.mean(1).tolist() for name, one in gates_of.items()},
    }


def _draw_layer(
    layer: RecurrentLayer, tokens: Sequence[str], entry: dict[str, Any]
) -> list[PagePart]:
    shown = list(tokens[:MAX_TOKENS])
    title = f"Layer {layer.name.replace('.', ', ')}"
    means = [values[:MAX_TOKENS] for values in entry["mean_gates"].values()]
    figures: list[PagePart] = [
        Heatmap(
            title=f"{title}: mean of each gate over all units",
            values=means,
            shades=[_scale(values) for values in means],
            rows=[f"{name} gate" for name in entry["mean_gates"]],
            columns=shown,
            same_decimals=True,
            note="The shade goes from the smallest to the largest value of each gate.",
        )
    ]
    for kind, parts in (("gate", entry["gates"]), ("state", entry["states"])):
        for name, values in parts.items():
            if name == "candidate" and "cell" in parts:
                continue
            figures.append(
                VectorHeatmap(
                    title=f"{title}: {name} {kind} of {len(entry['units']):,} units",
                    rows=shown,
                    values=values[:MAX_TOKENS],
                    limit={"cell": 2.0, "candidate": 1.0}.get(name, 0.5),
                    center=0.5 if kind == "gate" else 0.0,
                    unit=" (open)" if kind == "gate" else "",
                )
            )
    return figures


def _scale(values: Sequence[float]) -> list[float]:
    """From 0 for the smallest value to 1 for the largest."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]
