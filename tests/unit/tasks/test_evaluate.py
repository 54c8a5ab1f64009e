"""`evaluate` on labelled examples: predictions, scores, results, errors in the data."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import cloze
from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import (
    Answer,
    ChoiceExample,
    Origin,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from cloze.errors import InputError, TruncationWarning
from cloze.tasks.answer import AnswerResult
from cloze.tasks.choose import Choice
from cloze.tasks.classify import Classification
from cloze.tasks.evaluate import evaluate
from cloze.tasks.evaluate_labelled import compute_metrics, read_labelled
from cloze.tasks.evaluation import Evaluation, shorten
from cloze.tasks.tag import TagResult
from helpers import Mentions, raises, tiny_model

TEXTS = ["the cat sat", "a b c", "cat", "d e f g", "the the", "a a a a", "b", "sat cat ."]
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def classifier(**changes):
    return tiny_model("sequence", **({"task": Task(name="classify")} | changes))


def tagger(labels=TAGS, **changes):
    return tiny_model("token", labels=labels, task=Task(name="tag", **changes))


def texts(labels="no yes no yes yes no no yes", pairs=False):
    return [
        TextExample(
            text=text,
            pair=text[::-1] if pairs else None,
            label=label,
            origin=Origin(file="f.tsv", line=line),
        )
        for line, (text, label) in enumerate(zip(TEXTS, labels.split(), strict=True), 1)
    ]


def sentence(text, tags, line=1):
    ends = np.cumsum([len(word) + 1 for word in text.split()]).tolist()
    words = tuple((end - 1 - len(w), end - 1) for w, end in zip(text.split(), ends, strict=True))
    return TaggedExample(
        text=text, words=words, tags=tuple(tags.split()), origin=Origin(file="f", line=line)
    )


def table(path, rows):
    lines = ["\t".join(row) + "\n" for row in [("text", "label"), *rows]]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def said(model, examples, predictions, kind, **more):
    """An evaluation of predictions that are known."""
    result = compute_metrics(model, model.task, examples, predictions)
    assert result.kind == kind
    assert result.scheme == more.get("scheme")
    return Evaluation(result=result, labels=model.labels)


def labelled(label, score):
    return Classification(text="", label=label, score=score, scores={label: score})


def test_scores_and_predictions_of_all_examples_in_order(tmp_path):
    model, examples = classifier(), texts()
    file = table(tmp_path / "dev.tsv", [(e.text, e.label) for e in examples])
    made, again = evaluate(model, examples), evaluate(model, file)
    told = [cloze.classify(model, example.text).label for example in examples]
    assert [one.label for one in made.predictions] == told
    assert [one.label for one in again.predictions] == told
    right = sum(one == example.label for one, example in zip(told, examples, strict=True))
    assert 0 < right < 8
    assert made.score == made.scores["accuracy"] == right / 8
    assert made.metric == "accuracy"
    assert made.count == 8
    assert len(made.errors) == 8 - right
    assert again.scores == made.scores
    assert again.errors[0].where.startswith(f"{file}:")
    assert made.seconds > 0
    assert made.calibration.count == 8
    assert made.confusion.labels == ("no", "yes")
    assert made.confusion.counts.trace() == right


def test_rows_and_data_sets_are_judged_as_examples_are():
    datasets = pytest.importorskip("datasets")
    model, wanted = classifier(), evaluate(classifier(), texts())
    rows = [{"sentence": one.text, "label": one.label} for one in texts()]
    names = datasets.ClassLabel(names=["no", "yes"])
    numbers = [row | {"label": names.str2int(row["label"])} for row in rows]
    data = datasets.Dataset.from_list(numbers).cast_column("label", names)
    for given in (rows, tuple(rows), iter(rows), data, [data], data.to_iterable_dataset()):
        assert evaluate(model, given).scores == wanted.scores
    made = cloze.compare({"one": model, "same": classifier()}, data, resamples=5)
    assert [one.evaluation.scores for one in made.entries] == [wanted.scores] * 2
    with raises(InputError, "DatasetDict"):
        evaluate(model, datasets.DatasetDict(test=data))
    made = evaluate(model, [*rows, {"label": "no"}], skip_bad=True)
    assert [error.problem for error in made.skipped] == [Mentions("<list>:9: ", "'sentence'")]


def test_the_verb_is_not_hidden_by_the_room_of_its_name():
    import cloze.metrics.scorer
    from cloze.metrics import squad

    assert cloze.evaluate is evaluate
    assert squad.normalize_answer("The Cat") == "cat"


def test_the_surest_errors_come_first():
    model, examples = classifier(), texts()
    told = ["yes", "yes", "yes", "no", "yes", "no", "no", "no"]
    sure = [0.6, 0.99, 0.9, 0.7, 0.8, 0.8, 0.8, 0.9]
    made = said(
        model, examples, [labelled(*one) for one in zip(told, sure, strict=True)], "classify"
    )
    assert [one.number for one in made.worst_errors(9)] == [2, 7, 3, 0]  # equals in their order
    assert "The worst 2 of 4 errors" in made.page(worst=2).html()
    assert "Worst errors" not in made.page(worst=0).html()
    worst = made.worst_errors(1)[0]
    assert (worst.text, worst.gold, worst.predicted, worst.severity) == ("cat", "no", "yes", 0.9)
    assert worst.where == "f.tsv:3"
    assert made.severity == "probability"
    assert made.confusion.counts.tolist() == [[2, 2], [2, 2]]
    assert made.label_scores["yes"].precision == 0.5
    gaps = 0.6 + 0.7 + 3 * 0.2 + 2 * 0.9 + 0.01  # each confidence has a bin of its own
    assert math.isclose(made.calibration.error, gaps / 8)


def test_numbers_farthest_off_come_first():
    model = classifier(problem="regression", labels=("LABEL_0",))
    examples = [replace(one, label=float(n)) for n, one in enumerate(texts())]
    told = [0.0, 1.5, 2.0, 9.0, 4.0, 4.0, 6.0, 7.0]
    predictions = [labelled("LABEL_0", value) for value in told]
    made = said(model, examples, predictions, "regression")
    assert [(one.number, one.severity) for one in made.worst_errors()] == [
        (3, 6.0),
        (5, 1.0),
        (1, 0.5),
    ]
    assert (made.worst_errors()[0].gold, made.worst_errors()[0].predicted) == ("3", "9")
    assert made.calibration is None
    assert made.confusion is None
    assert made.label_scores == {}
    assert made.severity == "difference"
    assert set(evaluate(model, examples).scores) == {"pearson", "spearman", "mean_squared_error"}


def test_sentences_with_the_most_wrong_spans_come_first():
    model = tagger()
    examples = [
        sentence("a b c", "B-PER I-PER O", 1),
        sentence("d e", "B-LOC O", 2),
        sentence("f g h", "B-PER O B-LOC", 3),
    ]
    told = ["B-PER I-PER O", "B-PER O", "O O O"]
    predictions = [
        TagResult(
            text=one.text,
            words=one.words,
            tags=tuple(tags.split()),
            scores=(0.5,) * len(one.words),
            spans=(),
        )
        for one, tags in zip(examples, told, strict=True)
    ]
    made = said(model, examples, predictions, "tag", scheme="IOB2")
    assert [(one.number, one.severity) for one in made.worst_errors()] == [(1, 2.0), (2, 2.0)]
    assert (made.worst_errors()[0].gold, made.worst_errors()[0].predicted) == ("d LOC", "d PER")
    assert (made.worst_errors()[1].gold, made.worst_errors()[1].predicted) == ("f PER · h LOC", "")
    assert made.confusion.labels == ("LOC", "O", "PER")
    assert made.confusion.counts.tolist() == [[0, 1, 1], [0, 3, 0], [0, 1, 2]]
    assert made.label_scores["PER"].true_positives == 1
    assert made.label_scores["PER"].predicted == made.label_scores["PER"].support == 2
    assert made.calibration.count == 8
    unread = [replace(one, scores=(0.0,) * len(one.words)) for one in predictions]
    assert said(model, examples, unread, "tag", scheme="IOB2").calibration is None


def test_plain_tags_are_told_word_by_word():
    model = tagger(labels=("NOUN", "VERB"))
    examples = [sentence("a b c", "NOUN NOUN VERB"), sentence("d", "VERB")]
    made = evaluate(model, examples)
    assert set(made.scores) == {"accuracy", "f1_macro"}
    assert made.severity == "wrong words"
    wrong = [
        sum(a != b for a, b in zip(example.tags, one.tags, strict=True))
        for example, one in zip(examples, made.predictions, strict=True)
    ]
    weights = {one.number: one.severity for one in made.errors}
    assert weights == {n: float(count) for n, count in enumerate(wrong) if count}
    for one in made.errors:  # the same words on both sides
        assert [pair.split()[0] for pair in one.gold.split(" · ")] == [
            pair.split()[0] for pair in one.predicted.split(" · ")
        ]


def question(text, answers, line=1, context="the cat sat"):
    found = tuple(Answer(text=one, start=context.index(one)) for one in answers)
    origin = Origin(file="q.json", line=line, id=f"q{line}")
    return QuestionExample(question=text, context=context, answers=found, origin=origin)


def answered(text, probability):
    return AnswerResult(
        question="",
        context="",
        text=text,
        start=0,
        end=0,
        logit=1.0,
        probability=probability,
        candidates=(),
        no_answer_margin=0.0,
    )


def test_answers_that_share_nothing_come_first():
    model = tiny_model("span", task=Task(name="answer", truncation="window", allow_no_answer=True))
    examples = [
        question("a", ["cat"], 1),
        question("b", ["the cat", "cat"], 2),
        question("c", [], 3),
        question("d", ["sat"], 4),
    ]
    predictions = [
        answered("sat", 0.4),
        answered("cat sat", 0.9),
        answered("cat", 0.8),
        answered("", 0.3),
    ]
    made = said(model, examples, predictions, "answer")
    assert [(one.number, one.gold, one.predicted) for one in made.worst_errors()] == [
        (2, "(no answer)", "cat"),
        (0, "cat", "sat"),
        (3, "sat", "(no answer)"),
    ]
    assert made.calibration.count == 4
    assert "no_answer_accuracy" in made.scores
    assert evaluate(model, examples).count == 4


def test_choices():
    model = tiny_model("choice", labels=("LABEL_0",), task=Task(name="choose"))
    examples = [
        ChoiceExample(text="a b", question="c", options=("d", "e"), label=n % 2) for n in range(4)
    ]
    told = [
        Choice(context="a b", options=one.options, option=1, text="e", score=0.7, scores=(0.3, 0.7))
        for one in examples
    ]
    made = said(model, examples, told, "choose")
    assert [(one.number, one.gold, one.predicted) for one in made.worst_errors()] == [
        (0, "d", "e"),
        (2, "d", "e"),
    ]
    assert made.worst_errors()[0].text == "a b | c"
    assert evaluate(model, examples).scores == {"accuracy": 0.5}
    assert made.confusion is None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "no"), ("b", "maybe")], ("dev.tsv:3", "maybe")),
        ([("a", "no"), ("b", "yess")], "yes"),
        ([("a", "no"), ("b", "")], "dev.tsv:3"),
        ([("a", "no"), ("b", "yes", "c")], "dev.tsv:3"),
    ],
)
def test_a_bad_row_is_named_or_passed_over(tmp_path, rows, message):
    file = table(tmp_path / "dev.tsv", [*rows, ("c", "yes")])
    with raises(InputError, message):
        evaluate(classifier(), file)
    made = evaluate(classifier(), file, skip_bad=True)
    assert [example.text for example in made.examples] == ["a", "c"]
    assert len(made.predictions) == 2
    assert len(made.skipped) == 1
    for part in [message] if isinstance(message, str) else message:
        assert part in str(made.skipped[0])
    assert "1 rows skipped" in made.page().html()


def test_long_rows_are_truncated_with_one_warning_or_an_error(tmp_path):
    file = table(tmp_path / "dev.tsv", [("a", "no"), ("a " * 40, "yes"), ("b " * 40, "yes")])
    with pytest.warns(TruncationWarning) as told:
        made = evaluate(classifier(), file)
    (warning,) = told
    assert "2 of 3 examples" in str(warning.message)
    assert warning.filename == __file__
    assert made.to_dict()["truncated"] == 2
    with pytest.warns(TruncationWarning) as told:
        cloze.compare({"a": classifier(), "b": classifier()}, file, resamples=5)
    assert len(told) == 1
    with raises(InputError, "dev.tsv:3"):
        evaluate(classifier(), file, truncation="error")
    made = evaluate(classifier(), file, truncation="error", skip_bad=True)
    assert [error.problem.split(": ")[0] for error in made.skipped] == [
        f"{file}:3",
        f"{file}:4",
    ]


def test_mistakes_in_asking():
    model = classifier()
    with raises(InputError, "head", "sequence"):
        evaluate(replace(model, task=None), texts())
    with raises(InputError, "tag", "TextExample"):
        evaluate(tagger(), texts())
    with raises(InputError, "classify"):
        read_labelled(model, "x.tsv", tag_column="3")
    with raises(InputError, "example 3", "label"):
        evaluate(model, [replace(texts()[0], label=None, origin=Origin(line=3))])
    with raises(InputError, "examples"):
        evaluate(model, [replace(texts()[0], label="maybe")], skip_bad=True)
    with raises(InputError, "f.tsv:1"):
        evaluate(model, texts(), swap=True)


def test_what_a_policy_cuts_is_counted():
    long = replace(texts()[0], text="a " * 40)
    made = evaluate(classifier(), [long, texts()[1]], truncation="head")
    assert made.num_truncated == 1
    assert "1 truncated" in made.page().html()
    assert evaluate(classifier(), [long, texts()[1]], truncation="window").num_truncated == 0


def test_pairs_the_other_way_round():
    model, examples = classifier(), texts(pairs=True)
    made = evaluate(model, examples, swap=True)
    turned = cloze.classify(model, [e.pair for e in examples], [e.text for e in examples])
    same = [a.label == b.label for a, b in zip(made.predictions, turned, strict=True)]
    gaps = [abs(a.score - b.scores[a.label]) for a, b in zip(made.predictions, turned, strict=True)]
    assert made.swapped.agreement == np.mean(same)
    assert math.isclose(made.swapped.difference, np.mean(gaps), abs_tol=1e-7)
    right = [b.label == e.label for b, e in zip(turned, examples, strict=True)]
    assert made.swapped.scores["accuracy"] == np.mean(right)
    assert "after swapping" in made.page().html()
    alike = [replace(one, pair=one.text) for one in examples]
    assert evaluate(model, alike, swap=True).swapped.difference == 0
    numbers = classifier(problem="regression", labels=("LABEL_0",))
    made = evaluate(numbers, [replace(e, label=float(n)) for n, e in enumerate(alike)], swap=True)
    assert made.swapped.agreement is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"beam": 2}, "beam"),
        ({"bleu": "13a"}, "bleu"),
        ({"tag_column": 2}, "tag_column"),
        ({"chinese": True}, "CMRC"),
    ],
)
def test_what_changes_nothing_is_refused(options, problem):
    with raises(InputError, problem):
        evaluate(classifier(), texts(), **options)


def test_chinese_contexts_are_scored_by_their_own_rules():
    model = tiny_model("span", task=Task(name="answer", truncation="window"))
    chinese = [question("猫", ["猫"], context="猫猫猫猫 a")]
    assert evaluate(model, chinese).chinese
    assert not evaluate(model, chinese, chinese=False).chinese
    assert not evaluate(model, [question("a", ["cat"], context="the cat 猫")]).chinese
    assert not evaluate(classifier(), texts()).chinese


def test_the_page_and_the_data(tmp_path):
    examples = texts(pairs=True)
    examples[0] = replace(examples[0], text="<script>alert(1)</script>")
    made = evaluate(classifier(), examples, swap=True)
    page = made.save(tmp_path / "p.html", title="How it did").read_text(encoding="utf-8")
    for part in ("How it did", "Confusion matrix", "Reliability", "Worst errors", "by label"):
        assert part in page
    assert "<script>alert(1)" not in page
    assert "<iframe" in made._repr_html_()
    found = json.loads(json.dumps(made.to_dict()))
    assert found["scores"] == made.scores
    assert found["confusion"]["labels"] == ["no", "yes"]
    assert sum(map(sum, found["confusion"]["counts"])) == 8
    assert found["labels"]["yes"]["f1"] == made.label_scores["yes"].f1
    assert found["swapped"]["agreement"] == made.swapped.agreement
    tags = evaluate(tagger(), [sentence("a b c", "B-PER I-PER O")])
    assert "3 words" in tags.page().html()


def test_many_labels_have_no_matrix_to_look_at():
    labels = tuple(f"l{n}" for n in range(41))
    examples = [replace(one, label=f"l{n}") for n, one in enumerate(texts())]
    made = evaluate(classifier(labels=labels), examples)
    assert made.confusion.counts.shape == (41, 41)
    assert "Confusion matrix" not in made.page().html()


def test_shortened():
    assert shorten("a  b\nc", 9) == "a b c"
    assert shorten("abcdef", 4) == "abc…"


def test_the_baseline_of_several_labels_is_the_best_constant_prediction():
    several = tiny_model(
        "sequence",
        labels=("a", "b", "c"),
        problem="multi_label_classification",
        task=Task(name="classify"),
    )
    rows = [{"text": "a", "label": label} for label in (["a", "b"], ["a"], ["b", "a"], [])]
    # a and b for all: 5 of 8 are right, and all 5 labels are found
    assert cloze.evaluate(several, rows).baseline == {"majority_baseline": pytest.approx(10 / 13)}


def test_a_result_names_the_model(tmp_path):
    model = classifier()
    assert evaluate(model, texts()).model == "bert"
    assert set(evaluate(model, texts(), name="mine").to_pandas()["model"]) == {"mine"}
    folder = model.save(tmp_path / "m")
    assert set(evaluate(cloze.load(folder), texts()).to_pandas()["model"]) == {str(folder)}
