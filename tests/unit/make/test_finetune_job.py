"""`finetune`: every task learns, what is frozen stays, the best is kept, runs resume exactly."""

import json
import signal

import pytest
import torch

import cloze
from cloze.data.labelled.examples import Answer, QuestionExample, TextExample
from cloze.errors import ConfigError
from cloze.make.finetune.dispatch import finetune
from cloze.make.finetune.job import layer_lr_factors
from cloze.make.recipe.complete import complete_finetuning
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.distilbert import DistilBertConfig
from cloze.report.page import build_report
from cloze.train.config import OptimizerConfig
from cloze.train.optim import build_optimizer
from helpers import Watch, raises
from tunings import FAST, body, changed, metrics, picks, questions, tagged, texts, tune, weights


@pytest.fixture(scope="module")
def base():
    return body(BertConfig)


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "straight"
    return tune(base, out), out


def test_a_text_is_told_from_another(trained):
    ended, out = trained
    assert ended.metric == "accuracy"
    assert ended.score == ended.scores["accuracy"] == 1.0
    assert ended.labels == ("no", "yes")
    model = cloze.load(out)
    assert model.task.name == "classify"
    assert [one.label for one in cloze.classify(model, ["b a c", "b c d"])] == ["yes", "no"]
    for name in ("recipe.toml", "metrics.jsonl", "report.html", "data.json", "cloze.json"):
        assert (out / name).is_file(), name
    assert json.loads((out / "data.json").read_text())["training"] == 160


def test_the_report_has_the_confusion_matrix_and_examples(trained, base, tmp_path):
    _, out = trained
    stored = json.loads((out / "examples.json").read_text())
    assert stored["confusion"]["labels"] == ["no", "yes"]
    assert (sum(map(sum, stored["confusion"]["counts"])), stored["num_errors"]) == (40, 0)
    page = (out / "report.html").read_text()
    assert "Confusion matrix" in page
    assert "Correct predictions" in page
    poor = tune(base, tmp_path / "poor", "run.steps=1")
    assert poor.score < 1
    assert "Worst errors" in (tmp_path / "poor" / "report.html").read_text()


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
        ours["task_heads.sequence.dense.weight"], other["task_heads.sequence.dense.weight"]
    )


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(tmp_path):
    class Killed(BaseException):
        pass

    def kill_after_thirty(step):
        if step == 30:
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
            callbacks=[Watch(step=kill_after_thirty)],
        )
    resumed = cloze.resume(tmp_path / "b")
    assert (resumed.score, resumed.best_step) == (straight.score, straight.best_step)
    ours, theirs = (weights(cloze.load(tmp_path / name)) for name in "ab")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    steps = [row["step"] for row in metrics(tmp_path / "b") if row["kind"] == "train"]
    assert steps == list(range(1, straight.steps + 1))
    examples, again = (json.loads((tmp_path / name / "examples.json").read_text()) for name in "ab")
    assert again == examples


def test_numbers_are_learned(base, tmp_path):
    def counted(count, seed):
        return [
            TextExample(text=one.text, label=float(one.text.count("a") * 2 + 1))
            for one in texts(count, seed)
        ]

    data = {"train": counted(160, 0), "dev": counted(40, 1)}
    ended = tune(base, tmp_path / "m", "run.epochs=10.0", **data)
    assert ended.metric == "pearson"
    assert ended.score > 0.95
    model = cloze.load(tmp_path / "m")
    assert model.config.problem_type == "regression"
    assert cloze.classify(model, "b a c").score == pytest.approx(3, abs=0.5)


@pytest.mark.parametrize("family", [BertConfig, DistilBertConfig])
def test_tags_are_learned(family, tmp_path):
    ended = tune(body(family), tmp_path / "m", task="tag", train=tagged(160), dev=tagged(40, 1))
    assert ended.metric == "f1"
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
    assert ended.metric == "f1"
    assert ended.score > 0.9
    model = cloze.load(tmp_path / "m")
    assert model.task.allow_no_answer
    assert model.task.threshold != 0.0  # chosen on the dev data
    assert cloze.answer(model, "c", "b c d e f g").text == "c"
    assert cloze.answer(model, "h", "b c d e f g").text == ""
    kept = metrics(tmp_path / "m")[-1]  # with that threshold, which no evaluation had
    assert kept == {"kind": "kept", "step": ended.best_step, **ended.scores}
    result, *_, data, _ = build_report(tmp_path / "m").data["sections"]
    told = {fact["label"]: fact["value"] for fact in result["parts"][0]["facts"]}
    assert told == {"F1": ended.scores["f1"], "exact match": ended.scores["exact_match"]}
    assert "classes" not in {fact["label"] for fact in data["parts"][0]["facts"]}


def test_a_signal_is_not_kept_waiting_for_a_threshold(tmp_path):
    """It takes the dev data twice: a resumed run does it at its end."""

    def stop(step):
        if step == 30:
            signal.raise_signal(signal.SIGTERM)

    body(BertConfig).save(tmp_path / "base")
    asked = [
        {
            "context": one.context,
            "qas": [
                {
                    "id": str(number),
                    "question": one.question,
                    "is_impossible": not one.answers,
                    "answers": [{"text": a.text, "answer_start": a.start} for a in one.answers],
                }
            ],
        }
        for number, one in enumerate(questions(100))
    ]
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": asked}]}))
    given = {"task": "answer", "model": tmp_path / "base", "train": data, "dev": data}
    out = tmp_path / "m"
    ended = finetune(**given, out=out, settings=FAST, callbacks=[Watch(step=stop)])
    assert (ended.stopped, ended.steps) == ("SIGTERM", 30)
    assert cloze.load(out).task.threshold == 0.0
    assert cloze.resume(out).stopped is None
    assert cloze.load(out).task.threshold != 0.0


def test_chinese_answers_are_judged_by_their_own_rules(base, tmp_path):
    """By English rules, words without blanks between them are one word: right or wrong whole."""
    found = tmp_path / "m"
    context = "猫猫猫猫"
    some = [
        QuestionExample(question="猫", context=context, answers=(Answer(text="猫猫猫", start=0),))
    ] * 8
    ended = tune(base, found, "optimizer.lr=0.0", task="answer", train=some, dev=some)
    told = cloze.answer(cloze.load(found), "猫", context)
    wanted = 2 * min(3, len(told.text)) / (3 + len(told.text))
    assert 0 < wanted < 1  # it has not learned: some of it is right
    assert ended.scores["f1"] == pytest.approx(wanted)


def test_choices_are_learned(base, tmp_path):
    ended = tune(base, tmp_path / "m", task="choose", train=picks(160), dev=picks(40, 1))
    assert ended.score == 1.0


def test_dev_data_are_held_out_when_there_are_none(base, tmp_path):
    said = []
    watch = [Watch(log=said.append)]
    ended = tune(base, tmp_path / "m", "run.epochs=1.0", dev=[], callbacks=watch)
    assert "held out of the training data" in said[0]
    summary = json.loads((tmp_path / "m" / "data.json").read_text())
    assert summary["training"] + summary["dev"] == 160
    assert summary["dev"] > 0
    assert ended.score is not None
    ended = tune(base, tmp_path / "n", "run.epochs=1.0", "data.hold_out=0.0", dev=[])
    assert ended.score is None
    assert cloze.load(tmp_path / "n").labels == ("no", "yes")


# How much learns


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
    table = complete_finetuning(settings=["transfer.layer_decay=0.5"]).transfer
    factor = layer_lr_factors(table, 2)
    made = build_optimizer(base.module, OptimizerConfig(lr=1.0), factor)
    found = {group["lr"] for group in made.param_groups}
    assert found == {1.0, 0.5, 0.25, 0.125}
    assert factor("embeddings.word.weight") == 0.125
    assert factor("blocks.1.attention.qkv.weight") == 0.5
    assert made.param_groups[0]["lr"] == 1.0  # the one that is told


def test_layers_thaw_from_the_top(base, tmp_path):
    out = tmp_path / "m"
    tune(base, out, "transfer.unfreeze_every=1.0", "run.epochs=1.0", "schedule.warmup=0.0")
    assert changed(base, out) == {3}
    tune(
        base,
        tmp_path / "n",
        "transfer.unfreeze_every=1.0",
        "run.epochs=2.0",
        "data.hold_out=0",
        dev=[],
    )
    assert changed(base, tmp_path / "n") == {2, 3}


def test_the_best_is_kept_and_patience_ends(base, tmp_path):
    ended = tune(base, tmp_path / "m", "optimizer.lr=0.0", "run.epochs=9.0", "run.patience=2")
    per_epoch = 20
    assert ended.best_step == per_epoch
    assert ended.steps == 3 * per_epoch


def test_other_measures_may_choose(base, tmp_path):
    ended = tune(
        base,
        tmp_path / "m",
        "run.epochs=1.0",
        'run.selection_metrics=["f1", "matthews_correlation"]',
    )
    assert ended.metric == "f1 and matthews_correlation"
    assert ended.score == pytest.approx(
        (ended.scores["f1"] + ended.scores["matthews_correlation"]) / 2
    )
    with raises(ConfigError, "run.selection_metrics", "f2", fix="accuracy"):
        tune(base, tmp_path / "n", "run.epochs=1.0", 'run.selection_metrics=["f2"]')


def test_rare_classes_can_weigh_as_much(base, tmp_path):
    rare = [one for one in texts(400) if one.label == "no" or one.text.count("b") > 1]
    ended = tune(base, tmp_path / "m", "loss.class_weights=balanced", train=rare)
    assert ended.score > 0.9


# Features
