"""`explain.ablation`: how the output changes without a head, a sublayer or a block.

p parts, n texts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.config import in_range, one_of
from cloze.data.sources import Source
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interpret.ablation import METHODS, compute_ablations, compute_part_means
from cloze.interpret.interventions import METRICS, Kind, Metric, Part, find_stacks, list_parts
from cloze.interpret.joint_score import join
from cloze.interpret.scores import Batch, HeadScore, NextTokenScore, Score
from cloze.plot.page import Grid, PagePart, Table
from cloze.plot.value_grid import ValueGrid
from cloze.plot.view import View
from cloze.progress import ProgressOption, open_progress
from cloze.tasks.explain.corpus import read_corpus
from cloze.tasks.explain.inputs import ExplainInput, encode_input, reads_prompts
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.explain.targets import make_batch, resolve_targets

PARTS = ("all", "heads", "sublayers")
METRIC_NAMES = {
    "logit": "logit",
    "log_probability": "log-probability",
    "probability": "probability",
}
KIND_NAMES: dict[Kind, str] = {
    "attention": "attention",
    "cross_attention": "cross-attention",
    "ffn": "feed-forward",
    "block": "block",
}
_HEAD_KINDS: tuple[Kind, ...] = ("head", "cross_head")
_TOP = 10  # parts in the table
MAX_TEXTS = 200


@dataclass(frozen=True)
class PartGrid:
    """Parts of one kind as the rows (layers) and columns of a heatmap."""

    stack: str
    title: str
    columns: Sequence[str]
    column_title: str
    parts: Sequence[Sequence[Part]]


def ablation(
    model: Model | PathLike,
    text: str | None = None,
    pair: str | None = None,
    *,
    target: str | None = None,
    target_text: str | None = None,
    parts: str = "all",
    method: str = "zero",
    metric: str = "log_probability",
    data: Source | Sequence[str] | None = None,
    max_texts: int = MAX_TEXTS,
    text_column: str | int | None = None,
    seed: int = 0,
    progress: ProgressOption = None,
) -> View:
    """Show how the output changes if a head, a sublayer or a whole block is removed.

    All removals are computed in a few batches; the weights are not changed. A negative change means
    that the part supports the output.

    Args:
        model: an encoder with a task head, a GPT or a Transformer translator, or its folder.
        text: the text; it may be left out if `data` is given.
        pair: the second text of a pair.
        target: the output that is explained: a token, a label … (default: what is predicted).
        target_text: the translation (translators only; default: the greedy one).
        parts: heads, sublayers (attention, cross-attention, feed-forward, block) or all.
        method: zero removes a part; mean replaces it with its mean over all tokens of the text, or
            of all texts of `data`.
        metric: logit, log_probability or probability.
        data: texts over which the change is averaged: a file, a folder, a table or a list of texts.
            In a text without a mask, a masked language model predicts one masked token of it, and
            a language model its last token.
        max_texts: the maximum number of texts of `data`.
        text_column: column of the text if `data` is a table (default: auto-detected).
        seed: of the tokens that are masked.
        progress: show a progress bar, or not; a function is called with stage, done and total.
    """
    opened = open_model(model, "ablation")
    one_of("parts", parts, PARTS)
    one_of("method", method, METHODS)
    chosen = cast("Metric", one_of("metric", metric, METRICS))
    in_range("max_texts", max_texts, 1, 1_000_000)
    if (text is None) == (data is None):
        raise InputError(
            "give a text, or data with many texts"
            if text is None
            else "both text and data are given",
            fix="give one of them",
        )
    if text is not None:
        encoded = encode_input(opened, text, pair, target_text)
        inputs, note = [encoded], encoded.note
        items = [make_item(opened, encoded, target)]
    else:
        assert data is not None
        rng = np.random.default_rng(seed)
        texts = list(read_corpus(data, limit=max_texts, text_column=text_column))
        inputs = [encode_input(opened, one) for one in texts]
        items = [_make_corpus_item(opened, one, target, rng) for one in inputs]
        note = f"Mean change over {len(items):,} texts."
    grids = list_grids(opened.module, parts)
    listed = [part for grid in grids for row in grid.parts for part in row]
    means = compute_part_means(opened.module, items, listed) if method == "mean" else None
    bases, changes = [], []
    with open_progress(progress) as show:
        for number, (score, batch) in enumerate(items, 1):
            base, change = compute_ablations(
                *(opened.module, score, batch, listed),
                means=means,
                metric=chosen,
                progress=show if text is not None else None,
            )
            bases.append(base)
            changes.append(change)
            if show and text is None:
                show("texts", number, len(items))
    return _make_view(
        grids,
        dict(zip(listed, torch.stack(changes).T, strict=True)),
        bases=bases,
        inputs=inputs,
        scores=[score for score, _ in items],
        metric=chosen,
        method=method,
        note=note,
    )


def make_item(model: Model, input: ExplainInput, target: str | None) -> tuple[Score, Batch]:
    """The score of what is explained, of several outputs together, and the batch of one row."""
    return join(resolve_targets(model, [input], target)[0]), make_batch(model, input)


def _make_corpus_item(
    model: Model, input: ExplainInput, target: str | None, rng: np.random.Generator
) -> tuple[Score, Batch]:
    """The same for a text of a corpus: a token of its own is predicted if it has no mask."""
    if target is None and reads_prompts(model) and len(input) > 1:
        whole = make_batch(model, input)
        shorter = replace(whole, ids=whole.ids[:, :-1], type_ids=None)
        return NextTokenScore(len(input) - 2, input.ids[-1], input.tokens[-1]), shorter
    is_masked = "mlm" in model.task_heads and not getattr(model.module, "is_causal", False)
    other_heads = set(model.task_heads) - {"mlm", "nsp"}
    mask_id, inside = model.tokenizer.mask_id, list(input.words.token_range())
    is_plain = is_masked and not other_heads and mask_id not in input.ids and inside
    if target is None and mask_id is not None and is_plain:
        position, ids = int(rng.choice(inside)), list(input.ids)
        score = HeadScore("mlm", position, ids[position], input.tokens[position])
        ids[position] = mask_id
        return score, make_batch(model, replace(input, ids=ids))
    return make_item(model, input, target)


def list_grids(module: Any, parts: str) -> list[PartGrid]:  # noqa: ANN401 (a torch module)
    """The heatmaps of a model: heads, and sublayers, of each stack of blocks."""
    stacks = find_stacks(module)
    grids: list[PartGrid] = []
    for stack in stacks:
        where = f"{stack.capitalize()}: " if len(stacks) > 1 else ""
        for kind in _HEAD_KINDS if parts in ("all", "heads") else ():
            rows = list_parts(module, stack, kind)
            if rows:
                count = max(map(len, rows))
                name = "heads" if kind == "head" else "heads of cross-attention"
                titles = [str(n) for n in range(1, count + 1)]
                grids.append(PartGrid(stack, f"{where}{name}".capitalize(), titles, "head", rows))
        if parts in ("all", "sublayers"):
            found = {kind: list_parts(module, stack, kind) for kind in KIND_NAMES}
            kinds = [kind for kind, rows in found.items() if rows]
            rows = [
                [part for kind in kinds for part in found[kind][layer]]
                for layer in range(len(stacks[stack]))
            ]
            names = [KIND_NAMES[kind] for kind in kinds]
            grids.append(PartGrid(stack, f"{where}sublayers".capitalize(), names, "", rows))
    return grids


def _make_view(
    grids: Sequence[PartGrid],
    changes: dict[Part, Tensor],
    *,
    bases: Sequence[float],
    inputs: Sequence[ExplainInput],
    scores: Sequence[Score],
    metric: Metric,
    method: str,
    note: str,
) -> View:
    name, base = METRIC_NAMES[metric], float(np.mean(bases))
    is_one = len(inputs) == 1
    drawn = [
        draw_grid(grid, lambda part: float(changes[part].mean()), f"change of {name}")
        for grid in grids
    ]
    strongest = _list_strongest(changes, name, base, is_one=is_one)
    figures: list[PagePart] = [*arrange_grids(drawn), strongest]
    what = scores[0].name if is_one else "the output"
    data: dict[str, Any] = {
        "metric": metric,
        "method": method,
        "base": base,
        "target": scores[0].name if is_one else None,
        "tokens": inputs[0].tokens if is_one else None,
        "texts": len(inputs),
        "changes": [
            {**describe_part(part), "change": float(one.mean()), **_compute_error(one)}
            for part, one in changes.items()
        ],
    }
    removed = "zeros" if method == "zero" else "its mean"
    explanation = (
        f"Change of the {name} of {what} ({name} {base:.4g}) when a part is replaced with "
        f"{removed}; blue is an increase, orange a decrease."
    )
    return View(
        title=f"Ablation: {what}",
        figures=figures,
        data=data,
        note=" ".join(filter(None, (explanation, note))),
    )


def draw_grid(grid: PartGrid, find_change: Callable[[Part], float], value_title: str) -> ValueGrid:
    """The changes of a kind of parts as a heatmap."""
    width = len(grid.columns)
    return ValueGrid(
        title=grid.title,
        values=[
            [find_change(part) for part in row] + [None] * (width - len(row)) for row in grid.parts
        ],
        rows=[str(layer) for layer in range(1, len(grid.parts) + 1)],
        columns=grid.columns,
        row_title="layer",
        column_title=grid.column_title,
        signed=True,
        value_title=value_title,
    )


def arrange_grids(grids: Sequence[ValueGrid]) -> list[PagePart]:
    """Narrow figures side by side, wide ones below each other."""
    narrow = [grid for grid in grids if not grid.wide]
    wide = [grid for grid in grids if grid.wide]
    return [*([Grid(parts=narrow)] if narrow else []), *wide]


def describe_part(part: Part) -> dict[str, Any]:
    """A part for JSON; layers and heads are counted from 1, as layer 0 are the embeddings."""
    found: dict[str, Any] = {"stack": part.stack, "layer": part.layer + 1, "kind": part.kind}
    return found if part.head is None else found | {"head": part.head + 1}


def name_part(part: Part) -> str:
    """A part for a table: "layer 3, head 5"."""
    stack = "" if part.stack == "blocks" else f"{part.stack}, "
    if part.head is None:
        return f"{stack}layer {part.layer + 1}, {KIND_NAMES[part.kind]}"
    cross = "cross-attention " if part.kind == "cross_head" else ""
    return f"{stack}layer {part.layer + 1}, {cross}head {part.head + 1}"


def _list_strongest(changes: dict[Part, Tensor], name: str, base: float, *, is_one: bool) -> Table:
    ordered = sorted(changes, key=lambda part: -abs(float(changes[part].mean())))[:_TOP]
    columns = ("part", f"change of {name}", f"{name} without it")
    rows: list[tuple[Any, ...]] = []
    for part in ordered:
        change = float(changes[part].mean())
        error = _compute_error(changes[part])
        shown = f"{change:+.4f} ± {error['standard_error']:.4f}" if error else f"{change:+.4f}"
        rows.append((name_part(part), shown, f"{base + change:.4f}"))
    title = "Largest changes" if is_one else "Largest mean changes"
    return Table(title=title, columns=columns, rows=rows)


def _compute_error(values: Tensor) -> dict[str, float]:
    """The standard error of a mean over texts; nothing for one text."""
    if len(values) < 2:  # noqa: PLR2004
        return {}
    return {"standard_error": float(values.double().std() / len(values) ** 0.5)}
