"""Labels, tensors, files and texts are printed as text, never as markup or terminal escapes."""

import json
import os
import pty
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import cloze
from cloze.errors import MAX_MESSAGE, ClozeError, FolderError
from forked_commands import ForkedCommand
from helpers import raises, tiny_model

MARKUP = "[link=https://example.org]x[/link][/bold]"
# set the title (OSC 7-bit and 8-bit), clear the screen (CSI 7-bit and 8-bit), erase, reverse

ESCAPES = "\x1b]0;a\x07\x9d0;b\x9c\x1b[2J\x9b2J\x7f\u202e"
BAD = [*"\x1b\x07\x7f\x9b\x9c\x9d\u202e"]


def run_on_terminal(*arguments: str | Path, **environment: str) -> tuple[int, str]:
    """Exit code and output of a command that writes to a terminal without colors."""
    ours, theirs = pty.openpty()
    settings = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    command = ForkedCommand(*arguments, stdout=theirs, stderr=theirs, **settings, **environment)
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # the terminal is closed
        pass
    finally:
        os.close(ours)
    return command.wait().returncode, b"".join(parts).decode()


def check_plain(text: str) -> None:
    assert "Traceback" not in text
    assert not [character for character in BAD if character in text]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A classifier whose labels and one of whose tensors were named by an attacker."""
    path = tmp_path_factory.mktemp("models") / "model"
    labels = ("[/bold]", f"{MARKUP}{ESCAPES}")
    tiny_model("sequence", labels=labels).save(path)
    weights = load_file(path / "model.safetensors")
    extra = weights["classifier.bias"].clone()
    save_file(
        {**weights, f"{MARKUP}{ESCAPES}": extra}, path / "model.safetensors", {"format": "pt"}
    )
    return path


def test_loading_prints_names_of_tensors_as_text(folder, capsys):
    cloze.load(folder, device="cpu")
    shown = capsys.readouterr().err
    check_plain(shown)
    assert "[/bold]" in shown


def test_tables_show_labels_as_text(folder, tmp_path):
    data = tmp_path / "dev.jsonl"
    names = cloze.load(folder, device="cpu", quiet=True).labels
    rows = [{"text": f"the cat {ESCAPES}", "label": name} for name in names]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, shown = run_on_terminal("evaluate", folder, data, "--device", "cpu")
    assert code == 0, shown
    assert "[/bold]" in shown
    check_plain(shown)


def test_json_has_no_control_characters_and_the_same_values(folder, forked):
    ran = forked("classify", folder, f"the cat{ESCAPES}", "--top", "2", "--json", "--quiet")
    assert ran.returncode == 0, ran.stderr
    check_plain(ran.stdout + ran.stderr)
    found = json.loads(ran.stdout)
    assert found["text"].endswith(ESCAPES)
    assert json.dumps(f"{MARKUP}{ESCAPES}")[1:-1] in json.dumps(found)


def test_errors_are_plain_text(folder, tmp_path, process):
    ran = process("info", tmp_path / f"no{ESCAPES}")
    assert ran.returncode == 1
    check_plain(ran.stdout + ran.stderr)
    with raises(ClozeError) as caught:
        cloze.load(tmp_path / f"no{ESCAPES}")
    check_plain(str(caught.value))


def test_errors_are_short(tmp_path):
    tiny_model().save(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    names = {f"w{n}": f"../{'x' * 20_000}{n}.safetensors" for n in range(3)}
    index = tmp_path / "m" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    with raises(FolderError, "model.safetensors.index.json") as caught:
        cloze.load(tmp_path / "m")
    assert len(str(caught.value)) < 3 * MAX_MESSAGE
    index.write_text(json.dumps({"weight_map": {"a": f"{'x' * 2_000_000}.safetensors"}}))
    with raises(FolderError, "shard") as caught:
        cloze.load(tmp_path / "m")
    assert len(str(caught.value)) < 3 * MAX_MESSAGE
