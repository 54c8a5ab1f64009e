"""explain.ablation, explain.patching and explain.layers on tiny models."""

import json

import pytest
import torch

import cloze
from cloze.checkpoint.task import Task
from cloze.errors import ConfigError, InputError
from helpers import raises, tiny_model
from languages import elmo_model, neural_model
from translators import translator

TEXT, OTHER = "the cat [MASK] .", "a cat [MASK] ."


def changes_of(view, **wanted):
    return [
        one["change"]
        for one in view.data["changes"]
        if all(one.get(key) == value for key, value in wanted.items())
    ]


def test_ablation_of_a_mask_shows_every_head_and_sublayer(tmp_path):
    model = tiny_model("mlm")
    view = cloze.explain.ablation(model, TEXT, target="sat", metric="logit")
    assert [len(changes_of(view, layer=layer, kind="head")) for layer in (1, 2)] == [2, 2]
    assert {one["kind"] for one in view.data["changes"]} == {"head", "attention", "ffn", "block"}
    ids = model.tokenizer.encode(TEXT).ids

    @torch.no_grad()
    def compute():
        logits = model.module.logits("mlm", model.module(torch.tensor([ids])))
        position, word = ids.index(model.tokenizer.mask_id), model.tokenizer.token_to_id("sat")
        return float(logits[0, position, word])

    assert view.data["base"] == pytest.approx(compute(), abs=1e-4)
    with torch.no_grad():
        model.module.blocks[1].attention.out.weight[:, :8] = 0  # the first of two heads
    (change,) = changes_of(view, layer=2, head=1)
    assert view.data["base"] + change == pytest.approx(compute(), abs=1e-3)
    for suffix in ("html", "svg", "json"):
        view.save(tmp_path / f"view.{suffix}")
    assert json.loads((tmp_path / "view.json").read_text())["target"] == "sat"


@pytest.mark.parametrize("head", ["sequence", "token", "span"])
def test_ablation_of_fine_tuned_models(head):
    pair = "the cat sat ." if head == "span" else None
    view = cloze.explain.ablation(tiny_model(head), "a b", pair, parts="heads")
    assert len(view.data["changes"]) == 4
    assert any(abs(one["change"]) > 1e-4 for one in view.data["changes"])


def test_ablation_over_many_texts_is_the_mean_of_single_ones(tmp_path):
    model = tiny_model("lm", family="gpt2")
    texts = ["the cat sat .", "a b c d"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    view = cloze.explain.ablation(model, data=tmp_path / "texts.txt", parts="heads")
    same = cloze.explain.ablation(model, data=texts, parts="heads")
    assert view.data == same.data
    assert view.data["texts"] == 2
    single = [cloze.explain.ablation(model, data=[text], parts="heads") for text in texts]
    for key in ({"layer": 1, "head": 2}, {"layer": 2, "head": 1}):
        means = [changes_of(one, **key)[0] for one in single]
        assert changes_of(view, **key)[0] == pytest.approx(sum(means) / 2, abs=1e-5)
    assert "standard_error" in view.data["changes"][0]
    masked = cloze.explain.ablation(tiny_model("mlm"), data=texts, method="mean", seed=1)
    assert masked.data["texts"] == 2
    assert masked.data["method"] == "mean"


def test_ablation_and_patching_of_a_translator_include_cross_attention():
    model = translator()
    view = cloze.explain.ablation(model, "ein Hund", target_text="die Katze", metric="probability")
    kinds = {(one["stack"], one["kind"]) for one in view.data["changes"]}
    assert ("decoder", "cross_head") in kinds
    assert ("encoder", "cross_head") not in kinds
    assert ("encoder", "head") in kinds
    patched = cloze.explain.patching(model, "ein Hund", from_text="zwei Hund")
    last = changes_of(patched, stack="decoder", layer=2, kind="block")
    assert len(last) == len(patched.data["target_tokens"])
    assert any(abs(one) > 1e-5 for one in changes_of(patched, stack="encoder", kind="block"))


def test_patching_moves_the_output_to_that_of_the_other_text():
    model = tiny_model("mlm")
    view = cloze.explain.patching(model, TEXT, from_text=OTHER)
    filled = cloze.fill(model, OTHER, top=1).best
    assert f"a cat {view.data['target']} ." == filled
    position = view.data["tokens"].index("[MASK]")
    (change,) = changes_of(view, layer=2, kind="block", position=position)
    assert view.data["base"] + change == pytest.approx(view.data["source"], abs=1e-4)
    (other,) = changes_of(view, layer=2, kind="block", position=0)
    assert other == pytest.approx(0, abs=1e-5)
    same = cloze.explain.patching(model, TEXT, from_text=TEXT)
    assert max(abs(one["change"]) for one in same.data["changes"]) < 1e-5


def test_the_first_masks_of_two_texts_belong_together():
    model = tiny_model("mlm")
    view = cloze.explain.patching(model, "[MASK] a b c .", from_text="a [MASK] , d e f")
    target = view.data["target"]
    base = cloze.explain.ablation(model, "[MASK] a b c .", target=target).data["base"]
    assert view.data["base"] == pytest.approx(base, abs=1e-5)
    with raises(InputError, "[MASK]", fix="few words"):
        cloze.explain.patching(model, "[MASK] a b c .", from_text="a [MASK] , d [MASK] f")


def test_unknown_options_and_missing_texts_are_errors():
    model = tiny_model("mlm")
    for options in ({"metric": "loss"}, {"method": "noise"}, {"parts": "head"}):
        with raises(ConfigError, *options.values()):
            cloze.explain.ablation(model, TEXT, **options)
    with raises(InputError, "text", "data"):
        cloze.explain.ablation(model)
    with raises(InputError, "ablation", fix="layers"):
        cloze.explain.ablation(neural_model("lstm"), "a b")


# --- layers


def test_layers_of_a_mask_show_ranks_of_candidates():
    model = tiny_model("mlm")
    view = cloze.explain.layers(model, TEXT, candidates=["sat", "cat"], top=3)
    assert view.data["layers"] == [0, 1, 2]
    (position,) = view.data["positions"]
    sat, cat = position["candidates"]
    assert (sat["output"], cat["output"]) == ("sat", "cat")
    best = cloze.fill(model, TEXT, top=1)
    last = position["predictions"][-1]
    assert f"the cat {last[0]['output']} ." == best.best
    assert len(last) == 3
    assert sorted((one["probability"] for one in last), reverse=True) == [
        one["probability"] for one in last
    ]
    assert view.data == cloze.explain.layers(model, TEXT, candidates="sat, cat", top=3).data
    final = {one["output"]: one for one in position["candidates"]}["sat"]
    assert 1 <= final["ranks"][-1] <= model.tokenizer.vocab_size


def test_layers_of_a_text_without_a_mask_show_its_tokens():
    view = cloze.explain.layers(tiny_model("mlm"), "the cat sat .")
    assert [one["token"] for one in view.data["positions"]] == ["the", "cat", "sat", "."]
    assert [one["candidates"][0]["output"] for one in view.data["positions"]] == [
        "the",
        "cat",
        "sat",
        ".",
    ]


@pytest.mark.parametrize(
    "make", [lambda: tiny_model("lm", family="gpt2"), lambda: neural_model("lstm")]
)
def test_generated_tokens_have_rank_1_in_the_last_layer(make):
    model = make()
    view = cloze.explain.layers(model, "the cat", generate=3)
    assert len(view.data["positions"]) == 3
    for one in view.data["positions"]:
        assert one["candidates"][0]["ranks"][-1] == 1
        assert one["candidates"][0]["output"] == one["token"]
    plain = cloze.explain.layers(model, "the cat")
    first = view.data["positions"][0]["candidates"][0]["output"]
    assert plain.data["positions"][-1]["candidates"][0]["output"] == first
    with raises(ConfigError, "generate"):
        cloze.explain.layers(model, "the cat", generate=-1)


def test_layers_of_elmo_and_translators():
    view = cloze.explain.layers(elmo_model(), "the cat sat")
    assert view.data["layers"] == [0, 1, 2]
    view = cloze.explain.layers(translator(), "ein Hund", target_text="die Katze")
    ranks = [one["candidates"][0]["ranks"] for one in view.data["positions"]]
    assert all(len(one) == 3 for one in ranks)
    assert "".join(one["token"] for one in view.data["positions"]).startswith("die")


def test_the_last_layer_of_a_classifier_is_what_classify_says():
    model = tiny_model("sequence", labels=("bad", "good", "odd"))
    view = cloze.explain.layers(model, "the cat sat .")
    found = cloze.classify(model, "the cat sat .")
    last = dict(zip(view.data["labels"], view.data["values"][-1], strict=True))
    assert last[found.label] == pytest.approx(found.score, abs=1e-5)
    assert sum(view.data["values"][0]) == pytest.approx(1)
    only = cloze.explain.layers(model, "the cat sat .", candidates=["odd"])
    assert only.data["labels"] == ["odd"]


def test_layers_of_taggers_and_answers():
    model = tiny_model("token", labels=("O", "B-X", "I-X"), task=Task(name="tag"))
    view = cloze.explain.layers(model, "the cats .", top=2)
    assert [one["token"] for one in view.data["positions"]] == ["the", "cats", "."]
    view = cloze.explain.layers(tiny_model("span"), "a b", "the cat sat .")
    assert view.data["tokens"] == ["[CLS]", "the", "cat", "sat", "."]
    assert sum(row[-1] for row in view.data["start"]) == pytest.approx(1)
    with raises(InputError, "candidates", fix="leave"):
        cloze.explain.layers(tiny_model("span"), "a b", "the cat .", candidates=["cat"])
    with raises(InputError, "generate", fix="language model"):
        cloze.explain.layers(tiny_model("mlm"), TEXT, generate=2)
