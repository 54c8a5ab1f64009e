"""The built wheel in an environment of its own: what a user installs is all a command needs."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PIP = [sys.executable, "-m", "pip"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel alone in a new environment, which borrows the libraries of this one.

    The borrowing (a .pth file) spares half a gigabyte of installing; that the wheel asks for just
    the core libraries is read off its metadata below.
    """
    work = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", work, ROOT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr + built.stdout
    (wheel,) = work.glob("*.whl")
    venv.create(work / "env", with_pip=False, symlinks=True)
    python = work / "env" / "bin" / "python"
    (site,) = (work / "env" / "lib").glob("python*/site-packages")
    subprocess.run(
        [*PIP, "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel],
        check=True,
    )
    import torch

    borrowed = Path(torch.__file__).parents[1]
    (site / "borrowed.pth").write_text(str(borrowed))
    return python


def run(python, *arguments, cwd):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH",)}
    return subprocess.run(
        [python.parent / "cloze", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_commands_run_from_the_wheel(installed, tmp_path):
    where = subprocess.run(
        [installed, "-c", "import cloze; print(cloze.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout
    assert str(installed.parents[1]) in where
    for arguments in (
        ["--help"],
        ["demo", "--quiet", "--minutes", "0.02"],
        ["info", "cloze-demo"],
        ["tokenize", "cloze-demo", "Read the file."],
        ["fill", "cloze-demo", "Return a new [MASK]."],
        ["embed", "cloze-demo", "Read the file.", "--out", "v.npy"],
    ):
        ran = run(installed, *arguments, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr


def test_the_wheel_asks_for_the_core_libraries_only(installed):
    listed = subprocess.run(
        [installed, "-c", "import importlib.metadata as m; print('\\n'.join(m.requires('cloze')))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    core = {name.split(">")[0].split("<")[0] for name in listed if "extra" not in name}
    assert core == {"torch", "numpy", "safetensors", "tokenizers", "rich", "typer"}
