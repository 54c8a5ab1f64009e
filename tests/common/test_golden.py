"""Folders that commit 58e9c8d wrote still load and compute what they did: see tests/golden.

Names that may change are in `golden_adapter.py` alone; here are only the stable ones.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import cloze
import golden_adapter as adapter
from helpers import files_of

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
INPUTS = json.loads((GOLDEN / "data" / "inputs.json").read_text("utf-8"))
FOLDERS = sorted(path.parent.name for path in GOLDEN.glob("*/model"))
BUILTIN = {"cloze_en": "cloze-en"}  # whose weights lie in the package
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def source_of(name):
    return BUILTIN.get(name) or GOLDEN / name / "model"


def load(source):
    return cloze.load(source, device="cpu")


def expected_values(name):
    return json.loads((GOLDEN / name / "expected.json").read_text("utf-8"))


def expected_tensors(name):
    """The inputs of the fixed batch, and everything that was computed."""
    tensors = load_file(GOLDEN / name / "expected.safetensors")
    names = [name for name in tensors if name.startswith("input.")]
    inputs = {name.removeprefix("input."): tensors.pop(name) for name in names}
    return inputs, tensors


@torch.inference_mode()
def outputs(model, inputs):
    return adapter.module_outputs(model, inputs)


def part_of(tensors, *prefixes):
    return {name: one for name, one in tensors.items() if name.startswith(prefixes)}


def check_tensors(found, expected):
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        torch.testing.assert_close(found[name], one, **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


def close(found, expected):
    """Equal, but for numbers, which may differ by rounding."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[k], expected[k]) for k in found)
    if isinstance(expected, list):
        same = len(found) == len(expected)
        return same and all(close(one, other) for one, other in zip(found, expected, strict=True))
    if isinstance(expected, float):
        return found == pytest.approx(expected, rel=1e-5, abs=1e-5)
    return found == expected


def plain(result):
    """As JSON has it: tuples are lists."""
    return json.loads(json.dumps(result))


def encodings(tokenizer, asked):
    made = [tokenizer.encode(one["text"], one["pair"]) for one in asked]
    return [
        {name: getattr(one, name) for name in ("ids", "offsets", "words", "type_ids")}
        for one in made
    ]


def test_all_folders_are_there():
    assert len(FOLDERS) == 30


@pytest.mark.parametrize("name", FOLDERS)
def test_the_module_computes_what_it_did(name):
    inputs, tensors = expected_tensors(name)
    expected = {key: one for key, one in tensors.items() if not key.startswith("embed.")}
    check_tensors(outputs(load(source_of(name)), inputs), expected)


@pytest.mark.parametrize("name", [*FOLDERS, *BUILTIN])
def test_inference_functions_say_what_they_did(name):
    model, expected = load(source_of(name)), expected_values(name)
    assert adapter.shape_of(model).items() >= expected["shape"].items()
    assert list(getattr(model, "labels", ())) == expected["labels"]
    for asked in expected["encodings"]:
        (found,) = plain(encodings(model.tokenizer, [asked]))
        assert found == {key: asked[key] for key in found}
    for function, result in expected["functions"].items():
        found = adapter.FUNCTIONS[function](model, INPUTS)
        if function == "embed":
            found = {f"embed.{part}": vectors for part, vectors in found.items()}
            check_tensors(found, part_of(expected_tensors(name)[1], "embed."))
        else:
            assert close(plain(found), result), (function, found)


@pytest.mark.parametrize("name", FOLDERS)
def test_evaluation_gives_the_scores_it_gave(name):
    expected = expected_values(name)["evaluate"]
    files = [str(GOLDEN / "data" / file) for file in expected["files"]]
    found = adapter.evaluate(load(source_of(name)), files)
    assert close(found, expected["scores"]), found


def weight_names(folder):
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return file.offset_keys()


@pytest.mark.parametrize("name", FOLDERS)
def test_saved_and_loaded_again_it_computes_the_same_bits(name, tmp_path):
    inputs, _ = expected_tensors(name)
    model = load(source_of(name))
    saved = model.save(tmp_path / "model")
    again = load(saved)
    before, after = (outputs(one, inputs) for one in (model, again))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    # where weights lie in the file decides how they are aligned in memory, and so the last bits
    moved = weight_names(source_of(name)) != weight_names(saved)
    model = load(again.save(tmp_path / "again")) if moved else model
    for function in expected_values(name)["functions"]:
        one, other = (adapter.FUNCTIONS[function](one, INPUTS) for one in (model, again))
        assert repr(one) == repr(other)
    assert files_of(saved) >= {"config.json", "model.safetensors"}
    for asked in expected_values(name)["encodings"]:
        assert encodings(again.tokenizer, [asked]) == encodings(model.tokenizer, [asked])
