"""The examples of a document: reading them, and running a document as it is written.

`python tests/document_examples.py docs/tutorials/*.md` runs each document from top to bottom in an
empty folder, with the Python that runs this script: `make tutorials` in the environment for
development, `make wheel-docs` in a clean one. It needs only the standard library. With --update,
the outputs that a document shows (a block marked `text` after a block of code) are replaced by
those of the run.
"""

import argparse
import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEVER_RUN = re.compile(r"(pip install|make) ")  # set up an environment
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
ROW = re.compile(r"^\| `(.+)` \| `(.+)` \|$", re.M)


@dataclass(frozen=True)
class Example:
    """A command, or a block of Python, and where it is."""

    line: int
    kind: str  # "shell", "python" or "session" (>>> with its output)
    text: str
    output: str = ""  # of a command, as the document shows it


def read_examples(text: str) -> Iterator[Example]:
    """The examples in fenced blocks."""
    for block in FENCE.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        language, body = block[1], block[2]
        if language == "python":
            yield Example(line, "session" if body.startswith(">>>") else "python", body)
        elif language in ("", "bash"):
            yield from read_commands(line, body, everything=language == "bash")


def read_commands(first: int, body: str, *, everything: bool) -> Iterator[Example]:
    """The commands of a block: all lines of one in bash, else those after a `$`."""
    lines = re.sub(r"\\\n", lambda _: "\x00", body).splitlines()
    number, found = first, None
    for line in lines:
        length = 1 + line.count("\x00")
        command = re.sub(r"\s*\x00\s*", " ", line)
        if everything or command.startswith("$ "):
            if found:
                yield found
            found = Example(number, "shell", command.removeprefix("$ "))
        elif found:
            found = replace(found, output=found.output + line + "\n")
        number += length
    if found and found.text.strip():
        yield found


def run_session(text: str, names: dict[str, object], *, flags: int = 0) -> None:
    """A session in the manner of the Python prompt, whose output must be as shown."""
    test = doctest.DocTestParser().get_doctest(text, names, "session", None, 0)
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | flags)
    failed = runner.run(test, out=report.write, clear_globs=False).failed
    assert not failed, report.getvalue()
    names.update(test.globs)


def run_document(path: Path, *, update: bool = False) -> None:
    """Run the blocks and the tables of code of a document in the working directory, as written."""
    text = path.read_text("utf-8")
    names: dict[str, object] = {"__name__": "__main__"}
    written, end, output = "", 0, ""
    for block in FENCE.finditer(text):
        run_table(text[end : block.start()], names)
        written += text[end : block.start()]
        shown = block[0]
        if block[1] == "text" and not text[end : block.start()].strip():
            assert output.strip(), f"{path.name}: nothing is printed where {block[2]!r} is shown"
            if update:
                shown = f"```text\n{output.rstrip()}\n```"
        elif block[1] in ("python", "bash"):
            print(f"  line {text.count(chr(10), 0, block.start()) + 1}", flush=True)
            output = run_block(block[1], block[2], names)
        written, end = written + shown, block.end()
    run_table(text[end:], names)
    if update:
        path.write_text(written + text[end:], "utf-8")


def run_block(language: str, body: str, names: dict[str, object]) -> str:
    """Run a block of code; what it prints."""
    if language == "bash":
        lines = [line for line in body.splitlines() if not NEVER_RUN.match(line)]
        return run_shell("\n".join(lines))
    if body.startswith(">>>"):
        run_session(body, names, flags=doctest.ELLIPSIS)
        return ""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(body, "example", "exec"), names)
    return output.getvalue()


def run_shell(script: str) -> str:
    """Run lines with the commands of the Python that runs this."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = os.environ | {"PATH": path, "COLUMNS": "100"}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return re.sub(r"[ \t]+$", "", done.stdout, flags=re.M)


def run_table(text: str, names: dict[str, object]) -> None:
    """Run both sides of every row that has code of two libraries side by side.

    A row with … is an outline.
    """
    for row in ROW.finditer(text):
        for code in row.groups() if "…" not in row[0] else ():
            try:
                exec(compile(code.replace("\\|", "|"), "table", "exec"), names)
            except Exception as error:
                raise AssertionError(f"{code}: {type(error).__name__}: {error}") from error


def main() -> None:
    """Run the documents that are named; list those that fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    failed = []
    for document in (path.resolve() for path in arguments.documents):
        print(document.relative_to(ROOT), flush=True)
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            if document.name == "README.md":
                from document_files import write_files

                write_files(Path())
            try:
                run_document(document, update=arguments.update)
            except Exception:  # every document is run, not the first alone
                traceback.print_exc(limit=-2)
                failed.append(document.name)
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
