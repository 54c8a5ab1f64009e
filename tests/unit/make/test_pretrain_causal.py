"""Left to right in a run: its recipe, what it tells and keeps, what it goes on from."""

import pytest
import torch

import cloze
from cloze.errors import ConfigError
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.pretrain.plan import plan
from cloze.make.recipe.complete import recipe
from cloze.make.recipe.pretrain import is_fast
from cloze.report.model_card import held_out_scores
from helpers import raises
from smallruns import FAST, check_resumed, metrics, stories

ASKED = [*FAST, "objective.kind=causal"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return stories(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def made(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "left"
    pretrain(text, out, recipe(settings=ASKED))
    return out


def test_every_step_and_judgement_tells_of_next_words(made):
    rows = metrics(made)
    steps = [row for row in rows if row["kind"] == "train"]
    judged = [row for row in rows if row["kind"] == "eval"]
    assert [row["step"] for row in steps] == list(range(1, 7))
    assert [row["step"] for row in judged] == [3, 6]
    for row in rows:
        assert {"loss", "lm_accuracy"} <= row.keys()
        assert not any(name.startswith(("mlm", "nsp")) for name in row)
    for row in judged:
        assert row["perplexity"] == pytest.approx(torch.tensor(row["loss"]).exp().item())
        assert 0 < row["unigram_baseline"] < 1
    assert "next-token accuracy, held-out documents" in held_out_scores(rows)


def test_what_knows_frequencies_alone_is_judged_by_the_same_words(made):
    """The full stop is the commonest: three of a story's tokens, [SEP] among them."""
    (last, *_) = [row for row in metrics(made) if row["kind"] == "eval"]
    model = cloze.load(made)
    ids = model.tokenizer.encode("the cat number 3 sat. it saw a dog. the dog ran.").ids
    assert last["unigram_baseline"] == pytest.approx(3 / (len(ids) - 1), abs=0.05)


def test_the_folder_holds_a_causal_model(made):
    model = cloze.load(made)
    assert not model.report
    assert model.config.is_causal
    assert model.task_heads == ("mlm",)
    assert cloze.embed(model, ["the cat sat."]).shape == (1, 16)
    assert not (made / "fills.json").exists()


def test_the_report_shows_what_was_learned(made):
    page = (made / "report.html").read_text()
    for words in ("LM accuracy", "next tokens that are predicted correctly", "perplexity"):
        assert words in page
    assert "MLM accuracy" not in page


def test_a_resumed_run_ends_with_the_same_bits(made, text, tmp_path):
    check_resumed(made, text, ASKED, tmp_path / "again")


def test_it_goes_on_from_its_own_kind_alone(made, text, tmp_path):
    few = ["run.steps=1"]
    on = [*few, f"model.init_from={made}"]
    left = recipe(settings=ASKED)
    assert "loss" in pretrain(text, tmp_path / "on", left, settings=on).scores
    assert cloze.load(tmp_path / "on").config.is_causal
    plain = tmp_path / "plain"
    pretrain(text, plain, recipe(settings=[*FAST, *few]))
    back = recipe(left, settings=[*few, f"model.init_from={plain}"])
    with raises(ConfigError, "causal", fix="--init-from"):
        pretrain(text, tmp_path / "a", back)
    for kind in ("mlm", "detection", "both"):
        other = recipe(recipe(settings=FAST), settings=[*on, f"objective.kind={kind}"])
        with raises(ConfigError, kind):
            pretrain(text, tmp_path / kind, other)


def test_it_goes_on_without_a_recipe(made, text, tmp_path):
    options = {"steps": 1, "max_length": 16, "device": "cpu", "progress": False}
    ended = cloze.pretrain(text, tmp_path / "on", init_from=str(made), **options)
    assert "lm_accuracy" in ended.scores
    assert cloze.load(tmp_path / "on").config.is_causal


def test_a_plan_foretells_it(text, tmp_path, monkeypatch):
    monkeypatch.setattr("cloze.make.pretrain.plan.TRIAL_SECONDS", 0.2)
    left, plain = (plan(text, tmp_path / "m", recipe(settings=s)) for s in (ASKED, FAST))
    assert left.parameters == plain.parameters


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["sampling.pairs=nsp"], ("sampling.pairs", "nsp", "--pairs none")),
        (["sampling.pairs=sop"], ("sampling.pairs", "sop")),
        (["model.family=modernbert"], ("modernbert", "bert")),
        (['distill.teacher="x"'], "distill"),
    ],
)
def test_what_cannot_be(settings, message):
    with raises(ConfigError, message):
        recipe(settings=[*ASKED, *settings])


@pytest.mark.parametrize("settings", [["run.device=cpu"], ["run.fast=false"]])
def test_it_needs_batches_made_on_the_device(settings):
    asked = [one for one in ASKED if not one.startswith("run.fast")]
    with raises(ConfigError, "device", fix="--dtype bfloat16"):
        is_fast(recipe(settings=[*asked, *settings]), "cpu", 1)
