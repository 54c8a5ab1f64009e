"""`fill` with `joint`: beam search over all masks of a text."""

import json
import math

import pytest
import torch

import cloze
from cloze.errors import ConfigError, InputError
from helpers import PIECES, SPECIAL, raises, tiny_model

ORDERS = ["confidence", "left-to-right"]
WORDS = range(len(SPECIAL), len(PIECES))
TEXT = "the [MASK] b [MASK] ."


@pytest.fixture(scope="module")
def model():
    return tiny_model("mlm", positions=16)


@torch.no_grad()
def log_probs(model, ids, position):
    hidden = model.module(torch.tensor([ids]))
    return model.module.logits("mlm", hidden[0, position]).log_softmax(-1).double()


def search_exhaustively(model, text, order):
    """The score of each pair of words for the two masks of a text."""
    ids = model.tokenizer.encode(text).ids
    masks = [n for n, id_ in enumerate(ids) if id_ == model.tokenizer.mask_id]
    if order == "confidence":
        words = list(WORDS)
        masks.sort(key=lambda mask: -log_probs(model, ids, mask)[words].max().item())
    first, second = masks
    scores = {}
    begin = log_probs(model, ids, first)
    for one in WORDS:
        filled = [*ids[:first], one, *ids[first + 1 :]]
        rest = log_probs(model, filled, second)
        for other in WORDS:
            pair = (one, other) if first < second else (other, one)
            scores[pair] = (begin[one] + rest[other]).item()
    return scores


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("text", [TEXT, "[MASK] a the cat [MASK]", "a [MASK] [MASK] c"])
def test_a_wide_beam_is_exhaustive_search(model, text, order):
    expected = search_exhaustively(model, text, order)
    size = len(PIECES) ** 2
    result = cloze.fill(model, text, joint=True, order=order, beam_size=size, top=len(PIECES))
    found = {one.ids: one.log_probability for one in result.joint}
    best = sorted(expected, key=expected.__getitem__, reverse=True)
    # adjacent masks: different tokens may be the same text, of which the best is kept
    assert next(iter(found)) == best[0]
    assert set(found) <= set(best)
    assert found == pytest.approx({ids: expected[ids] for ids in found}, abs=1e-4)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    if "[MASK] [MASK]" not in text:
        assert list(found) == best[: len(PIECES)]


@pytest.mark.parametrize("order", ORDERS)
def test_a_beam_of_one_is_greedy(model, order):
    (one,) = cloze.fill(model, TEXT, joint=True, order=order, beam_size=1).joint
    ids = model.tokenizer.encode(TEXT).ids
    empty = [n for n, id_ in enumerate(ids) if id_ == model.tokenizer.mask_id]
    total, words = 0.0, list(WORDS)
    while empty:
        best = {mask: log_probs(model, ids, mask)[words].max(0) for mask in empty}
        mask = empty[0]
        if order == "confidence":
            mask = max(empty, key=lambda mask: best[mask].values.item())
        ids[mask] = words[best[mask].indices.item()]
        total += best[mask].values.item()
        empty.remove(mask)
    assert [ids[2], ids[4]] == list(one.ids)
    assert one.log_probability == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("order", ORDERS)
def test_a_wider_beam_finds_nothing_worse(model, order):
    text = "[MASK] a [MASK] the [MASK]"
    best = [
        cloze.fill(model, text, joint=True, order=order, beam_size=size).joint[0].log_probability
        for size in (1, 20**3)
    ]
    assert best[0] <= best[1] + 1e-6


def test_texts_are_filled_together_as_alone(model):
    texts = [TEXT, "a [MASK]", "[MASK] [MASK] [MASK] b", "", TEXT]
    for order in ORDERS:
        options = {"joint": True, "order": order, "beam_size": 4, "top": 3, "skip_blank": True}
        together = cloze.fill(model, texts, batch_tokens=32, **options)
        assert together[3].joint == ()
        for text, result in zip(texts, together, strict=True):
            alone = cloze.fill(model, text, **options)
            assert [one.ids for one in result.joint] == [one.ids for one in alone.joint]
            scores = [one.log_probability for one in alone.joint]
            assert [one.log_probability for one in result.joint] == pytest.approx(scores, abs=1e-4)
            assert len(result.masks) == text.count("[MASK]")


def test_one_mask_is_the_same_as_by_itself(model):
    result = cloze.fill(model, "the [MASK] sat", joint=True, top=3)
    (mask,) = result.masks
    assert [one.words for one in result.joint] == [(one.word,) for one in mask.predictions]
    assert [one.text for one in result.joint] == [one.text for one in mask.predictions]
    probabilities = [math.exp(one.log_probability) for one in result.joint]
    assert probabilities == pytest.approx([one.score for one in mask.predictions], rel=1e-4)


def test_adjacent_masks_give_the_tokens_of_one_word(model):
    """Whatever is between the masks: cat and ##s are one word, cat and sat are two."""
    size = len(PIECES) ** 2
    cat, s, sat = (model.tokenizer.token_to_id(token) for token in ("cat", "##s", "sat"))
    for text in ("the [MASK][MASK].", "the [MASK] [MASK]."):
        result = cloze.fill(model, text, joint=True, beam_size=size, top=len(PIECES))
        assert len({one.text for one in result.joint}) == len(result.joint)
        by_ids = {one.ids: one for one in _complete(model, text)}
        assert (by_ids[cat, s].text, by_ids[cat, s].words) == ("the cats.", ("cats",))
        assert (by_ids[cat, sat].text, by_ids[cat, sat].words) == ("the cat sat.", ("cat sat",))
        assert result.best == result.joint[0].text
    apart = cloze.fill(model, "[MASK] the [MASK]", joint=True).joint[0]
    assert len(apart.words) == 2


def _complete(model, text):
    """All completions of a text with two masks."""
    from cloze.tasks.joint_fill import _Hypothesis, _make_completions
    from cloze.tasks.masked_text import encode_masked

    masked = encode_masked(model, text, 1, crop=True)
    for one in WORDS:
        for other in WORDS:
            yield from _make_completions(model, text, masked, [_Hypothesis(ids=(one, other))])


def test_a_first_token_that_continues_a_word_is_joined_to_it(model):
    s, a = model.tokenizer.token_to_id("##s"), model.tokenizer.token_to_id("a")
    found = {one.ids: one.text for one in _complete(model, "the cat [MASK] [MASK]")}
    assert found[s, a] == "the cats a"


def test_a_long_text_is_filled_around_its_masks(model):
    text = "a b c d e f g h i j " * 2 + TEXT
    result = cloze.fill(model, text, joint=True, truncation="window")
    assert result.truncated_chars > 0
    assert result.joint[0].text.startswith("a b c d e f g h i j a b")
    assert "[MASK]" not in result.best


def test_the_result_is_an_object_a_table_and_html(model):
    result = cloze.fill(model, TEXT, joint=True, top=2)
    found = json.loads(json.dumps(result.to_dict()))["joint"]
    assert [set(one) for one in found] == [{"text", "words", "ids", "log_probability"}] * 2
    assert "joint" not in cloze.fill(model, TEXT).to_dict()
    frame = result.to_pandas()
    assert list(frame["completed"]) == [one.text for one in result.joint]
    assert all(one.text in result._repr_html_() for one in result.joint)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"beam_size": 2}, InputError, ("beam_size", "joint")),
        ({"order": "confidence"}, InputError, ("order", "joint")),
        ({"joint": True, "candidates": ["cat"]}, InputError, "candidates"),
        ({"joint": True, "beam_size": 0}, ConfigError, ("beam_size", "0")),
        ({"joint": True, "order": "random"}, ConfigError, ("random", "left-to-right")),
    ],
)
def test_mistakes(model, options, kind, message):
    with raises(kind, message):
        cloze.fill(model, TEXT, **options)
