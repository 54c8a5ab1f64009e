"""Where `finetune` takes labelled data from, beside files: rows in Python, data sets, pipes."""

import io
import sys
from dataclasses import replace

import pandas as pd
import pytest

import cloze
from cloze.config import read_toml
from cloze.data.labelled.examples import UNKNOWN_ORIGIN
from cloze.errors import ClozeError, InputError
from cloze.make.finetune.labelled import read_labelled_data
from cloze.make.recipe.complete import complete_finetuning
from cloze.make.resume import resume
from cloze.make.sources import UNNAMED
from cloze.models.configs.bert import BertConfig
from helpers import raises
from translators import TEXTS
from tunings import FAST, body, picks, questions, tagged, texts, tune

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return body(BertConfig).save(tmp_path_factory.mktemp("models") / "base")


def rows_of(task, count=20):
    """The same examples as data sets on the hub have them."""
    if task == "classify":
        return [{"sentence": one.text, "label": one.label, "idx": 1} for one in texts(count)]
    if task == "tag":
        return [
            {"tokens": [one.text[a:b] for a, b in one.words], "ner_tags": list(one.tags)}
            for one in tagged(count)
        ]
    if task == "choose":
        return [
            {"context": one.text, "endings": list(one.options), "label": one.label}
            for one in picks(count)
        ]
    return [
        {
            "question": one.question,
            "context": one.context,
            "answers": {
                "text": [answer.text for answer in one.answers],
                "answer_start": [answer.start for answer in one.answers],
            },
        }
        for one in questions(count)
    ]


EXAMPLES = {"classify": texts, "tag": tagged, "answer": questions, "choose": picks}


class Given:
    """A data set of which one knows that it can be walked through, and its classes."""

    def __init__(self, rows, **features):
        self.rows = rows
        self.features = features

    def __iter__(self):
        return iter(self.rows)


class Classes:
    names = ("no", "yes")


def numbered(rows):
    return [row | {"label": Classes.names.index(row["label"])} for row in rows]


@pytest.mark.parametrize("task", EXAMPLES)
def test_rows_are_read_for_every_task(task):
    recipe = complete_finetuning(settings=[f"task={task}"])
    rows, wanted = rows_of(task), EXAMPLES[task](20)
    blank = {"origin": UNKNOWN_ORIGIN, **({"document": 0} if task == "tag" else {})}
    given = [rows, tuple(rows), iter(rows), Given(rows), [Given(rows)], [iter(rows)]]
    if task == "classify":
        given.append(Given(numbered(rows), label=Classes))
    for source in given:
        made = read_labelled_data(recipe, source, rows)
        assert [replace(one, **blank) for one in made.train] == [
            replace(one, **blank) for one in wanted
        ]
        assert len(made.dev) == 20
        assert not made.held_out
    with raises(InputError, "<list>:2"):
        read_labelled_data(recipe, [rows[0], "no row"], ())
    lenient = complete_finetuning(settings=[f"task={task}", "data.skip_bad=true"])
    assert read_labelled_data(lenient, [*rows, "no row"], rows).skipped == 1


def test_one_is_told_as_one():
    recipe = complete_finetuning(settings=["task=tag", "data.skip_bad=true"])
    row = {"tokens": ["a"], "tags": ["NOUN"]}
    told = read_labelled_data(recipe, [row, "no row"], [row]).describe()
    assert told == "1 training example, 1 dev example, 1 label, 1 row skipped"


def test_classes_of_a_data_set_have_names():
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=list(Classes.names))
    rows = numbered(rows_of("classify"))
    data = datasets.Dataset.from_list(rows).cast_column("label", names)
    recipe = complete_finetuning(settings=["task=classify"])
    for source in (data, data.to_iterable_dataset(), [data]):
        made = read_labelled_data(recipe, source, data)
        assert [one.label for one in made.train] == [one.label for one in texts(20)]
        assert str(made.dev[0].origin) == "dev, row 1"
    with raises(InputError, "DatasetDict", fix="train"):
        read_labelled_data(recipe, datasets.DatasetDict(train=data), ())


def test_a_run_from_a_data_set(base, tmp_path):
    rows = rows_of("classify", 40)
    options = {"settings": [s for s in FAST if "epochs" not in s] + ["run.steps=2"]}
    cloze.finetune("classify", base, Given(rows), tmp_path / "a", dev=iter(rows[:9]), **options)
    cloze.finetune("classify", base, texts(40), tmp_path / "b", dev=texts(40)[:9], **options)
    ours, theirs = (tmp_path / name / WEIGHTS for name in "ab")
    assert ours.read_bytes() == theirs.read_bytes()
    data = read_toml(tmp_path / "a" / "recipe.toml")["data"]
    assert data["train"] == data["dev"] == [UNNAMED]
    with raises(InputError, "Python"):
        cloze.resume(tmp_path / "a")


def table(count=160):
    lines = [f"{one.text}\t{one.label}\n" for one in texts(count)]
    return ("sentence\tlabel\n" + "".join(lines)).encode()


@pytest.fixture
def pipe(monkeypatch):
    def fill(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return fill


def test_a_run_from_standard_input_goes_on_with_the_same_piped_in_again(base, tmp_path, pipe):
    (tmp_path / "train.tsv").write_bytes(table())
    whole, out = tmp_path / "whole", tmp_path / "m"
    several = ("run.seeds=2", "run.steps=4")
    tune(base, whole, *several, train=tmp_path / "train.tsv", dev=[])
    pipe(table())
    tune(base, out, *several, train="-", dev=[])
    assert (out / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    assert read_toml(out / "recipe.toml")["data"]["train"] == ["-"]

    pipe(table())
    tune(base, tmp_path / "one", "run.steps=4", train="-", dev=[])
    pipe(table())
    assert resume(tmp_path / "one").steps == 4
    pipe(table(150))
    with raises(ClozeError, "run", "data"):
        resume(tmp_path / "one")


def test_standard_input_that_cannot_be_read_is_told(base, tmp_path, pipe, monkeypatch):
    pipe(table())
    with raises(InputError, "standard input", "twice"):
        tune(base, tmp_path / "m", train="-", dev="-")
    with raises(InputError, "standard input", "twice"):
        cloze.finetune("translate", None, ["-", TEXTS], tmp_path / "m", dev=["-", TEXTS])
    assert not (tmp_path / "m").exists()
    tune(base, tmp_path / "m", "run.steps=1", train="-", dev=[])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    with raises(InputError, "pipe", fix="pipe"):
        resume(tmp_path / "m")


def test_tables_in_python_are_trained_on(tmp_path):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    examples = texts(40)
    rows = {"text": [one.text for one in examples], "label": [one.label for one in examples]}
    frame = pandas.DataFrame(rows)
    renamed = frame.rename(columns={"text": "words", "label": "class_"})
    columns = {"text_column": "words", "label_column": 2}
    sources = [frame, polars.DataFrame(rows), rows, (rows["text"], frame["label"].to_numpy())]
    found = []
    for number, (data, options) in enumerate([*((one, {}) for one in sources), (renamed, columns)]):
        out = tmp_path / str(number)
        result = cloze.finetune(
            "classify", body(BertConfig), data, out, dev=data, settings=FAST, epochs=1, **options
        )
        found.append((result.score, (out / "model.safetensors").read_bytes()))
        assert cloze.evaluate(out, data, **options).score == result.score
    assert found == [found[0]] * 5


def test_a_table_without_a_label_column_is_told_by_its_columns(base, tmp_path):
    frame = pd.DataFrame({"sentence": ["a b", "c d"], "y": ["yes", "no"]})
    with raises(InputError, "label column", "'sentence', 'y'", fix="label_column="):
        cloze.finetune("classify", base, frame, tmp_path / "m")
    same = {"text_column": "sentence", "label_column": "sentence"}
    with raises(InputError, "text column", "label column", "'sentence'", fix="'y'"):
        cloze.finetune("classify", base, frame, tmp_path / "m", **same)
    tuned = tune(base, tmp_path / "n", "run.steps=1").folder
    with raises(InputError, "label column", "'sentence', 'y'", fix="label_column="):
        cloze.evaluate(tuned, frame)


def test_a_label_for_nearly_every_row_is_the_wrong_column(base, tmp_path):
    sentences = [f"{number} {'long ' * 20}" for number in range(80)]
    frame = pd.DataFrame({"text": sentences, "label": sentences})
    with raises(InputError, "label column", "different labels", fix="label_column=") as caught:
        cloze.finetune("classify", base, frame, tmp_path / "m")
    assert len(str(caught.value)) < 400


def test_text_and_label_tuples_are_examples(base, tmp_path):
    recipe = complete_finetuning(task="classify")
    rows = [("a b", "yes"), ("c d", "no")]
    found = read_labelled_data(recipe, rows * 20, rows)
    assert [(one.text, one.label) for one in found.dev] == rows
    assert found.labels == ("no", "yes")
    pairs = [(("a", "b"), 1), (("c", "d"), 0)]
    found = read_labelled_data(recipe, pairs * 20, pairs)
    assert [(one.text, one.pair, one.label) for one in found.dev] == [
        ("a", "b", "1"),
        ("c", "d", "0"),
    ]
    with raises(InputError, "classify", fix=("(text, label)", "TextExample")):
        read_labelled_data(recipe, [("a b", "yes", 3)], ())


def test_errors_in_tables_say_which_and_which_row():
    recipe = complete_finetuning(task="classify")
    train = pd.DataFrame({"text": ["a", "b", "c"], "label": ["yes", "no", "no"]})
    with raises(InputError, "train, row 2"):
        read_labelled_data(recipe, train.assign(label=["yes", None, "no"]), ())
    with raises(InputError, "dev, row 3", "'maybe'"):
        read_labelled_data(recipe, train, train.assign(label=["yes", "no", "maybe"]))
    with raises(InputError, "dev", "table is empty", fix="rows"):
        read_labelled_data(recipe, train, train[:0])
