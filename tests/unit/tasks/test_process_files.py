"""`process_files`: one result per row, in order, in this process and with Ray."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cloze
from cloze.checkpoint.atomic import lock_folder
from cloze.data import result_parts
from cloze.errors import ConfigError, FolderError, InputError
from helpers import raises, tiny_model

parquet = pytest.importorskip("pyarrow.parquet")
LONG = "a b c d e f g h i j " * 4  # longer than the 24 tokens that models read


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models for every function, and the files of each."""
    found = tmp_path_factory.mktemp("models")
    for name, head in {
        "embed": None,
        "classify": "sequence",
        "tag": "token",
        "answer": "span",
    }.items():
        labels = ("O", "B-X", "I-X") if name == "tag" else ("no", "yes")
        tiny_model(*([head] if head else []), labels=labels).save(found / name)
    texts = [f"the cat {'a b ' * (n % 7)}" for n in range(50)]
    (found / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    rows = [{"text": one, "pair": "the cat"} for one in texts]
    (found / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    questions = [{"id": str(n), "question": "the cat", "answers": []} for n in range(20)]
    squad = {"data": [{"paragraphs": [{"context": "a b c the cat", "qas": questions}]}]}
    (found / "questions.json").write_text(json.dumps(squad))
    return found


def read_parts(path: Path) -> list[dict]:
    parts = sorted(path.glob("part-*.parquet"))
    return [row for part in parts for row in parquet.read_table(part).to_pylist()]


def process(folder, out, function="embed", source="texts.txt", **options):
    options = {"block_rows": 8, "device": "cpu", **options}
    return cloze.process_files(function, folder / function, folder / source, out, **options)


def test_parts_contain_what_embed_returns(folder, tmp_path):
    texts = (folder / "texts.txt").read_text().splitlines()
    expected = cloze.embed(folder / "embed", texts)
    result = process(folder, tmp_path / "v")
    assert (result.rows, result.failed, result.parts, result.reused) == (50, 0, 7, 0)
    rows = read_parts(tmp_path / "v")
    assert [row["text"] for row in rows] == texts
    np.testing.assert_allclose([row["embedding"] for row in rows], expected, atol=1e-6)
    manifest = json.loads((tmp_path / "v" / "manifest.json").read_text())
    assert [part["rows"] for part in manifest["parts"]] == [8] * 6 + [2]
    names = {path.name for path in (tmp_path / "v").iterdir()}
    assert names == {"manifest.json", *(part["name"] for part in manifest["parts"])}
    one_file = process(folder, tmp_path / "v.npy")
    assert one_file.to_dict().keys() == {"out", "count", "truncated", "failed"}
    assert np.array_equal(np.load(tmp_path / "v.npy"), [row["embedding"] for row in rows])


@pytest.mark.parametrize(
    ("function", "source"),
    [("classify", "pairs.jsonl"), ("classify", "texts.txt"), ("tag", "texts.txt"),
     ("answer", "questions.json")],
)  # fmt: skip
def test_every_function_writes_its_json_objects(folder, tmp_path, function, source):
    process(folder, tmp_path / "r.jsonl", function, source)
    process(folder, tmp_path / "r", function, source)
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    rows = read_parts(tmp_path / "r")
    assert len(lines) == len(rows) == (20 if function == "answer" else 50)
    for line, row in zip(lines, rows, strict=True):
        assert {name: value for name, value in row.items() if name in line} == line
        assert all(value is None for name, value in row.items() if name not in line)
    model = cloze.load(folder / function)
    if function == "answer":
        expected = cloze.answer(model, "the cat", "a b c the cat").to_dict()["answers"][:1]
        assert lines[3]["answers"][0]["text"] == expected[0]["text"]
    else:
        pair = {"pair": "the cat"} if source == "pairs.jsonl" else {}
        expected = getattr(model, function)(lines[5]["text"], **pair).to_dict()
        key = "labels" if function == "classify" else "spans"
        best = [one["label"] for one in expected[key]]
        assert [one["label"] for one in lines[5][key]] == (best[:1] if key == "labels" else best)


def test_an_interrupted_job_computes_only_what_is_missing(folder, tmp_path, monkeypatch):
    out = tmp_path / "v"
    process(folder, out)
    expected = read_parts(out)
    written = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    append, count = result_parts.PartFolder._append, []

    def fail_later(self, line):
        if len(count) == 3:
            raise KeyboardInterrupt
        count.append(line)
        append(self, line)

    monkeypatch.setattr(result_parts.PartFolder, "_append", fail_later)
    other = tmp_path / "w"
    with pytest.raises(KeyboardInterrupt):
        process(folder, other)
    monkeypatch.undo()
    assert not (other / "manifest.json").exists()
    with (other / "progress.jsonl").open("a") as file:
        file.write('{"name": "part-0000')  # a line of which only the half was written
    kept = {path.name: path.stat().st_mtime_ns for path in other.glob("part-*")}
    result = process(folder, other)
    assert (result.rows, result.parts, result.reused) == (50, 7, 3)
    assert read_parts(other) == expected
    for name in sorted(kept)[:3]:
        assert (other / name).stat().st_mtime_ns == kept[name]
    again = process(folder, out)  # finished: nothing is computed
    assert (again.parts, again.reused) == (7, 7)
    assert {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")} == written


def test_damaged_parts_and_changed_rows_are_computed_again(folder, tmp_path):
    out, text = tmp_path / "v", tmp_path / "texts.txt"
    text.write_text("\n".join(f"the cat {n}" for n in range(30)))
    process(folder, out, source=text)
    first = read_parts(out)
    (out / "part-000001.parquet").write_bytes(b"PAR1")
    (out / "part-000003.parquet").unlink()
    result = process(folder, out, source=text)
    assert (result.parts, result.reused) == (4, 2)
    assert read_parts(out) == first
    text.write_text("\n".join(f"the cat {n}" if n != 9 else "a b" for n in range(20)))
    result = process(folder, out, source=text)  # block 1 has changed, block 2 is shorter
    assert (result.parts, result.reused) == (3, 1)
    assert [row["text"] for row in read_parts(out)][9] == "a b"
    assert len(list(out.glob("part-*"))) == 3


def test_rows_that_fail_keep_their_place_and_name_file_and_line(folder, tmp_path):
    source = tmp_path / "t.txt"
    source.write_bytes(b"a b\n\xff\nthe cat\n" + LONG.encode() + b"\nb\n")
    with raises(InputError, f"{source}:2", "UTF-8"):
        process(folder, tmp_path / "v", source=source)
    errors = []
    options = {"source": source, "skip_bad": True, "truncation": "error", "block_rows": 2}
    for function in ("embed", "tag", "classify"):
        errors.clear()
        result = process(folder, tmp_path / function, function, on_error=errors.append, **options)
        assert (result.rows, result.failed, result.count) == (5, 2, 3)
        rows = read_parts(tmp_path / function)
        assert [row["text"] for row in rows] == ["a b", None, "the cat", LONG, "b"]
        assert [n for n, row in enumerate(rows) if row["error"]] == [1, 3]
        found = [error.problem for error in errors]
        assert [f"{source}:{line}" in text for line, text in zip((2, 4), found, strict=True)]
        again = process(folder, tmp_path / function, function, on_error=errors.append, **options)
        assert again.reused == 3
        assert [error.problem for error in errors[2:]] == found, "of parts that existed, too"


def test_folders_of_other_things_are_left_alone(folder, tmp_path):
    (tmp_path / "precious.txt").write_text("1")
    with raises(InputError, "precious.txt", fix="empty"):
        process(folder, tmp_path)
    process(folder, tmp_path / "v")
    with raises(InputError, "another job", "options", fix="--force"):
        process(folder, tmp_path / "v", pooling="cls")
    with raises(InputError, "block_rows"):
        process(folder, tmp_path / "v", block_rows=9)
    result = process(folder, tmp_path / "v", pooling="cls", force=True)
    assert result.reused == 0
    with raises(InputError, "v.txt", fix=".parquet"):
        process(folder, tmp_path / "v.txt")
    with raises(InputError, "model", fix="folder or name"):
        cloze.process_files("embed", tiny_model(), ["a"], tmp_path / "w")
    with raises(ConfigError, "function", "paint"):
        cloze.process_files("paint", folder / "embed", ["a"], tmp_path / "w")


def test_one_job_at_a_time(folder, tmp_path):
    with lock_folder(tmp_path / "v"), raises(FolderError, "another process"):
        process(folder, tmp_path / "v")


def test_a_part_that_is_not_on_this_machine(tmp_path):
    (tmp_path / "v").mkdir()
    with result_parts.open_part_folder(tmp_path / "v", {}, force=False) as opened:
        part = result_parts.Part(
            name="part-000000.parquet", key="", rows=1, failed=0, truncated=0, truncated_chars=0
        )
        with raises(FolderError, "part-000000", fix="share"):
            opened.add(part, is_new=True)


def test_lines_that_name_other_files_are_not_believed(folder, tmp_path):
    process(folder, tmp_path / "v")
    manifest = json.loads((tmp_path / "v" / "manifest.json").read_text())
    manifest["parts"][0]["name"] = "../texts.txt"
    manifest["parts"][1]["rows"] = "8"
    manifest["parts"][2] = None
    (tmp_path / "v" / "manifest.json").write_text(json.dumps(manifest))
    assert process(folder, tmp_path / "v").reused == 4


@pytest.mark.stress
def test_ray_in_a_process_of_its_own(tmp_path):
    """One start of Ray, which takes seconds, for all that it must do: see `ray_checks.py`."""
    pytest.importorskip("ray")
    checks = Path(__file__).parents[2] / "ray_checks.py"
    ran = subprocess.run(
        [sys.executable, checks, tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(checks.parent), *sys.path])},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "dead workers",
        "errors",
        "a worker killed while embedding",
        "parts of the other engine",
        "corpus",
        "index",
    ]
