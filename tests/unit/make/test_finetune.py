"""`finetune`: every task learns, what is frozen stays, the best is kept, runs resume exactly."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import cloze
from cloze.data.labelled.examples import Answer, Origin, QuestionExample, TextExample
from cloze.errors import ConfigError, FolderError, InputError
from cloze.make.features import VectorBatch, _tagging
from cloze.make.finetune import finetune, resume_finetune
from cloze.make.finetune_recipe import finetune_recipe
from cloze.make.run import Watch, recipe_in, write_recipe
from cloze.make.transfer import depth_of, rates
from cloze.models import BertConfig, DistilBertConfig
from cloze.train.optim import OptimiserConfig, optimiser
from tunings import FAST, body, metrics, picks, questions, tagged, texts, tune, weights


@pytest.fixture(scope="module")
def base():
    return body(BertConfig)


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "straight"
    return tune(base, out), out


def test_a_text_is_told_from_another(trained):
    ended, out = trained
    assert ended.measure == "accuracy"
    assert ended.score == ended.scores["accuracy"] == 1.0
    assert ended.labels == ("no", "yes")
    model = cloze.load(out)
    assert model.task.name == "classify"
    assert [one.label for one in cloze.classify(model, ["b a c", "b c d"])] == ["yes", "no"]
    for name in ("recipe.toml", "metrics.jsonl", "report.html", "data.json", "cloze.json"):
        assert (out / name).is_file(), name
    assert json.loads((out / "data.json").read_text())["training"] == 160


@pytest.mark.parity
def test_transformers_opens_it(trained):
    import transformers

    _, out = trained
    peer = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
    assert peer.config.id2label == {0: "no", 1: "yes"}
    ids = transformers.AutoTokenizer.from_pretrained(out)("b a c", return_tensors="pt")
    with torch.no_grad():
        theirs = peer(**ids).logits.softmax(-1)[0, 1].item()
    ours = cloze.classify(cloze.load(out), "b a c").scores["yes"]
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_the_same_seed_gives_the_same_weights(trained, base, tmp_path):
    tune(base, tmp_path / "again")
    ours, theirs = weights(cloze.load(trained[1])), weights(cloze.load(tmp_path / "again"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    tune(base, tmp_path / "other", "run.seed=1")
    other = weights(cloze.load(tmp_path / "other"))
    assert not torch.equal(
        ours["heads.sequence.dense.weight"], other["heads.sequence.dense.weight"]
    )


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(tmp_path):
    class Killed(Exception):
        pass

    def kill_after_thirty(steps, _):
        for step in steps:
            yield step
            if step.number == 30:
                raise Killed

    folder = tmp_path / "base"
    body(BertConfig).save(folder)
    rows = "".join(f"{one.text}\t{one.label}\n" for one in texts(160))
    (tmp_path / "train.tsv").write_text(f"text\tlabel\n{rows}")
    given = {"task": "classify", "model": folder, "train": tmp_path / "train.tsv"}
    straight = finetune(**given, out=tmp_path / "a", settings=FAST)
    with pytest.raises(Killed):
        finetune(
            **given,
            out=tmp_path / "b",
            settings=[*FAST, "run.save_every=7"],
            watch=Watch(steps=kill_after_thirty),
        )
    resumed = cloze.resume(tmp_path / "b")
    assert (resumed.score, resumed.best_step) == (straight.score, straight.best_step)
    ours, theirs = (weights(cloze.load(tmp_path / name)) for name in "ab")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    steps = [row["step"] for row in metrics(tmp_path / "b") if row["kind"] == "train"]
    assert steps == list(range(1, straight.steps + 1))


def test_numbers_are_learned(base, tmp_path):
    def counted(count, seed):
        return [
            TextExample(text=one.text, label=float(one.text.count("a") * 2 + 1))
            for one in texts(count, seed)
        ]

    data = {"train": counted(160, 0), "dev": counted(40, 1)}
    ended = tune(base, tmp_path / "m", "run.epochs=10.0", **data)
    assert ended.measure == "pearson"
    assert ended.score > 0.95
    model = cloze.load(tmp_path / "m")
    assert model.config.problem == "number"
    assert cloze.classify(model, "b a c").score == pytest.approx(3, abs=0.5)


@pytest.mark.parametrize("family", [BertConfig, DistilBertConfig])
def test_tags_are_learned(family, tmp_path):
    ended = tune(body(family), tmp_path / "m", task="tag", train=tagged(160), dev=tagged(40, 1))
    assert ended.measure == "f1"
    assert ended.score > 0.95
    assert ended.labels == ("O", "B-X", "I-X")
    (span,) = cloze.tag(cloze.load(tmp_path / "m"), "c a b d").spans
    assert (span.label, span.start, span.end) == ("X", 2, 5)


def test_answers_are_learned(base, tmp_path):
    ended = tune(
        base,
        tmp_path / "m",
        "run.epochs=12.0",
        task="answer",
        train=questions(300),
        dev=questions(60, 1),
    )
    assert ended.measure == "f1"
    assert ended.score > 0.9
    model = cloze.load(tmp_path / "m")
    assert model.task.none
    assert model.task.threshold != 0.0  # chosen on the dev data
    assert cloze.answer(model, "c", "b c d e f g").text == "c"
    assert cloze.answer(model, "h", "b c d e f g").text == ""


def test_chinese_answers_are_judged_by_their_own_rules(base, tmp_path):
    """By English rules, words without blanks between them are one word: right or wrong whole."""
    found = tmp_path / "m"
    context = "猫猫猫猫"
    some = [
        QuestionExample(question="猫", context=context, answers=(Answer(text="猫猫猫", start=0),))
    ] * 8
    ended = tune(base, found, "optimiser.rate=0.0", task="answer", train=some, dev=some)
    told = cloze.answer(cloze.load(found), "猫", context)
    wanted = 2 * min(3, len(told.text)) / (3 + len(told.text))
    assert 0 < wanted < 1  # it has not learned: some of it is right
    assert ended.scores["f1"] == pytest.approx(wanted)


def test_choices_are_learned(base, tmp_path):
    ended = tune(base, tmp_path / "m", task="choose", train=picks(160), dev=picks(40, 1))
    assert ended.score == 1.0


def test_dev_data_are_held_out_when_there_are_none(base, tmp_path):
    said = []
    watch = Watch(say=type(Watch().say)(text=said.append))
    ended = tune(base, tmp_path / "m", "run.epochs=1.0", dev=[], watch=watch)
    assert "held out of the training data" in said[0]
    summary = json.loads((tmp_path / "m" / "data.json").read_text())
    assert summary["training"] + summary["dev"] == 160
    assert summary["dev"] > 0
    assert ended.score is not None
    ended = tune(base, tmp_path / "n", "run.epochs=1.0", "data.hold_out=0.0", dev=[])
    assert ended.score is None
    assert cloze.load(tmp_path / "n").labels == ("no", "yes")


# How much learns


def changed(base, out):
    before, after = weights(base), weights(cloze.load(out))
    return {
        depth_of(name, 2)
        for name, weight in after.items()
        if name in before and not torch.equal(weight, before[name])
    }


def test_full_transfer_changes_all(base, trained):
    assert changed(base, trained[1]) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("kind", "depths"), [("head", {3}), ("last-1", {2, 3}), ("last-2", {1, 2, 3})]
)
def test_what_is_frozen_stays(base, tmp_path, kind, depths):
    tune(base, tmp_path / "m", f"transfer.kind={kind}", "run.steps=3")
    assert changed(base, tmp_path / "m") <= depths
    assert 3 in changed(base, tmp_path / "m")


def test_frozen_parts_have_no_dropout(base, tmp_path):
    """With a frozen body and no dropout in the head, dropout in the body changes nothing."""
    one = tune(base, tmp_path / "a", "transfer.kind=head", "run.steps=5")
    assert one.steps == 5
    settings = [s for s in FAST if "dropout" not in s and "epochs" not in s]
    finetune(
        "classify",
        base,
        texts(160),
        tmp_path / "b",
        dev=texts(40, seed=1),
        settings=[*settings, "transfer.kind=head", "run.steps=5"],
    )
    losses = [metrics(tmp_path / name)[0]["loss"] for name in "ab"]
    # the head's own dropout is the only difference: the first loss is near, the body the same
    assert losses[0] == pytest.approx(losses[1], rel=0.2)
    assert changed(base, tmp_path / "b") == {3}


def test_lower_layers_learn_more_slowly(base):
    table = finetune_recipe(settings=["transfer.layer_decay=0.5"]).transfer
    factor = rates(table, 2)
    made = optimiser(base.module, OptimiserConfig(rate=1.0), factor)
    found = {group["lr"] for group in made.param_groups}
    assert found == {1.0, 0.5, 0.25, 0.125}
    assert factor("embeddings.word.weight") == 0.125
    assert factor("blocks.1.attention.qkv.weight") == 0.5
    assert made.param_groups[0]["lr"] == 1.0  # the one that is told


def test_layers_thaw_from_the_top(base, tmp_path):
    out = tmp_path / "m"
    tune(base, out, "transfer.unfreeze=1.0", "run.epochs=1.0", "schedule.warmup=0.0")
    assert changed(base, out) == {3}
    tune(base, tmp_path / "n", "transfer.unfreeze=1.0", "run.epochs=2.0", "data.hold_out=0", dev=[])
    assert changed(base, tmp_path / "n") == {2, 3}


def test_the_best_is_kept_and_patience_ends(base, tmp_path):
    ended = tune(base, tmp_path / "m", "optimiser.rate=0.0", "run.epochs=9.0", "run.patience=2")
    per_epoch = 20
    assert ended.best_step == per_epoch
    assert ended.steps == 3 * per_epoch


def test_other_measures_may_choose(base, tmp_path):
    ended = tune(base, tmp_path / "m", "run.epochs=1.0", 'run.measures=["f1", "matthews"]')
    assert ended.measure == "f1 and matthews"
    assert ended.score == pytest.approx((ended.scores["f1"] + ended.scores["matthews"]) / 2)
    with pytest.raises(ConfigError, match="run.measures 'f2' is unknown\n.*choose from accuracy"):
        tune(base, tmp_path / "n", "run.epochs=1.0", 'run.measures=["f2"]')


def test_rare_classes_can_weigh_as_much(base, tmp_path):
    rare = [one for one in texts(400) if one.label == "no" or one.text.count("b") > 1]
    ended = tune(base, tmp_path / "m", "loss.class_weights=balanced", train=rare)
    assert ended.score > 0.9


# Features


@pytest.mark.parametrize("layers", ["last", "concat-last-4", "sum-all", "0,-1"])
def test_texts_by_features(base, tmp_path, layers):
    ended = tune(
        base,
        tmp_path / "m",
        "transfer.kind=features",
        f'transfer.layers="{layers}"' if layers != "concat-last-4" else "transfer.layers=0,1,2",
        "transfer.pooling=mean",
        "transfer.penalty=0.01",
    )
    assert ended.score > 0.9
    model = cloze.load(tmp_path / "m")
    assert not changed(base, tmp_path / "m")
    assert model.reader is not None
    assert [one.label for one in cloze.classify(model, ["b a c", "b c d"])] == ["yes", "no"]


def test_nothing_of_the_model_before_is_left(base, tmp_path):
    out = tmp_path / "m"
    tune(base, out, "transfer.kind=features")
    assert (out / "reader.safetensors").is_file()
    known = [one for one in questions(40) if one.answers]
    tune(base, out, "run.steps=1", task="answer", train=known, dev=known, force=True)
    model = cloze.load(out)
    assert (model.task.name, model.reader) == ("answer", None)
    assert not (out / "reader.safetensors").exists()


def test_words_by_features(base, tmp_path):
    ended = tune(
        base,
        tmp_path / "m",
        "transfer.kind=features",
        "transfer.layers=embeddings",
        task="tag",
        train=tagged(160),
        dev=tagged(40, 1),
    )
    assert ended.score > 0.9
    (span,) = cloze.tag(cloze.load(tmp_path / "m"), "c a b d").spans
    assert (span.label, span.start, span.end) == ("X", 2, 5)


@pytest.mark.parity
def test_the_regression_is_scikit_learns(base, tmp_path):
    from sklearn.linear_model import LogisticRegression

    train = texts(60)
    tune(base, tmp_path / "m", "transfer.kind=features", "transfer.penalty=0.5", train=train)
    model = cloze.load(tmp_path / "m")
    vectors = cloze.embed(base, [one.text for one in train], pooling="cls")
    peer = LogisticRegression(C=1 / 0.5, tol=1e-8, max_iter=10_000)
    peer.fit(vectors, [one.label for one in train])
    theirs = peer.predict_proba(vectors)[:, 1]
    ours = [one.scores["yes"] for one in cloze.classify(model, [one.text for one in train])]
    assert ours == pytest.approx(theirs.tolist(), abs=1e-3)


def learned(base, out, *settings, train):
    """The vectors that a regression had, its probabilities, and its weights with the penalty."""
    tune(base, out, "transfer.kind=features", *settings, train=train, dev=train)
    model, said = cloze.load(out), [one.text for one in train]
    vectors = torch.from_numpy(cloze.embed(base, said, pooling="cls"))
    scores = [[one.scores[name] for name in model.labels] for one in cloze.classify(model, said)]
    return vectors, torch.tensor(scores), model.reader.dense.weight


def test_a_regression_takes_weights_and_smoothing(base, tmp_path):
    """At the least loss, Σ w_y·(softmax − target)ᵀ·x + penalty·W is zero."""
    train = [one for one in texts(120) if one.label == "no" or "b" in one.text]
    yes = torch.tensor([one.label == "yes" for one in train])
    assert 0 < yes.sum() < 0.4 * len(train)
    hard = torch.stack([~yes, yes], 1).float()
    share = len(train) / (2 * hard.sum(0))
    for name, settings, targets, each in (
        ("plain", [], hard, torch.ones(len(train))),
        ("smooth", ["loss.smoothing=0.2"], 0.8 * hard + 0.1, torch.ones(len(train))),
        ("weights", ["loss.class_weights=balanced"], hard, hard @ share),
    ):
        x, scores, matrix = learned(base, tmp_path / name, *settings, train=train)
        slope = ((scores - targets) * each[:, None]).T @ x + 2 * matrix  # two halves: twice
        assert slope.abs().max() < 0.02, name


class Plain(torch.nn.Linear):
    """A reader that reads every word alone."""

    def forward(self, vectors, _lengths):
        return super().forward(vectors)


def test_a_reader_of_words_takes_weights_and_smoothing():
    reader = Plain(3, 3)
    vectors, targets = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), [0, 2, 1, 2]
    batch = VectorBatch(vectors=[vectors], targets=[targets], sample_ids=np.arange(1))
    weights = torch.tensor([0.5, 1.0, 2.0])
    logs = reader(vectors, [4]).log_softmax(-1)
    right = -logs[range(4), targets]
    found = _tagging(weights, 0.0)(reader, batch, None)["tag"]
    assert found.item() == pytest.approx((weights[targets] * right).sum().item())
    found = _tagging(None, 0.3)(reader, batch, None)["tag"]
    assert found.item() == pytest.approx((0.7 * right - 0.3 * logs.mean(-1)).sum().item())


@pytest.mark.parametrize("setting", ["loss.class_weights=balanced", "loss.smoothing=0.3"])
def test_words_by_features_with_another_loss(base, tmp_path, setting):
    given = {"task": "tag", "train": tagged(40), "dev": tagged(9, 1)}
    fast = ("transfer.kind=features", "run.epochs=1.0")
    plain, other = (
        tune(base, tmp_path / name, *fast, *more, **given)
        for name, more in (("a", []), ("b", [setting]))
    )
    assert plain.steps == other.steps
    ours, theirs = (cloze.load(tmp_path / name).reader.state_dict() for name in "ab")
    assert not all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_features_say_what_was_cut(base, tmp_path):
    said = []
    watch = Watch(say=type(Watch().say)(text=said.append))
    long = [TextExample(text="b " * 40, label="no"), *texts(20)]
    ended = tune(base, tmp_path / "m", "transfer.kind=features", train=long, watch=watch)
    assert ended.cut == 1
    assert "1 sequences are too long and are cut (head)" in said
    assert json.loads((tmp_path / "m" / "data.json").read_text())["cut"] == 1


# What a user can get wrong


def no_step(steps, _):
    pytest.fail("it should not have begun")
    yield from steps


IDLE = Watch(steps=no_step)


def test_mistakes(base, trained, tmp_path):
    out = tmp_path / "m"
    with pytest.raises(InputError, match="exists already"):
        tune(base, trained[1])
    with pytest.raises(InputError, match="is no example of the task classify\n.*TextExamples"):
        finetune("classify", base, [("a fine film", "yes")], tmp_path / "pairs")
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
        ("run.epochs=0.0", "run.epochs is 0.0\n.*above zero"),
        ("run.steps=0", "run.steps is 0"),
        ("transfer.layers=sum-all", "transfer.layers is 'sum-all', .*\n.*--transfer features"),
        ("transfer.pooling=mean", "transfer.pooling is 'mean', .*\n.*--transfer features"),
        ("optimiser.rat=3", "no setting optimiser.rat\n.*did you mean 'rate'"),
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
