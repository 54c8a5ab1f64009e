"""Key figures and charts of a run report, from the rows of metrics.jsonl.

A row has a `step` and the values measured there; its `kind` is train, eval or kept
(`cloze.train.step_metrics`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, TypeAlias

from cloze.metrics.baselines import describe_failure, list_compared
from cloze.metrics.names import METRICS, format_score
from cloze.plot.format import format_duration, format_percent
from cloze.plot.line_chart import LineChart, Series, Style
from cloze.plot.page import Fact, Facts, Grid, PagePart, Paragraph, Section
from cloze.train.step_metrics import KEPT

Row: TypeAlias = Mapping[str, Any]

_NOISY = 100  # number of points from which on the running mean is drawn as the main line
_WINDOWS = 40  # the window of the running mean is this fraction of the run
_TRAINING, _HELD_OUT = 0, 1  # colors, the same in every chart


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of one or several metrics over the steps."""

    title: str
    metrics: tuple[str, ...]
    unit: str = ""  # of the y axis
    note: str = ""
    include: tuple[float, ...] = ()  # values that the y axis always includes
    lines: Literal["both", "training", "held out", "setting"] = "both"  # setting: not measured
    baselines: tuple[str, ...] = ()  # metrics on held-out text, drawn as dashed lines
    baseline_note: str = ""  # part of the note if the first baseline was measured
    wide: bool = False


_DEV = "On the dev data, at each evaluation."
_UNIGRAM = "Unigram baseline: always predicting the most frequent token."
_MAJORITY = "Majority baseline: always predicting the more frequent class."
_SCORES = (
    *("accuracy", "f1", "f1_micro", "f1_macro", "f1_samples", "subset_accuracy"),
    *("mean_average_precision", "precision", "recall", "exact_match"),
    "recall_at_10",
)
_RANKING = ("ndcg_at_10", "mrr")
_CORRELATIONS = ("matthews_correlation", "pearson", "spearman")

CHARTS = (
    Chart(title="Loss", metrics=("mlm_loss",), unit="nats per masked token", wide=True),
    Chart(title="Loss", metrics=("loss",), wide=True),
    Chart(
        title="LM loss",
        metrics=("lm_loss",),
        unit="nats per token",
        lines="training",
        note="The auxiliary loss: the next tokens of the training sequences.",
    ),
    Chart(
        title="MLM accuracy",
        metrics=("mlm_accuracy",),
        include=(0,),
        baselines=("unigram_baseline", "teacher_accuracy"),
        note="Fraction of the masked tokens that are predicted correctly.",
        baseline_note=_UNIGRAM,
    ),
    Chart(
        title="LM accuracy",
        metrics=("lm_accuracy",),
        include=(0,),
        baselines=("unigram_baseline",),
        note="Fraction of the next tokens that are predicted correctly.",
        baseline_note=_UNIGRAM,
    ),
    Chart(
        title="Soft-target loss",
        metrics=("soft_loss",),
        unit="T²·KL, nats per masked token",
        note="Divergence from the teacher's predictions.",
    ),
    Chart(
        title="Cosine loss",
        metrics=("cosine_loss",),
        unit="1 − cos per token",
        note="Distance of the last layer's hidden states from the teacher's.",
    ),
    Chart(
        title="BLEU",
        metrics=("bleu",),
        unit="from 0 to 100",
        include=(0,),
        lines="held out",
        note="On the dev sentences; the model with the best BLEU is saved.",
    ),
    Chart(
        title="ROUGE",
        metrics=("rouge_l", "rouge_1", "rouge_2"),
        include=(0,),
        lines="held out",
        baselines=("lead_3_rouge_l",),
        note="F1 on the dev texts; the model with the best ROUGE-L is saved.",
        baseline_note="Lead-3: ROUGE-L of the first three sentences of the text.",
    ),
    Chart(
        title="Scores",
        metrics=_SCORES,
        lines="held out",
        baselines=("majority_baseline", "chance_baseline", "no_answer_baseline"),
        note=_DEV,
    ),
    Chart(
        title="Ranking",
        metrics=_RANKING,
        lines="held out",
        baselines=("initial_mrr", "initial_ndcg_at_10"),
        note=_DEV,
    ),
    Chart(
        title="Correlations",
        metrics=_CORRELATIONS,
        lines="held out",
        baselines=("initial_spearman",),
        note=_DEV,
    ),
    Chart(
        title="Recall",
        metrics=("recall_at_1", "recall_at_5"),
        include=(0,),
        lines="held out",
        baselines=("chance_recall_at_1",),
        note="Held-out images and captions that find each other, mean of both directions.",
    ),
    Chart(
        title="Contrastive loss",
        metrics=("embed_loss", "clip_loss"),
        lines="training",
        note="Without the masked-LM loss.",
    ),
    Chart(
        title="Replaced-token detection",
        metrics=("detection_accuracy",),
        baselines=("all_original_baseline",),
        note="Fraction of the tokens that are classified correctly as original or replaced by the "
        "generator.",
        baseline_note="All-original baseline: classifying every token as original, at the end.",
    ),
    Chart(
        title="Generator accuracy",
        metrics=("generator_accuracy",),
        include=(0,),
        note="Fraction of the masked tokens that the generator predicts correctly.",
    ),
    Chart(
        title="Correction accuracy",
        metrics=("correction_accuracy",),
        include=(0,),
        note="Fraction of the replaced tokens that the model restores.",
    ),
    Chart(
        title="NSP accuracy",
        metrics=("nsp_accuracy",),
        include=(0.45,),  # so that the majority baseline is above the axis
        baselines=("majority_baseline",),
        note="Fraction of the pairs that are classified correctly: does the second segment follow "
        "the first?",
        baseline_note=_MAJORITY,
    ),
    Chart(
        title="SOP accuracy",
        metrics=("sop_accuracy",),
        include=(0.45,),
        baselines=("majority_baseline",),
        note="Fraction of the pairs that are classified correctly: are the segments in order or "
        "swapped?",
        baseline_note=_MAJORITY,
    ),
    Chart(title="Learning rate", metrics=("lr",), include=(0,), lines="setting"),
    Chart(
        title="Gradient norm",
        metrics=("grad_norm",),
        include=(0,),
        lines="training",
        note="Before clipping.",
    ),
    Chart(
        title="Tokens per second", metrics=("tokens_per_second",), include=(0,), lines="training"
    ),
    Chart(
        title="Images per second", metrics=("images_per_second",), include=(0,), lines="training"
    ),
)
_CHART_OF = {key: chart for chart in CHARTS for key in chart.metrics}
_FACTS = (
    *("bleu", "rouge_l", "mlm_accuracy", "lm_accuracy", "mlm_loss", "perplexity", "cosine_loss"),
    *(
        "diffusion",
        "reconstruction",
        "recall_at_1",
        "recall_at_5",
        *_RANKING,
        *_SCORES,
        *_CORRELATIONS,
        "detection_accuracy",
        "nsp_accuracy",
        "sop_accuracy",
    ),
)


def build_sections(rows: Sequence[Row]) -> Iterator[Section]:
    """The sections with results and charts; metrics that were not measured are left out."""
    kept = [row for row in rows if row.get("kind") == KEPT]
    rows = [row for row in rows if row.get("kind") != KEPT]
    held_out = [row for row in rows if _is_held_out(row)]
    best = _find_best(held_out)
    if best is None:
        result, note = _latest_values(held_out), "On held-out text."
    else:
        tuned = [row for row in kept if row["step"] == best["step"]]
        result = _latest_values([best, *tuned])
        note = f"On the dev data. The folder contains the best model (step {best['step']:,})."
        if "f1_micro" in result:
            note += " The thresholds of the labels were chosen on the same data."
        elif tuned:
            note += " The no-answer threshold was tuned afterwards; the charts do not include it."
    facts = list(_make_facts(result, format_score if best else _format_value))
    numbers = {key: value for key in result if (value := read_number(result, key)) is not None}
    if failure := describe_failure(numbers):
        note = f"{note} {failure[0].upper()}{failure[1:]}."
    if facts:
        yield Section(title="Result", note=note, parts=[Facts(facts)])
    charts = [chart for chart in _draw_charts(rows, best) if _has_line(chart)]
    wide = [chart for chart in charts if chart.wide]
    others = [chart for chart in charts if not chart.wide]
    parts: list[PagePart] = [*wide, *([Grid(parts=others)] if others else [])]
    if parts:
        many = any(series.style == "faint" for chart in charts for series in chart.series)
        note = f"Bold training lines are running means over 1/{_WINDOWS} of the run."
        yield Section(title="Training", note=note if many else "", parts=parts)
    elif rows and not facts:
        text = "Too few steps were logged for charts."
        yield Section(title="Training", parts=[Paragraph(text=text)])


def describe_extent(rows: Sequence[Row]) -> str:
    """The length of a run in steps, tokens or images, and time."""
    last = _latest_values(rows)
    unit = "images" if "images" in last else "tokens"
    steps, size, seconds = (read_number(last, key) for key in ("step", unit, "seconds"))
    parts = (
        f"{steps:,.0f} step{'' if steps == 1 else 's'}" if steps is not None else "",
        f"{size:,.0f} {unit}" if size is not None else "",
        f"{format_duration(seconds)} of training" if seconds is not None else "",
    )
    return " · ".join(filter(None, parts))


def read_number(row: Row, key: str) -> float | None:
    """A finite number of a row, or None."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def running_mean(values: Sequence[float | None], window: int) -> list[float | None]:
    """The mean of the values around each one; fewer of them near the ends and gaps."""
    sums = list(accumulate((value or 0.0 for value in values), initial=0.0))
    counts = list(accumulate((value is not None for value in values), initial=0))
    means: list[float | None] = []
    for index, value in enumerate(values):
        first, last = max(index - window // 2, 0), min(index + window // 2 + 1, len(values))
        known = counts[last] - counts[first]
        means.append(None if value is None else (sums[last] - sums[first]) / known)
    return means


def _format_value(key: str, value: float) -> str:
    return METRICS[key].format(value)


def _make_facts(last: Row, format_: Callable[[str, float], str]) -> Iterator[Fact]:
    for key in _FACTS:
        if (value := read_number(last, key)) is None:
            continue
        metric = METRICS[key]
        detail = ", ".join(_describe_baselines(last, key))
        yield Fact(label=metric.label, text=format_(key, value), value=value, detail=detail)
        unigram = read_number(last, "unigram_baseline")
        if unigram and key in _CHART_OF and "unigram_baseline" in _CHART_OF[key].baselines:
            ratio = value / unigram
            yield Fact(label="ratio to the baseline", text=f"{ratio:.1f}×", value=ratio)


def _describe_baselines(last: Row, key: str) -> Iterator[str]:
    """The unit of a metric and its baselines."""
    if key not in _CHART_OF:
        return
    chart = _CHART_OF[key]
    if chart.unit:
        yield chart.unit
    for baseline in chart.baselines:
        value = read_number(last, baseline)
        if value is not None and (key in list_compared(baseline) or key not in _SCORES):
            yield METRICS[baseline].describe(value)


def _find_best(held_out: Sequence[Row]) -> Row | None:
    """The evaluation of the kept model, of a run that keeps its best one."""
    scored = [row for row in held_out if "score" in row]
    known = [row for row in scored if read_number(row, "score") is not None]
    if known:
        return max(known, key=lambda row: row["score"])  # the first of equal ones
    return scored[-1] if scored else None


def _draw_charts(rows: Sequence[Row], best: Row | None) -> Iterator[LineChart]:
    # The total loss is not measured on held-out text; the MLM loss is.
    has_mlm_loss = any(read_number(row, "mlm_loss") is not None for row in rows)
    for chart in CHARTS:
        if has_mlm_loss and chart.metrics == ("loss",):
            continue
        marked = best is not None and _has_any(best, chart.metrics)
        lines = _draw_lines(rows, chart)
        several = len(chart.metrics) > 1
        yield LineChart(
            # a single line has no legend: the title names its metric
            title=_capitalize(lines[0].name) if several and len(lines) == 1 else chart.title,
            x_label="step",
            y_label=chart.unit,
            percent=all(METRICS[key].format is format_percent for key in chart.metrics),
            include=chart.include,
            series=_add_baselines(lines, rows, chart.baselines),
            note=_describe_chart(chart, rows),
            wide=chart.wide,
            marker=(best["step"], "best") if best is not None and marked else None,
        )


def _has_line(chart: LineChart) -> bool:
    """Whether a chart shows more than single points, which the results list already."""
    measured = (one for one in chart.series if one.style != "reference")
    return any(sum(value is not None for value in one.y) > 1 for one in measured)


def _describe_chart(chart: Chart, rows: Sequence[Row]) -> str:
    has_baseline = any(_has_any(row, chart.baselines[:1]) for row in rows)
    return " ".join(filter(None, (chart.note, chart.baseline_note if has_baseline else "")))


def _capitalize(name: str) -> str:
    return name[:1].upper() + name[1:]


def _has_any(row: Row, keys: Iterable[str]) -> bool:
    return any(read_number(row, key) is not None for key in keys)


def _draw_lines(rows: Sequence[Row], chart: Chart) -> list[Series]:
    held_out = [row for row in rows if _is_held_out(row)]
    if chart.lines == "setting" or len(chart.metrics) > 1:
        shown = rows if chart.lines == "setting" else held_out
        return [
            one for key in chart.metrics for one in _make_series(shown, key, METRICS[key].label)
        ]
    (key,) = chart.metrics
    training = _draw_training_lines(rows, key) if chart.lines != "held out" else []
    if chart.lines == "training":
        return training
    return [*training, *_make_series(held_out, key, "held out", color=_HELD_OUT)]


def _draw_training_lines(rows: Sequence[Row], key: str) -> list[Series]:
    """The values during training; if there are many, behind their running mean."""
    training = [row for row in rows if not _is_held_out(row)]
    found = _make_series(training, key, "training", color=_TRAINING)
    if not found or len(found[0].y) < _NOISY:
        return found
    mean = running_mean(found[0].y, len(found[0].y) // _WINDOWS)
    return [
        replace(found[0], y=mean),
        *_make_series(training, key, "as logged", style="faint", color=_TRAINING),
    ]


def _add_baselines(series: list[Series], rows: Sequence[Row], keys: Sequence[str]) -> list[Series]:
    if not series:
        return []
    ends = [rows[0]["step"], rows[-1]["step"]]
    last = _latest_values(row for row in rows if _is_held_out(row))
    return series + [
        Series(name=METRICS[key].label, x=ends, y=[value, value], style="reference")
        for key in keys
        if (value := read_number(last, key)) is not None
    ]


def _make_series(
    rows: Sequence[Row], key: str, name: str, *, style: Style = "line", color: int | None = None
) -> list[Series]:
    """The values of a metric over the steps, with gaps for non-finite ones; none if all are."""
    having = [row for row in rows if key in row]
    steps, values = [row["step"] for row in having], [read_number(row, key) for row in having]
    if all(value is None for value in values):
        return []
    return [Series(name=name, x=steps, y=values, style=style, color=color)]


def _is_held_out(row: Row) -> bool:
    return row.get("kind") == "eval"


def _latest_values(rows: Iterable[Row]) -> Row:
    """The last known value of every key."""
    return {key: value for row in rows for key, value in row.items() if value is not None}
