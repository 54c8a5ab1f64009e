"""`cloze finetune` as a user runs it: from files to a folder that the other commands take."""

import json
import signal
import time

import pytest
import torch

from cloze.checkpoint.model import Model
from cloze.models.configs.bert import BertConfig
from forked_commands import ForkedCommand
from helpers import check_mentions, tiny_tokenizer


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A model, and a table in which an `a` makes a text good."""
    folder = tmp_path_factory.mktemp("finetune")
    tokenizer = tiny_tokenizer()
    shape = {
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "intermediate_size": 32,
        "max_positions": 32,
        "init_std": 0.1,
    }
    config = BertConfig(vocab_size=tokenizer.vocab_size, **shape)
    Model.from_config(config, tokenizer, rng=torch.Generator().manual_seed(0)).save(folder / "base")
    rows = [f"{first} {second}" for first in "abcdefg" for second in "abcdefghij"]
    lines = [f"{row}\t{'good' if 'a' in row else 'bad'}" for row in rows * 3]
    (folder / "train.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    (folder / "broken.tsv").write_text("sentence\tlabel\na b\tgood\nc d\n")
    return folder


def flags(here, out, *more):
    fast = ("--epochs", "4", "--lr", "5e-3", "--batch-size", "8", "--device", "cpu")
    data = ("--train", str(here / "train.tsv"), "--dev", str(here / "train.tsv"))
    return ("finetune", "classify", str(here / "base"), *data, "--out", str(out), *fast, *more)


def test_from_a_table_to_answers(run, here, tmp_path):
    ran = run(*flags(here, tmp_path / "m", "--json"))
    assert ran.returncode == 0, ran.stderr
    ended = json.loads(ran.stdout)
    assert ended["metric"] == "accuracy"
    assert ended["score"] > 0.9
    assert ended["labels"] == ["bad", "good"]
    said = run("classify", str(tmp_path / "m"), "a c", "b c", "--json")
    assert [json.loads(line)["labels"][0]["label"] for line in said.stdout.splitlines()] == [
        "good",
        "bad",
    ]
    again = run(*flags(here, tmp_path / "m"))
    assert again.returncode == 1
    check_mentions(again.stderr, tmp_path / "m", "exists")


def test_the_table_at_the_end_and_the_recipe(run, here, tmp_path):
    arguments = [*flags(here, tmp_path / "m", "--seeds", "2", "--patience", "3")]
    arguments[arguments.index("--epochs") + 1] = "1"
    ran = run(*arguments)
    assert ran.returncode == 0, ran.stderr
    assert "accuracy, all seeds" in ran.stdout
    check_mentions(ran.stderr, "210", "2 labels")
    recipe = tmp_path / "m" / "recipe.toml"
    assert "patience = 3" in recipe.read_text()
    # the written recipe is complete: it needs no flag but the place
    ran = run("finetune", "--recipe", str(recipe), "--out", str(tmp_path / "n"), "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["task"] == "classify"


def test_a_signal_ends_all_seeds_and_they_go_on(run, here, tmp_path):
    out = tmp_path / "m"
    arguments = [*flags(here, out, "--seeds", "2")]
    arguments[arguments.index("--epochs") + 1] = "6"
    command = ForkedCommand(*arguments)
    metrics = out / "seed-0" / "metrics.jsonl"
    until = time.monotonic() + 100
    while time.monotonic() < until and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.02)
    command.send_signal(signal.SIGTERM)
    ended = command.wait()
    assert ended.returncode == 143, ended.stderr
    check_mentions(ended.stderr, "SIGTERM", "0 of 2", "cloze finetune --resume")
    assert not (out / "seed-1").exists()
    resumed = run("finetune", "--resume", "--out", out, "--json")
    assert resumed.returncode == 0, resumed.stderr
    ended = json.loads(resumed.stdout)
    assert [trial["name"] for trial in ended["trials"]] == ["seed-0", "seed-1"]
    assert ended["mean_score"] is not None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["classify", "base", "--out", "m"], 1, ("labelled", "--train")),
        (["--train", "train.tsv", "--out", "m"], 1, "model"),
        (["sing", "base", "--train", "train.tsv", "--out", "m"], 1, ("task", "sing")),
        (["classify", "base", "--train", "broken.tsv", "--out", "m"], 1, "broken.tsv:3"),
        (["classify", "base", "--train", "no.tsv", "--out", "m"], 1, "no.tsv"),
        (
            ["classify", "base", "--train", "train.tsv", "--out", "m", "--label-column", "lable"],
            1,
            ("lable", "'label'"),
        ),
        (
            ["classify", "base", "--train", "train.tsv", "--out", "m", "--epochs", "0"],
            1,
            ("--epochs", "0.0"),
        ),
        (["--resume", "--out", "m"], 1, ("resume", "m")),
        (["--resume", "--out", "m", "--lr", "1"], 1, ("resume", "m")),
        (
            ["classify", "base", "--train", "train.tsv", "--out", "m", "--transfer", "some"],
            1,
            ("full", "last-N", "head", "features"),
        ),
    ],
)
def test_mistakes(run, here, arguments, code, message, monkeypatch):
    monkeypatch.chdir(here)
    ran = run("finetune", *arguments)
    assert ran.returncode == code, ran.stderr
    check_mentions(ran.stderr, message)
    assert not (here / "m").exists()


def test_several_labels_per_text(run, here, tmp_path):
    rows = [f"{first} {second}" for first in "abcdefg" for second in "abcdefghij"] * 3
    lines = [f"{row};{int('a' in row)};{int('b' in row)}" for row in rows]
    columns, joined = tmp_path / "columns.csv", tmp_path / "joined.txt"
    columns.write_text("\n".join(["words;A;B", *lines]) + "\n")  # a csv with semicolons
    labels = ["/".join(name for name in "AB" if name.lower() in row) for row in rows]
    both = [f"{row}\t{label}" for row, label in zip(rows, labels, strict=True)]
    joined.write_text("\n".join(["words\tletters", *both]) + "\n")
    given = ("--text-column", "words", "--label-column", "A", "--label-column", "B")
    fast = ("--epochs", "4", "--lr", "5e-3", "--batch-size", "8", "--device", "cpu", "--json")
    data = ("--train", str(columns), "--dev", str(columns), *given)
    out = tmp_path / "m"
    ran = run("finetune", "classify", str(here / "base"), *data, "--out", str(out), *fast)
    assert ran.returncode == 0, ran.stderr
    ended = json.loads(ran.stdout)
    assert (ended["metric"], ended["labels"]) == ("f1_micro", ["A", "B"])
    assert ended["score"] > 0.9
    scores = [
        json.loads(run("evaluate", str(out), *data_, "--json").stdout)
        for data_ in (
            (str(columns), *given),
            (str(joined), *given[:2], "--label-column", "letters", "--label-delimiter", "/"),
        )
    ]
    assert scores[0]["scores"] == scores[1]["scores"]
    assert scores[0]["scores"] | scores[0]["baseline"] == ended["scores"]
    assert scores[0]["labels"]["A"]["threshold"] == scores[1]["labels"]["A"]["threshold"]
    assert scores[0]["baseline"]["majority_baseline"] < scores[0]["score"]
    said = run("classify", str(out), "a b", "c d", "--json")
    first, second = (json.loads(line) for line in said.stdout.splitlines())
    assert (set(first["predicted"]), second["predicted"]) == ({"A", "B"}, [])
    table = run("classify", str(out), "a b", "c d").stdout
    assert [line.split("\t")[:2] for line in table.splitlines()[1:]][-1] == ["c d", ""]


def test_from_pairs_to_a_model_that_compares_texts(run, here, tmp_path):
    rows = [f"{first} {second}\t{second} {first} ." for first in "abcde" for second in "fghij"]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    out = tmp_path / "m"
    options = ("--steps", "3", "--batch-size", "8", "--device", "cpu", "--json")
    data = ("--train", str(tmp_path / "pairs.tsv"), "--out", str(out))
    ran = run("finetune", "embed", str(here / "base"), *data, *options)
    assert ran.returncode == 0, ran.stderr
    ended = json.loads(ran.stdout)
    assert ended["metric"] == "mrr"
    assert (out / "1_Pooling" / "config.json").is_file()
    wrong = run("finetune", "embed", str(here / "base"), *data, "--force", "--loss", "cosent")
    assert wrong.returncode == 1
    check_mentions(wrong.stderr, "cosent", "scores")
