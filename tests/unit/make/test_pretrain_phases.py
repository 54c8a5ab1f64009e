"""Sequences of two lengths in one run, as BERT was trained: first short ones, then long ones."""

import pytest

import cloze
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.complete import recipe
from cloze.make.resume import resume
from helpers import Watch
from smallruns import SMALL, metrics, stories

PHASES = [
    *SMALL,
    "run.steps=10",
    "run.eval_every=1",
    "sampling.phase1_max_length=8",
    "sampling.phase1_fraction=0.6",
]


@pytest.fixture(scope="module", params=["false", "true"])
def straight(request, tmp_path_factory):
    """A run without interruption: on batches of the host, and on batches of the device."""
    folder = tmp_path_factory.mktemp("straight")
    settings = [*PHASES, f"run.fast={request.param}"]
    text, said = stories(folder), []
    made = recipe(settings=settings)
    pretrain(text, folder / "m", made, callbacks=[Watch(log=said.append)])
    return settings, text, folder / "m", said


def test_the_length_changes_at_its_fraction_of_the_budget(straight):
    _, _, out, said = straight
    assert any("second phase after step 6" in line and "32 tokens" in line for line in said)
    unigram = {
        row["step"]: row["unigram_baseline"] for row in metrics(out) if row["kind"] == "eval"
    }
    assert len({unigram[step] for step in range(1, 7)}) == 1, "the same held-out samples"
    assert unigram[6] != unigram[7] == unigram[10], "of each phase its own"


@pytest.mark.parametrize("stop", [3, 6, 8])
def test_a_run_stopped_before_at_and_after_the_change_goes_on_exactly(straight, stop, tmp_path):
    settings, text, out, _ = straight

    def kill(step):
        if step == stop:
            raise KeyboardInterrupt

    made = recipe(settings=[*settings, "run.save_every=1"])
    with pytest.raises(KeyboardInterrupt):
        pretrain(text, tmp_path / "m", made, callbacks=[Watch(step=kill)])
    assert resume(tmp_path / "m").steps == 10
    same = (tmp_path / "m" / "model.safetensors").read_bytes()
    assert same == (out / "model.safetensors").read_bytes()
    ours, theirs = (
        [(row["kind"], row["step"], row["mlm_loss"]) for row in metrics(folder)]
        for folder in (tmp_path / "m", out)
    )
    assert ours[-4:] == theirs[-4:]


def test_positions_of_the_second_phase_are_learned_in_it_alone(tmp_path):
    text = stories(tmp_path)
    text.write_text(text.read_text().replace(".\n", " and it was a day like every other day.\n"))
    tables = {}
    for name, fraction, steps in (("both", 0.5, 4), ("short", 1.0, 4), ("start", 1.0, 1)):
        settings = [
            *PHASES,
            f"run.steps={steps}",
            f"sampling.phase1_fraction={fraction}",
            "optimizer.weight_decay=0",
        ]
        pretrain(text, tmp_path / name, recipe(settings=settings))
        tables[name] = cloze.load(tmp_path / name).module.embeddings.position.weight
    assert (tables["both"] != tables["short"]).any(1)[8:20].all()
    assert (tables["short"] == tables["start"])[8:].all()


@pytest.mark.parametrize(
    ("settings", "lengths"),
    [
        ([], (8, 32)),
        (["sampling.max_length=8"], (8,)),
        (["sampling.phase1_fraction=0"], (32,)),
        (["sampling.phase1_max_length=64"], (32,)),
    ],
)
def test_the_phases_of_a_recipe(settings, lengths):
    made = recipe(settings=[*PHASES, *settings])
    assert tuple(one.max_length for one in made.sampling.phases()) == lengths


@pytest.mark.parametrize("name", ["bert-original", "bert-base"])
def test_the_recipes_of_bert_have_its_phases(name):
    sampling = recipe(name).sampling
    assert (sampling.phase1_max_length, sampling.max_length) == (128, 512)
    assert sampling.phase1_fraction == 0.9
