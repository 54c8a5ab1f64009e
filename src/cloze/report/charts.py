"""Rows of metrics as the charts and facts of a report.

A row has a `step` and whatever was measured there; its `kind` is train, eval or kept
(`cloze.train.step_metrics`).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, TypeAlias

from cloze.metrics.names import CORRELATIONS, METRICS, SCORES, Chart, Metric
from cloze.plot.format import format_duration, format_percent
from cloze.plot.line_chart import LineChart, Series, Style
from cloze.plot.page import Fact, Facts, Grid, PagePart, Section
from cloze.train.step_metrics import KEPT

Row: TypeAlias = Mapping[str, Any]

_FACTS = (
    *("bleu", "mlm_accuracy", "lm_accuracy", "mlm_loss", "perplexity", "cosine_loss"),
    *(key for key, measure in METRICS.items() if measure.chart in (SCORES, CORRELATIONS)),
    *("detection_accuracy", "nsp_accuracy", "sop_accuracy"),
)
_NOISY = 100  # points from which on a running mean is easier to read than all of them
_STRETCHES = 40  # of a run: each is as long as the running mean's window
_TRAINING, _HELD_OUT = 0, 1  # colours, the same in every chart


def build_sections(rows: Sequence[Row]) -> Iterator[Section]:
    """What was reached, and how; nothing of either that was not measured."""
    finals = [row for row in rows if row.get("kind") == KEPT]
    rows = [row for row in rows if row.get("kind") != KEPT]
    held_out = [row for row in rows if _is_held_out(row)]
    best = _best(held_out)
    if best is None:
        result, note = _latest(held_out), "On text that the model has not learned from."
    else:
        tuned = [row for row in finals if row["step"] == best["step"]]
        result = _latest([best, *tuned])
        note = (
            f"On the dev data, of the model in the folder: the best one, of step {best['step']:,}."
        )
        if tuned:
            note += (
                " With the threshold for no answer that was chosen then; the curves are without."
            )
    facts = list(_facts(result))
    if facts:
        yield Section(title="Result", note=note, parts=[Facts(facts)])
    charts = [chart for chart in _charts(rows, best) if chart.series]
    wide = [chart for chart in charts if chart.wide]
    others = [chart for chart in charts if not chart.wide]
    parts: list[PagePart] = [*wide, *([Grid(parts=others)] if others else [])]
    if parts:
        many = any(series.style == "faint" for chart in charts for series in chart.series)
        note = f"Bold lines of training are running means over 1/{_STRETCHES} of the run."
        yield Section(title="Training", note=note if many else "", parts=parts)


def describe_extent(rows: Sequence[Row]) -> str:
    """How long a run was: in steps, in tokens and in time."""
    last = _latest(rows)
    steps, tokens, seconds = (read_number(last, key) for key in ("step", "tokens", "seconds"))
    said = (
        f"{steps:,.0f} steps" if steps is not None else "",
        f"{tokens:,.0f} tokens" if tokens is not None else "",
        f"{format_duration(seconds)} of training" if seconds is not None else "",
    )
    return " · ".join(filter(None, said))


def read_number(row: Row, key: str) -> float | None:
    """A number of a row, if it is there and is one."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def running_mean(values: Sequence[float | None], window: int) -> list[float | None]:
    """At each place the mean of the values around it; fewer of them near the ends and gaps."""
    sums = list(accumulate((value or 0.0 for value in values), initial=0.0))
    counts = list(accumulate((value is not None for value in values), initial=0))
    means: list[float | None] = []
    for at, value in enumerate(values):
        first, last = max(at - window // 2, 0), min(at + window // 2 + 1, len(values))
        known = counts[last] - counts[first]
        means.append(None if value is None else (sums[last] - sums[first]) / known)
    return means


def _facts(last: Row) -> Iterator[Fact]:
    for key in _FACTS:
        if (value := read_number(last, key)) is None:
            continue
        measure = METRICS[key]
        detail = ", ".join(_details(last, measure))
        yield Fact(label=measure.label, text=measure.format(value), value=value, detail=detail)
        unigram = read_number(last, "unigram_accuracy")
        if unigram and measure.chart and "unigram_accuracy" in measure.chart.against:
            times = value / unigram
            yield Fact(label="times the baseline", text=f"{times:.1f}×", value=times)


def _details(last: Row, measure: Metric) -> Iterator[str]:
    """What a number is in, and what others reach."""
    if measure.chart is None:
        return
    if measure.chart.unit:
        yield measure.chart.unit
    for key in measure.chart.against:
        if (value := read_number(last, key)) is not None:
            yield f"{METRICS[key].result} {METRICS[key].format(value)}"


def _best(held_out: Sequence[Row]) -> Row | None:
    """Of a run that keeps its best (`make.course`): the evaluation of the one it kept."""
    judged = [row for row in held_out if "score" in row]
    known = [row for row in judged if read_number(row, "score") is not None]
    if known:
        return max(known, key=lambda row: row["score"])  # of equal ones the first
    return judged[-1] if judged else None


def _charts(rows: Sequence[Row], best: Row | None) -> Iterator[LineChart]:
    # The sum of all losses is not measured on held-out text; that of the masked tokens is.
    words = any(read_number(row, "mlm_loss") is not None for row in rows)
    together: dict[Chart, list[str]] = {}
    for key, measure in METRICS.items():
        if measure.chart is not None:
            together.setdefault(measure.chart, []).append(key)
    for chart, keys in together.items():
        if words and keys == ["loss"]:
            continue
        yield LineChart(
            title=chart.title,
            x_label="step",
            y_label=chart.unit,
            percent=all(METRICS[key].format is format_percent for key in keys),
            include=chart.include,
            series=_beside(_lines(rows, chart, keys), rows, chart.against),
            note=chart.note,
            wide=chart.wide,
            marker=(best["step"], "kept") if best and _any(best, keys) else None,
        )


def _any(row: Row, keys: Iterable[str]) -> bool:
    return any(read_number(row, key) is not None for key in keys)


def _lines(rows: Sequence[Row], chart: Chart, keys: Sequence[str]) -> list[Series]:
    held_out = [row for row in rows if _is_held_out(row)]
    if chart.lines == "set" or len(keys) > 1:
        told = rows if chart.lines == "set" else held_out
        return [one for key in keys for one in _series(told, key, METRICS[key].label)]
    (key,) = keys
    learned = _training(rows, key) if chart.lines != "held out" else []
    if chart.lines == "training":
        return learned
    return [*learned, *_series(held_out, key, "held out", colour=_HELD_OUT)]


def _training(rows: Sequence[Row], key: str) -> list[Series]:
    """What was measured while learning; where that is much, behind its running mean."""
    learned = [row for row in rows if not _is_held_out(row)]
    found = _series(learned, key, "training", colour=_TRAINING)
    if not found or len(found[0].y) < _NOISY:
        return found
    mean = running_mean(found[0].y, len(found[0].y) // _STRETCHES)
    return [
        replace(found[0], y=mean),
        *_series(learned, key, "as logged", style="faint", colour=_TRAINING),
    ]


def _beside(series: list[Series], rows: Sequence[Row], keys: Sequence[str]) -> list[Series]:
    """Series with the baselines that they are held against; without any no baselines either."""
    if not series:
        return []
    ends = [rows[0]["step"], rows[-1]["step"]]
    last = _latest(row for row in rows if _is_held_out(row))
    return series + [
        Series(name=METRICS[key].label, x=ends, y=[value, value], style="reference")
        for key in keys
        if (value := read_number(last, key)) is not None
    ]


def _series(
    rows: Sequence[Row], key: str, name: str, *, style: Style = "line", colour: int | None = None
) -> list[Series]:
    """The values of a key over the steps, with a gap where one is no number; none if all are."""
    having = [row for row in rows if key in row]
    steps, values = [row["step"] for row in having], [read_number(row, key) for row in having]
    if all(value is None for value in values):
        return []
    return [Series(name=name, x=steps, y=values, style=style, color=colour)]


def _is_held_out(row: Row) -> bool:
    return row.get("kind") == "eval"


def _latest(rows: Iterable[Row]) -> Row:
    """The last known value of every key."""
    return {key: value for row in rows for key, value in row.items() if value is not None}
