"""Commands on a terminal: Ctrl-C says what happens, and finished bars leave no trace."""

import os
import pty
import re
import select
import sys
import time

import pytest

import cloze
from grams import text_model
from helpers import check_mentions

ENVIRONMENT = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", "HF_HUB_OFFLINE": "1"}


def run_on_terminal(*arguments, interrupt_after=None, timeout=60):
    """The output of a command on a terminal, and its exit code.

    Ctrl-C is pressed once the pattern `interrupt_after` was shown.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "cloze", *map(str, arguments)],
            os.environ | ENVIRONMENT,
        )
    output, deadline = b"", time.monotonic() + timeout
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                read = os.read(terminal, 1 << 16)
            except OSError:  # it has ended
                break
            if not read:
                break
            output += read
        if interrupt_after and re.search(interrupt_after, output.decode(errors="replace")):
            os.write(terminal, b"\x03")
            interrupt_after = None
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return output.decode(), os.waitstatus_to_exitcode(status)


def plain(output):
    """What is left on the screen: lines that were erased are removed."""
    lines, row, column = [""], 0, 0
    for code, kind, character in re.findall(r"\x1b\[([\d;?]*)([A-Za-z])|([^\x1b])", output):
        if kind == "A":
            row = max(0, row - int(code or 1))
        elif kind == "K":
            lines[row] = "" if code == "2" else lines[row][:column]
        elif character == "\r":
            column = 0
        elif character == "\n":
            row, column = row + 1, column
            lines += [""] * (row + 1 - len(lines))
        elif character:
            lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
            column += 1
    return "\n".join(line.rstrip() for line in lines)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    words = [f"w{n:05d}" for n in range(40_000)]
    path.write_text("".join(f"{' '.join(words[n : n + 9])}\n" for n in range(39_000)) * 4)
    return path


def test_ctrl_c_while_a_vocabulary_is_learned_is_explained(text, tmp_path):
    output, code = run_on_terminal(
        "vocabulary", text, "--out", tmp_path / "v", interrupt_after="texts counted"
    )
    assert code == 130
    check_mentions(plain(output), "interrupted", "no tokenizer was saved")
    assert "texts counted" not in plain(output)  # the bar was removed
    assert not (tmp_path / "v").exists()


@pytest.mark.stress  # it imports torch in a process of its own
def test_ctrl_c_before_training_is_explained(text, tmp_path):
    output, code = run_on_terminal(
        *("pretrain", text, "--out", tmp_path / "m", "--minutes", "1"),
        interrupt_after="texts counted",
    )
    assert code == 130
    check_mentions(plain(output), "interrupted before training", "the same command")


@pytest.mark.stress  # it imports torch in a process of its own
def test_embeddings_are_printed_after_the_progress_bar_is_removed():
    output, code = run_on_terminal("embed", "cloze-en", "hello world", "bye")
    assert code == 0
    screen = plain(output)
    assert screen.startswith("┏")  # the first line of the table
    assert " of 2" not in screen


@pytest.mark.stress  # it imports torch in a process of its own
def test_a_continuation_appears_on_a_terminal_while_it_is_generated(tmp_path):
    folder = text_model(3).save(tmp_path / "ngram")
    for arguments, text in ((["the cat"], "the cat"), ([], "")):
        output, code = run_on_terminal("generate", folder, *arguments, "--seed", "3")
        assert code == 0
        assert plain(output).strip() == cloze.generate(folder, text, seed=3)[0].full_text
