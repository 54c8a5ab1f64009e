"""`choose`: options, questions, errors of users."""

import pytest
import torch

import cloze
from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import ChoiceExample, Origin
from cloze.errors import InputError, TruncationWarning
from cloze.tasks.choose import encode_examples, predict
from helpers import raises, tiny_model

TASK = Task(name="choose")
LONG = "a b c d e f g h i j " * 4


@pytest.fixture(scope="module", params=["bert", "distilbert"])
def model(request):
    return tiny_model("choice", family=request.param)


def test_the_best_option_by_the_scores_of_all(model):
    options = ("the cat", "sat", "a b c")
    found = cloze.choose(model, "the cat sat", options)
    with torch.no_grad():
        scores = []
        for option in options:
            encoding = model.tokenizer.encode("the cat sat", option)
            ids, types = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
            vectors = model.module(ids, None, types)
            scores.append(model.module.logits("choice", vectors[:, 0])[0])
    chances = torch.cat(scores).softmax(-1)
    assert found.scores == pytest.approx(chances.tolist(), abs=1e-6)
    assert found.option == int(chances.argmax())
    assert found.text == options[found.option]
    assert found.score == max(found.scores)


def test_a_question_stands_before_the_option(model):
    example = ChoiceExample(text="the cat", question="a b", options=("c", "d"), label=1)
    ((first, second),) = encode_examples(model, [example], TASK)
    assert first.ids == model.tokenizer.encode("the cat", "a b c").ids
    assert second.ids == model.tokenizer.encode("the cat", "a b d").ids
    assert (first.targets, second.targets) == ((1,), ())
    unknown = ChoiceExample(text="the cat", options=("c", "d"))
    assert [item.targets for item in encode_examples(model, [unknown], TASK)[0]] == [(), ()]


def test_examples_with_different_numbers_of_options(model):
    examples = [
        ChoiceExample(text="a", options=("b", "c", "the cat sat")),
        ChoiceExample(text="the cat", options=("sat",)),
        ChoiceExample(text="", options=("", "a")),
    ]
    found = predict(model, examples)
    assert [len(one.scores) for one in found] == [3, 1, 2]
    for one, example in zip(found, examples, strict=True):
        alone = cloze.choose(model, example.text, example.options)
        assert one.scores == pytest.approx(alone.scores, abs=1e-6)
    assert predict(model, []) == []


def test_long_texts(model):
    with raises(InputError, "1: ", "45", fix="head+tail"):
        cloze.choose(model, LONG, ["the cat", "sat"], truncation="error")
    found = cloze.choose(model, LONG, ["the cat", "sat"], truncation="tail")
    assert found.truncated_chars == len(" ".join(LONG.split()[:21]))
    with pytest.warns(TruncationWarning, match="1 of 1 texts"):
        assert cloze.choose(model, LONG, ["the cat", "sat"]).truncated_chars > 0
    example = ChoiceExample(text=LONG, options=("the cat", "sat"))
    ((first, _),) = encode_examples(model, [example], Task(name="choose", truncation="tail"))
    assert (
        first.ids == model.tokenizer.encode(LONG, "the cat", max_length=24, truncation="tail").ids
    )
    with raises(InputError, "window", fix=("head", "tail", "head+tail")):
        cloze.choose(model, LONG, ["the cat", "sat"], truncation="window")


def test_mistakes(model):
    where = Origin(file="x.json", line=3)
    with raises(InputError, "x.json:3"):
        predict(model, [ChoiceExample(text="a", options=(), origin=where)])
    with raises(InputError, "x.json:3", "2", fix="0"):
        predict(model, [ChoiceExample(text="a", options=("b", "c"), label=2, origin=where)])
    with raises(InputError, "choose", "sequence", fix="classify"):
        cloze.choose(tiny_model("sequence"), "a", ["b", "c"])
