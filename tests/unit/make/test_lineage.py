"""`lineage`: every system on one text and one task, continued after an interruption."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import cloze
from cloze.cli.app import app
from cloze.errors import FolderError, InputError
from cloze.make import lineage as module
from helpers import raises

SYSTEMS = ("ngram", "gpt")  # the others are trained by their own tests


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    parts = (["the cat", "a dog"], ["liked", "hated"], ["the film", "a song"], ["today", "here"])
    lines = [" ".join(map(rng.choice, parts)) + f" at {number}." for number in range(600)]
    documents = ["\n".join(lines[at : at + 3]) for at in range(0, len(lines), 3)]
    (folder / "text.txt").write_text("\n\n".join(documents))
    rows = [f"{line}\t{'good' if 'liked' in line else 'bad'}\n" for line in lines[:200]]
    (folder / "films.tsv").write_text("".join(rows))
    return folder


@pytest.fixture(scope="module")
def result(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "lineage"
    with pytest.MonkeyPatch.context() as patch:
        small = {"model.num_layers": 1, "model.hidden_size": 16, "model.num_heads": 2}
        small |= {"vocabulary.size": 300, "run.batch_tokens": 256, "data.workers": 1}
        changed = replace(module.SYSTEMS["gpt"], settings=lambda _: small)
        patch.setitem(module.SYSTEMS, "gpt", changed)
        found = cloze.lineage(
            files / "text.txt", files / "films.tsv", out,
            minutes=0.02, systems=SYSTEMS, device="cpu", progress=False,
        )  # fmt: skip
    return found, out


def test_the_table_has_every_system_and_score(result):
    found, _ = result
    assert [row.system for row in found.rows] == list(SYSTEMS)
    ngram, gpt = found.rows
    assert ngram.scores["films.tsv"]["counts"].value > 0.9  # one word decides
    assert set(gpt.scores["films.tsv"]) == {"features", "finetune"}
    assert ngram.bits_per_byte < 2
    assert gpt.tokens > 0
    (task,) = found.tasks
    assert (task.metric, task.train + task.dev + task.test) == ("accuracy", 200)
    assert 0.4 < task.baseline["majority_baseline"] < 0.7
    assert found.to_pandas().shape[0] == 3


def test_the_page_and_the_state_are_in_the_folder(result):
    found, out = result
    page = (out / "lineage.html").read_text("utf-8")
    assert all(
        text in page for text in ("films.tsv: accuracy", "ngram, counts", found.rows[1].idea)
    )
    assert json.loads((out / "lineage.json").read_text())["steps"]["ngram/model"]


def test_what_is_finished_is_not_done_again(result, files, monkeypatch):
    found, out = result

    def fail(*_args, **_options):
        raise AssertionError("trained again")

    monkeypatch.setattr(module, "pretrain", fail)
    monkeypatch.setattr(module, "finetune", fail)
    words = ["lineage", files / "text.txt", files / "films.tsv", "--out", out, "--minutes", 0.02]
    words += ["--systems", "ngram,gpt", "--device", "cpu", "--json"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    again = json.loads(done.stdout)
    assert again == json.loads(json.dumps(found.to_dict()))
    table = CliRunner().invoke(app, [str(word) for word in words[:-1]]).stdout.splitlines()
    header, ngram, _ = (line.split("\t") for line in table)
    assert ngram[header.index("films.tsv: finetune")] == ""  # it has no weights to train
    with raises(FolderError, str(out), fix="--force"):
        cloze.lineage(files / "text.txt", files / "films.tsv", out, minutes=3)


def test_results_of_another_text_are_not_returned(result, files, tmp_path):
    _, out = result
    before = (out / "lineage.json").read_bytes()
    options = {"minutes": 0.02, "systems": SYSTEMS, "device": "cpu", "progress": False}
    other = tmp_path / "other.txt"
    other.write_text("Another text.\n\n" + (files / "text.txt").read_text())
    for text in (other, [files / "text.txt", other], iter(["a text"])):
        with raises(FolderError, str(out), fix="--force"):
            cloze.lineage(text, files / "films.tsv", out, **options)
    for text in (tmp_path / "nowhere.txt", [files / "text.txt", tmp_path / "nowhere.txt"]):
        with raises(InputError, "nowhere.txt"):
            cloze.lineage(text, files / "films.tsv", out, **options)
    assert (out / "lineage.json").read_bytes() == before
    with raises(InputError, "nowhere.txt"):
        cloze.lineage(tmp_path / "nowhere.txt", files / "films.tsv", tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_a_table_whose_text_column_is_unknown(files, tmp_path):
    table = tmp_path / "table.tsv"
    table.write_text("a fine film\t1\na dull film\t0\n")
    with raises(InputError, "table.tsv", fix=("header", "text")) as caught:
        cloze.lineage(table, files / "films.tsv", tmp_path / "m", progress=False)
    assert "--text-column" not in caught.value.fix
    table.write_text("text\tlabel\n" + "".join(f"Film {n}.\t1\n" for n in range(300)))
    found = cloze.lineage(
        table, files / "films.tsv", tmp_path / "m", systems="ngram", progress=False
    )
    assert found.rows[0].bits_per_byte


def test_bad_arguments(files, tmp_path):
    with raises(InputError, "gpt5", fix="gpt"):
        cloze.lineage(files / "text.txt", files / "films.tsv", tmp_path / "m", systems="gpt5")
    with raises(InputError, "text.txt", fix="CoNLL"):
        cloze.lineage(files / "text.txt", files / "text.txt", tmp_path / "m")
    with raises(InputError, "labelled"):
        cloze.lineage(files / "text.txt", [], tmp_path / "m")
    assert not (tmp_path / "m").exists()
