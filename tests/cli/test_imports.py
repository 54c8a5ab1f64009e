"""What commands import: help, `info` and errors in arguments are fast because torch is not read."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cloze.cli.app import COMMANDS
from cloze.tasks.explain.views import VIEWS

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
    views = (["explain", view, "--help"] for view in VIEWS)
    found = run_commands(["--help"], *([name, "--help"] for name in COMMANDS), *views)
    assert set(map(tuple, found.values())) == {(0, False)}, found


def test_ngrams_and_word_vectors_do_not_import_torch(tmp_path: Path) -> None:
    ngrams, vectors = (str(GOLDEN / name / "model") for name in ("ngram", "word2vec"))
    text, pairs = (str(GOLDEN / "data" / name) for name in ("text.txt", "pairs.csv"))
    copies = [
        str(shutil.copytree(one, tmp_path / str(n))) for n, one in enumerate((ngrams, vectors))
    ]
    page = str(tmp_path / "page.html")
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"kind": "train", "step": 1, "loss": 1.0}\n')
    found = run_commands(
        ["suggest", ngrams, "the queen"],
        ["score", ngrams, "the queen paints"],
        ["evaluate", ngrams, text],
        ["compare", ngrams, copies[0], text],
        ["export", "arpa", ngrams, str(tmp_path / "ngrams.arpa")],
        ["similar", vectors, "king"],
        ["evaluate", vectors, pairs],
        ["compare", vectors, copies[1], pairs, "--report", page],
        ["export", "word2vec", vectors, str(tmp_path / "vectors.txt")],
        ["tokenize", BERT, "the queen"],
        ["report", str(run)],
    )
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
        ["explain", "nonsense", BERT, "a"],
        ["explain", "attention", BERT],
        ["explain", "attention", BERT, "a", "--png", "never-written.jpg"],
        ["explain", "attention", BERT, "a", "--html", str(GOLDEN)],
        ["pretrain", DATA, "--out", "never-written", "--recipe", "nonsense"],
        ["pretrain", DATA, "--out", "never-written", "--set", "run.nonsense=1"],
        ["finetune", "nonsense", *TUNE],
        ["finetune", "classify", *TUNE, "--lr", "-1"],
        ["finetune", "classify", *TUNE, "--train", "missing.tsv"],
        ["finetune", "classify", *TUNE, "--dev", "missing-*.tsv"],
        ["finetune", "classify", "runs/nothing", *TUNE[1:]],
        ["finetune", "classify", *TUNE, "--out", str(GOLDEN)],
        ["pretrain", DATA, "missing.txt", "--out", "never-written"],
        ["distill", BERT, "missing.txt", "--out", "never-written"],
    ],
    ids=lambda command: " ".join(command).replace(str(GOLDEN), ""),
)
def test_argument_errors_do_not_import_torch(command: list[str]) -> None:
    ((code, has_torch),) = run_commands(command).values()
    assert code in (1, 2)
    assert not has_torch


def test_texts_and_defaults_need_neither_pydantic_nor_recipes() -> None:
    check = (
        "import sys; from cloze.cli.app import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: print(sorted({'pydantic', 'cloze.make.recipe.run'} & {*sys.modules}))"
    )
    for name in ("fill", "translate", "generate"):
        command = [sys.executable, "-c", check, name, "runs/nothing", "a"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
        assert done.stdout == "[]\n"


def test_a_missing_model_is_reported_without_torch() -> None:
    names = (
        "fill",
        "embed",
        "classify",
        "tag",
        "generate",
        "score",
        "translate",
        "similar",
        "rerank",
        "search",
    )
    found = run_commands(
        *([name, "runs/nothing", "a"] for name in names),
        ["answer", "runs/nothing", "a", "b"],
        ["choose", "runs/nothing", "a", "b", "c"],
        ["evaluate", "runs/nothing", DATA],
    )
    assert set(map(tuple, found.values())) == {(1, False)}, found
