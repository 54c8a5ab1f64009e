"""What commands import: help, `info` and errors in arguments are fast because torch is not read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cloze.cli.app import COMMANDS

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FOLDERS = sorted(map(str, GOLDEN.glob("*/model")))
DATA = str(GOLDEN / "data" / "labels.tsv")
BERT = str(GOLDEN / "bert_mlm_nsp" / "model")
TUNE = [BERT, "--train", DATA, "--dev", DATA, "--out", "never-written"]

SCRIPT = """
import json, sys
from cloze.cli.app import app
imported = {}
for line in sys.stdin:
    command = json.loads(line)
    try:
        app(command, prog_name="cloze")
        code = 0
    except SystemExit as end:
        code = end.code
    imported[" ".join(command)] = [code, "torch" in sys.modules]
print("RESULT" + json.dumps(imported))
"""


def run_commands(*commands: list[str]) -> dict[str, tuple[int, bool]]:
    """The exit code of each command, and whether torch has been imported by then."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="\n".join(map(json.dumps, commands)),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    found: dict[str, tuple[int, bool]] = json.loads(done.stdout.rpartition("RESULT")[2])
    assert len(found) == len(commands)
    return found


def test_help_does_not_import_torch() -> None:
    found = run_commands(["--help"], *([name, "--help"] for name in COMMANDS))
    assert set(map(tuple, found.values())) == {(0, False)}, found


def test_info_does_not_import_torch() -> None:
    found = run_commands(*(["info", folder, "--json"] for folder in [*FOLDERS, "cloze-en"]))
    assert set(map(tuple, found.values())) == {(0, False)}, found


@pytest.mark.parametrize(
    "command",
    [
        ["nonsense"],
        ["fill"],
        ["fill", BERT, "--nonsense"],
        ["fill", BERT, "a [MASK]", "--top", "many"],
        ["pretrain", DATA, "--out", "never-written", "--recipe", "nonsense"],
        ["pretrain", DATA, "--out", "never-written", "--set", "run.nonsense=1"],
        ["finetune", "nonsense", *TUNE],
        ["finetune", "classify", *TUNE, "--lr", "-1"],
    ],
    ids=lambda command: " ".join(command).replace(str(GOLDEN), ""),
)
def test_argument_errors_do_not_import_torch(command: list[str]) -> None:
    ((code, has_torch),) = run_commands(command).values()
    assert code in (1, 2)
    assert not has_torch
