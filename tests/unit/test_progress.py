"""Progress bars of functions that take long: when they are shown, and that they leave no trace."""

import io
import sys

import pytest

import cloze
from cloze.progress import ProgressBars, hide_bars, open_progress, with_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch):
    """A terminal in place of standard error; within a test, as pytest replaces it for each."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    return shown


@with_progress
def count(numbers, *, progress=None):
    for number in numbers:
        if progress:
            progress("numbers", number, len(numbers))
    return len(numbers), progress


def test_a_bar_is_shown_if_it_is_asked_for(monkeypatch):
    terminal = use_terminal(monkeypatch)
    assert count(range(1, 4), progress=True)[0] == 3
    assert "numbers" in terminal.getvalue()
    assert "3 of 3" in terminal.getvalue()


def test_short_work_and_false_show_nothing(monkeypatch):
    terminal = use_terminal(monkeypatch)
    assert count(range(3))[0] == 3
    assert count(range(3), progress=False) == (3, None)
    assert terminal.getvalue() == ""
    monkeypatch.setattr("cloze.progress._DELAY", 0)
    count(range(3))
    assert "numbers" in terminal.getvalue()  # it took long


def test_a_function_is_called_as_it_is(monkeypatch):
    terminal = use_terminal(monkeypatch)
    seen = []
    count([1, 2], progress=lambda *call: seen.append(call))
    assert seen == [("numbers", 1, 2), ("numbers", 2, 2)]
    assert terminal.getvalue() == ""


def test_without_a_terminal_there_is_none(capsys):
    assert count(range(3), progress=True) == (3, None)
    assert capsys.readouterr() == ("", "")


def test_inner_functions_show_none(monkeypatch):
    use_terminal(monkeypatch)
    monkeypatch.setattr("cloze.progress._DELAY", 0)
    with open_progress(False):
        assert count(range(3))[1] is None
    with hide_bars():
        assert count(range(3))[1] is None
    assert count(range(3))[1] is not None


def test_an_error_removes_the_bar(monkeypatch):
    terminal = use_terminal(monkeypatch)
    with pytest.raises(TypeError):
        count([1, None, "x"], progress=True)
    assert "\x1b[?25h" in terminal.getvalue()  # the cursor is back


def test_each_stage_has_one_bar_and_only_the_current_timer_runs(monkeypatch):
    use_terminal(monkeypatch)
    bars = ProgressBars()
    for stage, done in [("reading", 1), ("reading", 2), ("writing", 1), ("reading", 1)]:
        bars(stage, done, None)
    tasks = bars._bars.tasks
    assert [task.description for task in tasks] == ["reading", "writing"]
    reading, writing = tasks
    assert writing.finished
    assert not reading.finished
    bars.close()
    bars.close()
    bars("again", 1, 2)  # a new one
    bars.close()


def test_public_functions_take_a_switch(monkeypatch):
    terminal = use_terminal(monkeypatch)
    monkeypatch.setattr("cloze.progress._DELAY", 0)
    texts = ["The [MASK] sat.", "A [MASK]."]
    cloze.fill("cloze-en", texts, progress=False)
    assert terminal.getvalue() == ""
    cloze.fill("cloze-en", texts)
    assert "sequences" in terminal.getvalue()


class Handle:
    """The output of a cell."""

    def __init__(self, first) -> None:
        self.shown = [first]

    def update(self, content, **_) -> None:
        self.shown.append(content)


def test_a_notebook_gets_bars_that_are_removed(monkeypatch):
    handles = []
    monkeypatch.setattr("cloze.progress.is_notebook", lambda: True)
    monkeypatch.setattr(
        "cloze.progress.show_in_notebook", lambda one: handles.append(Handle(one)) or handles[-1]
    )
    count(range(1, 4), progress=True)
    (handle,) = handles
    bars = handle.shown[1]._repr_mimebundle_(include=[], exclude=[])
    assert "numbers" in bars["text/html"]
    assert handle.shown[-1] == {"text/plain": ""}
