"""What all commands have in common: help, exit codes, shared options, inputs."""

import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from cloze import __version__
from cloze.cli import command, common, format
from cloze.cli.app import COMMANDS, load_command
from cloze.errors import InputError
from grams import text_model
from helpers import check_mentions, split_group, tiny_model, word_model
from languages import neural_model
from translators import translator

VERBS = list(COMMANDS)
HEAVY = ("torch", "numpy", "tokenizers", "safetensors", "pyarrow", "zstandard")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# --- help


def heavy(*commands: list[str | Path]) -> tuple[str, str]:
    """What commands print in a process, and which of the heavy packages it has imported."""
    script = f"""
import sys
from cloze.cli import main
for arguments in {[[str(one) for one in arguments] for arguments in commands]}:
    sys.argv = ["cloze", *arguments]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0
print("HEAVY", *(name for name in {HEAVY} if name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    printed, _, found = done.stdout.rpartition("HEAVY")
    return printed, found


def test_help_imports_nothing_heavy() -> None:
    """One process prints the help of all: what one imports is there at the end."""
    helps = [["--help"], *([verb, "--help"] for verb in VERBS)]
    printed, found = heavy(*helps)
    assert printed.count("Usage: cloze") == len(helps)
    for verb in VERBS:
        assert f" {verb} " in printed
        assert f"Example: cloze {verb}" in printed
    assert found.split() == []


@pytest.mark.parametrize("name", VERBS)
def test_every_option_has_a_sentence_with_its_default(name: str) -> None:
    commands = split_group(load_command(name, to_run=True))
    shown = [one for command in commands for one in command.params if not one.hidden]
    assert shown
    for parameter in shown:
        text = parameter.help or ""
        assert text.endswith((".", "…")), f"{name} {parameter.opts}: {text!r}"
        default = parameter.default
        if default not in (None, False, (), []):
            assert "(default" in text, f"{name} {parameter.opts}: {text!r}"


def test_help_shows_no_types_and_one_form_of_defaults(run) -> None:
    shown = run("compare", "--help").stdout
    for text in ("<bool>", "<str>", "list[str]", "[default", "x>="):
        assert text not in shown
    assert "cloze compare [OPTIONS] MODEL... DATA" in shown
    assert "(default 1000)" in " ".join(shown.replace("│", " ").split())


@pytest.mark.parametrize("kind", ["words", "ngram", "lstm", "transformer"])
def test_what_needs_no_net_starts_without_torch(kind: str, tmp_path: Path) -> None:
    if kind == "words":
        words = word_model(words=["cat", "dog"], vectors=np.eye(2, dtype=np.float32))
        folder = words.save(tmp_path / "model")
        printed, found = heavy(["similar", folder, "cat"])
        assert "dog" in printed
        assert "torch" not in found.split()
    else:
        made = {"ngram": text_model, "lstm": partial(neural_model, "lstm")}
        model = made.get(kind, partial(translator, "transformer"))()
        folder = model.save(tmp_path / "model")
    printed, found = heavy(["info", folder])
    assert "evaluate" in printed
    assert "torch" not in found.split()


def test_version(process) -> None:
    assert process("--version").stdout == f"cloze {__version__}\n"


# --- exit codes


def test_bad_usage_is_two(run) -> None:
    for arguments in (["tokenize"], ["tokenise", "x"], ["tokenize", "x", "y", "--nonsense"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert "Usage" in done.stderr
        assert done.stdout == ""


def test_a_failure_is_one_and_names_problem_and_remedy(process, tmp_path: Path) -> None:
    done = process("tokenize", tmp_path / "missing", "text")
    assert done.returncode == 1
    assert done.stdout == ""
    problem, fix = done.stderr.splitlines()
    assert problem.startswith("error: ")
    assert str(tmp_path / "missing") in problem
    assert fix.startswith("fix: ")


def test_a_bug_of_ours_keeps_its_traceback() -> None:
    def verb() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command.make_command(verb)(**dict.fromkeys(command.SHARED))


def test_ctrl_c_is_130(tokenizer_folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cloze", "tokenize", tokenizer_folder, "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        # who runs in the background hands on a Ctrl-C that is ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(b"the cat\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())  # it is at work now, waiting for more
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == common.INTERRUPTED


def test_a_reader_that_leaves_ends_it_quietly(tokenizer_folder: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "cloze",
            "tokenize",
            tokenizer_folder,
            "--json",
            *["the cat"] * 5000,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout
        assert process.stderr
        assert json.loads(process.stdout.readline())
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == common.CLOSED_PIPE


def test_a_reader_that_was_never_there_ends_it_quietly(tokenizer_folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(  # one line only: it is flushed at the very end
        [sys.executable, "-m", "cloze", "tokenize", tokenizer_folder, "--json", "the cat"],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (common.CLOSED_PIPE, b"")


# --- shared options


@pytest.mark.parametrize("name", VERBS)
def test_every_command_takes_the_shared_options(name: str) -> None:
    for one in split_group(load_command(name)):
        assert one.callback
        assert set(command.SHARED) <= {parameter.name for parameter in one.params}


def test_a_command_gets_the_shared_options_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}
    for library in ("OMP", "MKL", "RAYON"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "8")

    def verb(*, device: common.Device = None, seed: common.Seed = 0) -> None:
        seen.update(device=device, seed=seed, threads=os.environ["OMP_NUM_THREADS"])

    probe = typer.Typer()
    probe.command()(command.make_command(verb))
    flags = "--json --device cpu --dtype bfloat16 --threads 3 --seed 7 --quiet"
    done = CliRunner().invoke(probe, flags)
    assert done.exit_code == 0, done.output
    assert seen == {"device": "cpu", "seed": 7, "threads": "3"}
    shown = CliRunner().invoke(probe, ["--help"]).output
    assert "--device" in shown
    assert "--threads" in shown
    assert "--dtype" not in shown


# --- where texts come from


def pieces(stdout: str) -> list[list[str]]:
    return [json.loads(line)["tokens"][1:-1] for line in stdout.splitlines()]


def test_texts_come_from_arguments_files_and_pipes(
    run, tokenizer_folder: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"title": "dog", "text": "mat"}\n')
    model = ["tokenize", tokenizer_folder, "--json"]
    assert pieces(run(*model, "cat", "dog").stdout) == [["cat"], ["dog"]]
    assert pieces(run(*model, stdin="cat\n\ndog").stdout) == [["cat"], [], ["dog"]]
    assert pieces(run(*model, "the", "-", stdin="cat\n").stdout) == [["the"], ["cat"]]
    assert pieces(run(*model, "the", "-f", rows, stdin="cat").stdout) == [["the"], ["mat"]]
    assert pieces(run(*model, "-f", "-", stdin="cat").stdout) == [["cat"]]
    assert pieces(run(*model, "-f", rows, "--text-column", "title").stdout) == [["dog"]]


def test_nothing_to_read_is_said(run, tokenizer_folder: Path) -> None:
    done = run("tokenize", tokenizer_folder, stdin="")
    assert done.returncode == 1
    check_mentions(done.stderr, "error: standard input", "fix: ")
    keyboard, terminal = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "cloze", "tokenize", tokenizer_folder],
        stdin=terminal,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "200"},
    )
    os.close(keyboard)
    os.close(terminal)
    assert done.returncode == 2
    check_mentions(done.stderr, "text", "--file", "pipe")


def test_an_argument_that_is_no_text_is_refused(process, tokenizer_folder: Path) -> None:
    done = process("tokenize", tokenizer_folder, "fine", b"caf\xe9", LC_ALL="C.UTF-8")
    assert done.returncode == 1
    check_mentions(done.stderr, "error: TEXT 2", "UTF-8", "fix: ")


def test_bad_rows_end_it_or_are_counted(run, tokenizer_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('"cat"\n' + "{\n" * 12 + '"dog"\n')
    model = ["tokenize", tokenizer_folder, "--json", "--file", path]
    done = run(*model)
    assert done.returncode == 1
    assert pieces(done.stdout) == [["cat"]]
    assert done.stderr.startswith(f"error: {path}:2: ")
    check_mentions(done.stderr, "JSON")
    done = run(*model, "--skip-bad")
    assert done.returncode == 0
    assert pieces(done.stdout) == [["cat"], ["dog"]]
    assert done.stderr.count("error: ") == common.Skipped.SHOWN
    check_mentions(done.stderr.splitlines()[-1], "12")


# --- showing


def test_output_is_utf8_under_any_locale(process, tokenizer_folder: Path) -> None:
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = process("tokenize", tokenizer_folder, stdin="北京", **plain)
    assert done.returncode == 0
    assert "\n北\t" in done.stdout


def test_a_table_is_drawn_on_a_terminal_and_tabbed_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("[MASK]", 30_000), ("a\tb\x1b[2J\u200b", True)]
    format.print_table(("token", "id"), rows, title="unseen")
    assert capsys.readouterr().out == "token\tid\n[MASK]\t30000\na\\tb\\x1b[2J\\u200b\tTrue\n"

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    format.print_table(("token", "id"), rows, title="[bold]\n")
    shown = terminal.getvalue()
    for cell in ("[MASK]", "30,000", "a\\tb\\x1b[2J\\u200b", "[bold]\\n", "│"):
        assert cell in shown


def test_progress_is_for_terminals_and_not_when_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, quiet, shown in (
        (Terminal(), False, True),
        (Terminal(), True, False),
        (io.StringIO(), False, False),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        with common.progress(quiet) as show:
            show("reading", 1_234, None)
            show("learning", 10, 40)
        for words in ("reading", "1,234", "learning"):
            assert (words in stream.getvalue()) is shown


def test_complaints_are_plain_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_error(InputError("it is broken", fix="mend it"))
    assert capsys.readouterr().err == "error: it is broken\nfix: mend it\n"


def test_complaints_are_plain_where_no_colour_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(typer, "style", lambda text, **_: f"<{text}>")
    common.print_error(InputError("bad", fix="good"))
    assert capsys.readouterr().err == "<error:> bad\n<fix:> good\n"
    for name, value in (("NO_COLOR", ""), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            common.print_error(InputError("bad", fix="good"))
            assert capsys.readouterr().err == "error: bad\nfix: good\n"


@pytest.mark.parametrize("arguments", [["--help"], ["tokenize", "FOLDER", "a"]])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_a_full_disk_behind_the_output_is_told(arguments, tokenizer_folder: Path) -> None:
    given = [str(tokenizer_folder) if word == "FOLDER" else word for word in arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cloze", *given],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output: No space left")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["embed", "MODEL", "--file", "TEXT", "--out", "OUT/e.jsonl"], "OUT/e.jsonl: "),
        (["pretrain", "TEXT", "--family", "ngram", "--out", "OUT/n"], "OUT/"),
        (["tokenize", "MODEL", "--file", "TEXT"], "standard output: "),
    ],
)
def test_a_place_that_takes_no_more_is_named(arguments, place, tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("".join(f"the cat {n} sat\n" for n in range(2000)))
    out.mkdir()
    model = tiny_model("mlm").save(tmp_path / "model")
    names = {"MODEL": str(model), "TEXT": str(text)}
    given = [names.get(word, word.replace("OUT", str(out))) for word in arguments]
    # -B: no compiled modules, which the limit would cut off, too
    command = shlex.join([sys.executable, "-B", "-m", "cloze", *given])
    done = subprocess.run(  # Python does not hear of the signal that comes with it
        ["/bin/bash", "-c", f"ulimit -f 16; {command} > {tmp_path}/shown"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    first, *rest = done.stderr.splitlines()
    assert place.replace("OUT", str(out)) in first
    assert "File too large" in first
    assert [line.split()[0] for line in rest] == ["fix:"]
    assert not list(out.iterdir())


def test_nobody_behind_the_output_is_no_reason_to_fail(tokenizer_folder: Path) -> None:
    command = f"{sys.executable} -m cloze tokenize {tokenizer_folder} a >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", command], check=False).returncode == 0


def test_a_place_that_cannot_be_written_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def verb() -> None:
        Path("/proc/nothing.txt").write_text("a")

    with pytest.raises(typer.Exit) as ended:
        command.make_command(verb)(
            as_json=False, device=None, dtype="", threads=None, seed=0, quiet=False
        )
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err.startswith("error: /proc/nothing.txt: ")


@pytest.mark.parametrize("text", ["全角　空白", "می‌خواهم", "👩‍👩‍👧", "é, a\u0301"])
def test_text_is_shown_as_it_is_written(text: str) -> None:
    assert format.escape_control_characters(text) == text


def test_what_moves_the_cursor_is_shown_as_an_escape() -> None:
    assert (
        format.escape_control_characters("a\x1b[2Jb\nc\u202ed\u2028")
        == "a\\x1b[2Jb\\nc\\u202ed\\u2028"
    )


def test_json_never_says_nan(capsys: pytest.CaptureFixture[str]) -> None:
    """A run whose perplexity is beyond all numbers has ended all the same, and says how."""
    format.print_json({"scores": {"perplexity": float("inf")}, "row": (0.5, float("nan"))})
    assert json.loads(capsys.readouterr().out) == {
        "scores": {"perplexity": None},
        "row": [0.5, None],
    }


def test_a_progress_bar_does_not_take_the_output_of_a_file(forked, tmp_path: Path) -> None:
    """`cloze … > file` on a terminal: the bar is on standard error, the results in the file."""
    folder = tiny_model("mlm").save(tmp_path / "model")
    ours, theirs = pty.openpty()
    with (tmp_path / "out.txt").open("w") as out:
        done = forked("fill", folder, "the [MASK]", "--json", stdout=out, stderr=theirs)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 0
    assert json.loads((tmp_path / "out.txt").read_text())["text"] == "the [MASK]"
