"""`--images` of `cloze embed` and `cloze classify`; `cloze index` and `cloze search` of images."""

import json

import numpy as np
import pytest

import cloze
from cloze.data.images.decode import encode_png
from helpers import tiny_model
from images import CLIP_SHAPE, clip_model, drawings


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = tmp_path_factory.mktemp("images")
    clip_model().save(made / "clip")
    (made / "pictures").mkdir()
    for number, one in enumerate(drawings(4, size=20)):
        (made / "pictures" / f"{number} x.png").write_bytes(encode_png(one.content))
    return made


def test_embed(run, place, tmp_path):
    pictures = place / "pictures"
    out = tmp_path / "x.npy"
    done = run("embed", place / "clip", "--images", pictures, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 images" in done.stderr
    model = cloze.load(place / "clip")
    expected = cloze.embed(model, images=pictures)
    np.testing.assert_allclose(np.load(out), expected, atol=1e-6)
    first, second = pictures / "0 x.png", pictures / "1 x.png"
    lines = run("embed", place / "clip", "--images", first, second, "--normalize").stdout
    found = np.array([line.split("\t") for line in lines.splitlines()], float)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1], atol=1e-5)
    (row,) = run("embed", place / "clip", "--images", first, "--json").stdout.splitlines()
    assert json.loads(row)["image"] == str(first)
    assert run("embed", place / "clip", "--images", pictures, "--out", out).returncode == 1
    parquet = tmp_path / "x.parquet"
    assert run("embed", place / "clip", "--images", pictures, "--out", parquet).returncode == 0


def test_classify(run, place, tmp_path):
    command = ["classify", place / "clip", "--images", place / "pictures", "--labels", "a, b c"]
    lines = [line.split("\t") for line in run(*command).stdout.splitlines()]
    assert lines[0] == ["image", "label", "probability"]
    assert len(lines) == 5
    expected = cloze.classify(
        cloze.load(place / "clip"), images=place / "pictures", labels=["a", "b c"], template="{} c"
    )
    rows = run(*command, "--template", "{} c", "--top", "2", "--json").stdout.splitlines()
    assert [json.loads(row) for row in rows] == expected.to_dict()
    out = tmp_path / "x.parquet"
    assert run(*command, "--out", out).returncode == 0
    broken = tmp_path / "no.png"
    broken.write_bytes(b"no image")
    for more, code, count in (([], 1, 6), (["--skip-bad"], 0, 5)):
        done = run(*command, broken, *more)
        assert done.returncode == code
        assert "no.png" in done.stderr
        assert len(done.stdout.splitlines()) == count
    done = run(*command, broken, "--out", tmp_path / "x.jsonl")
    assert done.returncode == 1
    assert "error" in (tmp_path / "x.jsonl").read_text().splitlines()[-1]


def test_index_and_search(run, place, tmp_path):
    out, page = tmp_path / "index", tmp_path / "page.html"
    build = ["index", place / "pictures", "--out", out, "--model", place / "clip"]
    done = run(*build, "--store", "exact")
    assert "4 documents in 4 chunks (4 added)" in done.stderr
    again = run(*build, "--update", "--json")
    assert json.loads(again.stdout)["unchanged"] == 4
    query = place / "pictures" / "2 x.png"
    (found,) = run("search", out, "--image", query, "--json", "--k", "2").stdout.splitlines()
    assert json.loads(found)["hits"][0]["id"] == str(query)
    lines = run("search", out, "2 x", "--mode", "bm25", "--html", page).stdout.splitlines()
    assert lines[1].split("\t")[2] == str(query)
    assert "data:image/png;base64," in page.read_text()


@pytest.mark.stress
def test_two_processes_train_a_clip(torchrun, run, place, tmp_path):
    shape = [f"--set=model.{name}={value}" for name, value in CLIP_SHAPE.items()]
    command = ["pretrain", place / "pictures", "--recipe", "clip", "--out", tmp_path / "m", *shape]
    command += ["--device", "cpu", "--steps", "2", "--batch-size", "4"]
    refused = torchrun(*command, "--set=run.parallel=fsdp")
    assert refused.returncode == 1
    assert "run.parallel" in refused.stderr
    made = torchrun(*command)
    assert made.returncode == 0, made.stderr
    assert made.stdout.count("trained\t") == 1
    assert json.loads(run("info", tmp_path / "m", "--json").stdout)["family"] == "clip"


def test_mistakes(run, place, tmp_path):
    tiny_model("mlm").save(tmp_path / "bert")
    clip, pictures = place / "clip", place / "pictures"
    for arguments, code, name in (
        (["embed", tmp_path / "bert", "--images", pictures], 1, "a BERT"),
        (["embed", clip, "--images", tmp_path / "none"], 1, "none"),
        (["embed", clip, "--images", pictures, "--pooling", "cls"], 2, "--pooling"),
        (["embed", clip, "--images", pictures, "--out", tmp_path / "folder"], 2, "--out"),
        (["classify", clip, "--images", pictures], 2, "--labels"),
        (["classify", clip, "a text", "--labels", "a,b"], 2, "--images"),
        (["classify", clip, "a text"], 1, "--labels"),
        (["search", tmp_path, "a", "--image", "x.png"], 2, "--image"),
        (["similarity", clip, "a", "--image", tmp_path / "none.png"], 1, "none.png"),
    ):
        done = run(*arguments)
        assert done.returncode == code, (arguments, done.stderr)
        assert name in done.stderr
    matrix = run("similarity", clip, "a", "b", "--image", pictures, "--json").stdout
    assert np.array(json.loads(matrix)["scores"]).shape == (2, 4)
