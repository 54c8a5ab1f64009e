"""`cloze pretrain` as a user runs it: to the end, stopped and resumed, in two processes."""

import json
import signal
import time

import pytest
import torch

import cloze
from forked_commands import ForkedCommand
from helpers import check_mentions, check_scores

SMALL = [
    "--preset=tiny",
    "--vocabulary-size=150",
    "--max-length=32",
    "--batch-tokens=256",
    "--threads=1",
    "--workers=1",
    "--set=model.num_layers=1",
    "--set=model.hidden_size=16",
    "--set=model.max_positions=32",
    "--set=data.hold_out=0.2",
    "--set=run.log_every=1",
    "--set=run.eval_every=1000",
]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    stories = [f"the cat number {n} sat.\nit saw a dog.\nthe dog ran." for n in range(200)]
    path.write_text("\n\n".join(stories))
    return path


def assert_same(one, other):
    ours, theirs = (cloze.load(folder).module.state_dict() for folder in (one, other))
    for name, weight in ours.items():
        assert torch.equal(weight, theirs[name]), name


def test_from_text_to_a_fill(run, text, tmp_path):
    ran = run("pretrain", text, "--out", tmp_path / "m", "--steps", "5", *SMALL)
    assert ran.returncode == 0, ran.stderr
    check_mentions(ran.stderr, "tokenizer", "MLM accuracy")
    check_scores(ran.stdout, "mlm_loss", "mlm_accuracy", "unigram_baseline")
    check_scores(ran.stdout, "nsp_accuracy", "majority_baseline")
    assert (tmp_path / "m" / "report.html").is_file()
    ran = run("fill", tmp_path / "m", "the [MASK] sat.", "--json")
    assert ran.returncode == 0, ran.stderr
    ran = run("pretrain", text, "--out", tmp_path / "m", "--steps", "5", *SMALL)
    assert ran.returncode == 1
    check_mentions(ran.stderr, tmp_path / "m", "exists")


def test_stopped_by_sigterm_and_resumed_is_as_never_stopped(run, text, tmp_path):
    straight = run("pretrain", text, "--out", tmp_path / "a", "--steps", "120", *SMALL)
    assert straight.returncode == 0, straight.stderr
    child = ForkedCommand("pretrain", text, "--out", tmp_path / "b", "--steps", "120", *SMALL)
    metrics = tmp_path / "b" / "metrics.jsonl"
    until = time.monotonic() + 100
    while time.monotonic() < until and not (metrics.exists() and metrics.stat().st_size > 2000):
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    ended = child.wait()
    assert ended.returncode == 143, ended.stderr
    check_mentions(ended.stderr, "SIGTERM", "cloze pretrain --resume")
    stopped = int(ended.stdout.split("steps\t")[1].split()[0].replace(",", ""))
    assert 0 < stopped < 120
    # the same number of threads: sums in another order have other last bits
    resumed = run("pretrain", "--resume", "--out", tmp_path / "b", "--json", "--threads", "1")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["steps"] == 120
    assert_same(tmp_path / "a", tmp_path / "b")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "train"] == list(range(1, 121))


def test_a_warning_is_a_line_for_readers(run, forked, text, tmp_path):
    """A state that was damaged is passed over, and it is said without Python's file and line."""
    asked = ["pretrain", text, "--out", tmp_path / "m", "--steps", "2", "--save-every", "1"]
    ran = run(*asked, *SMALL)
    assert ran.returncode == 0, ran.stderr
    newest = max((tmp_path / "m" / "state").iterdir())
    next(newest.glob("*.safetensors")).write_bytes(b"")
    ran = forked("pretrain", "--resume", "--out", tmp_path / "m", "--json", NO_COLOR="1")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["steps"] == 2
    told = [line for line in ran.stderr.splitlines() if newest.name in line]
    assert len(told) == 1
    assert told[0].startswith("warning: ")
    assert "Warning" not in ran.stderr
    assert "warnings.warn" not in ran.stderr


@pytest.mark.parametrize(
    ("way", "objective", "start"),
    [
        ("ddp", "mlm", "two_processes"),
        pytest.param("ddp", "mlm", "torchrun", marks=pytest.mark.stress),
        pytest.param("fsdp", "causal", "torchrun", marks=pytest.mark.stress),
    ],
)
def test_two_processes_learn_what_one_does(run, request, text, tmp_path, way, objective, start):
    causal = ["--pairs=none", "--set=run.fast=true", "--set=objective.kind=causal"]
    settings = [*SMALL, "--steps", "6", "--accumulate", "2", "--set=model.dropout=0.0"]
    settings += ["--set=model.attention_dropout=0.0", f"--set=run.parallel={way}"]
    settings += causal if objective == "causal" else []
    alone = run("pretrain", text, "--out", tmp_path / "one", *settings)
    assert alone.returncode == 0, alone.stderr
    start = request.getfixturevalue(start)
    together = start("pretrain", text, "--out", tmp_path / "two", "--device", "cpu", *settings)
    assert together.returncode == 0, together.stderr
    assert together.stdout.count("trained\t") == 1
    losses = [
        [
            next(value for name, value in row.items() if name.endswith("loss"))
            for row in map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
            if row["kind"] == "train"
        ]
        for name in ("one", "two")
    ]
    assert len(losses[0]) == 6
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    weights = [cloze.load(tmp_path / name).module.state_dict() for name in ("one", "two")]
    for name, weight in weights[0].items():
        assert torch.allclose(weight, weights[1][name], atol=1e-5), name


@pytest.mark.stress
def test_what_two_processes_cannot_share_is_told_once_and_first(torchrun, text, tmp_path):
    ran = torchrun("pretrain", text, "--out", tmp_path / "m", "--device", "cpu", "--steps", "2")
    assert ran.returncode == 1
    assert ran.stderr.count("error: ") == 1
    check_mentions(ran.stderr, "run.accumulate", "1", "2 processes", "--accumulate 2")
    assert ran.stderr.count("Traceback") == 1, "torchrun's own"
    assert not (tmp_path / "m").exists()


def test_text_from_a_pipe(run, text, tmp_path):
    rows = "".join(json.dumps({"a": story, "b": "x"}) + "\n" for story in ["a cat sat."] * 40)
    (tmp_path / "rows.jsonl").write_text(rows)
    told = text.read_text()
    asked = ["pretrain", "-", tmp_path / "rows.jsonl", "--text-column=a", "--steps=2", *SMALL]
    ran = run(*asked, "--out", tmp_path / "m", stdin=told)
    assert ran.returncode == 0, ran.stderr
    again = run("pretrain", "--resume", "--out", tmp_path / "m", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["steps"] == 2


def test_a_plan_is_only_a_plan(run, text, tmp_path, monkeypatch):
    monkeypatch.setattr("cloze.make.pretrain.plan.TRIAL_SECONDS", 0.5)
    ran = run("pretrain", text, "--out", tmp_path / "m", "--minutes", "3", "--plan", *SMALL)
    assert ran.returncode == 0, ran.stderr
    for fact in ("parameters", "tokens per epoch", "epochs", "time\t3:00", "memory"):
        assert fact in ran.stdout
    assert not (tmp_path / "m" / "config.json").exists()
    ran = run("pretrain", text, "--out", tmp_path / "m", "--steps", "1", *SMALL)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--out", "m", "--steps", "2"], 2, "no text"),
        (["a.txt", "--out", "m"], 1, ("budget", "--steps")),
        (["nowhere.txt", "--out", "m", "--steps", "2"], 1, "nowhere.txt"),
        (
            ["a.txt", "--out", "m", "--steps", "2", "--recipe", "bert-huge"],
            1,
            ("recipe", "bert-huge"),
        ),
        (
            ["a.txt", "--out", "m", "--steps", "2", "--set", "run.stesp=3"],
            1,
            ("run.stesp", "'steps'"),
        ),
        (
            ["a.txt", "--out", "m", "--steps", "2", "--minutes", "2"],
            1,
            ("steps", "minutes"),
        ),
        (["--resume", "--out", "m"], 1, ("resume", "m")),
        (["--resume", "--out", "m", "--steps", "9"], 1, ("resume", "m")),
        (["--resume", "--out", "m", "--set", "run.seed=1"], 1, ("resume", "m")),
        (["--resume", "--out", "m", "--set", "run.guard=skip"], 1, ("resume", "m")),
        (
            ["a.txt", "--out", "m", "--steps", "2", "--mlm-probability", "7"],
            1,
            ("--mlm-probability", "7.0"),
        ),
        (["a.txt", "--out", "m", "--steps", "2", "--save-every", "0"], 1, ("--save-every", "0")),
        (["a.txt", "--out", "m", "--steps", "2", "--device", "gpu"], 1, ("device", "gpu")),
        (["empty.txt", "--out", "m", "--steps", "2"], 1, "empty.txt"),
        (["binary.txt", "--out", "m", "--steps", "2"], 1, "binary.txt"),
        (["broken.jsonl", "--out", "m", "--steps", "2"], 1, "broken.jsonl:2"),
        (["a.txt", "--out", "a.txt", "--steps", "2"], 1, ("a.txt", "file", "folder")),
        (["a.txt", "--out", "m", "--steps", "2", "--text-column", "x", "--dev", "y"], 2, "--dev"),
    ],
)
def test_mistakes(run, arguments, code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a cat.\na dog.\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 50)
    (tmp_path / "broken.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    ran = run("pretrain", *arguments)
    assert ran.returncode == code, ran.stderr
    check_mentions(ran.stderr, message)
    assert "Traceback" not in ran.stderr
