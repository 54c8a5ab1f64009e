"""`cloze.explain.saliency`: targets, values and figures of every kind of model."""

import json

import pytest
import torch

import cloze
from cloze.checkpoint.task import Task
from cloze.errors import ClozeError, InputError
from cloze.interpret.scores import Batch, HeadScore
from cloze.tasks.explain.inputs import encode_input
from cloze.tasks.explain.targets import make_batch, resolve_target
from helpers import raises, tiny_model
from languages import elmo_model, neural_model
from recurrent import recurrent_encoder
from translators import translator

saliency = cloze.explain.saliency


def check(view, *, targets):
    """The values of a view belong together."""
    data = view.to_dict()
    assert [one["name"] for one in data["targets"]] == targets
    for one in data["targets"]:
        assert len(one["saliency"]) == len(one["signed"]) == len(data["tokens"])
        assert sum(one["saliency"]) == pytest.approx(1, abs=1e-4)
        assert one["probability"] is None or 0 <= one["probability"] <= 1
    json.dumps(data)
    drawing = view.svg()
    assert all(token in drawing for token in data["tokens"] if token.isalnum())
    return data


def test_a_mask_is_explained_by_its_best_word():
    model = tiny_model("mlm")
    data = check(
        saliency(model, "a [MASK] c"),
        targets=[cloze.fill(model, "a [MASK] c").masks[0].predictions[0].word],
    )
    assert data["tokens"] == ["[CLS]", "a", "[MASK]", "c", "[SEP]"]
    assert data["targets"][0]["token"] == 2
    best = cloze.fill(model, "a [MASK] c").masks[0].predictions[0]
    assert data["targets"][0]["probability"] == pytest.approx(best.score, abs=1e-6)


def test_a_word_for_each_mask():
    model = tiny_model("mlm")
    data = check(saliency(model, "[MASK] b [MASK]", target=["cat", "##s"]), targets=["cat", "##s"])
    assert [one["token"] for one in data["targets"]] == [1, 3]
    one = check(saliency(model, "[MASK] b [MASK]", target="cat"), targets=["cat"])
    assert one["targets"][0]["signed"] == pytest.approx(data["targets"][0]["signed"], abs=1e-5)


def test_a_class_by_name_or_as_predicted():
    model = tiny_model("sequence")
    label = cloze.classify(model, "a b", "c").label
    data = check(saliency(model, "a b", "c"), targets=[label])
    assert data["pair"] == "c"
    assert data["targets"][0]["token"] is None
    other = "no" if label == "yes" else "yes"
    against = check(saliency(model, "a b", "c", target=other), targets=[other])
    found = cloze.classify(model, "a b", "c").scores
    assert against["targets"][0]["probability"] == pytest.approx(found[other], abs=1e-6)


def test_next_sentences():
    model = tiny_model("nsp", "mlm")
    label = cloze.classify(model, "a b", "c").label
    check(saliency(model, "a b", "c"), targets=[label])
    with raises(InputError, "[MASK]", fix="[MASK]"):
        saliency(model, "a b")


def test_several_labels_and_numbers():
    several = tiny_model("sequence", problem="multi_label_classification", labels=("a", "b", "c"))
    data = check(saliency(several, "a b", target=["a", "c"]), targets=["a", "c"])
    found = cloze.classify(several, "a b").scores
    probabilities = [one["probability"] for one in data["targets"]]
    assert probabilities == pytest.approx([found["a"], found["c"]], abs=1e-6)
    number = tiny_model("sequence", problem="regression", labels=("score",))
    data = check(saliency(number, "a b"), targets=["score"])
    assert data["targets"][0]["probability"] is None
    assert data["targets"][0]["score"] == pytest.approx(
        cloze.classify(number, "a b").score, abs=1e-5
    )


def test_tags():
    model = tiny_model("token", labels=("O", "B-X", "I-X"))
    tags = dict(zip(["the", "cat", "sat"], cloze.tag(model, "the cat sat").tags, strict=True))
    tagged = [f"{word}: {tag}" for word, tag in tags.items() if tag != "O"]
    data = check(saliency(model, "the cat sat"), targets=tagged or [f"the: {tags['the']}"])
    assert all(one["token"] in (1, 2, 3) for one in data["targets"])
    named = check(saliency(model, "the cat sat", target="cat"), targets=[f"cat: {tags['cat']}"])
    assert named["targets"][0]["token"] == 2
    check(saliency(model, "the cat sat", target="sat=I-X"), targets=["sat: I-X"])


def test_answers():
    model = tiny_model("span")
    found = cloze.answer(model, "a b", "c d e f", whole_words=False)
    data = check(
        saliency(model, "a b", "c d e f"),
        targets=[f"start: {found.text.split()[0]}", f"end: {found.text.split()[-1]}"],
    )
    start, end = (one["token"] for one in data["targets"])
    assert " ".join(data["tokens"][start : end + 1]) == found.text
    check(saliency(model, "a b", "c d e f", target="d e"), targets=["start: d", "end: e"])
    check(saliency(model, "a b", "c d e f", target="end"), targets=[data["targets"][1]["name"]])


def test_the_options_of_a_multiple_choice():
    model = tiny_model("choice", labels=("no",))
    found = cloze.choose(model, "a b", ["c d", "e"], question="f")
    view = saliency(model, "a b", options=["c d", "e"], question="f")
    sequences = view.to_dict()["sequences"]
    assert [one["pair"] for one in sequences] == ["f c d", "f e"]
    probabilities = [one["targets"][0]["probability"] for one in sequences]
    assert probabilities == pytest.approx(list(found.scores), abs=1e-6)
    only = saliency(model, "a b", options=["c d", "e"], target="e").to_dict()
    assert [one["targets"][0]["name"] for one in only["sequences"]] == ["e"]
    check(saliency(model, "a b", "c d"), targets=["c d"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: tiny_model("lm", family="gpt2", positions=40),
        lambda: neural_model("nnlm"),
        lambda: neural_model("lstm"),
        elmo_model,
    ],
    ids=["gpt2", "nnlm", "lstm", "elmo"],
)
def test_each_generated_token_has_a_column(make):
    model = make()
    (found,) = cloze.generate(model, "the cat", temperature=0.0, max_new_tokens=4)
    view = saliency(model, "the cat", new_tokens=4)
    data = view.to_dict()
    names = [one["name"] for one in data["targets"]]
    if found.tokens:
        assert names == list(found.tokens)
    data = check(view, targets=names)
    size = len(data["tokens"]) - len(names)
    for number, one in enumerate(data["targets"]):
        assert one["token"] == size + number
        assert not any(one["saliency"][size + number :])  # what comes later is not read
    logs = sum(torch.tensor(one["probability"]).log().item() for one in data["targets"])
    if found.finish_reason == "length":
        assert logs == pytest.approx(found.log_probability, abs=1e-3)


def test_words_that_continue_a_text():
    model = tiny_model("lm", family="gpt2")
    data = check(saliency(model, "the", target="cat sat"), targets=["cat", "sat"])
    assert data["tokens"][-2:] == ["cat", "sat"]
    with raises(InputError, "unheard", fix="suggest"):
        saliency(neural_model("lstm"), "the", target="unheard")


@pytest.mark.parametrize("variety", ["transformer", "bahdanau"])
def test_each_word_of_a_translation_has_a_column(variety):
    model = translator(variety)
    view = saliency(model, "ein Hund", target_text="die Katze")
    data = view.to_dict()
    names = [one["name"] for one in data["targets"]]
    assert "".join(names[:-1]) == "dieKatze"
    check(view, targets=names)
    first = data["targets"][0]["token"]
    assert "".join(data["tokens"][first:-1]).replace(" ", "") == "dieKatze"
    one = saliency(model, "ein Hund", target_text="die Katze", target="Katze").to_dict()
    assert "".join(target["name"] for target in one["targets"]).strip() == "Katze"
    with raises(InputError, "Hund", fix=["die", "Katze"]):
        saliency(model, "ein Hund", target_text="die Katze", target="Hund")
    assert saliency(model, "ein Hund").to_dict()["targets"]


def test_a_decoder_that_translates():
    task = Task(name="translate", separator="[SEP]")
    model = tiny_model("lm", family="gpt2", task=task, positions=40)
    data = saliency(model, "a b").to_dict()
    found = cloze.translate(model, "a b", beam=1)
    assert data["tokens"][:4] == ["[CLS]", "a", "b", "[SEP]"]
    assert " ".join(data["tokens"][4:]).replace(" ##", "").startswith(found.text[:3])


def test_recurrent_classifiers():
    model = recurrent_encoder()
    check(saliency(model, "the cat sat"), targets=[cloze.classify(model, "the cat sat").label])


def test_many_texts_give_the_views_of_each():
    model = tiny_model("sequence")
    texts = ["a b c", "d", "e f"]
    for one, text in zip(saliency(model, texts), texts, strict=True):
        alone = saliency(model, text).to_dict()
        found = one.to_dict()
        assert found["tokens"] == alone["tokens"]
        assert found["targets"][0]["name"] == alone["targets"][0]["name"]
        assert found["targets"][0]["signed"] == pytest.approx(
            alone["targets"][0]["signed"], abs=1e-5
        )
    pairs = saliency(model, texts, ["g", "h", "i"])
    assert [one.to_dict()["pair"] for one in pairs] == ["g", "h", "i"]


@pytest.mark.parametrize("method", ["integrated", "leave-one-out"])
def test_other_methods_say_what_they_compare_with(method):
    model = tiny_model("sequence")
    data = saliency(model, "a b", method=method, baseline="pad", steps=5, signed=True).to_dict()
    assert (data["method"], data["baseline"]) == (method, "pad")
    target = data["targets"][0]
    assert target["signed"][0] == target["signed"][-1] == 0  # [CLS] and [SEP] stay
    if method == "integrated":
        assert target["delta"] == pytest.approx(
            sum(target["signed"]) - (target["score"] - target["baseline_score"]), abs=1e-5
        )
    else:
        ids = torch.tensor([model.tokenizer.encode("a b").ids])
        index = model.labels.index(target["name"])
        score = HeadScore("sequence", 0, index)
        ids[0, 1] = model.tokenizer.pad_id
        less = score(model.module, Batch(ids)).item()
        assert target["signed"][1] == pytest.approx(target["score"] - less, abs=1e-5)


def test_curves_are_part_of_the_view():
    model = tiny_model("sequence")
    view = saliency(model, "a b c d", faithfulness=True, random_orders=3, drop=True)
    curves = view.to_dict()["targets"][0]["faithfulness"]
    assert len(curves["fractions"]) == len(curves["deletion"]) == len(curves["insertion"])
    assert curves["deletion"][0] == pytest.approx(view.to_dict()["targets"][0]["probability"])
    assert curves["random_orders"] == 3
    assert "Deletion" in view.html()
    assert "Insertion" in view.html()


def test_targets_of_other_views():
    model = tiny_model("sequence")
    encoded = encode_input(model, "a b")
    score = resolve_target(model, encoded, "yes")
    assert (score.name, score.index) == ("yes", 1)
    assert make_batch(model, encoded).ids.tolist() == [encoded.ids]


def test_errors_list_what_is_possible():
    model = tiny_model("sequence")
    with raises(InputError, "maybe", fix=["no", "yes"]):
        saliency(model, "a b", target="maybe")
    with raises(InputError, "the cat", fix="fill"):
        saliency(tiny_model("mlm"), "a [MASK]", target="the cat")
    tagger = tiny_model("token", labels=("O", "B-X"))
    with raises(InputError, "dog", fix=["the", "cat"]):
        saliency(tagger, "the cat", target="dog")
    with raises(InputError, "B-Y", fix=["O", "B-X"]):
        saliency(tagger, "the cat", target="cat=B-Y")
    with raises(InputError, "pair", fix="context"):
        saliency(tiny_model("span"), "a b")
    with raises(InputError, "xyz", fix=["start", "end"]):
        saliency(tiny_model("span"), "a b", "c d", target="xyz")
    with raises(ClozeError, "method", fix=["gradient", "integrated", "leave-one-out"]):
        saliency(model, "a", method="magic")
    with raises(ClozeError, "baseline", fix=["mask", "pad", "zero"]):
        saliency(model, "a", baseline="noise")
    with raises(ClozeError, "baseline", fix="zero"):
        saliency(neural_model("lstm"), "the", baseline="mask")
    with raises(InputError, "drop", fix="leave-one-out"):
        saliency(model, "a", drop=True)
    with raises(InputError, "empty"):
        saliency(model, " ")
    with raises(InputError, "options"):
        saliency(tiny_model("choice", labels=("no",)), ["a", "b"], options=["c", "d"])
    with raises(InputError, "saliency", "ELMo", "generate"):
        saliency(elmo_model(output="none"), "the cat")
