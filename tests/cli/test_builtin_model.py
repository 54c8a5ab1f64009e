"""The built-in model in the built wheel."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cloze.make.float8 import save_float8
from helpers import files_of, tiny_model

ROOT = Path(__file__).resolve().parents[2]
SENTENCE = "the [MASK] sat"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A source archive and, made from it, a wheel; with a stand-in for the model."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"):
        shutil.copy(ROOT / name, tree)
    unwanted = shutil.ignore_patterns("__pycache__", "builtin")
    for name in ("src", "recipes"):
        shutil.copytree(ROOT / name, tree / name, ignore=unwanted)
    model = save_float8(tiny_model("mlm"), tree / "src" / "cloze" / "builtin" / "cloze-en")
    (model / "README.md").write_text("its card")
    made = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", tree / "dist", tree],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr + made.stdout
    return tree


@pytest.fixture(scope="module")
def site(built):
    """The wheel unpacked, to be found before the checkout."""
    (wheel,) = (built / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(built / "site")
    return built / "site"


@pytest.fixture
def command(site, tmp_path):
    def cloze(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "cloze", *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(site)},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    return cloze


def test_every_file_is_in_the_wheel_and_in_the_source_archive(built, site):
    model = built / "src" / "cloze" / "builtin" / "cloze-en"
    files = files_of(model)
    assert {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt"} < files
    shipped = site / "cloze" / "builtin" / "cloze-en"
    assert files_of(shipped) == files
    assert all((shipped / name).read_bytes() == (model / name).read_bytes() for name in files)
    (archive,) = (built / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {Path(*Path(name).parts[1:]) for name in opened.getnames()}
    assert {Path("src/cloze/builtin/cloze-en") / name for name in files} <= inside


def test_commands_take_its_name(command):
    ran = command("fill", "cloze-en", SENTENCE, "--json", "--top", "1")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["text"] == SENTENCE
    assert "[CLS]" in command("tokenize", "cloze-en", "the cat").stdout
