"""The built wheel in an environment of its own: what a user installs is all a command needs.

The wheel is built from the source distribution, so both are tested.
"""

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

PIP = [sys.executable, "-m", "pip"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A folder with the source distribution, and the wheel that is built from it."""
    work = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", work, ROOT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr + built.stdout
    return work


@pytest.fixture(scope="module")
def installed(dist, tmp_path_factory):
    """The wheel alone in a new environment, which uses the libraries of this one.

    A .pth file spares half a gigabyte of installing; that the wheel requires only the core
    libraries is checked in its metadata below.
    """
    work = tmp_path_factory.mktemp("installed")
    (wheel,) = dist.glob("*.whl")
    venv.create(work / "env", with_pip=False, symlinks=True)
    python = work / "env" / "bin" / "python"
    (site,) = (work / "env" / "lib").glob("python*/site-packages")
    subprocess.run(
        [*PIP, "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel],
        check=True,
    )
    import torch

    (site / "shared.pth").write_text(str(Path(torch.__file__).parents[1]))
    return python


def test_the_wheel_has_every_file_of_the_package(dist):
    (wheel,) = dist.glob("*.whl")
    source = ROOT / "src"
    with zipfile.ZipFile(wheel) as archive:
        contents = {name for name in archive.namelist() if ".dist-info/" not in name}
        for path in filter(Path.is_file, (source / "cloze" / "builtin").glob("*/**/*")):
            name = path.relative_to(source).as_posix()
            assert archive.read(name) == path.read_bytes(), name
    files = {
        path.relative_to(source).as_posix()
        for path in source.glob("cloze/**/*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert contents == files | {f"cloze/recipes/{one.name}" for one in ROOT.glob("recipes/*.toml")}
    assert {"cloze/py.typed", "cloze/builtin/cloze-en/model.safetensors"} <= contents
    with tarfile.open(*dist.glob("*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= names
    assert {f"src/{name}" for name in files} <= names


def test_the_metadata_are_complete(dist):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith("/METADATA"))
        found = HeaderParser().parsestr(archive.read(name).decode())
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert found["Name"] == "cloze"
    assert found["Summary"] == declared["description"]
    assert found["License-Expression"] == "Apache-2.0 AND CC-BY-SA-4.0"
    assert found["Author"] == "cloze developers"
    assert set(found["Keywords"].split(",")) == set(declared["keywords"])
    assert found["Description-Content-Type"] == "text/markdown"
    assert "# cloze" in found.get_payload()
    assert set(found.get_all("Provides-Extra")) == set(declared["optional-dependencies"])


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
    (tmp_path / "text.txt").write_text("Read the file.\n" * 9)
    for arguments in (
        ["vocabulary", "text.txt", "--out", "vocabulary", "--size", "60"],
        ["fill", "cloze-en", "Return a new [MASK]."],
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
