"""Rows of metrics as the charts and facts of a report.

A row has a `step` and whatever was measured there; its `kind` is train or eval.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, TypeAlias

from cloze.draw.chart import LineChart, Series, Style
from cloze.draw.numbers import duration, percent, short
from cloze.draw.page import Section
from cloze.draw.parts import Fact, Facts, Grid, Part

Row: TypeAlias = Mapping[str, Any]

# What labelled data are scored by (cloze.evaluate.measures), as people write it.
SCORES = {
    "accuracy": "accuracy",
    "f1": "F1",
    "f1_macro": "F1, mean of classes",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "precision": "precision",
    "recall": "recall",
    "exact": "exact",
}
_NOISY = 100  # points from which on a running mean is easier to read than all of them
_STRETCHES = 40  # of a run: each is as long as the running mean's window
_TRAINING, _HELD_OUT = 0, 1  # colours, the same in every chart


def sections(rows: Sequence[Row]) -> Iterator[Section]:
    """What was reached, and how; nothing of either that was not measured."""
    facts = list(_facts(_latest(row for row in rows if _is_held_out(row))))
    if facts:
        note = "On text that the model has not learned from."
        yield Section(title="Result", note=note, parts=[Facts(facts)])
    charts = [chart for chart in _charts(rows) if chart.series]
    wide = [chart for chart in charts if chart.wide]
    others = [chart for chart in charts if not chart.wide]
    parts: list[Part] = [*wide, *([Grid(parts=others)] if others else [])]
    if parts:
        many = any(series.style == "faint" for chart in charts for series in chart.series)
        note = f"Bold lines of training are running means over 1/{_STRETCHES} of the run."
        yield Section(title="Training", note=note if many else "", parts=parts)


def extent(rows: Sequence[Row]) -> str:
    """How long a run was: in steps, in tokens and in time."""
    last = _latest(rows)
    steps, tokens, seconds = (measured(last, key) for key in ("step", "tokens", "seconds"))
    said = (
        f"{steps:,.0f} steps" if steps is not None else "",
        f"{tokens:,.0f} tokens" if tokens is not None else "",
        f"{duration(seconds)} of training" if seconds is not None else "",
    )
    return " · ".join(filter(None, said))


def measured(row: Row, key: str) -> float | None:
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
    if (value := measured(last, "bleu")) is not None:
        yield Fact(label="BLEU", text=f"{value:.1f}", value=value, detail="from 0 to 100")
    yield from _words(last)
    if (value := measured(last, "mlm_loss")) is not None:
        yield Fact(label="loss", text=short(value), value=value, detail="nats a masked token")
    if (value := measured(last, "perplexity")) is not None:
        yield Fact(label="perplexity", text=short(value), value=value)
    if (value := measured(last, "cosine_loss")) is not None:
        yield Fact(label="cosine loss", text=short(value), value=value, detail="1 − cos, a token")
    yield from _scores(last)
    if (value := measured(last, "detection_accuracy")) is not None:
        original = measured(last, "original_accuracy")
        known = "" if original is None else f"calling all original {percent(original)}"
        yield Fact(label="tokens told apart", text=percent(value), value=value, detail=known)
    if (value := measured(last, "nsp_accuracy")) is not None:
        commoner = measured(last, "commoner_pair_accuracy")
        known = "" if commoner is None else f"always the commoner answer {percent(commoner)}"
        yield Fact(label="NSP accuracy", text=percent(value), value=value, detail=known)


def _words(last: Row) -> Iterator[Fact]:
    """Words guessed right: the masked ones, or left to right the next."""
    unigram = measured(last, "unigram_accuracy")
    others = {"teacher": measured(last, "teacher_accuracy"), "unigram baseline": unigram}
    known = ", ".join(f"{who} {percent(it)}" for who, it in others.items() if it is not None)
    for label, key in (("MLM accuracy", "mlm_accuracy"), ("LM accuracy", "lm_accuracy")):
        if (value := measured(last, key)) is None:
            continue
        yield Fact(label=label, text=percent(value), value=value, detail=known)
        if unigram:
            times = value / unigram
            yield Fact(label="times the baseline", text=f"{times:.1f}×", value=times)


def _scores(last: Row) -> Iterator[Fact]:
    known = {
        name: value for key, name in SCORES.items() if (value := measured(last, key)) is not None
    }
    for label, value in known.items():
        yield Fact(label=label, text=percent(value), value=value)


def _charts(rows: Sequence[Row]) -> Iterator[LineChart]:
    held_out = [row for row in rows if _is_held_out(row)]
    # The sum of both losses is not measured on held-out text; that of the masked tokens is.
    words = any(measured(row, "mlm_loss") is not None for row in rows)
    yield LineChart(
        title="Loss",
        y_label="nats a masked token" if words else "",
        x_label="step",
        series=_both(rows, "mlm_loss" if words else "loss"),
        wide=True,
    )
    yield LineChart(
        title="MLM accuracy",
        x_label="step",
        percent=True,
        include=[0],
        series=_beside(
            _both(rows, "mlm_accuracy"),
            *_level(rows, "unigram_accuracy", "unigram"),
            *_level(held_out, "teacher_accuracy", "teacher"),
        ),
        note="Unigram is what always saying the most frequent token gets.",
    )
    yield LineChart(
        title="LM accuracy",
        x_label="step",
        percent=True,
        include=[0],
        series=_beside(_both(rows, "lm_accuracy"), *_level(rows, "unigram_accuracy", "unigram")),
        note="Next tokens guessed right. Unigram is what always saying the most frequent one gets.",
    )
    yield LineChart(
        title="Soft targets",
        y_label="T²·KL, nats a masked token",
        x_label="step",
        series=_both(rows, "soft_loss"),
        note="How far the guesses are from the teacher's.",
    )
    yield LineChart(
        title="Cosine loss",
        y_label="1 − cos, a token",
        x_label="step",
        series=_both(rows, "cosine_loss"),
        note="How far the vectors of the last layer are from the teacher's.",
    )
    yield LineChart(
        title="BLEU",
        x_label="step",
        include=[0],
        series=_series(held_out, "bleu", "held out", colour=_HELD_OUT),
        note="Of the dev sentences, by which the model is chosen.",
    )
    yield LineChart(
        title="Scores",
        x_label="step",
        percent=True,
        series=[one for key, name in SCORES.items() for one in _series(held_out, key, name)],
        note="On the dev data, after every epoch.",
    )
    yield LineChart(
        title="Replaced tokens",
        x_label="step",
        percent=True,
        series=[
            *_both(rows, "detection_accuracy"),
            *_level(held_out, "original_accuracy", "original"),
        ],
        note="Tokens told apart: is it the text's or the generator's? Original is what calling "
        "all of them the text's gets, at the end.",
    )
    yield LineChart(
        title="Generator accuracy",
        x_label="step",
        percent=True,
        include=[0],
        series=_both(rows, "generator_accuracy"),
        note="Masked tokens that the generator would guess right.",
    )
    yield LineChart(
        title="Correction accuracy",
        x_label="step",
        percent=True,
        include=[0],
        series=_both(rows, "correction_accuracy"),
        note="Tokens the model restores where the generator has put others.",
    )
    yield LineChart(
        title="NSP accuracy",
        x_label="step",
        percent=True,
        include=[0.45],  # so that a line at chance does not lie on the axis
        series=_beside(
            _both(rows, "nsp_accuracy"), *_level(rows, "commoner_pair_accuracy", "commoner")
        ),
        note="Pairs told right: do they follow each other? Commoner is what always saying the "
        "commoner answer gets; short samples make the two uneven.",
    )
    yield LineChart(
        title="Learning rate", x_label="step", include=[0], series=_series(rows, "lr", "rate")
    )
    yield LineChart(
        title="Tokens a second",
        x_label="step",
        include=[0],
        series=_training(rows, "tokens_per_second"),
    )


def _both(rows: Sequence[Row], key: str) -> list[Series]:
    held_out = [row for row in rows if _is_held_out(row)]
    return [*_training(rows, key), *_series(held_out, key, "held out", colour=_HELD_OUT)]


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


def _beside(series: list[Series], *levels: Series) -> list[Series]:
    """Series with the baselines that they are held against; without any no baselines either."""
    return [*series, *levels] if series else []


def _level(rows: Sequence[Row], key: str, name: str) -> list[Series]:
    """A baseline as a line from end to end; none if it was not measured."""
    value = measured(_latest(rows), key)
    if value is None:
        return []
    ends = [rows[0]["step"], rows[-1]["step"]]
    return [Series(name=name, x=ends, y=[value, value], style="reference")]


def _series(
    rows: Sequence[Row], key: str, name: str, *, style: Style = "line", colour: int | None = None
) -> list[Series]:
    """The values of a key over the steps, with a gap where one is no number; none if all are."""
    having = [row for row in rows if key in row]
    steps, values = [row["step"] for row in having], [measured(row, key) for row in having]
    if all(value is None for value in values):
        return []
    return [Series(name=name, x=steps, y=values, style=style, colour=colour)]


def _is_held_out(row: Row) -> bool:
    return row.get("kind") == "eval"


def _latest(rows: Iterable[Row]) -> Row:
    """The last known value of every key."""
    return {key: value for row in rows for key, value in row.items() if value is not None}
