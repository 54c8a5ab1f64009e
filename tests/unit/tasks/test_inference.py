"""What the functions of fine-tuned models share: logits of items, labels, bad examples."""

import pytest
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.checkpoint.modules import build_feature_head
from cloze.checkpoint.task import FeatureSettings, Task
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.examples import Origin, label_index
from cloze.errors import ConfigError, InputError
from cloze.models.configs.bert import BertConfig
from cloze.tasks.inference import compute_logits, resolve_task
from cloze.tasks.inputs import predict_each
from helpers import PIECES, Mentions, raises, tiny_model, tiny_tokenizer


def items_of(model, texts, places=(0,)):
    encodings = model.tokenizer.encode_batch(texts)
    return [
        EncodedExample(ids=one.ids, type_ids=one.type_ids, positions=places) for one in encodings
    ]


def alone(model, item, head):
    with torch.no_grad():
        vectors = model.module(torch.tensor([item.ids]), None, torch.tensor([item.type_ids]))
        return model.module.logits(head, vectors[0, list(item.positions)])


@pytest.mark.parametrize("batch_tokens", [1, 9, None])
def test_packed_scores_are_those_of_each_alone_and_in_order(batch_tokens):
    model = tiny_model("token", labels="abc")
    texts = ["the cat sat .", "a", "the cat", "", "a b c d e f", "b"]
    items = items_of(model, texts, places=(1, 0))
    done = []
    found = compute_logits(
        model,
        items,
        head="token",
        batch_tokens=batch_tokens,
        progress=lambda *both: done.append(both),
    )
    for item, scores in zip(items, found, strict=True):
        assert scores.shape == (2, 3)
        torch.testing.assert_close(scores, alone(model, item, "token"), atol=1e-5, rtol=1e-5)
    assert done[-1] == ("sequences", 6, 6)


def test_an_item_without_places_has_no_scores():
    model = tiny_model("token", labels="abc")
    first, second = compute_logits(
        model, [*items_of(model, ["a"], places=()), *items_of(model, ["b"])], head="token"
    )
    assert first.shape == (0, 3)
    assert second.shape == (1, 3)
    assert compute_logits(model, [], head="token") == []


def test_in_the_midst_of_training_nothing_is_dropped_and_training_goes_on():
    model = tiny_model("sequence")
    items = items_of(model, ["the cat sat"])
    (expected,) = compute_logits(model, items, head="sequence")
    model.module.train()
    (found,) = compute_logits(model, items, head="sequence")
    assert torch.equal(found, expected)
    assert model.module.training


def test_a_feature_head_instead_of_a_task_head():
    spec = FeatureSettings(input_size=32, layers="1,2", pooling="mean")
    task = Task(name="classify", features=spec)
    model = tiny_model(task=task)
    head = build_feature_head(spec, 2).train()
    model = type(model)(
        module=model.module,
        tokenizer=model.tokenizer,
        config=model.config,
        task=task,
        feature_head=head,
    )
    items = items_of(model, ["the cat sat", "a"])
    found = compute_logits(model, items, head="sequence")
    for item, scores in zip(items, found, strict=True):
        layers = list(model.module.hidden_states(torch.tensor([item.ids])))
        vector = torch.cat([layers[1], layers[2]], -1).mean(1)
        torch.testing.assert_close(scores, head(vector, [1]).detach(), atol=1e-5, rtol=1e-5)
    assert head.training
    assert resolve_task("classify", model) == task
    with raises(InputError, "tag", "no token head", fix="classify"):
        resolve_task("tag", model)


def test_batch_tokens_out_of_range():
    model = tiny_model("sequence")
    with raises(ConfigError, "batch_tokens", "-1"):
        compute_logits(model, items_of(model, ["a"]), head="sequence", batch_tokens=-1)


def test_the_task_of_a_model():
    own = Task(name="classify", truncation="tail")
    assert resolve_task("classify", tiny_model("sequence", task=own)) == own
    assert resolve_task("classify", tiny_model("sequence")) == Task(name="classify")
    assert resolve_task("answer", tiny_model("span")).truncation_strategy == "window"
    assert resolve_task("tag", tiny_model("sequence", "token", task=own)) == Task(name="tag")
    given = Task(name="classify", truncation="head")
    assert resolve_task("classify", tiny_model("sequence", task=own), given) == given


def test_what_a_model_cannot_do():
    with raises(InputError, "tag", "head", "sequence", fix="classify"):
        resolve_task("tag", tiny_model("sequence"))
    with raises(InputError, "answer", "no span head", fix="finetune answer"):
        resolve_task("answer", tiny_model())
    with raises(InputError, "choose", "mlm", fix="finetune choose"):
        resolve_task("choose", tiny_model("mlm"))


def test_a_label_that_is_not_there():
    model = tiny_model("token", labels=("O", "B-PER", "I-PER", "B-LOC"))
    assert label_index(model.labels, "B-LOC", Origin()) == 3
    with raises(InputError, "x.tsv:7", "B-PRE", fix="B-PER") as error:
        label_index(model.labels, "B-PRE", Origin(file="x.tsv", line=7))
    assert error.value.fix == Mentions("B-PER")
    with raises(InputError, "example 2", "zzzz", fix=("'O'", "'B-PER'", "'I-PER'", "'B-LOC'")):
        label_index(model.labels, "zzzz", Origin(line=2))
    many = tiny_model("sequence", labels=[f"k{n:04}" for n in range(50)])
    with raises(InputError, fix=("k0005", "50")):
        label_index(many.labels, "?", Origin())


def test_bad_examples_do_not_stop_the_others():
    asked = []

    def predict(numbers):
        asked.append(len(numbers))
        if any(number % 7 == 3 for number in numbers):
            raise InputError("a bad one", fix="none")
        return [number * 10 for number in numbers]

    found = list(predict_each(predict, iter(range(20)), chunk=8))
    assert [example for example, _ in found] == list(range(20))
    for example, outcome in found:
        assert isinstance(outcome, InputError) if example % 7 == 3 else outcome == example * 10
    assert max(asked) == 8
    assert list(predict_each(predict, [])) == []


@pytest.mark.parametrize(
    ("head", "verb"),
    [
        ("sequence", lambda model: cloze.classify(model, ["a", "b"], ["c", "d"])),
        ("span", lambda model: cloze.answer(model, "a", "b c")),
        ("choice", lambda model: cloze.choose(model, "a", ["b", "c"])),
    ],
)
def test_a_pair_for_a_model_of_one_segment(head, verb):
    shape = {
        "hidden_size": 16,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_size": 32,
        "max_positions": 24,
        "type_vocab_size": 1,
    }
    config = BertConfig(vocab_size=len(PIECES), **shape)
    model = Model.from_config(config, tiny_tokenizer(), [head], rng=torch.Generator())
    with raises(ConfigError, "1", "pair", fix="type_vocab_size"):
        verb(model)
    if head == "sequence":
        assert len(cloze.classify(model, ["a", "b"])) == 2
