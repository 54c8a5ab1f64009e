"""`explain.patching`: how the output changes if parts are taken from a run on another text."""

from dataclasses import replace
from typing import Any, cast

from cloze.checkpoint.model import Model
from cloze.config import one_of
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interpret.interventions import METRICS, Kind, Metric, find_stacks, list_parts
from cloze.interpret.joint_score import join
from cloze.interpret.patching import Patch, align_positions, compute_patches
from cloze.interpret.scores import HeadScore, NextTokenScore, Score
from cloze.plot.value_grid import ValueGrid
from cloze.plot.view import View
from cloze.progress import ProgressOption, open_progress
from cloze.tasks.explain.ablation import (
    KIND_NAMES,
    METRIC_NAMES,
    arrange_grids,
    describe_part,
    draw_grid,
    list_grids,
)
from cloze.tasks.explain.inputs import ExplainInput, encode_input
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.explain.targets import make_batch, resolve_targets

POSITION_KINDS: dict[str, Kind] = {
    "blocks": "block",
    "attention": "attention",
    "cross_attention": "cross_attention",
    "ffn": "ffn",
}
"""What is replaced at each position."""
PARTS = ("all", "heads", *POSITION_KINDS)


def patching(
    model: Model | PathLike,
    text: str,
    pair: str | None = None,
    *,
    from_text: str,
    from_pair: str | None = None,
    target: str | None = None,
    parts: str = "all",
    metric: str = "log_probability",
    progress: ProgressOption = None,
) -> View:
    """Show how the output for a text changes if parts are taken from a run on another text.

    Heads and, for each position, blocks and their sublayers are replaced one at a time. Tokens that
    the texts have in common at their beginning and end are aligned, and those between if there
    are equally many; others are not replaced.

    Args:
        model: an encoder with a task head, a GPT or a Transformer translator, or its folder.
        text: the text whose output changes.
        pair: the second text of a pair.
        from_text: the text from which parts are taken.
        from_pair: its second text (default: `pair`).
        target: the output that is measured (default: what is predicted for `from_text`).
        parts: heads, or at each position blocks, attention, cross_attention or ffn; or all.
        metric: logit, log_probability or probability.
        progress: show a progress bar, or not; a function is called with stage, done and total.
    """
    opened = open_model(model, "patching")
    one_of("parts", parts, PARTS)
    chosen = cast("Metric", one_of("metric", metric, METRICS))
    source = encode_input(opened, from_text, pair if from_pair is None else from_pair)
    base = encode_input(opened, text, pair)
    scores = resolve_targets(opened, [source], target)[0]
    if source.target is not None:  # both read the translation of the other text
        base = replace(base, target=source.target)
    own = [_move_score(score, base, source, opened.tokenizer.mask_id) for score in scores]
    patches = _list_patches(opened.module, base, parts)
    with open_progress(progress) as show:
        found = compute_patches(
            opened.module,
            (join(own), make_batch(opened, base)),
            (join(scores), make_batch(opened, source)),
            patches,
            metric=chosen,
            progress=show,
        )
    changes = dict(zip(patches, found.changes.tolist(), strict=True))
    name, score_name = METRIC_NAMES[chosen], join(scores).name
    aligned = align_positions(base.ids, source.ids)
    note = (
        f"Change of the {name} of {score_name} for the text ({found.base:.4g}) when a part is "
        f"taken from the other text ({found.source:.4g}); blue is an increase, orange a decrease."
    )
    if len(aligned) < len(base.ids):
        note += f" {len(base.ids) - len(aligned)} tokens have no counterpart and are not replaced."
    return View(
        title=f"Patching: {score_name}",
        figures=arrange_grids(_draw(opened.module, base, changes, parts, f"change of {name}")),
        data={
            "metric": chosen,
            "target": score_name,
            "base": found.base,
            "source": found.source,
            "tokens": base.tokens,
            "source_tokens": source.tokens,
            "target_tokens": base.target and base.target.tokens,
            "changes": [
                {**describe_part(patch.part), "position": patch.position, "change": change}
                for patch, change in changes.items()
            ],
        },
        note=" ".join(filter(None, (note, base.note))),
    )


def _move_score(
    score: Score, base: ExplainInput, source: ExplainInput, mask_id: int | None
) -> Score:
    """The same output for the other text: at its last token, or at the aligned position."""
    if isinstance(score, NextTokenScore):
        return replace(score, position=len(base.ids) - 1)
    if not isinstance(score, HeadScore) or score.head not in ("mlm", "token", "span"):
        return score
    positions = {old: new for new, old in align_positions(base.ids, source.ids).items()}
    if score.head == "mlm":  # the first mask corresponds to the first, wherever it is
        masks = [[n for n, id_ in enumerate(one.ids) if id_ == mask_id] for one in (source, base)]
        positions |= dict(zip(*masks, strict=False))
    assert isinstance(score.position, int)
    if score.position not in positions:
        raise InputError(
            f"the output {score.name!r} is at token {source.tokens[score.position]!r} of the other "
            "text, which has no counterpart in the text",
            fix="use texts that differ in a few words, such as two names",
        )
    return replace(score, position=positions[score.position])


def _name_positions(stack: str, base: ExplainInput) -> list[str]:
    """The names of the positions of a stack."""
    if stack == "decoder" and base.target is not None:
        return ["<s>", *base.target.tokens[:-1]]
    return list(base.tokens)


def _list_patches(module: Any, base: ExplainInput, parts: str) -> list[Patch]:  # noqa: ANN401
    found: list[Patch] = []
    if parts in ("all", "heads"):
        grids = list_grids(module, "heads")
        found += [Patch(part) for grid in grids for row in grid.parts for part in row]
    for stack in find_stacks(module):
        count = len(_name_positions(stack, base))
        for kind in _select_kinds(parts):
            for row in list_parts(module, stack, kind):
                found += [Patch(part, n) for part in row for n in range(count)]
    return found


def _select_kinds(parts: str) -> list[Kind]:
    """The kinds of parts that are replaced at each position."""
    return [kind for name, kind in POSITION_KINDS.items() if parts in ("all", name)]


def _draw(
    module: Any,  # noqa: ANN401
    base: ExplainInput,
    changes: dict[Patch, float],
    parts: str,
    value_title: str,
) -> list[ValueGrid]:
    figures: list[ValueGrid] = []
    stacks = find_stacks(module)
    for stack in stacks:
        where = f"{stack.capitalize()}: " if len(stacks) > 1 else ""
        names = _name_positions(stack, base)
        for kind in _select_kinds(parts):
            rows = list_parts(module, stack, kind)
            if rows:
                figures.append(
                    ValueGrid(
                        title=f"{where}{KIND_NAMES[kind]} at each position".capitalize(),
                        values=[
                            [changes[Patch(row[0], n)] for row in rows] for n in range(len(names))
                        ],
                        rows=names,
                        columns=[str(layer) for layer in range(1, len(rows) + 1)],
                        row_title="token",
                        column_title="layer",
                        signed=True,
                        value_title=value_title,
                    )
                )
    if parts in ("all", "heads"):
        figures += [
            draw_grid(grid, lambda part: changes[Patch(part)], value_title)
            for grid in list_grids(module, "heads")
        ]
    return figures
