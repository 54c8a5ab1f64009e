"""`fill`: masks, candidates, errors of users."""

from dataclasses import replace

import pytest
import torch
from tokenizers import AddedToken

import cloze
from cloze.checkpoint.model import Model
from cloze.errors import ConfigError, InputError, TruncationWarning
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.tasks.fill import insert_word
from cloze.text.tokenizer_training import train_tokenizer
from helpers import PIECES, SPECIAL, raises, scramble, tiny_tokenizer

CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    intermediate_size=32,
    max_positions=12,
)


def model_with(*heads, tokenizer=None):
    module = scramble(build(CONFIG, heads, rng=torch.Generator()), scale=0.5).eval()
    return Model(module=module, config=CONFIG, tokenizer=tokenizer or tiny_tokenizer())


@pytest.fixture(scope="module")
def model():
    return model_with("mlm")


def test_every_word_of_the_vocabulary_with_its_probability_and_no_special_token(model):
    (blank,) = cloze.fill(model, "the [MASK]", top=len(PIECES)).masks
    with torch.no_grad():
        hidden = model.module(torch.tensor([model.tokenizer.encode("the [MASK]").ids]))
        expected = model.module.logits("mlm", hidden[0, 2]).softmax(-1)
    found = {guess.ids[0]: guess.score for guess in blank.predictions}
    assert found.keys() == set(range(len(SPECIAL), len(PIECES)))
    assert found == pytest.approx({id_: expected[id_].item() for id_ in found}, abs=1e-6)
    assert list(found.values()) == sorted(found.values(), reverse=True)


@pytest.mark.parametrize("kind", ["char", "wordpiece"])
def test_parts_of_a_character_are_never_offered(kind):
    """Some vocabularies spell rare characters in bytes."""
    tokenizer = train_tokenizer(["a b é ab"] * 3, kind=kind, vocab_size=600, byte_fallback=True)
    config = replace(CONFIG, vocab_size=tokenizer.vocab_size + 3)  # rows that no piece has
    module = scramble(build(config, ("mlm",), rng=torch.Generator()), scale=0.5).eval()
    model = Model(module=module, config=config, tokenizer=tokenizer)
    (blank,) = cloze.fill(model, "a[MASK]b", top=tokenizer.vocab_size).masks
    words = [guess.word for guess in blank.predictions]
    assert {"a", "b"} < set(words)
    assert not any("\ufffd" in word or "<0x" in word or word in SPECIAL for word in words)
    assert len(words) < tokenizer.vocab_size - len(SPECIAL)
    for top in (1, 3):
        (less,) = cloze.fill(model, "a[MASK]b", top=top).masks
        assert less.predictions == blank.predictions[:top]


def test_each_guess_carries_its_text_and_best_fills_all(model):
    filled = cloze.fill(model, "The [MASK], [MASK].", top=2)
    first, second = filled.masks
    words = first.predictions[0].word, second.predictions[0].word
    assert first.predictions[0].text == insert_word("The [MASK], [MASK].", 4, 10, words[0])
    assert "[MASK]" in first.predictions[0].text
    assert "[MASK]" not in filled.best


def test_a_continuation_joins_the_word_before():
    assert insert_word("the cat [MASK] sat", 8, 14, "##s") == "the cats sat"
    assert insert_word("a [MASK].", 2, 8, "cat") == "a cat."


def test_a_list_of_texts(model):
    texts = ["the [MASK]", "[MASK] sat", "a [MASK] c [MASK] e", "[MASK]", "cat [MASK]"]
    for options in ({}, {"candidates": ["cats", "cat"]}):
        expected = [cloze.fill(model, text, **options) for text in texts]
        for tokens in (1, 9, None):
            given = iter(texts) if tokens == 9 else texts
            found = cloze.fill(model, given, batch_tokens=tokens, **options)
            for one, other in zip(found, expected, strict=True):
                check_same(one, other)


def check_same(one, other):
    """Sequences that are computed together differ by rounding."""
    assert (one.text, one.truncated_chars) == (other.text, other.truncated_chars)
    for mask, alone in zip(one.masks, other.masks, strict=True):
        scores = [{p.word: p.score for p in each.predictions} for each in (mask, alone)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)
        assert (mask.start, mask.end) == (alone.start, alone.end)


def test_a_candidate_of_several_pieces_is_a_chain(model):
    """p(cats) = p(cat | [MASK][MASK]) · p(##s | cat [MASK])."""
    tokenizer = model.tokenizer
    cat, s, mask = tokenizer.token_to_id("cat"), tokenizer.token_to_id("##s"), tokenizer.mask_id
    the, cls, sep = tokenizer.token_to_id("the"), tokenizer.cls_id, tokenizer.sep_id

    def probability(row, place, piece):
        with torch.no_grad():
            hidden = model.module(torch.tensor([row]))
            return model.module.logits("mlm", hidden[0, place]).softmax(-1)[piece].item()

    expected = probability([cls, the, mask, mask, sep], 2, cat) * probability(
        [cls, the, cat, mask, sep], 3, s
    )
    (blank,) = cloze.fill(model, "the [MASK]", candidates=["cats", "cat"]).masks
    guesses = {guess.word: guess for guess in blank.predictions}
    assert guesses["cats"].score == pytest.approx(expected, rel=1e-5)
    assert guesses["cats"].ids == (cat, s)
    assert guesses["cats"].text == "the cats"


def test_no_blank(model):
    with raises(InputError, "[MASK]", "the cat sat", fix="[MASK]"):
        cloze.fill(model, "the cat sat")


def test_no_head():
    with raises(InputError, "head", "sequence", "masked-LM", fix=("cloze-en", "classify")):
        cloze.fill(model_with("sequence"), "the [MASK]")
    with raises(InputError, "no masked-LM head"):
        cloze.fill(model_with(), "the [MASK]")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a b c d e f g h i j a [MASK]", "c d e f g h i j a [MASK]"),
        ("[MASK] b c d e f g h i j a b", "[MASK] b c d e f g h i j"),
        ("a b c d e f g [MASK] i j a b c d", "c d e f g [MASK] i j a b"),
        ("a b c d e [MASK] the [MASK] i j a b", "b c d e [MASK] the [MASK] i j a"),
    ],
)
def test_of_a_long_text_the_model_sees_what_is_around_the_blanks(model, text, read):
    """12 positions, of which two are [CLS] and [SEP]."""
    with pytest.warns(TruncationWarning, match="around the masks"):
        found = cloze.fill(model, text, top=25)
    expected = cloze.fill(model, read, top=25)
    start = text.index(read)
    left_out = len(text[:start].strip()) + len(text[start + len(read) :].strip())
    assert (found.truncated_chars, expected.truncated_chars) == (left_out, 0)
    assert cloze.fill(model, text, top=25, truncation="window") == found
    with raises(InputError, len(text.split()) + 2, "12", fix="window"):
        cloze.fill(model, text, truncation="error")
    for one, other in zip(found.masks, expected.masks, strict=True):
        assert text[one.start : one.end] == "[MASK]"
        scores = [{g.word: g.score for g in blank.predictions} for blank in (one, other)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-6)
        assert one.predictions[0].text == insert_word(
            text, one.start, one.end, one.predictions[0].word
        )


def test_long_candidates_have_room(model):
    text = "a b c d e f g h i [MASK]"
    assert cloze.fill(model, text, candidates=["cat"]).truncated_chars == 0
    found = cloze.fill(model, text, candidates=["cats", "cat"], truncation="window")
    assert found.truncated_chars == 1


def test_blanks_too_far_apart(model):
    with raises(InputError, "12", "10"):
        cloze.fill(model, "[MASK] a b c d e f g h i j [MASK]")


def test_a_candidate_given_twice_is_one(model):
    (blank,) = cloze.fill(model, "the [MASK]", candidates=["cat", "sat", "cat"]).masks
    assert sorted(guess.word for guess in blank.predictions) == ["cat", "sat"]


def test_an_unspellable_candidate(model):
    with raises(InputError, "zebra"):
        cloze.fill(model, "the [MASK]", candidates=["zebra"])


@pytest.mark.parametrize("top", [0, -1, 1000])
def test_top_out_of_range(model, top):
    with raises(ConfigError, "top", top, fix=("1", "25")):
        cloze.fill(model, "the [MASK]", top=top)


def test_the_space_before_a_mask_is_kept():
    """The mask token of ModernBERT and RoBERTa includes the space before it."""
    backend = train_tokenizer(["the cat sat"] * 3, kind="bpe", vocab_size=300).backend
    backend.add_special_tokens(["[CLS]", "[SEP]", AddedToken("[MASK]", lstrip=True)])
    tokenizer = cloze.Tokenizer(backend, special_tokens={"mask": "[MASK]"})
    config = replace(CONFIG, vocab_size=tokenizer.vocab_size)
    module = scramble(build(config, ("mlm",), rng=torch.Generator()), scale=0.5).eval()
    model = Model(module=module, config=config, tokenizer=tokenizer)
    result = cloze.fill(model, "the [MASK] sat [MASK][MASK].", joint=True)
    assert [(mask.start, mask.end) for mask in result.masks] == [(4, 10), (15, 21), (21, 27)]
    first, second = result.joint[0].words
    assert result.best == f"the {first} sat {second}."
