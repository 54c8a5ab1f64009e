"""Every command and every Python example of README.md, CONTRIBUTING.md and docs/ runs.

A document is run from top to bottom in a folder with the files and models it names (conftest.py).
Long commands are shortened by SUBSTITUTIONS. What cannot run is in EXCEPTIONS, with the reason;
of that, of commands within sentences and of tutorials (`make tutorials` runs them), the flags are
checked.
"""

import contextlib
import functools
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from cloze.cli import main
from cloze.cli.app import COMMANDS, load_command
from document_examples import Example, read_examples, run_session

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
]
# run by `make tutorials`; the last one with a server in tests/unit/serve
AS_WRITTEN = ("docs/tutorials/", "docs/coming-from/", "docs/serve.md")
NUMBER = r"\d+\.\d+"
EXAMPLE = "example"  # the file name of Python examples

# (regular expression, replacement), in this order, for commands and for Python examples;
# conftest.py makes the recipes small
SUBSTITUTIONS = [
    (r"cloze\.(pretrain|finetune|distill)\(", r"overwriting(cloze.\1)("),
    (r"minutes=\d+", "steps=2"),
    (r"--minutes [\d.]+", "--steps 2"),
    (r"--steps \d{3,}", "--steps 2"),
    (r"--epochs \d+", "--epochs 1"),
    (r"--seeds \d+", "--seeds 2"),
    (r"--batch-tokens \d+", "--batch-tokens 512"),
    (r"--preset \w+", "--preset tiny"),
    (r"model\.hidden_size=\d+", "model.hidden_size=32"),
    (r"model\.num_heads=\d+", "model.num_heads=2"),
    (r"(cloze pretrain .*--recipe elmo .*)--dtype bfloat16", r"\1"),  # there is no GPU
    (r"(cloze pretrain .*)--dtype bfloat16", r"\1--set run.fast=true"),
    (r"\.\./shared/data/text/", ""),
    (r"\bTEXT\b", "text/*.txt"),
    (r"--vocabulary (V|VOCAB)\b", "--vocabulary VOCABULARY"),
    (r"--layers CHOICE\b", "--layers last"),
    (r"(max.new.tokens)([ =])\d{3}", r"\1\g<2>20"),
    (r"(cloze (?:finetune \w+|distill)) cloze-en", r"\1 runs/bert"),
    (r'(\(cloze\.finetune\)\(\s*"\w+",\s*)"cloze-en"', r'\1"runs/bert"'),
    (r'"cloze-en"(, device="cpu", dtype="auto")', r'"runs/bert"\1'),  # it measures speed
    (r"cloze database (?!.*--key-encoder)", "cloze database --key-encoder runs/bert "),
    (r"(cloze draw \S+)(?![^\n]* --sampling-steps )", r"\1 --sampling-steps 4"),
    (r"\bsteps=50\b", "steps=4"),
    (r"(cloze explain (?:ablation|patching|cka|probe)) cloze-en", r"\1 runs/bert"),
]

# regular expression -> why it is not run
EXCEPTIONS = {
    r"make \w+": "sets up an environment; the target's name is checked",
    r"pip install .*": "installs",
    r"python bench/.*": "takes minutes, a GPU or data that are not here; its flags are checked",
    r"python tools/.*": "checks this repository",
    r"cloze .* --engine ray.*": "starts Ray, which takes seconds; tested in tests/unit/tasks",
    r"cloze demo": "trains for minutes; tested in tests/unit/make",
    r"cloze lineage .*": "trains several models; tested in tests/unit/make",
    r"cloze suggest .* --interactive": "reads numbers from a terminal; tested in tests/cli",
    r"cloze pretrain .* --plan": "measures for ten seconds; tested in tests/cli",
    r"cloze serve .*": "runs until it is stopped; tested in tests/unit/serve",
    r"torchrun .*": "needs several processes; tested in tests/unit/train",
}


def shorten(text: str) -> str:
    for pattern, replacement in SUBSTITUTIONS:
        text = re.sub(pattern, replacement, text, flags=re.S)
    return text


def read_exception(command: str) -> str | None:
    """Why a command is not run."""
    return next((why for one, why in EXCEPTIONS.items() if re.match(one, command)), None)


@pytest.mark.parametrize("document", [one for one in DOCUMENTS if not one.startswith(AS_WRITTEN)])
def test_examples_run(document, provide):
    run_examples(document, list(read_examples((ROOT / document).read_text("utf-8"))), provide)


@pytest.mark.parametrize("document", [one for one in DOCUMENTS if one.startswith(AS_WRITTEN)])
def test_commands_of_tutorials_have_flags_that_exist(document):
    for example in read_examples((ROOT / document).read_text("utf-8")):
        if example.kind == "python":
            compile(example.text, document, "exec")
        elif example.text.startswith(("cloze ", "make ")):
            check_arguments(example.text)


def test_examples_of_the_help_run(provide):
    examples = [Example(0, "shell", example) for _, example in COMMANDS.values()]
    run_examples("cloze --help", examples, provide)


def run_examples(document: str, examples: list[Example], provide: Callable[[str], Path]) -> None:
    """Run the examples of a document, and list those that fail."""
    provide(shorten("\n".join(example.text for example in examples)))
    failures = []
    for example in examples:
        try:
            run_example(example)
        except Exception as error:  # every failure of a document is listed, not the first alone
            failures.append(f"{document}:{example.line}: {example.text}\n{describe(error)}")
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)


def describe(error: Exception) -> str:
    last = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == EXAMPLE]
    where = f" (its line {last[-1].lineno})" if last else ""
    return f"{type(error).__name__}{where}: {error}"


def run_example(example: Example) -> None:
    if example.kind == "shell":
        if read_exception(example.text):
            check_arguments(example.text)
        else:
            output = run_command(shorten(example.text))
            if example.output and " cloze-en " in example.text:
                assert same_output(output, example.output), output
    elif file := re.match(r"# (\S+\.py)\n", example.text):
        write_module(Path(file[1]), example.text)
    elif example.kind == "python":
        code = compile(shorten(example.text), EXAMPLE, "exec")
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("default")
            exec(code, {"overwriting": overwriting})
    else:
        run_session(example.text, {})


def write_module(path: Path, text: str) -> None:
    """An example that begins with its path is a file; one of cloze itself is only checked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if path.parts[0] == "src":
        run_example(Example(0, "python", text.partition("\n")[2]))


def test_json_has_the_documented_fields(provide):
    text = (ROOT / "docs/json.md").read_text("utf-8")
    table = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", text, re.M))
    commands = [one.text for one in read_examples(text) if one.text.startswith("cloze ")]
    provide("\n".join(commands))
    for command in commands:
        _, name, *words = shlex.split(command)
        options = ("--odd", "--between", "--joint", "--images")
        name = " ".join([name, *(one for one in options if one in words)])
        name += " --pooling none" if "none" in words else ""
        (line, *_) = run_command(command).splitlines()
        fields = find_fields(json.loads(line))
        documented = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", table[name]))
        if "[]" in line:  # nothing was found, so its fields are not there
            documented = [one for one in documented if one in fields]
        assert fields == documented, command


def find_fields(value: object) -> list[str]:
    """The names in an object, in their order, with those of the first object in each list."""
    if isinstance(value, list):
        return find_fields(value[0]) if value else []
    if not isinstance(value, dict):
        return []
    return [one for name, inner in value.items() for one in (name, *find_fields(inner))]


def overwriting(function: Callable[..., object]) -> Callable[..., object]:
    """A training function that writes where the fixture or an earlier example has written."""
    return functools.partial(function, force=True)


def run_command(text: str) -> str:
    """Run a command as a shell would; what it prints."""
    words = shlex.split(text.partition(" | ")[0], comments=True)
    words = [path for word in words for path in expand(word)]
    if words[0] == "python":
        subprocess.run(
            [sys.executable, ROOT / words[1], *words[2:]], check=True, capture_output=True
        )
        return ""
    assert words[0] == "cloze", f"{words[0]} is no command that this test can run"
    if "--out" in words and {"--resume", "--update", "--delete"}.isdisjoint(words):
        remove(Path(words[words.index("--out") + 1]))
    return run_cloze(words)


def expand(word: str) -> list[str]:
    """The files that a glob names, as a shell would give them, or the word itself."""
    names = sorted(map(str, Path().glob(word))) if "*" in word or "[0" in word else []
    return names or [word]


def run_cloze(words: list[str]) -> str:
    before, showwarning = sys.argv, warnings.showwarning
    errors = io.StringIO()
    sys.argv = words
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()) as output,
            contextlib.redirect_stderr(errors),
        ):
            warnings.simplefilter("default")
            main()
    except SystemExit as left:
        if left.code:
            raise AssertionError(f"exit code {left.code}: {errors.getvalue()}") from None
    finally:
        sys.argv, warnings.showwarning = before, showwarning
    return output.getvalue()


def remove(path: Path) -> None:
    """Where a command writes: what the fixture or an earlier example has put there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def same_output(found: str, shown: str) -> bool:
    """Whether two outputs have the same words, and numbers that differ by at most 0.005."""
    left, right = (re.sub(NUMBER, "", text).split() for text in (found, shown))
    ours, theirs = (list(map(float, re.findall(NUMBER, text))) for text in (found, shown))
    close = all(abs(one - other) <= 0.005 for one, other in zip(ours, theirs, strict=False))
    return left == right and len(ours) == len(theirs) and close


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_in_sentences_have_flags_that_exist(document):
    text = (ROOT / document).read_text("utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for found in re.finditer(r"`((?:cloze|python|make) [^`]+)`", prose):
        check_arguments(found[1].replace("\n", " "))


def check_arguments(command: str) -> None:
    """That the command, script or target exists, and all flags."""
    words = re.sub(r"[|…].*?(?=cloze|$)", "", command).split()
    flags = set(re.findall(r"(?<=\s)--[a-z][a-z0-9-]*", command))
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), command
    elif words[0] == "cloze":
        if words[1].isalpha() and words[1].islower():
            assert words[1] in COMMANDS, command
            loaded = load_command(words[1], to_run=True)
            subcommands = getattr(loaded, "commands", {})
            if subcommands and len(words) > 2 and words[2].islower():  # not VIEW
                assert words[2] in subcommands, command
                loaded = subcommands[words[2]]
            options = loaded.params
            known = {name for one in options for name in (*one.opts, *one.secondary_opts)}
            known.add("--help")
            assert flags <= known, f"{command}: there is no {flags - known}"
    elif words[0] == "python" and words[1].endswith(".py"):
        script = ROOT / words[1]
        source = script.read_text("utf-8")
        for name in re.findall(r"^from (\w+) import", source, re.M):
            if (script.parent / f"{name}.py").exists():
                source += (script.parent / f"{name}.py").read_text("utf-8")
        unknown = {flag for flag in flags if f'"{flag}"' not in source}
        assert not unknown, f"{command}: there is no {unknown}"
