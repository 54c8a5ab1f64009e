import io
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from rich.console import Console

from cloze.report.display import Display
from cloze.report.panel import (
    HEIGHT,
    WIDTH,
    LossHistory,
    RunSummary,
    format_evaluation,
    format_training,
    render_panel,
)
from helpers import raises


def rows(count: int = 100, evaluate: int | None = None) -> Iterator[dict[str, Any]]:
    for step in range(1, count + 1):
        yield {
            "kind": "train",
            "step": step,
            "tokens": 8192 * step,
            "seconds": 6.0 * step,
            "fraction": step / count,
            "lr": 1e-3,
            "loss": 9 - 5 * step / count,
            "mlm_loss": 8.5 - 5 * step / count,
            "mlm_accuracy": 0.4 * step / count,
            "nsp_accuracy": 0.5,
            "tokens_per_second": 12_345.6,
            "non_padding_fraction": 0.993,
        }
        if evaluate and step % evaluate == 0:
            yield {
                "kind": "eval",
                "step": step,
                "mlm_loss": 4.5,
                "perplexity": 90.0,
                "mlm_accuracy": 0.38,
                "unigram_baseline": 0.0621,
                "nsp_accuracy": 0.55,
            }


def plain() -> Console:
    return Console(file=io.StringIO(), width=80)


def terminal(width: int = 100, height: int = 30, **settings: Any) -> Console:
    file = io.StringIO()
    return Console(
        file=file, width=width, height=height, force_terminal=True, _environ={}, **settings
    )


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def show(source: Iterable[dict[str, Any]], console: Console | None, title: str = "-") -> None:
    with Display(console=console, title=title) as display:
        for row in source:
            display.show(row)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let the clock move on by a fixed time whenever it is read."""

    def ticking(seconds: float) -> None:
        monkeypatch.setattr("time.monotonic", count(step=seconds).__next__)

    return ticking


def test_a_file_gets_plain_lines_in_their_time(clock: Callable[[float], None]) -> None:
    console = plain()
    clock(1.0)
    show(rows(100), console)
    lines = written(console).splitlines()
    assert 9 <= len(lines) <= 12
    assert lines[0].startswith("step 1 · 8,192 tokens · loss 8.950 · MLM accuracy 0.4\xa0%")
    assert lines[-1] == (
        "step 100 · 819k tokens · loss 4.000 · MLM accuracy 40.0\xa0% · NSP accuracy 50.0\xa0% · "
        "learning rate 0.001 · 12.3k tokens/s · 99.3\xa0% non-padding · 10:00 · 100.0\xa0% done · "
        "0:00 left"
    )
    assert "\x1b" not in written(console)


def test_evaluations_are_always_told(clock: Callable[[float], None]) -> None:
    console = plain()
    clock(0.0)
    show(rows(100, evaluate=50), console)
    lines = written(console).splitlines()
    assert [line.split(" · ")[0] for line in lines] == [
        "step 1",
        "held out: step 50",
        "held out: step 100",
        "step 100",
    ]
    assert lines[1] == (
        "held out: step 50 · MLM loss 4.500 · perplexity 90 · MLM accuracy 38.0\xa0% · "
        "unigram baseline 6.2\xa0% · NSP accuracy 55.0\xa0%"
    )


def test_by_default_it_speaks_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    show(rows(10), None)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("step 1 ·")


def test_a_terminal_gets_a_panel_that_stays_in_place(clock: Callable[[float], None]) -> None:
    console = terminal()
    clock(1.0)
    show(rows(50, evaluate=25), console, "pretrain [x]")
    text = written(console)
    last = text.rpartition("─ pretrain [x] ─")[2]
    for expected in (
        "4.000",
        "held out",
        "perplexity 90",
        "unigram baseline 6.2",
        "99.3",
        "step 50",
        "█",
        "━",
    ):
        assert expected in last
    assert "\x1b[1A\x1b[2K" in text  # written over, line by line
    assert text.index("\x1b[?25l") < text.rindex("\x1b[?25h")  # the cursor comes back


def test_no_thread_draws_behind_our_back() -> None:
    before = threading.active_count()
    with Display(console=terminal()) as display:
        for row in rows(3):
            display.show(row)
            assert threading.active_count() == before


def test_pictures_are_not_drawn_more_often_than_eyes_follow(
    clock: Callable[[float], None],
) -> None:
    console = terminal()
    clock(0.01)
    show(rows(1000), console, "pretrain")
    assert written(console).count("pretrain") < 100


def test_the_cursor_comes_back_when_training_fails() -> None:
    def failing() -> Iterator[dict[str, Any]]:
        yield from rows(3)
        raise RuntimeError("the loss is NaN")

    console = terminal()
    before = sys.stdout, sys.stderr
    with raises(RuntimeError, "the loss is NaN"):
        show(failing(), console)
    assert written(console).endswith("\x1b[?25h")
    assert (sys.stdout, sys.stderr) == before


def test_what_is_printed_meanwhile_to_a_file_goes_there(capsys: pytest.CaptureFixture[str]) -> None:
    console = terminal()
    with Display(console=console) as display:
        for row in rows(2):
            display.show(row)
            sys.stdout.write("result\n")
    assert capsys.readouterr().out == "result\nresult\n"
    assert "result" not in written(console)


@pytest.mark.parametrize("height", [1, 2, 5, 14, 15, 50])
@pytest.mark.parametrize("width", [1, 2, 10, 40, WIDTH - 1, WIDTH, WIDTH + 1, 90, 300])
def test_any_size_of_terminal_will_do(width: int, height: int) -> None:
    console = terminal(width, height)
    show(rows(5, evaluate=2), console)
    assert "training goes on" not in written(console)
    assert ("╭" in written(console)) == (width >= WIDTH and height >= HEIGHT)


def test_a_small_terminal_gets_one_line() -> None:
    console = terminal(40, 30)
    show(rows(1), console)
    assert "\x1b[2Kstep 1 · 8,192 tokens · loss 4.000 · ML…\n" in written(console)


def test_a_terminal_without_a_cursor_gets_plain_lines() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    show(rows(3), console)
    assert written(console).startswith("step 1 ·")


def test_a_terminal_of_few_letters_gets_few_letters() -> None:
    for force in (True, False):
        raw = io.BytesIO()
        file = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
        console = Console(file=file, width=80, height=30, force_terminal=force, _environ={})
        show(rows(60, evaluate=10), console, "größe 北京")
        text = raw.getvalue().decode("ascii")
        assert "step 60 | 492k tokens" in text
        assert "38.0 %" in text
        assert "training goes on" not in text
        file.detach()


class Gone(io.StringIO):
    """A file whose other end goes away after some writes."""

    def __init__(self, error: Exception, after: int) -> None:
        super().__init__()
        self.error, self.left = error, after

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("force", [True, False], ids=["terminal", "file"])
@pytest.mark.parametrize(
    "error",
    [OSError(5, "Input/output error"), BrokenPipeError(), ValueError("I/O on closed file")],
    ids=["hung up", "closed pipe", "closed file"],
)
def test_a_terminal_that_goes_away_is_survived(
    error: Exception, force: bool, after: int, clock: Callable[[float], None]
) -> None:
    clock(99.0)
    before = sys.stdout, sys.stderr
    console = Console(
        file=Gone(error, after), force_terminal=force, width=80, height=30, _environ={}
    )
    show(rows(50), console)
    assert (sys.stdout, sys.stderr) == before


def test_a_closed_pipe_leaves_standard_output_alone(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    clock: Callable[[float], None],
) -> None:
    clock(99.0)
    monkeypatch.setattr(sys, "stderr", Gone(BrokenPipeError(), 1))
    show(rows(50), None)
    os.write(1, b"still here")
    assert capfd.readouterr().out == "still here"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
def test_a_real_terminal_that_is_closed_is_survived() -> None:
    ours, theirs = os.openpty()
    file = os.fdopen(theirs, "w")
    try:
        console = Console(file=file, _environ={"TERM": "xterm", "COLUMNS": "80", "LINES": "30"})
        assert console.is_terminal
        with Display(console=console) as display:
            for row in rows(50):
                display.show(row)
                if row["step"] == 10:
                    os.close(ours)
    finally:
        with suppress(OSError):
            file.close()


def test_a_fault_of_the_display_itself_is_told_and_survived() -> None:
    class Trap:
        def __float__(self) -> float:
            raise ZeroDivisionError("trap")

    console = plain()
    show([{"step": 1}, {"step": Trap()}, {"step": 3}], console)
    assert written(console).splitlines() == [
        "step 1",
        "the display stopped (ZeroDivisionError: trap), training continues",
    ]


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"kind": "eval"},
        {"kind": "train", "loss": None},
        {"loss": math.nan, "lr": math.inf, "seconds": math.nan, "fraction": math.nan},
        {"fraction": 0.0, "seconds": 0.0},
        {"fraction": 7.0, "seconds": -1.0, "step": -1, "tokens": 1e300},
        {"loss": "a text", "mlm_accuracy": [1], "kind": 7, "unknown": object()},
    ],
)
def test_rows_of_any_kind_are_shown_as_far_as_can_be(
    row: dict[str, Any], clock: Callable[[float], None]
) -> None:
    clock(99.0)
    for console in (plain(), terminal()):
        show([row, row, {"step": 5}], console)
        assert "step 5" in written(console)
        assert "training goes on" not in written(console)


def test_a_loss_that_is_no_number_is_said() -> None:
    seen = RunSummary()
    seen.add({"step": 3, "loss": math.nan})
    assert format_training(seen) == "step 3 · loss NaN"


def test_time_left_follows_the_pace_of_this_sitting() -> None:
    seen = RunSummary()
    seen.add({"seconds": 1000.0, "fraction": 0.5})  # resumed: all that is known is the past
    assert seen.training["seconds_left"] == pytest.approx(1000)
    seen.add({"seconds": 1010.0, "fraction": 0.6})  # ten times as fast as before
    assert seen.training["seconds_left"] == pytest.approx(40)


def test_what_a_row_leaves_out_is_still_known() -> None:
    seen = RunSummary()
    seen.add({"step": 1, "loss": 2.0})
    seen.add({"step": 2})
    seen.add({"kind": "eval", "step": 2, "mlm_accuracy": 0.5})
    assert format_training(seen) == "step 2 · loss 2.000"
    assert format_evaluation(seen) == "held out: step 2 · MLM accuracy 50.0\xa0%"


def test_what_chooses_a_model_is_told_by_its_own_name() -> None:
    seen = RunSummary()
    bleu = {"bleu": 36.12, "loss": 1.5, "perplexity": 4.48, "accuracy": 0.6, "score": 36.12}
    seen.add({"kind": "eval", "step": 2, **bleu})
    told = "held out: step 2 · perplexity 4.48 · accuracy 60.0\xa0% · BLEU 36.1"
    assert format_evaluation(seen) == told
    console = terminal()
    console.print(render_panel(seen, title="mt", width=80))
    assert "BLEU" in written(console)
    assert "score" not in written(console)
    seen.add({"kind": "eval", "step": 3, "loss": 6.2, "perplexity": 492.7, "score": -6.2})
    assert format_evaluation(seen) == "held out: step 3 · perplexity 492.7"
    seen.add({"kind": "eval", "step": 4, "accuracy": 0.8, "score": 0.75})
    assert format_evaluation(seen).endswith("accuracy 80.0\xa0% · score 75.0\xa0%")


def test_a_panel_leaves_out_what_it_does_not_know() -> None:
    console = plain()
    seen = RunSummary()
    seen.add({"step": 1, "loss": 2.0})
    console.print(render_panel(seen, title="t", width=80))
    assert "loss" in written(console)
    for word in ("held out", "NSP", "learning", "tokens", "seconds_left"):
        assert word not in written(console)


def test_a_spark_line_shows_the_whole_run() -> None:
    trace = LossHistory()
    assert trace.spark() == ""
    trace.add(5)
    assert trace.spark() == "▁"
    for step in range(10_000):
        trace.add(10_000 - step)
    spark = trace.spark(20)
    assert spark[0] == "█"
    assert spark[-1] == "▁"
    assert len(spark) <= 20
    assert [*spark] == sorted(spark, reverse=True)


def test_a_long_run_is_remembered_evenly_in_little_room() -> None:
    trace = LossHistory()
    for step in range(100_000):
        trace.add(step < 50_000)
    assert len(trace._means) + len(trace._pending) < 2_000
    spark = trace.spark(20)
    assert abs(spark.count("█") - spark.count("▁")) <= 2


def test_a_notebook_gets_a_panel_that_is_updated(
    clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []

    class Handle:
        def update(self, content: Any) -> None:
            shown.append(content)

    monkeypatch.setattr("cloze.report.display.show_in_notebook", lambda _: Handle())
    with Display(console=Console(force_jupyter=True), title="a run") as display:
        for row in rows(3, evaluate=2):
            clock(1.0)
            display.show(row)
        display.finish(12.0, is_complete=True)
    page = shown[-1]._repr_mimebundle_(include=[], exclude=[])["text/html"]
    assert "a run" in page
    assert "100.0" in page  # all of the budget
    assert "left" not in page
