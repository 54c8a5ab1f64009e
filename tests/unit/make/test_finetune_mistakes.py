"""What `finetune` refuses, before it begins and with nothing lost."""

from dataclasses import replace

import pytest

from cloze.data.labelled.examples import Origin, TextExample
from cloze.errors import ConfigError, FolderError, InputError
from cloze.make.finetune.encoder import finetune_encoder, resume_finetune
from cloze.make.finetune.recipe import finetune_recipe
from cloze.make.run_folder import find_run_recipe, write_recipe
from cloze.models.configs.bert import BertConfig
from cloze.train.fit import Callbacks
from helpers import raises
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


IDLE = Callbacks(steps=no_step)


def test_mistakes(base, trained, tmp_path):
    out = tmp_path / "m"
    with raises(InputError, "exists"):
        tune(base, trained[1])
    with raises(InputError, "classify", fix="TextExample"):
        finetune_encoder("classify", base, [("a fine film", "yes")], tmp_path / "pairs")
    with raises(InputError, "yes"):
        tune(base, out, train=[one for one in texts(40) if one.label == "yes"])
    unseen = [TextExample(text="b", label="perhaps", origin=Origin(file="dev.tsv", line=7))]
    for kind in ("full", "features"):
        with raises(InputError, "dev.tsv:7", "perhaps"):
            tune(base, out, f"transfer.kind={kind}", dev=unseen, force=True, callbacks=IDLE)
    odd = [replace(tagged(1)[0], origin=Origin(file="dev.txt", line=3), tags=("B-Y",) * 9)]
    with raises(InputError, "dev.txt:3", "B-Y"):
        tune(base, out, task="tag", train=tagged(9), dev=odd, force=True, callbacks=IDLE)
    blank = [TextExample(text="b", origin=Origin(file="dev.tsv", line=8))]
    with raises(InputError, "dev.tsv:8", "label"):
        tune(base, out, dev=blank, force=True, callbacks=IDLE)
    with raises(InputError, "label"):
        tune(base, out, train=[TextExample(text="b")], force=True)
    with raises(InputError, "train"):
        tune(base, out, train=[], force=True)
    with raises(InputError, "--dev"):
        tune(base, out, "data.hold_out=0.0", "run.seeds=2", dev=[], force=True)
    with raises(ConfigError, "features", "answer"):
        tune(
            base,
            out,
            "transfer.kind=features",
            task="answer",
            train=questions(9),
            dev=questions(9),
            force=True,
        )
    with raises(FolderError, "resume"):
        resume_finetune(tmp_path / "nowhere")
    with raises(InputError, "Python"):
        resume_finetune(trained[1])
    with raises(ConfigError, "task", "rhyme"):
        tune(base, out, task="rhyme", force=True)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("transfer.kind=last-0", ("transfer.kind", "last-0")),
        ("transfer.layers=lst", ("transfer.layers", "lst")),
        ("loss.smoothing=2.0", ("loss.smoothing", "2.0")),
        ("data.policy=middle", ("data.policy", "middle")),
        ("data.hold_out=1.5", ("data.hold_out", "1.5")),
        ("run.patience=0", ("run.patience", "0")),
        ("run.batch=0", ("run.batch", "0")),
        ("run.epochs=0.0", ("run.epochs", "0.0", "0")),
        ("run.steps=0", ("run.steps", "0")),
        ("transfer.layers=sum-all", ("transfer.layers", "sum-all", "--transfer")),
        ("transfer.pooling=mean", ("transfer.pooling", "mean", "--transfer")),
        ("optimizer.rat=3", "no setting optimizer.rat"),
    ],
)
def test_recipes_refuse_what_they_do_not_know(setting, message):
    with raises(ConfigError, message):
        finetune_recipe(settings=[setting])


@pytest.mark.parametrize("kind", ["head", "features"])
def test_rates_and_thawing_of_what_never_learns_are_refused(kind):
    for setting, name in (("unfreeze=1.0", "unfreeze"), ("layer_decay=0.9", "layer-decay")):
        with raises(ConfigError, "transfer.kind", kind, fix=f"--{name}"):
            finetune_recipe(settings=[f"transfer.kind={kind}", f"transfer.{setting}"])


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("classify", ["data.context=true"], "data.context"),
        ("classify", ["data.length=33"], ("data.length", "33", "32")),
        (
            "classify",
            ["data.length=33", "transfer.kind=features"],
            ("data.length", "33", "32"),
        ),
        ("classify", ["transfer.kind=last-9"], ("last-9", "2", "last-2")),
        ("answer", ["loss.class_weights=balanced"], "loss.class_weights"),
        ("answer", ["loss.smoothing=0.1"], "loss.smoothing"),
        ("choose", ["loss.class_weights=balanced"], "loss.class_weights"),
        ("number", ["loss.class_weights=balanced"], "loss.class_weights"),
        ("number", ["loss.smoothing=0.1"], "loss.smoothing"),
        ("classify", ["run.search=true", "transfer.kind=features"], "--search"),
    ],
)
def test_what_changes_nothing_is_refused(base, tmp_path, task, settings, message):
    numbers = [TextExample(text="a", label=1.0), TextExample(text="b", label=2.0)]
    data = {"answer": questions(9), "choose": picks(9), "number": numbers}.get(task, texts(9))
    name = "classify" if task == "number" else task
    with raises(ConfigError, message):
        tune(base, tmp_path / "m", *settings, task=name, train=data, dev=data, callbacks=IDLE)
    assert not (tmp_path / "m").exists()


def test_a_mistake_spares_what_is_there(base, tmp_path):
    out = tmp_path / "m"
    tune(base, out, "run.steps=1")
    before = (out / "recipe.toml").read_text()
    with raises(ConfigError, "data.length"):
        tune(base, out, "data.length=999", force=True)
    assert (out / "recipe.toml").read_text() == before


def test_a_budget_in_steps_is_read_back_as_it_was(tmp_path):
    """Else a run that began with --steps could not be resumed: epochs would come back beside it."""
    made = finetune_recipe(settings=["run.steps=7"])
    write_recipe(tmp_path, made)
    again = finetune_recipe(find_run_recipe(tmp_path))
    assert again == made
    assert (again.run.steps, again.run.epochs) == (7, None)
