"""`explain.saliency`: how much each token of a text contributes to an output."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, TypedDict, Unpack, overload

from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.config import in_range, one_of
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.interpret.embeddings import find_embeddings
from cloze.interpret.removal import (
    FRACTIONS,
    RANDOM_ORDERS,
    Faithfulness,
    Removal,
    compute_faithfulness,
)
from cloze.interpret.saliency import METHODS, STEPS, Attribution, compute_saliency
from cloze.plot.format import format_percent
from cloze.plot.heatmap import Heatmap
from cloze.plot.line_chart import LineChart, Series
from cloze.plot.page import Grid, PagePart
from cloze.plot.token_saliency import SaliencyColumn, TokenSaliency
from cloze.plot.view import View
from cloze.progress import ProgressCallback
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.explain.saliency_inputs import (
    NEW_TOKENS,
    Continuation,
    SaliencyInput,
    make_inputs,
    make_options,
)
from cloze.tasks.inputs import Texts, check_pairs

BASELINES = ("mask", "pad", "zero")
TITLES = {
    "gradient": "gradient × input",
    "integrated": "integrated gradients",
    "leave-one-out": "leave one out",
}
_MAX_CELLS = 6000  # of the matrix of tokens and outputs


class SaliencyOptions(TypedDict, total=False):
    """The options of `explain.saliency`."""

    target: str | Sequence[str] | None
    method: str
    signed: bool
    baseline: str | None
    steps: int
    drop: bool
    new_tokens: int
    target_text: str | None
    options: Sequence[str] | None
    question: str | None
    faithfulness: bool
    random_orders: int
    seed: int
    batch_tokens: int | None
    progress: ProgressCallback | None


@overload
def saliency(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike,
    text: str,
    pair: str | None = None,
    **settings: Unpack[SaliencyOptions],
) -> View: ...
@overload
def saliency(
    model: Model | PathLike,
    text: Texts,
    pair: Iterable[str] | None = None,
    **settings: Unpack[SaliencyOptions],
) -> list[View]: ...
def saliency(
    model: Model | PathLike,
    text: str | Texts,
    pair: str | Iterable[str] | None = None,
    *,
    target: str | Sequence[str] | None = None,
    method: str = "gradient",
    signed: bool = False,
    baseline: str | None = None,
    steps: int = STEPS,
    drop: bool = False,
    new_tokens: int = NEW_TOKENS,
    target_text: str | None = None,
    options: Sequence[str] | None = None,
    question: str | None = None,
    faithfulness: bool = False,
    random_orders: int = RANDOM_ORDERS,
    seed: int = 0,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> View | list[View]:
    """Show how much each token of a text contributes to an output of a model.

    The saliency of a token is the L2 norm of gradient · input over its embedding, as a fraction of
    the sum over all tokens. The gradient is that of the logit.

    Args:
        model: an encoder with a task head or a masked-LM head, a neural language model, or a
            translator; its folder, or the name of a built-in model.
        text: a text, or several: a list, a column, or a table. Several are computed in batches, and
            the result is a list of views.
        pair: the second text of each: of a pair, or the context of a question.
        target: what is explained. Default: what the model predicts: the best word of every mask,
            the class, the tag of every word that has one, start and end of the answer, every token
            that it generates or translates. A masked LM takes a word, a classifier a label, a
            tagger WORD or WORD=TAG, question answering start, end or a part of the context, a
            language model words that continue the text, a translator a word of the translation,
            multiple choice an option.
        method: gradient (gradient × input), integrated (integrated gradients) or leave-one-out
            (the change of the logit without the token).
        signed: show the sum of gradient · input over the embedding instead, which is negative for
            tokens that speak against the output.
        baseline: the embedding in place of a removed token, for integrated gradients,
            leave-one-out and curves: mask, pad or zero. Default: mask if the model has it, else
            zero.
        steps: number of points on the path of integrated gradients.
        drop: leave tokens out, instead of replacing their embedding (leave-one-out and curves).
        new_tokens: maximum number of tokens that a language model generates.
        target_text: the translation; default: the greedy one.
        options: of a model for multiple choice: two or more options for one text.
        question: a question about the text that the options answer.
        faithfulness: also compute how the probability changes if the most salient tokens are
            removed first (deletion), or inserted first (insertion), compared with random orders.
        random_orders: number of random orders.
        seed: seed of the first random order.
        batch_tokens: maximum number of tokens in a batch; the default depends on the device.
        progress: a function that is called with stage, done and total.
    """
    one_of("method", method, METHODS)
    in_range("new_tokens", new_tokens, 1, 1 << 12)
    if drop and method != "leave-one-out" and not faithfulness:
        raise InputError(
            f"drop has no effect on the method {method}",
            fix="use the method leave-one-out or faithfulness, or leave drop out",
        )
    opened = open_model(model, "saliency")
    removal = Removal(baseline=_find_baseline(opened, baseline), drop=drop)
    texts, pairs = check_pairs(text, pair)
    if options is not None:
        if not isinstance(text, str) or pair is not None:
            raise InputError("options belong to one text", fix="pass one text and no pair")
        if not options:
            raise InputError("there are no options", fix="pass two options or more")
        inputs = make_options(opened, text, options, question, target)
    else:
        inputs = make_inputs(
            opened,
            texts,
            pairs or [None] * len(texts),
            target,
            Continuation(new_tokens=new_tokens, target_text=target_text),
        )
    flat = [example for one in inputs for example in one.examples]
    found = compute_saliency(
        opened.module,
        flat,
        method,  # type: ignore[arg-type]
        removal=removal,
        steps=steps,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    curves: list[Faithfulness] = []
    if faithfulness:
        values = [one.signed if signed else one.saliency for one in found]
        curves = compute_faithfulness(
            opened.module,
            flat,
            values,
            removal,
            random_orders=random_orders,
            seed=seed,
            batch_tokens=batch_tokens,
            progress=progress,
        )
    uses_baseline = (method != "gradient" or faithfulness) and not drop
    how = {
        "method": method,
        "baseline": (baseline or _choose_baseline(opened)) if uses_baseline else None,
        "steps": steps if method == "integrated" else None,
        "drop": drop,
    }
    ends = list(accumulate(len(one.examples) for one in inputs))
    views = [
        _make_view(
            one,
            found[end - len(one.examples) : end],
            curves[end - len(one.examples) : end],
            how,
            is_signed=signed,
        )
        for one, end in zip(inputs, ends, strict=True)
    ]
    if options is not None:
        return _join_options(text, options, views)  # type: ignore[arg-type]
    return views[0] if isinstance(text, str) else views


def _find_baseline(model: Model, name: str | None) -> Tensor | None:
    """The embedding of the baseline; None is zero."""
    possible = list_baselines(model)
    chosen = one_of("baseline", name or _choose_baseline(model), tuple(possible))
    id_ = possible[chosen]
    if id_ is None:
        return None
    (table,) = find_embeddings(model.module)
    weight: Tensor = table.weight.detach()  # type: ignore[operator]
    return weight[id_]


def list_baselines(model: Model) -> dict[str, int | None]:
    """The baselines that a model has, with the token of each; zero has none."""
    found: dict[str, int | None] = {}
    if model.family.vocabulary == "tokens" and len(find_embeddings(model.module)) == 1:
        ids = {name: getattr(model.tokenizer, f"{name}_id", None) for name in ("mask", "pad")}
        found = {name: id_ for name, id_ in ids.items() if id_ is not None}
    return {**found, "zero": None}


def _choose_baseline(model: Model) -> str:
    """The embedding of [MASK] says little in a model that was trained to fill masks only."""
    has_mask = "mask" in list_baselines(model) and not getattr(model.module, "is_causal", False)
    return "mask" if has_mask else "zero"


def _make_view(
    input: SaliencyInput,
    attributions: Sequence[Attribution],
    curves: Sequence[Faithfulness],
    how: dict[str, Any],
    *,
    is_signed: bool,
) -> View:
    size = len(input.tokens)
    columns, targets = [], []
    for number, (example, found) in enumerate(zip(input.examples, attributions, strict=True)):
        rest = [0.0] * (size - len(example))  # tokens that come later
        saliency_values = [*found.saliency.tolist(), *rest]
        signed_values = [*found.signed.tolist(), *rest]
        name = example.score.name
        is_number = getattr(example.score, "activation", "") == "none"
        columns.append(
            SaliencyColumn(
                name=name,
                values=signed_values if is_signed else saliency_values,
                detail=f"{found.score:.3g}" if is_number else format_percent(found.probability),
                token=input.outputs[number],
            )
        )
        targets.append(
            {
                "name": name,
                "token": input.outputs[number],
                "score": found.score,
                "probability": None if is_number else found.probability,
                "saliency": saliency_values,
                "signed": signed_values,
                "baseline_score": found.baseline_score,
                "delta": found.delta,
                **({"faithfulness": _to_data(curves[number])} if curves else {}),
            }
        )
    figures: list[PagePart] = [
        TokenSaliency(
            title="Contribution of each token",
            tokens=input.tokens,
            columns=columns,
            detail=TITLES[how["method"]],
            groups=input.groups,
            is_signed=is_signed,
            note=_explain_colors(how, is_signed=is_signed) + _describe_sum(attributions),
        )
    ]
    if len(columns) > 1 and len(columns) * size <= _MAX_CELLS:
        figures.append(_draw_matrix(input, columns, is_signed=is_signed))
    if curves:
        figures += _draw_curves(curves)
    return View(
        title=f"Saliency: {columns[0].name}" if len(columns) == 1 else "Saliency",
        figures=figures,
        data={
            "text": input.text,
            "pair": input.pair,
            **how,
            "tokens": input.tokens,
            "targets": targets,
        },
        note=input.note,
    )


def _explain_colors(how: dict[str, Any], *, is_signed: bool) -> str:
    if how["method"] == "leave-one-out":
        what = "The change of the logit without the token"
        return f"{what}." if is_signed else f"{what}, without its sign, as a fraction of the sum."
    value = "gradient · input" if how["method"] == "gradient" else "the integrated gradients"
    if is_signed:
        return (
            "Blue tokens speak for the output, orange ones against it: the sum of "
            f"{value} over the embedding."
        )
    return f"The L2 norm of {value}, as a fraction of the sum over all tokens."


def _describe_sum(attributions: Sequence[Attribution]) -> str:
    """What integrated gradients add up to, if there is one output."""
    if len(attributions) != 1 or attributions[0].baseline_score is None:
        return ""
    (found,) = attributions
    total = float(found.signed.sum())
    return (
        f" The integrated gradients add up to {total:+.3g}: the logit is {found.score:.3g}, and "
        f"{found.baseline_score:.3g} for the baseline."
    )


def _draw_matrix(
    input: SaliencyInput, columns: Sequence[SaliencyColumn], *, is_signed: bool
) -> Heatmap:
    peaks = [max(map(abs, column.values)) or 1.0 for column in columns]
    # tokens that come later are not read: their cells are empty
    read = [
        [*column.values[: len(example)], *[None] * (len(input.tokens) - len(example))]
        for column, example in zip(columns, input.examples, strict=True)
    ]
    return Heatmap(
        title="All outputs",
        values=read,
        rows=[column.name for column in columns],
        columns=input.tokens,
        row_title="output",
        column_title="token",
        percent=not is_signed,
        shades=[
            [abs(value) / peak for value in column.values]
            for column, peak in zip(columns, peaks, strict=True)
        ],
    )


def _to_data(curves: Faithfulness) -> dict[str, Any]:
    return {
        "fractions": list(FRACTIONS),
        "deletion": list(curves.deletion.values),
        "insertion": list(curves.insertion.values),
        "random_deletion": list(curves.random.values),
        "random_low": list(curves.low.values),
        "random_high": list(curves.high.values),
        "random_orders": len(curves.seeds),
        "deletion_area": curves.deletion.area,
        "insertion_area": curves.insertion.area,
        "random_area": curves.random.area,
    }


def _draw_curves(curves: Sequence[Faithfulness]) -> list[PagePart]:
    """Deletion and insertion; of several outputs the mean."""

    def average(name: str) -> list[float]:
        rows = [getattr(one, name).values for one in curves]
        return [sum(values) / len(rows) for values in zip(*rows, strict=True)]

    percents = [100 * fraction for fraction in FRACTIONS]
    drawn = {name: average(name) for name in ("random", "low", "high")}
    charts: list[PagePart] = []
    for title, name, verb in (
        ("Deletion", "deletion", "removed"),
        ("Insertion", "insertion", "inserted"),
    ):
        step = 1 if name == "deletion" else -1  # inserting is removing in the reversed order
        values = average(name)
        series = [
            Series(name="most salient tokens first", x=percents, y=values, color=0),
            Series(name="random order", x=percents, y=drawn["random"][::step], style="reference"),
            *(
                Series(
                    name=f"random, {share}",
                    x=percents,
                    y=drawn[side][::step],
                    style="faint",
                    color=5,
                )
                for side, share in (("low", "2.5% are lower"), ("high", "2.5% are higher"))
            ),
        ]
        area = sum(getattr(one, name).area for one in curves) / len(curves)
        random = sum(one.random.area for one in curves) / len(curves)
        charts.append(
            LineChart(
                title=title,
                series=series,
                x_label=f"% of the tokens {verb}",
                y_label="probability of the output",
                percent=True,
                include=(0.0,),
                note=f"Area under the curve {area:.3f}, random order {random:.3f}; "
                + ("lower is better." if name == "deletion" else "higher is better."),
            )
        )
    return [Grid(parts=charts)]


def _join_options(text: str, options: Sequence[str], views: Sequence[View]) -> View:
    """The options of one text, each with its own tokens."""
    parts: list[PagePart] = [part for view in views for part in view.figures]
    shared = {name: views[0].data[name] for name in ("method", "baseline", "steps", "drop")}
    return View(
        title="Saliency",
        figures=parts,
        data={
            "text": text,
            "options": list(options),
            **shared,
            "sequences": [
                {name: view.data[name] for name in ("pair", "tokens", "targets")} for view in views
            ],
        },
    )
