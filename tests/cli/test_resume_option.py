"""The same command with `--resume` appended continues the run; real differences are named."""

import json
import signal

import pytest
import torch

from cloze.checkpoint.model import Model
from cloze.models.configs.bert import BertConfig
from cloze.report.display import ProgressDisplay
from helpers import check_mentions, tiny_tokenizer

TINY = {
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_positions": 32,
}
STEPS = ["--steps", "4", "--set", "run.log_every=1"]
RAW = ["--max-length", "16", "--batch-tokens", "128", "--workers", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    tokenizer = tiny_tokenizer()
    config = BertConfig(vocab_size=tokenizer.vocab_size, **TINY)
    rng = torch.Generator().manual_seed(0)
    Model.from_config(config, tokenizer, ["mlm", "nsp"], rng=rng).save(folder / "base")
    stories = [f"the cat number {n} sat.\nit saw a dog.\nthe dog ran." for n in range(60)]
    (folder / "text.txt").write_text("\n\n".join(stories))
    for side in ("en", "de"):
        (folder / f"train.{side}").write_text("".join(f"a b {n} {side}\n" for n in range(40)))
    rows = "".join(
        f"{'the cat' if n % 2 else 'a b c'}\t{'yes' if n % 2 else 'no'}\n" for n in range(60)
    )
    (folder / "train.tsv").write_text(f"text\tlabel\n{rows}")
    task = folder / "glue" / "CoLA"
    task.mkdir(parents=True)
    rows = "".join(f"x\t{n % 2}\t\t{'the cat' if n % 2 else 'a b c'}\n" for n in range(60))
    (task / "train.tsv").write_text(rows)
    (task / "dev.tsv").write_text(rows)
    return folder


COMMANDS = {
    "pretrain": [
        *(
            "pretrain",
            "text.txt",
            "--recipe",
            "laptop",
            "--preset",
            "tiny",
            "--set",
            "model.hidden_size=16",
        ),
        *("--set", "model.intermediate_size=32", "--set=vocabulary.size=60", "--lr", "1e-3"),
        *(*RAW, *STEPS),
    ],
    "language model": [
        *("pretrain", "text.txt", "--family", "lstm", "--set", "data.hold_out=0.2"),
        *("--set", "model.hidden_size=8", "--batch-size", "4", *STEPS),
    ],
    "finetune": [
        *("finetune", "classify", "base", "--train", "train.tsv", "--dev", "train.tsv"),
        *("--batch-size", "4", "--lr", "1e-3", *STEPS),
    ],
    "seeds": [
        *("finetune", "classify", "base", "--train", "train.tsv", "--dev", "train.tsv"),
        *("--seeds", "2", "--batch-size", "4", *STEPS),
    ],
    "distill": ["distill", "base", "text.txt", "--num-layers", "1", "--lr", "0.001", *RAW, *STEPS],
    "translate": [
        *("finetune", "translate", "--train", "train.en", "train.de", "--recipe", "seq2seq"),
        *("--set", "model.hidden_size=8", "--set", "model.embedding_size=8"),
        *("--set=vocabulary.size=270", "--batch-tokens", "64", *STEPS),
    ],
    "glue": ["glue", "base", "--data", "glue", "--batch-size", "4", "--epochs", "0.3"],
}
OTHER = {
    "pretrain": (["--lr", "0.1"], ("--lr", "0.1", "0.001")),
    "language model": (["--family", "nnlm"], ("--family", "nnlm", "lstm")),
    "finetune": (["--dev", "text.txt"], ("--dev", "text.txt")),
    "seeds": (["--steps", "9"], ("--steps", "9", "4")),
    "distill": (["--num-layers", "2"], ("--num-layers", "2", "1")),
    "translate": (["--recipe", "transformer"], ("family", "seq2seq")),
    "glue": (["--lr", "0.1"], ("optimizer.lr", "0.1")),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_the_same_command_resumes(kind, run, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    command = [*COMMANDS[kind], "--out", tmp_path / "m"]
    with monkeypatch.context() as patch:
        stop = lambda _, metrics: metrics["step"] == 2 and signal.raise_signal(signal.SIGTERM)  # noqa: E731
        patch.setattr(ProgressDisplay, "on_step", stop)
        stopped = run(*command)
    assert stopped.returncode == 143, stopped.stderr
    if kind != "glue":
        exists = run(*command)
        assert exists.returncode == 1
        check_mentions(exists.stderr, "training run", "--resume", "cloze.resume", "--force")
    different, names = OTHER[kind]
    refused = run(*command, *different, "--resume")
    assert refused.returncode == 1, refused.stdout
    check_mentions(refused.stderr, *names)
    resumed = run(*command, "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    ended = json.loads(resumed.stdout)
    assert ended["stopped"] is None
    assert kind == "glue" or ended["steps"] == 4
    if kind in ("seeds", "finetune"):  # of seeds the recipe is that of the best
        again = run(*command, "--resume", "--json")
        assert again.returncode == 0, again.stderr
        assert "finished already" in again.stderr
        assert [*json.loads(again.stdout)["scores"]] == [*ended["scores"]]


def test_there_must_be_a_table_to_continue(run, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    assert run(*COMMANDS["glue"], "--resume").returncode == 2
    assert run(*COMMANDS["glue"], "--resume", "--out", tmp_path / "none").returncode == 2
