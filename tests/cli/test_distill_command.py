"""`cloze distill` as a user runs it: to the end, resumed, in two processes."""

import json

import pytest
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.models.configs.bert import BertConfig
from helpers import check_mentions, check_scores, scramble

SMALL = ["--max-length=16", "--batch-tokens=128", "--threads=1", "--workers=1", "--device=cpu"]
SMALL += ["--set=data.hold_out=0.2", "--set=run.log_every=1"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    stories = [f"the cat number {n} sat.\nit saw a dog.\nthe dog ran." for n in range(100)]
    path.write_text("\n\n".join(stories))
    return path


@pytest.fixture(scope="module")
def teacher(tokenizer_folder, tmp_path_factory):
    tokenizer = cloze.Tokenizer.load(tokenizer_folder)
    shape = {
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "intermediate_size": 32,
        "max_positions": 32,
    }
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, dropout=0.0, attention_dropout=0.0, **shape
    )
    rng = torch.Generator().manual_seed(0)
    made = Model.from_config(config, tokenizer, ["mlm", "nsp"], rng=rng)
    scramble(made.module)
    return made.save(tmp_path_factory.mktemp("models") / "teacher")


def test_from_a_teacher_to_a_student_and_on(run, teacher, text, tmp_path):
    out = tmp_path / "m"
    flags = ["--num-layers", "2", "--temperature", "3", "--lr", "0.001"]
    ran = run("distill", teacher, text, "--out", out, "--steps", "4", *flags, *SMALL)
    assert ran.returncode == 0, ran.stderr
    check_scores(ran.stdout, "mlm_accuracy", "unigram_baseline", "teacher_accuracy", "cosine_loss")
    made = cloze.recipe(out / "recipe.toml")
    assert made.distill is not None
    assert (made.distill.num_layers, made.distill.temperature) == (2, 3.0)
    assert made.optimizer.lr == 0.001
    model = cloze.load(out)
    assert (model.config.family, model.config.num_layers) == ("distilbert", 2)
    assert cloze.fill(model, "the [MASK] sat.").masks[0].predictions
    resumed = run("distill", "--resume", "--out", out, "--json", "--threads=1")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["steps"] == 4


@pytest.mark.stress
def test_two_processes_learn_what_one_does(run, torchrun, teacher, text, tmp_path):
    settings = [*SMALL, "--steps", "4", "--accumulate", "2"]
    alone = run("distill", teacher, text, "--out", tmp_path / "one", *settings)
    assert alone.returncode == 0, alone.stderr
    together = torchrun("distill", teacher, text, "--out", tmp_path / "two", *settings)
    assert together.returncode == 0, together.stderr
    weights = [cloze.load(tmp_path / name).module.state_dict() for name in ("one", "two")]
    for name, weight in weights[0].items():
        assert torch.allclose(weight, weights[1][name], atol=1e-5), name


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--out", "m", "--steps", "2"], 2, "TEACHER"),
        (["TEACHER", "--out", "m", "--steps", "2"], 2, "text"),
        (
            ["TEACHER", "a.txt", "--out", "m", "--steps", "2", "--num-layers", "3"],
            1,
            ("3", "1 to 2"),
        ),
        (["--resume", "--out", "m", "--num-layers", "1"], 1, ("resume", "m")),
    ],
)
def test_mistakes(run, teacher, arguments, code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a cat.\na dog.\n")
    ran = run("distill", *(teacher if one == "TEACHER" else one for one in arguments))
    assert ran.returncode == code, ran.stderr
    check_mentions(ran.stderr, message)
    assert "Traceback" not in ran.stderr
