"""Functions read data frames, data sets and mappings as they read lists of texts."""

import numpy as np
import pytest

import cloze
from cloze.errors import InputError
from helpers import raises, tiny_model

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
datasets = pytest.importorskip("datasets")

TEXTS = ["the cat", "a b c", "the cat sat ."]
PAIRS = ["sat", "d e", "f"]


def tables(**columns):
    """The same columns in every kind of table."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [
        pandas.DataFrame(columns),
        polars.DataFrame(columns),
        datasets.Dataset.from_dict(columns),
        columns,
        rows,
        tuple(rows),
    ]


def columns_of(texts):
    """The same texts in every kind of column."""
    return [pandas.Series(texts), polars.Series(texts), np.array(texts), tuple(texts), iter(texts)]


@pytest.fixture(scope="module")
def classifier():
    return tiny_model("sequence", labels=("bad", "fair", "good"))


def test_texts_of_a_table_are_classified_as_in_a_list(classifier):
    want = cloze.classify(classifier, TEXTS)
    for table in tables(number=[1, 2, 3], sentence=TEXTS):
        assert cloze.classify(classifier, table) == want, type(table)
    for column in columns_of(TEXTS):
        assert cloze.classify(classifier, column) == want, type(column)
    for table in tables(one=TEXTS, other=PAIRS):
        assert cloze.classify(classifier, table, text_column="one") == want
        assert cloze.classify(classifier, table, text_column=1) == want


def test_pairs_of_a_table_are_found_as_in_training(classifier):
    want = cloze.classify(classifier, TEXTS, PAIRS)
    for table in tables(premise=TEXTS, hypothesis=PAIRS, label=["x"] * 3):
        assert cloze.classify(classifier, table) == want, type(table)
    for table in tables(one=TEXTS, other=PAIRS):
        assert cloze.classify(classifier, table, text_column="one", pair_column="other") == want


def test_other_functions_read_tables():
    encoder = filler = tiny_model("mlm")
    masked = ["the [MASK] sat", "a [MASK]"]
    tagger, chooser = tiny_model("token", labels=("O", "B-X")), tiny_model("choice")
    answerer = tiny_model("span", labels=("0", "1"))
    options = [["a", "b"], ["c", "d"], ["e", "f"]]
    for table in tables(text=TEXTS, label=[1, 2, 3]):
        assert np.array_equal(cloze.embed(encoder, table), cloze.embed(encoder, TEXTS))
        assert cloze.score(filler, table, text_column="text") == cloze.score(filler, TEXTS)
        assert cloze.tag(tagger, table) == cloze.tag(tagger, TEXTS)
    for table in tables(words=masked):
        assert cloze.fill(filler, table) == cloze.fill(filler, masked)
    for table in tables(question=PAIRS, context=TEXTS):
        assert cloze.answer(answerer, table) == cloze.answer(answerer, PAIRS, TEXTS)
    for table in tables(text=TEXTS, options=options, label=[0, 1, 0]):
        assert cloze.choose(chooser, table) == cloze.choose(chooser, TEXTS, options)


def test_errors_name_the_row_and_the_column(classifier):
    frame = pandas.DataFrame({"review": ["a", None], "stars": [1, 2]})
    with raises(InputError, "<DataFrame>:2", "review"):
        cloze.classify(classifier, frame)
    with raises(InputError, "<DataFrame>:1", "stars", fix="text_column="):
        cloze.embed(classifier, frame.rename(columns={"review": "opinion"}))
    with raises(InputError, "<DataFrame>:1", "revue", fix="review"):
        cloze.embed(classifier, frame, text_column="revue")
    with raises(InputError, "text_column", fix="text_column"):
        cloze.embed(classifier, ["a"], text_column="text")
    with raises(InputError, "DatasetDict", fix="data['train']"):
        cloze.embed(classifier, datasets.DatasetDict(train=datasets.Dataset.from_dict({"a": []})))
    with raises(InputError, "context"):
        cloze.answer(tiny_model("span", labels=("0", "1")), "the?")
    with raises(InputError, "context"):
        cloze.answer(tiny_model("span", labels=("0", "1")), ["the?"])
