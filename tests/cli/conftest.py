"""Commands: within this process, or, where the process itself is tested, in one of their own."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner

from cloze.cli.app import app
from forked_commands import ForkedCommand

CORPUS = "the cat sat on the mat and the dog slept\n\nein Café in 北京 ist schön\n" * 50
Command = Callable[..., subprocess.CompletedProcess[str]]


def run_here(
    *arguments: str | Path, stdin: str | bytes = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command within this process; the result looks like a finished process."""
    with mock.patch.dict(os.environ, {"COLUMNS": "100"} | environment):
        given = [str(argument) for argument in arguments]
        ran = CliRunner().invoke(app, given, input=stdin, prog_name="cloze")
    if ran.exception and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return subprocess.CompletedProcess(given, ran.exit_code, ran.stdout, ran.stderr)


def run_process(
    *arguments: str | bytes | Path, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does: in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "cloze", *arguments],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
        env=os.environ | {"COLUMNS": "100"} | environment,
    )


def run_torchrun(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in two processes, which end with it."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with subprocess.Popen(
        [*torchrun, "-m", "cloze", *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=200)
        except BaseException:
            process.terminate()  # hands it on to its workers, which a kill would leave behind
            process.wait(30)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run_in_two_processes(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the variables that torchrun sets; the result is that of the first."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    shared |= {"LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    started = [
        ForkedCommand(*arguments, RANK=str(rank), LOCAL_RANK=str(rank), **shared)
        for rank in range(2)
    ]
    first, second = (one.wait() for one in started)
    assert second.returncode == first.returncode, second.stderr
    return first


@pytest.fixture(scope="session")
def torchrun() -> Command:
    """torchrun itself, which imports torch three times: for `make stress`."""
    return run_torchrun


@pytest.fixture(scope="session")
def two_processes() -> Command:
    return run_in_two_processes


@pytest.fixture(scope="session")
def run() -> Command:
    return run_here


@pytest.fixture(scope="session")
def process() -> Command:
    return run_process


@pytest.fixture(scope="session")
def forked() -> Command:
    """Runs a command in a process of its own, which needs no second to import torch."""
    return lambda *arguments, **options: ForkedCommand(*arguments, **options).wait()


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
    made = run_here("vocabulary", corpus, "--out", folder, "--size", "120")
    assert made.returncode == 0, made.stderr
    return folder
