"""Another package adds two families through the entry-point group, and cloze is not changed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "extension"
STORIES = "\n\n".join(
    f"the cat number {n} sat on the mat.\nit saw a dog.\nthe dog ran to the cat." for n in range(60)
)
LABELLED = "text\tlabel\n" + "it saw a dog.\tdog\nthe cat sat.\tcat\n" * 16


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder on the path with what an installer would write for the package."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "cloze_toy-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cloze-toy\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(
        "[cloze.families]\n"
        "toy-encoder = cloze_toy.families:ENCODER\n"
        "toy-lm = cloze_toy.families:LANGUAGE_MODEL\n"
        "broken = cloze_toy.families:MISSING\n"
    )
    return folder


@pytest.fixture(scope="module")
def environment(site):
    """Variables with which Python finds the package, and `cloze` is the one under test."""
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join([*filter(None, own), str(PACKAGE), str(site)])
    return os.environ | {"PYTHONPATH": path, "COLUMNS": "120"}


@pytest.fixture(scope="module")
def python(environment):
    """Runs Python with the package installed."""

    def run(*arguments):
        ran = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert ran.returncode == 0, ran.stderr
        return ran

    return run


SERVE_COMMANDS = """
import contextlib, io, json, sys, traceback
from cloze.cli import main
for line in sys.stdin:
    arguments = json.loads(line)
    sys.argv = ["cloze", *arguments]
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        try:
            code = exec(arguments[1]) if arguments[0] == "-c" else main()
        except SystemExit as end:
            code = end.code
        except Exception:
            code = traceback.format_exc()
    print(json.dumps([code or 0, out.getvalue(), err.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def cloze(environment):
    """Runs commands and `-c CODE`, all in one process: starting one takes seconds."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE_COMMANDS],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def run(*arguments):
            process.stdin.write(json.dumps([str(one) for one in arguments]) + "\n")
            process.stdin.flush()
            code, *output = json.loads(process.stdout.readline())
            assert code == 0, (code, output)
            return subprocess.CompletedProcess(arguments, code, *output)

        yield run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extension")
    (folder / "text.txt").write_text(STORIES)
    (folder / "lines.txt").write_text(STORIES.replace("\n\n", "\n"))
    (folder / "labelled.tsv").write_text(LABELLED)
    return folder


def test_the_registry_lists_them_without_torch_and_reports_a_broken_one(python):
    code = (
        "import sys; from cloze.models.registry import get_family, list_families;"
        "print(*list_families()); get_family('toy-encoder').config_class;"
        "print('torch' in sys.modules)"
    )
    ran = python("-c", code)
    families, has_torch = ran.stdout.splitlines()
    assert {"bert", "toy-encoder", "toy-lm"} <= set(families.split())
    assert has_torch == "False"
    assert "broken" in ran.stderr


def test_plugins_are_not_loaded_for_built_in_families(python):
    assert python("-m", "cloze", "info", "cloze-en").stderr == ""


def test_an_encoder_from_text_to_a_classifier(cloze, place):
    base, tuned = place / "encoder", place / "classifier"
    small = ("--threads=1", "--device=cpu", "--quiet", "--json")
    ran = cloze(
        *("pretrain", place / "text.txt", "--family", "toy-encoder", "--out", base, "--steps=15"),
        *("--preset=tiny", "--max-length=32", "--batch-tokens=256", "--vocabulary-size=120"),
        *("--workers=1", "--lr=0.01", "--set=model.max_positions=32"),
        *("--set=model.residual_scale=0.5", *small),
    )
    warnings = [line for line in ran.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1  # one line, for the family that cannot be loaded
    assert "broken" in warnings[0]
    said = json.loads((base / "config.json").read_text())
    assert (said["model_type"], said["residual_scale"]) == ("toy-encoder", 0.5)
    cloze("pretrain", "--resume", "--out", base, *small)
    filled = json.loads(cloze("fill", base, "the [MASK] sat.", "--json").stdout)
    assert filled["masks"][0]["predictions"]
    vectors = cloze("embed", base, "the cat", "a dog", "--json").stdout.splitlines()
    assert [len(json.loads(line)["embedding"]) for line in vectors] == [32, 32]
    scores = json.loads(cloze("evaluate", base, place / "text.txt", "--json").stdout)["scores"]
    assert 0 <= scores["mlm_accuracy"] <= 1
    told = json.loads(cloze("info", base, "--json").stdout)
    assert (told["family"], set(told["capabilities"])) == (
        "toy-encoder",
        {
            "fill",
            "score",
            "embed",
            "similarity",
            "rerank",
            "index",
            "evaluate",
            "compare",
            "export",
            "tokenize",
        },
    )
    labelled = place / "labelled.tsv"
    cloze(
        *("finetune", "classify", base, "--train", labelled, "--dev", labelled, "--out", tuned),
        *("--epochs=6", "--lr=0.01", "--batch-size=8", *small),
    )
    found = json.loads(cloze("evaluate", tuned, labelled, "--json").stdout)
    assert found["scores"]["accuracy"] == 1.0
    said = json.loads(cloze("classify", tuned, "it saw a dog.", "--json").stdout)
    assert said["labels"][0]["label"] == "dog"


def test_a_language_model_from_text_to_a_text(cloze, place):
    out = place / "lm"
    cloze(
        *("pretrain", place / "lines.txt", "--family", "toy-lm", "--out", out, "--epochs=2"),
        *("--set=model.hidden_size=16", "--set=run.batch_size=4", "--threads=1", "--device=cpu"),
        *("--quiet", "--json"),
    )
    assert json.loads((out / "config.json").read_text())["model_type"] == "toy-lm"
    cloze("pretrain", "--resume", "--out", out, "--quiet", "--json")
    found = json.loads(cloze("evaluate", out, place / "lines.txt", "--json").stdout)["scores"]
    assert 1 < found["perplexity"] < 40  # of about 75 words
    told = json.loads(cloze("suggest", out, "the cat", "--top", "3", "--json").stdout)
    assert len(told["suggestions"]) == 3
    written = json.loads(
        cloze("generate", out, "the cat", "--max-new-tokens", "4", "--json").stdout
    )
    assert written["continuations"][0]["tokens"]
    table = json.loads(cloze("compare", out, place / "lines.txt", "--json").stdout)
    assert [one["model"] for one in table["models"]] == [str(out)]


def test_python_saves_and_loads_them(cloze, place):
    """What the package builds comes back bit for bit, and is used as any other model is."""
    code = f"""
import sys
sys.path.insert(0, {str(PACKAGE.parent)!r})
import cloze, torch
from cloze_toy.configs import ToyEncoderConfig, ToyLanguageModelConfig
from cloze.checkpoint.model import Model
from cloze.models.language import Vocabulary
from helpers import tiny_tokenizer
tokenizer, rng = tiny_tokenizer(), torch.Generator().manual_seed(0)
words = len(Vocabulary(tokenizer).tokens)
for config, heads in (
    (ToyEncoderConfig.preset("tiny", vocab_size=tokenizer.vocab_size), ["mlm"]),
    (ToyEncoderConfig.preset("tiny", vocab_size=tokenizer.vocab_size), ["token"]),
    (ToyLanguageModelConfig(vocab_size=words, bos_id=1), []),
):
    made = Model.from_config(config, tokenizer, heads, rng=rng)
    folder = made.save({str(place)!r} + "/saved-" + "-".join([config.family, *heads]))
    again = cloze.load(folder)
    assert again.config == config and not again.report
    ours, theirs = made.module.state_dict(), again.module.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
"""
    cloze("-c", code)
