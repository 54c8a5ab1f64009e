"""What `finetune` refuses, before it begins and with nothing lost."""

from dataclasses import replace

import pytest

from cloze.data.labelled.examples import Origin, TextExample
from cloze.errors import ConfigError, FolderError, InputError
from cloze.make.finetune.encoder import finetune_encoder, resume_finetune
from cloze.make.finetune.recipe import finetune_recipe
from cloze.make.run import Watch, recipe_in, write_recipe
from cloze.models.configs.bert import BertConfig
from tunings import body, picks, questions, tagged, texts, tune


@pytest.fixture(scope="module")
def base():
    return body(BertConfig)


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "straight"
    return tune(base, out), out


def no_step(steps, _):
    pytest.fail("it should not have begun")
    yield from steps


IDLE = Watch(steps=no_step)


def test_mistakes(base, trained, tmp_path):
    out = tmp_path / "m"
    with pytest.raises(InputError, match="exists already"):
        tune(base, trained[1])
    with pytest.raises(InputError, match="is no example of the task classify\n.*TextExamples"):
        finetune_encoder("classify", base, [("a fine film", "yes")], tmp_path / "pairs")
    with pytest.raises(InputError, match="all examples have the label 'yes'"):
        tune(base, out, train=[one for one in texts(40) if one.label == "yes"])
    unseen = [TextExample(text="b", label="perhaps", origin=Origin(file="dev.tsv", line=7))]
    for kind in ("full", "features"):
        with pytest.raises(InputError, match=r"dev.tsv:7: the model has no label 'perhaps'"):
            tune(base, out, f"transfer.kind={kind}", dev=unseen, force=True, watch=IDLE)
    odd = [replace(tagged(1)[0], origin=Origin(file="dev.txt", line=3), tags=("B-Y",) * 9)]
    with pytest.raises(InputError, match=r"dev.txt:3: the model has no label 'B-Y'"):
        tune(base, out, task="tag", train=tagged(9), dev=odd, force=True, watch=IDLE)
    blank = [TextExample(text="b", origin=Origin(file="dev.tsv", line=8))]
    with pytest.raises(InputError, match="dev.tsv:8: no label to judge by"):
        tune(base, out, dev=blank, force=True, watch=IDLE)
    with pytest.raises(InputError, match="no label to learn"):
        tune(base, out, train=[TextExample(text="b")], force=True)
    with pytest.raises(InputError, match="nothing to learn from"):
        tune(base, out, train=[], force=True)
    with pytest.raises(InputError, match="nothing to choose by"):
        tune(base, out, "data.hold_out=0.0", "run.seeds=2", dev=[], force=True)
    with pytest.raises(ConfigError, match="features cannot learn to answer"):
        tune(
            base,
            out,
            "transfer.kind=features",
            task="answer",
            train=questions(9),
            dev=questions(9),
            force=True,
        )
    with pytest.raises(FolderError, match="there is no run to resume"):
        resume_finetune(tmp_path / "nowhere")
    with pytest.raises(InputError, match="objects in Python"):
        resume_finetune(trained[1])
    with pytest.raises(ConfigError, match="task 'rhyme' is unknown"):
        tune(base, out, task="rhyme", force=True)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("transfer.kind=last-0", "transfer.kind is 'last-0'"),
        ("transfer.layers=lst", "transfer.layers 'lst' is unknown"),
        ("loss.smoothing=2.0", "loss.smoothing is 2.0"),
        ("data.policy=middle", "data.policy 'middle' is unknown"),
        ("data.hold_out=1.5", "data.hold_out is 1.5"),
        ("run.patience=0", "run.patience is 0"),
        ("run.batch=0", "run.batch is 0"),
        ("run.epochs=0.0", "run.epochs is 0.0\n.*above 0"),
        ("run.steps=0", "run.steps is 0"),
        ("transfer.layers=sum-all", "transfer.layers is 'sum-all', .*\n.*--transfer features"),
        ("transfer.pooling=mean", "transfer.pooling is 'mean', .*\n.*--transfer features"),
        ("optimizer.rat=3", "no setting optimizer.rat"),
    ],
)
def test_recipes_refuse_what_they_do_not_know(setting, message):
    with pytest.raises(ConfigError, match=message):
        finetune_recipe(settings=[setting])


@pytest.mark.parametrize("kind", ["head", "features"])
def test_rates_and_thawing_of_what_never_learns_are_refused(kind):
    for setting, name in (("unfreeze=1.0", "unfreeze"), ("layer_decay=0.9", "layer-decay")):
        message = f"with transfer.kind '{kind}' it changes nothing\n.*leave --{name} out"
        with pytest.raises(ConfigError, match=message):
            finetune_recipe(settings=[f"transfer.kind={kind}", f"transfer.{setting}"])


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("classify", ["data.context=true"], "data.context is for tags, and the task is classify"),
        ("classify", ["data.length=33"], "data.length is 33, and the model has 32 positions"),
        (
            "classify",
            ["data.length=33", "transfer.kind=features"],
            "data.length is 33, and the model has 32 positions",
        ),
        ("classify", ["transfer.kind=last-9"], "'last-9', and the model has 2 layers\n.*last-2"),
        ("answer", ["loss.class_weights=balanced"], "loss.class_weights .* the task is answer"),
        ("answer", ["loss.smoothing=0.1"], "loss.smoothing .* the task is answer"),
        ("choose", ["loss.class_weights=balanced"], "loss.class_weights .* the task is choose"),
        ("number", ["loss.class_weights=balanced"], "loss.class_weights .* labels are numbers"),
        ("number", ["loss.smoothing=0.1"], "loss.smoothing .* labels are numbers"),
        ("classify", ["run.search=true", "transfer.kind=features"], "a search .*\n.*--search out"),
    ],
)
def test_what_changes_nothing_is_refused(base, tmp_path, task, settings, message):
    numbers = [TextExample(text="a", label=1.0), TextExample(text="b", label=2.0)]
    data = {"answer": questions(9), "choose": picks(9), "number": numbers}.get(task, texts(9))
    name = "classify" if task == "number" else task
    with pytest.raises(ConfigError, match=message):
        tune(base, tmp_path / "m", *settings, task=name, train=data, dev=data, watch=IDLE)
    assert not (tmp_path / "m").exists()


def test_a_mistake_spares_what_is_there(base, tmp_path):
    out = tmp_path / "m"
    tune(base, out, "run.steps=1")
    before = (out / "recipe.toml").read_text()
    with pytest.raises(ConfigError, match="data.length"):
        tune(base, out, "data.length=999", force=True)
    assert (out / "recipe.toml").read_text() == before


def test_a_budget_in_steps_is_read_back_as_it_was(tmp_path):
    """Else a run that began with --steps could not be resumed: epochs would come back beside it."""
    made = finetune_recipe(settings=["run.steps=7"])
    write_recipe(tmp_path, made)
    again = finetune_recipe(recipe_in(tmp_path))
    assert again == made
    assert (again.run.steps, again.run.epochs) == (7, None)
