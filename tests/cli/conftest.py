"""Commands run as a user runs them: in a process of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CORPUS = "the cat sat on the mat and the dog slept\n\nein Café in 北京 ist schön\n" * 50


def cloze(
    *arguments: str | bytes | Path, stdin: str | None = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command; `stdin=None` leaves standard input as it is."""
    return subprocess.run(
        [sys.executable, "-m", "cloze", *arguments],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
        env=os.environ | {"COLUMNS": "100"} | environment,
    )


@pytest.fixture(scope="session")
def run() -> Callable[..., subprocess.CompletedProcess[str]]:
    return cloze


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a little text in it."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.txt").write_text(CORPUS, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tokenizer_folder(corpus: Path) -> Path:
    """A tokenizer that the command itself learned."""
    folder = corpus.parent / "tokenizer"
    made = cloze("vocabulary", corpus, "--out", folder, "--size", "120")
    assert made.returncode == 0, made.stderr
    return folder
