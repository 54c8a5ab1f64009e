"""The metrics of a run on a terminal: as a panel, or in one line."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from cloze.metrics.names import METRICS

Row: TypeAlias = Mapping[str, Any]

WIDTH, HEIGHT = 70, 15  # minimum terminal size for the panel
_MAX_WIDTH = 88
_SPARK = 28  # characters of the sparkline
_OTHER_COLUMNS = 44  # characters that the panel needs next to the sparkline
_HISTORY = 16 * _SPARK  # values that the sparkline is drawn from, however long the run
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.,-=*%#"
_TO_ASCII = str.maketrans({"·": "|", "\N{NO-BREAK SPACE}": " ", "–": "-", "…": "."})


_EXTENT = ("step", "tokens", "images")
_TIME = ("seconds", "fraction", "seconds_left")
_TRAINING = (
    *_EXTENT,
    *("loss", "lm_loss", "mlm_accuracy", "lm_accuracy", "nsp_accuracy", "sop_accuracy"),
    *("detection_accuracy", "accuracy"),
    *("lr", "tokens_per_second", "images_per_second", "non_padding_fraction"),
    *_TIME,
)
_HELD_OUT = (
    *(
        "step",
        "mlm_loss",
        "perplexity",
        "unigram_perplexity",
        "mlm_accuracy",
        "lm_accuracy",
        "unigram_baseline",
    ),
    "teacher_accuracy",
    *("nsp_accuracy", "sop_accuracy", "detection_accuracy", "all_original_baseline", "cosine_loss"),
    *("accuracy", "majority_baseline", "chance_baseline", "bleu", "score", "no_answer_baseline"),
    *("rouge_l", "lead_3_rouge_l", "diffusion", "reconstruction", "recall_at_1"),
)
# Rows of the panel, with the values on training and held-out data side by side.
_ROWS = (
    *("loss", "mlm_loss", "lm_loss", "nsp_loss", "sop_loss", "soft_loss", "cosine_loss"),
    *("mlm_accuracy", "lm_accuracy", "nsp_accuracy", "sop_accuracy", "detection_accuracy"),
    *("accuracy", "bleu", "rouge_l", "score", "lr", "grad_norm", "tokens_per_second"),
    *("diffusion", "reconstruction", "clip_loss", "recall_at_1", "images_per_second"),
)
# Where one of these is measured, "score" repeats it and is not a fraction.
_SELECTION_METRICS = {
    *("bleu", "perplexity", "rouge_l", "diffusion", "reconstruction", "recall_at_1"),
}


class AsciiOnly:
    """A renderable for terminals and files that only support ASCII."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            text = segment.text.translate(_TO_ASCII).encode("ascii", "replace").decode()
            yield Segment(text, segment.style, segment.control)


class LossHistory:
    """All losses of a run in bounded memory: when it is full, adjacent values are averaged."""

    def __init__(self) -> None:
        self._means: list[float] = []
        self._pending: list[float] = []  # not enough for a mean yet
        self._window = 1  # values per mean

    def add(self, value: float) -> None:
        self._pending.append(value)
        if len(self._pending) < self._window:
            return
        self._means.append(_mean(self._pending))
        self._pending = []
        if len(self._means) == _HISTORY:
            self._means = _window_means(self._means, 2)
            self._window *= 2

    def spark(self, length: int = _SPARK, levels: str = _BLOCKS) -> str:
        """A sparkline of the whole run."""
        heights = _window_means(self._means, max(1, math.ceil(len(self._means) / length)))
        low, high = min(heights, default=0.0), max(heights, default=0.0)
        scale = (len(levels) - 1) / (high - low) if high > low else 0.0
        return "".join(levels[round((height - low) * scale)] for height in heights)


class RunSummary:
    """The latest values of all metrics of a run."""

    def __init__(self) -> None:
        self.training: dict[str, float] = {}
        self.held_out: dict[str, float] = {}
        self.losses = LossHistory()
        self._start: tuple[float, float] | None = None  # seconds and fraction, in this process

    def add(self, row: Row) -> None:
        numbers = {key: number for key in row if (number := _to_number(row[key])) is not None}
        if row.get("kind") == "eval":
            if _SELECTION_METRICS & numbers.keys():
                numbers.pop("score", None)
            self.held_out = numbers
            return
        self.training |= numbers
        if math.isfinite(loss := numbers.get("loss", math.nan)):
            self.losses.add(loss)
        if {"seconds", "fraction"} <= numbers.keys():
            seconds, fraction = numbers["seconds"], numbers["fraction"]
            self._start = self._start or (seconds, fraction)
            self.training["seconds_left"] = self._estimate_seconds_left(seconds, fraction)

    def finish(self, seconds: float, *, is_complete: bool) -> None:
        """The run has ended: what is left is not shown any more."""
        self.training.pop("seconds_left", None)
        self.training["seconds"] = max(seconds, self.training.get("seconds", 0.0))
        if is_complete and "fraction" in self.training:
            self.training["fraction"] = 1.0

    def _estimate_seconds_left(self, seconds: float, fraction: float) -> float:
        """Time until the budget is spent, at the speed since this process started."""
        assert self._start is not None
        elapsed, done = seconds - self._start[0], fraction - self._start[1]
        if done <= 0:  # the first row: use the whole run, resumed parts included
            elapsed, done = seconds, fraction
        return elapsed / done * (1 - fraction) if done > 0 else math.nan


def format_training(summary: RunSummary) -> str:
    """The latest training step in one line."""
    return _describe(summary.training, *_TRAINING)


def format_evaluation(summary: RunSummary) -> str:
    """The latest evaluation in one line."""
    return f"held out: {_describe(summary.held_out, *_HELD_OUT)}"


def render_panel(
    summary: RunSummary, *, title: str, width: int, ascii_only: bool = False
) -> RenderableType:
    """All metrics in a frame."""
    width = min(width, _MAX_WIDTH)
    levels = _ASCII if ascii_only else _BLOCKS
    spark = summary.losses.spark(min(_SPARK, width - _OTHER_COLUMNS), levels)
    return Panel(
        Group(_render_metrics(summary, spark), Text(), _render_progress(summary.training)),
        title=Text(title),
        title_align="left",
        subtitle=Text(_describe(summary.training, *_EXTENT)),
        subtitle_align="right",
        width=width,
        padding=(1, 2),
    )


def _render_metrics(summary: RunSummary, spark: str) -> Table:
    """Each metric on training and held-out data, and its baselines."""
    training, held_out = summary.training, summary.held_out
    details = {
        "loss": spark,
        "mlm_loss": _describe(held_out, "perplexity"),
        "mlm_accuracy": _describe(held_out, "unigram_baseline", "teacher_accuracy"),
        "lm_accuracy": _describe(held_out, "perplexity", "unigram_baseline"),
        "nsp_accuracy": _describe(held_out, "majority_baseline"),
        "sop_accuracy": _describe(held_out, "majority_baseline"),
        "detection_accuracy": _describe(held_out, "all_original_baseline"),
        "accuracy": _describe(held_out, "perplexity", "majority_baseline", "chance_baseline"),
        "score": _describe(held_out, "no_answer_baseline"),
        "tokens_per_second": _describe(training, "non_padding_fraction"),
    }
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim", no_wrap=True, min_width=13)
    table.add_column(justify="right", style="bold", no_wrap=True, min_width=8)
    table.add_column(justify="right", style="cyan", no_wrap=True, min_width=8)
    table.add_column(no_wrap=True)
    if held_out:
        table.add_row("", Text("training", "dim"), Text("held out", "dim"), "")
    for key in _ROWS:
        values = [values.get(key) for values in (training, held_out)]
        if values != [None, None]:
            metric = METRICS[key]
            cells = ["" if value is None else metric.format(value) for value in values]
            table.add_row(metric.label, *cells, Text(details.get(key, "")))
    return table


def _render_progress(values: Mapping[str, float]) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    cells: list[RenderableType] = []
    if math.isfinite(fraction := values.get("fraction", math.nan)):
        table.add_column(ratio=1)
        cells.append(ProgressBar(total=1.0, completed=min(max(fraction, 0.0), 1.0)))
    table.add_column(no_wrap=True)
    table.add_row(*cells, Text(_describe(values, *_TIME)))
    return table


def _describe(values: Mapping[str, float], *keys: str) -> str:
    return " · ".join(METRICS[key].describe(values[key]) for key in keys if key in values)


def _to_number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type] # also works for a tensor of one number
    except (TypeError, ValueError):
        return None


def _window_means(values: Sequence[float], window: int) -> list[float]:
    return [_mean(values[start : start + window]) for start in range(0, len(values), window)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
