"""`classify`: labels, numbers, pairs, long texts, errors of users."""

from dataclasses import replace

import pytest
import torch

import cloze
from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import Origin, TextExample
from cloze.errors import ConfigError, InputError, TruncationWarning
from cloze.interop.sentence_transformers import Pooling
from cloze.tasks.classify import encode_examples, predict
from cloze.tasks.inference import compute_logits
from helpers import raises, tiny_model

LONG = "a b c d e f g h i j " * 4  # 42 tokens, the models have 24


@pytest.fixture(scope="module")
def model():
    return tiny_model("sequence", labels=("bad", "fair", "good"))


def test_probabilities_sum_to_one_and_the_best_is_first(model):
    found = cloze.classify(model, "the cat sat .")
    assert sum(found.scores.values()) == pytest.approx(1.0, abs=1e-6)
    assert set(found.scores) == {"bad", "fair", "good"}
    assert list(found.scores.values()) == sorted(found.scores.values(), reverse=True)
    assert (found.label, found.score) == next(iter(found.scores.items()))
    assert found.truncated_chars == 0


def test_a_list_is_each_of_its_texts(model):
    texts = ["the cat", "", "a b c d e f", "猫", "the cat"]
    many = cloze.classify(model, texts)
    assert len(many) == len(texts)
    for found, text in zip(many, texts, strict=True):
        one = cloze.classify(model, text)
        assert found.label == one.label
        assert found.scores == pytest.approx(one.scores, abs=1e-6)
    assert cloze.classify(model, []) == []


def test_a_pair_is_read_in_order(model):
    one, other = (
        cloze.classify(model, "the cat", "a b c"),
        cloze.classify(model, "a b c", "the cat"),
    )
    assert one.scores != pytest.approx(other.scores, abs=1e-4)
    (both,) = cloze.classify(model, ["the cat"], ["a b c"])
    assert both.scores == pytest.approx(one.scores, abs=1e-6)
    (item,) = encode_examples(model, [TextExample(text="the", pair="cat")], Task(name="classify"))[
        0
    ]
    encoding = model.tokenizer.encode("the", "cat")
    assert item.ids == encoding.ids
    assert item.type_ids == encoding.type_ids == [0, 0, 0, 1, 1]


def test_with_and_without_pair_side_by_side(model):
    examples = [TextExample(text="a"), TextExample(text="a", pair="b"), TextExample(text="b")]
    found = predict(model, examples)
    for one, example in zip(found, examples, strict=True):
        alone = cloze.classify(model, example.text, example.pair)
        assert one.scores == pytest.approx(alone.scores, abs=1e-6)


def test_a_number():
    model = tiny_model("sequence", labels=("score",), problem="regression")
    found = cloze.classify(model, "the cat")
    group = encode_examples(model, [TextExample(text="the cat")], Task(name="classify"))
    (expected,) = compute_logits(model, group[0], head="sequence")
    assert found.score == pytest.approx(expected.item())
    assert found.scores == {"score": found.score}


@pytest.mark.parametrize(("labels", "problem"), [("ab", "multi_label_classification"), ("a", None)])
def test_labels_each_for_itself(labels, problem):
    model = tiny_model("sequence", labels=labels, problem=problem)
    group = encode_examples(model, [TextExample(text="the cat", label="a")], Task(name="classify"))
    (raw,) = compute_logits(model, group[0], head="sequence")
    chances = dict(zip(labels, raw[0].sigmoid().tolist(), strict=True))
    assert cloze.classify(model, "the cat").scores == pytest.approx(chances)


@pytest.mark.parametrize("policy", ["head", "tail", "head+tail"])
def test_long_texts_are_cut_and_it_is_said(model, policy):
    found = cloze.classify(model, ["a", LONG], truncation=policy)
    left_out = len(" ".join(LONG.split()[:18]))
    assert [one.truncated_chars for one in found] == [0, left_out]
    (item,) = encode_examples(
        model, [TextExample(text=LONG)], Task(name="classify", truncation=policy)
    )[0]
    assert item.ids == model.tokenizer.encode(LONG, max_length=24, truncation=policy).ids


def test_windows_count_by_their_mean_score(model):
    task = Task(name="classify", truncation="window", overlap=4)
    (group,) = encode_examples(model, [TextExample(text=LONG, label="fair")], task)
    windows = model.tokenizer.encode_windows(LONG, max_length=24, overlap=4)
    assert [item.ids for item in group] == [window.ids for window in windows]
    assert [item.targets for item in group] == [(1,)] * len(group)
    mean = torch.cat(compute_logits(model, group, head="sequence")).mean(0).softmax(-1)
    found = cloze.classify(model, LONG, truncation="window", overlap=4)
    assert found.truncated_chars == 0
    assert [found.scores[label] for label in model.labels] == pytest.approx(mean.tolist())


def test_windows_of_a_pair_share_a_quarter_of_what_slides_by(model):
    (group,) = encode_examples(
        model, [TextExample(text="the cat", pair=LONG)], Task(name="classify", truncation="window")
    )
    windows = model.tokenizer.encode_windows(
        "the cat", LONG, max_length=24, overlap=(24 - 2 - 3) // 4
    )
    assert [item.ids for item in group] == [window.ids for window in windows]


def test_long_text_is_truncated_with_one_warning(model):
    with pytest.warns(TruncationWarning) as told:
        found = cloze.classify(model, ["a", LONG, LONG])
    assert [one.truncated_chars for one in found] == [0, 35, 35]
    expected = cloze.classify(model, LONG, truncation="head").scores
    assert found[1].scores == pytest.approx(expected, abs=1e-6)
    (warning,) = told
    assert "2 of 3 texts" in str(warning.message)
    assert "24 tokens" in str(warning.message)
    assert "70 characters" in str(warning.message)
    assert warning.filename == __file__  # the caller's line, not one of cloze
    own = tiny_model("sequence", task=Task(name="classify", truncation="tail"))
    with pytest.warns(TruncationWarning):
        found = cloze.classify(own, LONG)  # the folder's own policy
    assert found.scores == cloze.classify(own, LONG, truncation="tail").scores


def test_too_long_a_text_is_an_error_on_request(model):
    with raises(InputError, "example 2", "42", "24"):
        cloze.classify(model, ["a", LONG], truncation="error")
    strict = tiny_model("sequence", task=Task(name="classify", truncation="error"))
    with raises(InputError, "example 1", "42", "24"):
        cloze.classify(strict, LONG)
    with raises(ConfigError, "cut", "head+tail"):
        cloze.classify(model, "a", truncation="cut")
    with raises(InputError, "x:3", "22", "30"):
        predict(
            model,
            [TextExample(text=LONG, origin=Origin(file="x", line=3))],
            task=Task(name="classify", truncation="window", overlap=30),
        )


def test_a_folder_that_sets_a_limit_cuts_by_itself(model):
    limited = replace(model, pooling=Pooling(modes=("mean",), max_seq_length=10))
    with pytest.warns(TruncationWarning, match="maximum of 10 tokens"):
        found = cloze.classify(limited, LONG)
    assert found.truncated_chars == len(" ".join(LONG.split()[8:]))
    start = cloze.classify(model, "a b c d e f g h")
    assert found.scores == pytest.approx(start.scores, abs=1e-6)


def test_targets(model):
    examples = [TextExample(text="a", label="good"), TextExample(text="b")]
    assert [g[0].targets for g in encode_examples(model, examples, Task(name="classify"))] == [
        (2,),
        (),
    ]
    assert [g[0].example for g in encode_examples(model, examples, Task(name="classify"))] == [0, 1]
    digits = tiny_model("sequence", labels=("0", "1"))
    ((item,),) = encode_examples(digits, [TextExample(text="a", label=1.0)], Task(name="classify"))
    assert item.targets == (1,)
    number = tiny_model("sequence", labels=("n",), problem="regression")
    for label in (2.5, "2.5"):
        ((item,),) = encode_examples(
            number, [TextExample(text="a", label=label)], Task(name="classify")
        )
        assert item.targets == (2.5,)


def test_labels_that_do_not_fit(model):
    where = Origin(file="dev.tsv", line=4)
    with raises(InputError, "dev.tsv:4", "godo", fix="good"):
        predict(model, [TextExample(text="a", label="godo", origin=where)])
    number = tiny_model("sequence", labels=("n",), problem="regression")
    for label in ("high", "nan", float("inf")):
        with raises(InputError, "dev.tsv:4"):
            predict(number, [TextExample(text="a", label=label, origin=where)])


@pytest.mark.parametrize(
    ("text", "pair"), [(["a", "b"], ["c"]), (["a", "b"], "c"), (["a"], "c"), ("a", ["c"])]
)
def test_texts_and_pairs_that_do_not_match(model, text, pair):
    with raises(InputError, "texts", "pair", fix="pair"):
        cloze.classify(model, text, pair)


def test_another_head():
    with raises(InputError, "classify", "head", "token", fix="tag"):
        cloze.classify(tiny_model("token"), "a")


def test_a_model_of_pairs_tells_whether_one_text_follows():
    model = tiny_model("mlm", "nsp", labels=("zero", "one", "two"), problem="regression")
    pairs = ["a b c", "the cat", LONG]
    found = cloze.classify(model, ["the cat", "a", "b"], pairs, truncation="head")
    for one in found:
        assert set(one.scores) == {"next", "not next"}
        assert sum(one.scores.values()) == pytest.approx(1.0, abs=1e-6)
    assert [one.truncated_chars > 0 for one in found] == [False, False, True]
    where = Origin(file="pairs.tsv", line=3)
    with raises(InputError, "pairs.tsv:3", fix="--pair"):
        predict(model, [TextExample(text="a", pair="b"), TextExample(text="c", origin=where)])
    with raises(InputError, "labels"):
        cloze.classify(model, "a")


def test_labels_of_its_own_come_first():
    both = tiny_model("sequence", "nsp")
    assert set(cloze.classify(both, "a", "b").scores) == {"no", "yes"}
    assert cloze.classify(both, "a").label in ("no", "yes")
