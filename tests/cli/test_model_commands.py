"""`fill`, `embed`, `info` and `demo` as a user runs them."""

import io
import json
import subprocess
import sys
import time
from itertools import islice

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.cli.app import app
from cloze.data.python_docs import read_documents
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from helpers import PIECES, check_mentions, check_scores, scramble, tiny_tokenizer

CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=8,
    num_layers=4,
    num_heads=2,
    intermediate_size=16,
    max_positions=10,
)
TEXTS = ["the cat sat.", "a b", "猫"]
LONG = "a b c d e f g h i j a b"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    module = scramble(build(CONFIG, ("mlm", "nsp"), rng=torch.Generator())).eval()
    model = Model(module=module, config=CONFIG, tokenizer=tiny_tokenizer())
    return model.save(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def model(folder):
    return cloze.load(folder)


def test_fill(run, folder, model):
    ran = run("fill", folder, "the [MASK] sat", "--top", "3")
    assert ran.returncode == 0, ran.stderr
    guesses = cloze.fill(model, "the [MASK] sat", top=3).masks[0].predictions
    lines = [line.split("\t") for line in ran.stdout.splitlines()]
    assert lines[0] == ["word", "probability", "text"]
    assert [line[0] for line in lines[1:]] == [guess.word for guess in guesses]
    ran = run("fill", folder, "[MASK] [MASK]", "--candidates", "cat, the", "--json")
    blanks = json.loads(ran.stdout)["masks"]
    assert [len(blank["predictions"]) for blank in blanks] == [2, 2]
    assert {guess["word"] for guess in blanks[0]["predictions"]} == {"cat", "the"}


@pytest.mark.parametrize("texts", [["a [MASK]", "", "[MASK] [MASK]"], ["[MASK] [MASK]"]])
def test_fill_makes_one_table_of_texts_and_blanks(run, folder, model, texts):
    ran = run("fill", folder, "-", "--top", "2", stdin="\n".join(texts))
    assert ran.returncode == 0, ran.stderr
    header, *rows = [line.split("\t") for line in ran.stdout.splitlines()]
    assert header == ["source", "mask", "word", "probability", "text"]
    assert [[*row[:3], row[4]] for row in rows] == [
        [text, str(number), guess.word, guess.text]
        for text in filter(None, texts)
        for number, blank in enumerate(cloze.fill(model, text, top=2).masks, 1)
        for guess in blank.predictions
    ]


def test_fill_all_masks_together(run, folder, model):
    text = "the [MASK] b [MASK]"
    found = cloze.fill(model, text, joint=True, beam_size=3, order="left-to-right", top=2).joint
    flags = ["--joint", "--beam-size", "3", "--order", "left-to-right", "--top", "2"]
    ran = run("fill", folder, text, *flags)
    assert ran.returncode == 0, ran.stderr
    lines = [line.split("\t") for line in ran.stdout.splitlines()]
    assert lines == [
        ["source", "text", "log-probability"],
        *([text, one.text, f"{one.log_probability:.4f}"] for one in found),
    ]
    row = json.loads(run("fill", folder, text, *flags, "--json").stdout)
    assert [one["text"] for one in row["joint"]] == [one.text for one in found]
    assert len(row["masks"]) == 2
    ran = run("fill", folder, text, "--beam-size", "3")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "beam_size", "--joint")


def test_fill_without_a_blank(run, folder):
    ran = run("fill", folder, "the cat")
    assert ran.returncode == 1
    assert ran.stdout == ""
    problem, fix = ran.stderr.splitlines()
    check_mentions(problem, "error: ", "[MASK]", "'the cat'")
    check_mentions(fix, "fix: ", "[MASK]")
    assert "Traceback" not in ran.stderr


def test_fill_names_the_line_and_goes_on(run, folder, tmp_path):
    """A blank line of a file has nothing to fill, and is no mistake."""
    file = tmp_path / "t.txt"
    file.write_text(f"a [MASK]\n\nb c\n{LONG} [MASK]\n")
    ran = run("fill", folder, "-f", file, "--json")
    assert ran.returncode == 1
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [len(row.get("masks", "bad")) for row in rows] == [1, 0, 3, 1]
    check_mentions(rows[2]["error"], f"{file}:3: ", "[MASK]", "'b c'")
    assert [row.get("truncated_chars") for row in rows] == [0, 0, None, 9]
    check_mentions(ran.stderr, f"error: {rows[2]['error']}", "1 of 4", "10")
    ran = run("fill", folder, "-f", file, "--json", "--skip-bad")
    assert ran.returncode == 0
    assert [json.loads(line) for line in ran.stdout.splitlines()] == [rows[0], rows[1], rows[3]]
    check_mentions(ran.stderr.splitlines()[-1], "1")


def test_embed_writes_every_format(run, folder, model, tmp_path):
    expected = cloze.embed(model, TEXTS, layers="concat-last-4", pooling="max", normalize=True)
    flags = ["--layers", "concat-last-4", "--pooling", "max", "--normalize"]
    for name in ("v.npy", "v.jsonl", "v.parquet"):
        ran = run("embed", folder, *TEXTS, *flags, "--out", tmp_path / name)
        assert ran.returncode == 0, ran.stderr
        check_mentions(ran.stderr, "3 of 3 texts", tmp_path / name)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-6)
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    np.testing.assert_allclose([row["embedding"] for row in rows], expected, atol=1e-6)
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table.column_names == ["text", "embedding", "error", "truncated_chars"]
    np.testing.assert_allclose(table["embedding"].to_pylist(), expected, atol=1e-6)


def test_embed_reads_files_and_standard_input(run, folder, model, tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    expected = cloze.embed(model, TEXTS)
    ways = [["-f", tmp_path / "t.txt"], ["-f", tmp_path / "t.jsonl"], ["-"], []]
    for number, way in enumerate(ways):
        out = tmp_path / f"{number}.npy"
        ran = run("embed", folder, *way, "--out", out, stdin="\n".join(TEXTS))
        assert ran.returncode == 0, ran.stderr
        np.testing.assert_allclose(np.load(out), expected, atol=1e-6)


def test_embed_tokens(run, folder, model, tmp_path):
    tokens = cloze.embed(model, TEXTS, pooling="none")
    ran = run("embed", folder, *TEXTS, "--pooling", "none", "--json")
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    for row, expected in zip(rows, tokens, strict=True):
        assert [token["token"] for token in row["tokens"]] == expected.encoding.tokens
        spans = [(token["start"], token["end"]) for token in row["tokens"]]
        assert spans == expected.encoding.offsets
        vectors = [token["embedding"] for token in row["tokens"]]
        np.testing.assert_allclose(vectors, expected.vectors, atol=1e-6)
    ran = run("embed", folder, *TEXTS, "--pooling", "none", "--out", tmp_path / "t.parquet")
    assert ran.returncode == 0, ran.stderr
    table = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["tokens"] for row in table] == [found.encoding.tokens for found in tokens]
    np.testing.assert_allclose(table[0]["embeddings"], tokens[0].vectors, atol=1e-6)
    ran = run("embed", folder, "a", "--pooling", "none", "--out", tmp_path / "t.npy")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "tokens", ".jsonl", ".parquet")


def test_embed_prints_all_numbers_where_a_program_reads_them(run, folder, model, tmp_path):
    ran = run("embed", folder, *TEXTS)
    assert ran.returncode == 0, ran.stderr
    found = np.loadtxt(ran.stdout.splitlines(), np.float32)
    assert np.array_equal(found, cloze.embed(model, TEXTS))
    (tmp_path / "t.txt").write_text(f"{LONG}\na\n")
    ran = run("embed", folder, "-f", tmp_path / "t.txt", "--truncation", "error")
    assert ran.returncode == 1
    found = np.loadtxt(ran.stdout.splitlines(), np.float32)
    assert np.isnan(found[0]).all()
    assert np.array_equal(found[1], cloze.embed(model, "a"))
    flags = ["--truncation", "error", "--skip-bad", "--pooling", "none"]
    ran = run("embed", folder, "-f", tmp_path / "t.txt", *flags)
    (tokens,) = cloze.embed(model, ["a"], pooling="none")
    rows = [line.split("\t") for line in ran.stdout.splitlines()]
    assert [row[:2] for row in rows] == [["1", piece] for piece in tokens.encoding.tokens]
    assert np.array_equal(np.array([row[2:] for row in rows], np.float32), tokens.vectors)


def test_embed_shows_the_first_numbers_on_a_terminal(folder, monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    with pytest.raises(SystemExit):
        app(["embed", str(folder), "the cat sat."])
    shown = terminal.getvalue()
    assert "the cat sat." in shown
    assert "…" in shown


def test_embed_finishes_the_others_and_lists_the_failures(run, folder, model, tmp_path):
    (tmp_path / "t.txt").write_text(f"a\n{LONG}\nb\n")
    out = tmp_path / "v.npy"
    strict = ("embed", folder, "-f", tmp_path / "t.txt", "--truncation", "error")
    ran = run(*strict, "--out", out)
    assert ran.returncode == 1
    check_mentions(ran.stderr, f"{tmp_path / 't.txt'}:2: ", "14", "2 of 3 texts")
    assert ran.stdout == ""
    vectors = np.load(out)
    assert np.isnan(vectors[1]).all()
    np.testing.assert_allclose(vectors[[0, 2]], cloze.embed(model, ["a", "b"]), atol=1e-6)
    ran = run(*strict, "--json")
    assert ran.returncode == 1
    assert "error" in json.loads(ran.stdout.splitlines()[1])
    again = ("embed", folder, "-f", tmp_path / "t.txt", "--out", out, "--force", "--json")
    told = {"out": str(out), "count": 2, "truncated": 0, "failed": 1}
    assert json.loads(run(*again, "--truncation", "error").stdout) == told
    ran = run(*again)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == told | {"count": 3, "truncated": 1, "failed": 0}
    assert not np.isnan(np.load(out)).any()
    (line, _) = sorted(ran.stderr.splitlines())  # the other one names the file
    check_mentions(line, "1 of 3 texts", "10", "7 characters were not read")
    ran = run("embed", folder, "-f", tmp_path / "t.txt", "--json", "--truncation", "tail")
    assert [json.loads(line)["truncated_chars"] for line in ran.stdout.splitlines()] == [0, 7, 0]


@pytest.mark.parametrize("first", ["a\n", ""])
def test_rows_that_fail_keep_their_place_in_files(run, folder, model, tmp_path, first):
    """With --skip-bad, too; also if they are the first or the last."""
    file = tmp_path / "t.txt"
    file.write_bytes(first.encode() + b"\xff\n" + LONG.encode() + b"\nb\n\xff\n")
    flags = ["-f", file, "--skip-bad", "--truncation", "window", "--overlap", "8"]
    good = [0, 3] if first else [2]
    expected = cloze.embed(model, ["a", "b"] if first else ["b"])
    out = tmp_path / "v.npy"
    ran = run("embed", folder, *flags, "--out", out)
    assert ran.returncode == 0, ran.stderr
    check_mentions(ran.stderr, "0 to 7", f"{len(good)} of {good[-1] + 2} texts")
    check_mentions(ran.stderr.splitlines()[-1], "3")
    vectors = np.load(out)
    assert vectors.shape == (good[-1] + 2, expected.shape[1])
    np.testing.assert_allclose(vectors[good], expected, atol=1e-6)
    assert np.isnan(np.delete(vectors, good, axis=0)).all()
    run("embed", folder, *flags, "--out", tmp_path / "v.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [n for n, row in enumerate(rows) if "embedding" in row] == good
    assert all(row["error"] for n, row in enumerate(rows) if n not in good)
    assert (rows[-1]["text"], rows[good[-1] - 1]["text"]) == (None, LONG)
    ran = run("embed", folder, *flags, "--json")
    assert len(ran.stdout.splitlines()) == len(good)  # they are skipped


def test_a_command_that_is_told_to_end_leaves_no_half_of_a_file(folder, tmp_path):
    command = [sys.executable, "-m", "cloze", "embed", folder, "-", "--out", tmp_path / "v.npy"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as ran:
        while not list(tmp_path.iterdir()):  # it is there before anything is read
            assert ran.poll() is None
            time.sleep(0.05)
        ran.terminate()
        assert ran.wait(60) == 143
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--layers", "lats"], ("layer", "'lats'", "last")),
        (["a", "--layers", "9"], ("layer 9", "4")),
        (["a", "--pooling", "avg"], ("pooling", "'avg'", "mean")),
        (["a", "--truncation", "cut"], ("'cut'", "head+tail")),
        (
            ["a", "--overlap", "5"],
            ("overlap", "window"),
        ),
        (["a", "--overlap", "5", "--truncation", "head"], ("overlap", "window")),
        (["a", "--dtype", "int3"], ("dtype", "'int3'", "float32")),
        (["a", "--device", "tpu7"], ("device", "tpu7")),
        (["a", "--device", "meta"], ("device", "meta")),
        (["a", "--out", "v.txt"], ("v.txt", ".npy", ".jsonl", ".parquet")),
        (["-f", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_embed_mistakes(run, folder, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = run("embed", folder, *arguments)
    assert ran.returncode == 1
    check_mentions(ran.stderr, message)
    assert "fix: " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_out_that_exists(run, folder, tmp_path):
    out = tmp_path / "v.npy"
    out.write_text("precious")
    ran = run("embed", folder, "a", "--out", out)
    assert ran.returncode == 1
    check_mentions(ran.stderr, out, "exists", "--force")
    assert out.read_text() == "precious"
    assert run("embed", folder, "a", "--out", out, "--force").returncode == 0
    assert np.load(out).shape == (1, 8)


@pytest.mark.parametrize("verb", ["fill", "embed", "info"])
def test_a_folder_that_is_not_there(run, verb, tmp_path):
    ran = run(verb, tmp_path / "nowhere", *([] if verb == "info" else ["a [MASK]"]))
    assert ran.returncode == 1
    check_mentions(ran.stderr, "error: ", tmp_path / "nowhere", "fix: ", "folder")


def test_a_broken_file(run, folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    whole = (folder / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    ran = run("info", tmp_path)
    assert ran.returncode == 1
    check_mentions(ran.stderr, "error: ", "model.safetensors", "fix: ")


def test_info(run, folder):
    ran = run("info", folder)
    assert ran.returncode == 0, ran.stderr
    for fact in (
        "BertForPreTraining",
        "num_layers 4",
        "25 tokens",
        "wordpiece",
        "mlm, nsp",
        "fill",
    ):
        assert fact in ran.stdout
    found = json.loads(run("info", folder, "--json").stdout)
    stored = sum(weight.numel() for weight in cloze.load(folder).module.parameters())
    assert found["total_parameters"] == sum(found["parameters"].values()) == stored
    assert found["dtypes"] == {"F32": stored}
    every = {"embed", "similarity", "rerank", "index", "evaluate", "compare", "export", "tokenize"}
    assert set(found["capabilities"]) == {"fill", "score", "classify", *every}
    assert found["labels"] == ["next", "not next"]
    assert "attention" in found["views"]


def test_whether_one_text_follows_another(run, folder, model):
    ran = run("classify", folder, "the cat", "--pair", "a b", "--top", "2", "--json")
    assert ran.returncode == 0, ran.stderr
    told = {one["label"]: one["score"] for one in json.loads(ran.stdout)["labels"]}
    assert told == pytest.approx(cloze.classify(model, "the cat", "a b").scores)
    ran = run("classify", folder, "the cat")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "pair", "--pair")


def test_demo(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    some = list(islice(read_documents(), 60, 90))  # topics and modules
    monkeypatch.setattr("cloze.make.demo.read_documents", lambda: iter(some))
    ran = run("demo", "--minutes", "0.005", "--threads", "1")
    assert ran.returncode == 0, ran.stderr
    check_scores(ran.stdout, "mlm_accuracy", "unigram_baseline", "nsp_accuracy")
    for fact in ("sentence\t", "\tbefore training\tafter training", "cosine", "cloze fill"):
        assert fact in ran.stdout
    assert cloze.load(tmp_path / "cloze-demo").task_heads == ("mlm", "nsp")
    page = (tmp_path / "cloze-demo" / "report.html").read_text()
    assert "Return a new list containing the items of the sequence." in page
    ran = run("demo")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "cloze-demo", "exists")


@pytest.mark.parity
def test_the_command_writes_the_real_checkpoint_s_vectors(run, minilm, tmp_path):
    texts = ["The cat sat on the mat.", "A storm is coming.", "Café in 北京"]
    ran = run("embed", minilm, *texts, "--out", tmp_path / "v.npy")
    assert ran.returncode == 0, ran.stderr
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(minilm), device="cpu").encode(texts)
    assert np.abs(np.load(tmp_path / "v.npy") - theirs).max() <= 1e-5


def test_a_folder_of_parts_is_continued(run, folder, tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    command = ("embed", folder, "-f", tmp_path / "t.txt", "--out", tmp_path / "v", "--json")
    ran = run(*command, "--block-rows", "2")
    assert ran.returncode == 0, ran.stderr
    told = {"out": str(tmp_path / "v"), "count": 3, "truncated": 0, "failed": 0}
    assert json.loads(ran.stdout) == told | {"parts": 2, "reused": 0}
    (tmp_path / "v" / "part-000001.parquet").unlink()
    ran = run(*command, "--block-rows", "2")
    assert json.loads(ran.stdout) == told | {"parts": 2, "reused": 1}
    check_mentions(ran.stderr, "3 of 3 texts", "1 of 2 parts existed")
    ran = run(*command, "--block-rows", "3")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "block_rows", "--force")


@pytest.mark.parametrize("option", [["--engine", "ray"], ["--workers", "2"], ["--block-rows", "9"]])
def test_options_of_large_data_need_an_output(run, folder, option):
    ran = run("embed", folder, "a", *option)
    assert ran.returncode == 2
    check_mentions(ran.stderr, option[0], "--out")
