"""What `finetune` refuses, before it begins and with nothing lost."""

from dataclasses import replace

import pytest

from cloze.data.labelled.examples import Origin, TextExample
from cloze.errors import ConfigError, FolderError, InputError
from cloze.make.finetune.dispatch import finetune
from cloze.make.recipe.complete import complete_finetuning
from cloze.make.recipe.options import OptionError
from cloze.make.resume import resume
from cloze.make.run_folder import find_run_recipe, write_recipe
from cloze.models.configs.bert import BertConfig
from helpers import Watch, raises
from languages import elmo_model
from translators import translator
from tunings import body, questions, tagged, texts, tune


@pytest.fixture(scope="module")
def base():
    return body(BertConfig)


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "straight"
    return tune(base, out), out


def no_step(_):
    pytest.fail("it should not have begun")


IDLE = [Watch(step=no_step)]


def test_mistakes(base, trained, tmp_path):
    out = tmp_path / "m"
    with raises(InputError, "exists"):
        tune(base, trained[1])
    with raises(InputError, "classify", fix="TextExample"):
        finetune("classify", base, [("a fine film",)], tmp_path / "pairs")
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
        resume(tmp_path / "nowhere")
    with raises(InputError, "Python"):
        resume(trained[1])
    with raises(ConfigError, "task", "rhyme"):
        tune(base, out, task="rhyme", force=True)


@pytest.mark.parametrize(
    ("setting", "names", "fix"),
    [
        ("transfer.kind=last-0", ("transfer.kind", "last-0"), "last-N"),
        ("transfer.layers=lst", ("transfer.layers", "lst"), "last"),
        ("loss.label_smoothing=2.0", ("loss.label_smoothing", "2.0"), "0 to 1"),
        ("data.truncation=middle", ("data.truncation", "middle"), "head"),
        ("data.hold_out=1.5", ("data.hold_out", "1.5"), "less than 1"),
        ("run.patience=0", ("run.patience", "0"), "1"),
        ("run.batch_size=0", ("run.batch_size", "0"), "1"),
        ("run.epochs=0.0", ("run.epochs", "0.0"), "above 0"),
        ("run.steps=0", ("run.steps", "0"), "1"),
        ("transfer.layers=sum-all", ("transfer.layers", "sum-all"), "--transfer features"),
        ("transfer.pooling=mean", ("transfer.pooling", "mean"), "--transfer features"),
        ("optimizer.rat=3", "optimizer.rat", "choose"),
        ("optimizer.weight_decy=3", "optimizer.weight_decy", "weight_decay"),
    ],
)
def test_recipes_refuse_what_they_do_not_know(setting, names, fix):
    with raises(ConfigError, names, fix=fix):
        complete_finetuning(settings=[setting])


@pytest.mark.parametrize(
    ("task", "option", "value"),
    [
        ("classify", "context", True),
        ("answer", "class_weights", "balanced"),
        ("answer", "label_smoothing", 0.1),
        ("choose", "class_weights", "balanced"),
        ("tag", "pair_column", "b"),
        ("translate", "transfer", "head"),
    ],
)
def test_an_option_of_another_task_is_refused_by_its_flag(task, option, value):
    with raises(OptionError, option, task):
        complete_finetuning(task=task, options={option: value})


@pytest.mark.parametrize("kind", ["head", "features"])
def test_what_has_no_effect_and_misleads_nobody_is_accepted(kind):
    settings = [f"transfer.kind={kind}", "transfer.unfreeze_every=1.0", "transfer.layer_decay=0.9"]
    assert complete_finetuning(settings=settings).transfer.kind == kind


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("classify", ["data.max_length=33"], ("data.max_length", "33", "32")),
        (
            "classify",
            ["data.max_length=33", "transfer.kind=features"],
            ("data.max_length", "33", "32"),
        ),
        ("classify", ["transfer.kind=last-9"], ("last-9", "2", "last-2")),
        ("number", ["loss.class_weights=balanced"], "loss.class_weights"),
        ("number", ["loss.label_smoothing=0.1"], "loss.label_smoothing"),
        ("classify", ["run.search=true", "transfer.kind=features"], "--search"),
    ],
)
def test_what_cannot_be_is_refused(base, tmp_path, task, settings, message):
    numbers = [TextExample(text="a", label=1.0), TextExample(text="b", label=2.0)]
    data = numbers if task == "number" else texts(9)
    name = "classify" if task == "number" else task
    with raises(ConfigError, message):
        tune(base, tmp_path / "m", *settings, task=name, train=data, dev=data, callbacks=IDLE)
    assert not (tmp_path / "m").exists()


def test_a_mistake_spares_what_is_there(base, tmp_path):
    out = tmp_path / "m"
    tune(base, out, "run.steps=1")
    before = (out / "recipe.toml").read_text()
    with raises(ConfigError, "data.max_length"):
        tune(base, out, "data.max_length=999", force=True)
    assert (out / "recipe.toml").read_text() == before


def test_a_budget_in_steps_is_read_back_as_it_was(tmp_path):
    """Else a run that began with --steps could not be resumed: epochs would come back beside it."""
    made = complete_finetuning(settings=["run.steps=7"])
    write_recipe(tmp_path, made)
    again = complete_finetuning(find_run_recipe(tmp_path))
    assert again == made
    assert (again.run.steps, again.run.epochs) == (7, None)


@pytest.mark.parametrize("option", ["epochs", "lr", "batch_size", "steps", "warmup"])
def test_an_option_that_a_linear_classifier_ignores_is_refused(option):
    options = {option: 1}
    with raises(ConfigError, option, fix=f"--{option.replace('_', '-')}"):
        complete_finetuning("features", options=options)
    with raises(ConfigError, option):
        complete_finetuning(options={**options, "transfer": "features"})
    for changes in ({"classifier": "cnn"}, {"transfer": "head"}):  # these are trained in steps
        complete_finetuning("features", options={**options, **changes})
    complete_finetuning("features", task="tag", options=options)


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_a_model_with_vectors_and_without_heads_can_be_features(task, tmp_path):
    for name, model in (("elmo", elmo_model()), ("cove", translator("bahdanau"))):
        model.save(tmp_path / name)
        with raises(InputError, "no head", task, fix="--recipe features"):
            data = texts(4) if task == "classify" else tagged(4)
            finetune(task, tmp_path / name, data, tmp_path / "out", dev=data)
