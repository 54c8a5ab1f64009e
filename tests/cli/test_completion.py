"""What shells suggest: commands, options, and values where they are known."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cloze import builtin
from cloze.cli.app import COMMANDS, load_command
from cloze.cli.completion import COMPLETIONS
from cloze.device import INFERENCE_DTYPES
from cloze.make.recipe.files import list_recipes
from cloze.make.recipe.finetune import TASKS
from cloze.tasks.embed import embed
from helpers import split_group

CLOZE = Path(sys.executable).with_name("cloze")
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import io, json, os, sys
from contextlib import redirect_stdout
from cloze.cli.app import app
found = {}
os.environ["_CLOZE_COMPLETE"] = "complete_bash"
for line in sys.stdin:
    words = json.loads(line)
    os.environ |= {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    with redirect_stdout(io.StringIO()) as output:
        try:
            app(prog_name="cloze")
        except SystemExit:
            found[words] = output.getvalue().split()
found["torch"] = "torch" in sys.modules
json.dump(found, sys.stdout)
"""


def complete(*commands: str) -> dict[str, list[str]]:
    """What bash suggests for the last word of each command; torch must not be imported."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="\n".join(map(json.dumps, commands)),
        capture_output=True,
        encoding="utf-8",
        check=True,
        cwd=ROOT / "tests",  # in the root there may be models, such as that of `make demo`
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    assert not found.pop("torch")
    return found


def test_commands_options_and_values_are_suggested():
    expected = {
        "cloze fi": ["fill", "finetune"],
        "cloze fill --to": ["--top"],
        "cloze fill cloze": list(builtin()),
        "cloze fill golden/bert_s": [
            "golden/bert_sequence/model",
            "golden/bert_span/model",
        ],
        "cloze fill no-such-folder/": [],  # then the shell suggests files
        "cloze finetune ": list(TASKS),
        "cloze finetune classify cloze-en --pooling ": ["cls", "mean", "max"],
        "cloze finetune classify cloze-en --recipe ": [
            "decoder-summarize",
            "decoder-translate",
            "decoder",
            "embed",
            "features",
            "finetune",
            "seq2seq",
            "transformer-base",
            "transformer",
            "ulmfit",
        ],
        "cloze distill cloze-en --recipe ": ["distill"],
        "cloze pretrain text --preset sm": ["small"],
        "cloze pretrain text --schedule co": ["cosine", "constant"],
        "cloze pretrain text --set optimizer.l": ["optimizer.lr="],
        "cloze export a": ["arpa", "allennlp"],
        "cloze evaluate cloze-en --truncation head": ["head", "head+tail"],
        "cloze glue cloze-en --tasks CoLA,S": ["CoLA,SST-2", "CoLA,STS-B"],
    }
    found = complete(*expected, "cloze ", "cloze pretrain x --recipe ", "cloze pretrain --family ")
    assert found.pop("cloze ") == list(COMMANDS)
    assert set(found.pop("cloze pretrain x --recipe ")) == set(list_recipes()) - {
        *found["cloze finetune classify cloze-en --recipe "],
        "distill",
    }
    families = found.pop("cloze pretrain --family ")
    assert {"bert", "ngram", "word2vec"} <= set(families)
    assert "transformer" not in families
    assert found == expected


def test_every_table_of_values_belongs_to_a_parameter():
    loaded = [load_command(name, to_run=True) for name in COMMANDS]
    commands = [one for each in loaded for one in split_group(each)]
    assert set(COMPLETIONS) <= {one.name for command in commands for one in command.params}


def test_values_that_are_written_out_are_accepted():
    assert set(COMPLETIONS["dtype"]()) <= set(INFERENCE_DTYPES)
    for pooling in COMPLETIONS["pooling"]():
        embed("cloze-en", "A dog.", pooling=pooling)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_each_shell_gets_its_completions(shell):
    variables = {
        "_CLOZE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "cloze tok",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "cloze tok",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_WORD_TO_COMPLETE": "tok",
    }
    done = subprocess.run([CLOZE], env=os.environ | variables, capture_output=True, text=True)
    assert re.findall(r"\b(tok\w+|fill)\b", done.stdout)[:1] == ["tokenize"], done.stderr


def test_the_installed_script_works_in_bash(tmp_path):
    variables = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    subprocess.run(
        [CLOZE, "--install-completion", "bash"],
        env=os.environ | variables,
        capture_output=True,
        check=True,
    )
    (script,) = tmp_path.glob("**/cloze.sh")
    assert str(script) in (tmp_path / ".bashrc").read_text()
    lines = [
        f"source {script}",
        "COMP_WORDS=(cloze fi) COMP_CWORD=1",
        f"_cloze_completion {CLOZE}",
        'echo "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.stdout.split() == ["fill", "finetune"], done.stderr
