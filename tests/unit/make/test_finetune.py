"""`finetune`: every task learns, what is frozen stays, the best is kept, runs resume exactly."""

import json

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.data.labelled.examples import (
    Answer,
    ChoiceExample,
    Origin,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from cloze.errors import ConfigError, FolderError, InputError
from cloze.make.finetune import finetune, resume_finetune
from cloze.make.finetune_recipe import finetune_recipe
from cloze.make.run import Watch, recipe_in, write_recipe
from cloze.make.transfer import depth_of, rates
from cloze.models import BertConfig, DistilBertConfig
from cloze.train.optim import OptimiserConfig, optimiser
from helpers import tiny_tokenizer

FAST = [
    "run.device=cpu",
    "run.batch=8",
    "run.epochs=4.0",
    "run.log_every=1",
    "optimiser.rate=5e-3",
    "transfer.dropout=0.0",
    "transfer.hidden=16",
]


@pytest.fixture(scope="module")
def base():
    return body(BertConfig)


def body(family):
    tokenizer = tiny_tokenizer()
    # with larger first weights than BERT's it learns from a few hundred examples
    shape = {"width": 16, "layers": 2, "heads": 2, "hidden": 32, "positions": 32, "deviation": 0.1}
    config = family(vocab_size=tokenizer.size, **shape)
    return Model.new(config, tokenizer, rng=torch.Generator().manual_seed(0))


def texts(count, seed=0):
    """An `a` in the text makes it yes, however far it stands from the beginning."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        words = rng.choice(list("bcdefgh"), rng.integers(1, 8)).tolist()
        yes = bool(rng.integers(2))
        if yes:
            words.insert(int(rng.integers(len(words) + 1)), "a")
        label = "yes" if yes else "no"
        found.append(TextExample(text=" ".join(words), label=label, origin=Origin(line=number + 1)))
    return found


def tagged(count, seed=0):
    """An `a`, and the `b` after it, are a span."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        words, tags = [], []
        for _ in range(int(rng.integers(2, 6))):
            if rng.integers(3) == 0:
                words, tags = [*words, "a", "b"], [*tags, "B-X", "I-X"]
            else:
                words, tags = [*words, str(rng.choice(list("cdefg")))], [*tags, "O"]
        places = [(2 * n, 2 * n + 1) for n in range(len(words))]
        found.append(TaggedExample(text=" ".join(words), words=tuple(places), tags=tuple(tags)))
    return found


def questions(count, seed=0):
    """The answer is where the context has the letter of the question."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        words = rng.permutation(list("bcdefg")).tolist()
        context, wanted = " ".join(words), str(rng.choice(list("bcdefgh")))
        known = () if wanted == "h" else (Answer(text=wanted, start=context.index(wanted)),)
        found.append(QuestionExample(question=wanted, context=context, answers=known))
    return found


def picks(count, seed=0):
    """The right option is the one with an `a`."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        options = rng.choice(list("bcdefg"), 3).tolist()
        right = int(rng.integers(3))
        options[right] = "a"
        found.append(ChoiceExample(text="the cat", options=tuple(options), label=right))
    return found


def tune(base, out, *settings, task="classify", train=None, dev=None, **options):
    train = texts(160) if train is None else train
    dev = texts(40, seed=1) if dev is None else dev
    return finetune(task, base, train, out, dev=dev, settings=[*FAST, *settings], **options)


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "straight"
    return tune(base, out), out


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def weights(model):
    return model.module.state_dict()


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
    resumed = resume_finetune(tmp_path / "b")
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
    settings = [s for s in FAST if "dropout" not in s]
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


# Several runs


def test_seeds_give_mean_and_deviation(base, tmp_path):
    ended = tune(base, tmp_path / "m", "run.epochs=1.0", "run.seeds=3")
    assert [trial.name for trial in ended.trials] == ["seed-0", "seed-1", "seed-2"]
    scores = [trial.score for trial in ended.trials]
    assert ended.mean == pytest.approx(np.mean(scores))
    assert ended.deviation == pytest.approx(np.std(scores, ddof=1))
    assert ended.score == max(scores)
    assert cloze.load(tmp_path / "m").labels == ("no", "yes")
    assert len(json.loads((tmp_path / "m" / "trials.json").read_text())) == 3


def test_the_search_takes_the_best_of_the_grid(base, tmp_path, monkeypatch):
    monkeypatch.setattr("cloze.make.finetune.RATES", (1e-6, 5e-3))
    monkeypatch.setattr("cloze.make.finetune.BATCHES", (8,))
    monkeypatch.setattr("cloze.make.finetune.EPOCHS", (1, 2))
    ended = tune(base, tmp_path / "m", "run.search=true")
    assert len(ended.trials) == 4
    best = max(ended.trials, key=lambda trial: trial.score)
    assert best.rate == 5e-3
    assert ended.score == best.score
    assert cloze.load(tmp_path / "m").task.name == "classify"
    left = list((tmp_path / "m").glob("rate-*/model.safetensors"))
    assert not left  # the weights of the others are not kept


# What a user can get wrong


def test_mistakes(base, trained, tmp_path):
    out = tmp_path / "m"
    with pytest.raises(InputError, match="exists already"):
        tune(base, trained[1])
    with pytest.raises(InputError, match="all examples have the label 'yes'"):
        tune(base, out, train=[one for one in texts(40) if one.label == "yes"])
    unseen = [TextExample(text="b", label="perhaps", origin=Origin(file="dev.tsv", line=7))]
    with pytest.raises(InputError, match=r"dev.tsv:7: the model has no label 'perhaps'"):
        tune(base, out, "run.epochs=1.0", dev=unseen, force=True)
    with pytest.raises(InputError, match="no label to learn"):
        tune(base, out, train=[TextExample(text="b")], force=True)
    with pytest.raises(InputError, match="nothing to learn from"):
        tune(base, out, train=[], force=True)
    with pytest.raises(InputError, match="nothing to choose by"):
        tune(base, out, "data.hold_out=0.0", "run.seeds=2", dev=[], force=True)
    with pytest.raises(InputError, match="features cannot learn to answer"):
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
        ("optimiser.rat=3", "no setting optimiser.rat\n.*did you mean 'rate'"),
    ],
)
def test_recipes_refuse_what_they_do_not_know(setting, message):
    with pytest.raises(ConfigError, match=message):
        finetune_recipe(settings=[setting])


def test_a_budget_in_steps_is_read_back_as_it_was(tmp_path):
    """Else a run that began with --steps could not be resumed: epochs would come back beside it."""
    made = finetune_recipe(settings=["run.steps=7"])
    write_recipe(tmp_path, made)
    again = finetune_recipe(recipe_in(tmp_path))
    assert again == made
    assert (again.run.steps, again.run.epochs) == (7, None)
