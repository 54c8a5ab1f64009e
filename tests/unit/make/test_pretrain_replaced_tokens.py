"""Replaced tokens in a run: its recipe, its batches, what it tells, keeps and resumes from."""

import pytest

import cloze
from cloze.checkpoint.state import find_newest_state, read_state
from cloze.data.config import Batching
from cloze.errors import ConfigError
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.pretrain.plan import plan
from cloze.make.recipe.complete import recipe
from cloze.make.recipe.pretrain import PretrainRecipe, is_fast
from cloze.make.recipe.run import PretrainRun
from cloze.objectives.config import ObjectiveConfig
from helpers import raises
from smallruns import FAST, check_resumed, metrics, stories

SMALL = [*FAST, "model.family=modernbert", "model.num_layers=2"]
BOTH = [*SMALL, "objective.kind=both", "objective.correction_weight=1.0"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return stories(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def both(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "both"
    pretrain(text, out, recipe(settings=[*BOTH, "optimizer.name=muon"]))
    return out


def test_every_step_tells_of_each_task(both):
    rows = metrics(both)
    steps = [row for row in rows if row["kind"] == "train"]
    judged = [row for row in rows if row["kind"] == "eval"]
    told = {"mlm", "generator", "detection", "correction"}
    assert [row["step"] for row in steps] == list(range(1, 7))
    for row in [*steps, *judged]:
        assert row.keys() >= {f"{name}_{what}" for name in told for what in ("loss", "accuracy")}
        assert 0 < row["all_original_baseline"] < 1
    assert [row["step"] for row in judged] == [3, 6]
    assert judged[0].keys() >= {"perplexity", "unigram_baseline"}
    assert all(row["loss"] == pytest.approx(sum(row[f"{n}_loss"] for n in told)) for row in steps)


def test_the_folder_holds_the_model_alone_and_the_state_all(both):
    model = cloze.load(both)
    assert not model.report
    assert (model.task_heads, model.config.num_layers) == (("mlm",), 2)
    guesses = cloze.fill(model, "the [MASK] sat.", top=3).masks[0].predictions
    assert len(guesses) == 3
    names = read_state(find_newest_state(both / "state")).tensors["model"].keys()
    assert {"head.weight", "generator.blocks.0.attention.qkv.weight"} <= names
    kept = {name.removeprefix("model.") for name in names if name.startswith("model.")}
    assert kept == {name for name, _ in model.module.named_parameters()}


def test_the_report_shows_what_was_learned(both):
    page = (both / "report.html").read_text()
    for words in ("Replaced-token detection", "Generator accuracy", "All-original baseline"):
        assert words in page


def test_a_resumed_run_ends_with_the_same_bits(both, text, tmp_path):
    check_resumed(both, text, [*BOTH, "optimizer.name=muon"], tmp_path / "again")


def test_detection_alone_teaches_the_model_and_judges_no_fills(text, tmp_path):
    settings = [*SMALL, "objective.kind=detection", "objective.generator_hidden_size=8"]
    settings += ["model.num_heads=4", "run.steps=2", "run.dtype=bf16"]
    ended = pretrain(text, tmp_path / "m", recipe(settings=settings))
    assert ended.scores.keys() >= {"detection_accuracy", "generator_loss"}
    assert not any(name.startswith(("mlm", "perplexity", "unigram")) for name in ended.scores)
    assert cloze.embed(cloze.load(tmp_path / "m"), ["the cat sat."]).shape == (1, 16)


def test_a_bert_learns_pairs_beside_it_and_goes_on_from_what_it_knows(text, tmp_path):
    settings = [one for one in SMALL if not one.startswith(("model.family", "sampling.pairs"))]
    settings += ["model.family=bert", "run.steps=2"]
    plain = recipe(settings=settings)
    pretrain(text, tmp_path / "plain", plain)
    on = [f"model.init_from={tmp_path / 'plain'}", "objective.kind=both"]
    ended = pretrain(text, tmp_path / "m", plain, settings=on)
    assert ended.scores.keys() >= {"nsp_accuracy", "detection_loss", "mlm_loss"}
    assert cloze.load(tmp_path / "m").task_heads == ("mlm", "nsp")


def test_runs_of_any_objective_are_judged_by_the_same_masks(text, tmp_path):
    still = ["run.steps=1", "optimizer.lr=0.0"]
    plain, shared = (
        pretrain(text, tmp_path / kind, recipe(settings=[*SMALL, *still, f"objective.kind={kind}"]))
        for kind in ("mlm", "both")
    )
    for name in ("mlm_loss", "mlm_accuracy", "unigram_baseline"):
        assert plain.scores[name] == shared.scores[name]


def test_a_plan_counts_the_generators_memory_and_not_its_weights(text, tmp_path, monkeypatch):
    monkeypatch.setattr("cloze.make.pretrain.plan.TRIAL_SECONDS", 0.2)
    plain = plan(text, tmp_path / "m", recipe(settings=SMALL))
    both = plan(text, tmp_path / "m", recipe(settings=BOTH))
    assert both.parameters == plain.parameters
    assert both.weights_mib > plain.weights_mib
    assert both.tokens_per_step == pytest.approx(plain.tokens_per_step, rel=0.2)


@pytest.mark.parametrize(
    ("share", "per_step", "expected"),
    [(0.5, 1, (512, 2)), (0.5, 4, (1024, 4)), (0.25, 2, (512, 4)), (0.75, 3, (256, 12))],
)
def test_batches_are_cut_so_that_every_step_has_its_share(share, per_step, expected):
    run = PretrainRun(batch_tokens=1024, accumulate=per_step)

    def batching(kind):
        objective = ObjectiveConfig(kind=kind, detection_fraction=share)
        return PretrainRecipe(objective=objective, run=run).batching

    made = batching("both")
    assert (made.tokens, made.per_step) == expected
    for kind in ("mlm", "detection"):
        assert batching(kind) == Batching(tokens=1024, per_step=per_step)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"kind": "detection"}, 50.0),
        ({"kind": "both"}, 10.0),
        ({"kind": "both", "detection_weight": 0.0}, 0.0),
        ({"kind": "detection", "detection_weight": 7.0}, 7.0),
    ],
)
def test_detection_weighs_less_where_words_teach_the_same_weights(given, expected):
    assert ObjectiveConfig(**given).resolved_detection_weight == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["objective.kind=electra"], ("objective.kind", "electra")),
        (
            ["objective.detection_fraction=0"],
            ("objective.detection_fraction", "0.0", "0.0625", "1"),
        ),
        (["objective.detection_weight=-1"], ("objective.detection_weight", "-1.0")),
        (["objective.correction_weight=-1"], ("objective.correction_weight", "-1.0")),
        (
            ["objective.kind=both", "objective.detection_fraction=1"],
            ("1", "objective.correction_weight"),
        ),
        (["objective.kind=both", 'distill.teacher="x"'], "distill"),
    ],
)
def test_what_cannot_be(settings, message):
    with raises(ConfigError, message):
        recipe(settings=[*SMALL, *settings])


@pytest.mark.parametrize("settings", [["run.device=cpu"], ["run.fast=false"]])
def test_it_needs_batches_made_on_the_device(settings):
    asked = [one for one in SMALL if not one.startswith("run.fast")]
    made = recipe(settings=[*asked, "objective.kind=detection", *settings])
    with raises(ConfigError, "device", fix="--dtype bfloat16"):
        is_fast(made, "cpu", 1)
