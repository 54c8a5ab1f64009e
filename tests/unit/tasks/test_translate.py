"""`translate`: order of results, candidates, alignment, errors of users."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import cloze
from cloze.decode.beam import beam_search
from cloze.decode.config import BeamConfig
from cloze.decode.translators import MAX_SOURCE_TOKENS
from cloze.errors import ConfigError, InputError, TruncationWarning
from cloze.tasks.word_alignment import END, align_words, join_words
from cloze.text.joint_bpe import decode_sentence, encode_sentences
from helpers import raises
from translators import TEXTS, translator


@pytest.fixture(scope="module", params=["transformer", "bahdanau", "luong-general", "plain-lstm"])
def model(request):
    return translator(request.param)


@pytest.fixture(scope="module")
def learned():
    return translator("learned")


def test_as_many_come_back_as_were_given(model):
    texts = [TEXTS[0], "", TEXTS[5], "   ", TEXTS[9]]
    found = cloze.translate(model, texts, beam=2)
    assert [one.source for one in found] == texts
    assert found[1].text == found[3].text == ""
    assert found[1].candidates[0].finished
    assert cloze.translate(model, []) == []
    alone = [cloze.translate(model, text, beam=2) for text in texts]
    for one, other in zip(found, alone, strict=True):
        assert one.text == other.text
        assert one.candidates[0].score == pytest.approx(other.candidates[0].score, abs=1e-4)


def test_small_batches_change_nothing(model):
    found, same = (
        cloze.translate(model, TEXTS[:8], beam=3, batch_tokens=size) for size in (1, 4096)
    )
    assert [one.text for one in found] == [one.text for one in same]


def test_the_best_come_first_and_are_those_of_the_search(model):
    found = cloze.translate(model, TEXTS[3], beam=4, n_best=3)
    scores = [one.score for one in found.candidates]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert found.text == found.candidates[0].text
    source = torch.tensor(encode_sentences(model.tokenizer, [TEXTS[3]]))
    state = model.module.init_state(source, torch.ones_like(source, dtype=torch.bool))
    limit = 2 * source.shape[1] + 10
    (expected,) = beam_search(
        model.module, state, torch.tensor([0]), BeamConfig(n_best=3), eos_id=0, max_lengths=[limit]
    )
    assert [decode_sentence(model.tokenizer, one.tokens) for one in expected] == [
        one.text for one in found.candidates
    ]
    assert scores == pytest.approx([one.score for one in expected], abs=1e-5)


def test_no_more_tokens_than_the_ratio_allows(model):
    text = TEXTS[4]
    most = int(0.5 * len(encode_sentences(model.tokenizer, [text])[0])) + 10
    for one in cloze.translate(model, text, max_length_ratio=0.5, beam=2, n_best=2).candidates:
        assert (
            len(encode_sentences(model.tokenizer, [one.text])[0]) <= 4 * most
        )  # a piece may be a single byte
        assert one.finished or one.log_probability < 0


def test_characters_never_seen_are_spelled(model):
    text = "Łódź 😀 \u0000"
    (ids,) = encode_sentences(model.tokenizer, [text])
    assert decode_sentence(model.tokenizer, ids[:-1]) == text
    assert cloze.translate(model, text).candidates


@pytest.mark.parametrize("variety", ["transformer", "bahdanau", "luong-dot"])
def test_every_word_takes_from_the_source_what_sums_to_one(variety):
    model = translator(variety)
    found = cloze.translate(model, "ein Hund läuft .", align=True)
    alignment, ended = found.candidates[0].alignment, found.candidates[0].finished
    assert alignment.source == ("ein", "Hund", "läuft", ".", END)
    assert (alignment.target[-1] == END) is ended
    assert alignment.weights.shape == (len(alignment.target), 5)
    np.testing.assert_allclose(alignment.weights.sum(1), 1.0, atol=1e-5)
    assert alignment.hard == tuple(alignment.weights.argmax(1))
    said = alignment.target[: -1 if ended else None]
    assert "".join("".join(said).split()) == "".join(found.text.split())


def test_pieces_of_a_word_add_up():
    model = translator("bahdanau")
    source, target = encode_sentences(model.tokenizer, ["Katze schläft .", "die Katze"])
    target = target[:-1]
    weights = model.module.compute_alignment(
        torch.tensor([source]),
        torch.ones(1, len(source), dtype=torch.bool),
        torch.tensor([[0, *target]]),
    )[0].detach()
    words = list(join_words(model.tokenizer, source[:-1]))
    told = align_words(model, source, target)
    (name, first, last), *_ = join_words(model.tokenizer, target)
    assert name == "die"
    for column, (_, begin, end) in enumerate(words):
        expected = weights[first:last, begin:end].sum(1).mean()
        assert told.weights[0, column] == pytest.approx(expected.item(), abs=1e-6)


def test_words_of_pieces():
    model = translator()

    def words(text):
        ids = encode_sentences(model.tokenizer, [text])[0][:-1]
        found = list(join_words(model.tokenizer, ids))
        assert [first for _, first, _ in found] == [0, *(last for _, _, last in found[:-1])]
        assert found[-1][2] == len(ids)
        return [word for word, _, _ in found]

    assert words("ein Café, der Hund!") == ["ein", "Café", ",", "der", "Hund", "!"]
    assert words("猫猫 in") == ["猫", "猫", "in"]
    assert words("ł") == ["ł"]
    assert list(join_words(model.tokenizer, [])) == []


def test_only_what_ended_has_a_row_for_its_end():
    model = translator("bahdanau")
    source, target = (
        encode_sentences(model.tokenizer, ["Katze schläft ."])[0],
        encode_sentences(model.tokenizer, ["die Katze"])[0][:-1],
    )
    whole, cut = (align_words(model, source, target, ended=ended) for ended in (True, False))
    assert whole.target == (*cut.target, END) == ("die", "Katze", END)
    np.testing.assert_allclose(whole.weights[:-1], cut.weights, atol=1e-6)


def test_a_translation_as_long_as_learned_positions_is_aligned(learned):
    found = cloze.translate(
        learned, " ".join(TEXTS[:9]), truncation="head", align=True, max_length_ratio=9.0
    )
    (one,) = found.candidates
    assert (one.finished, one.alignment.target[-1] == END) == (False, False)


@pytest.mark.parametrize("variety", ["transformer", "bahdanau"])
def test_a_line_that_was_never_split_is_no_sentence(variety):
    model = translator(variety)
    line = "ein " * MAX_SOURCE_TOKENS
    with raises(InputError, "sentence 1", "1,024"):
        cloze.translate(model, line, truncation="error")
    with pytest.warns(TruncationWarning, match="1 of 1 sentences .* 1,024 tokens"):
        found = cloze.translate(model, line, max_length_ratio=0.0, beam=1)
    kept = encode_sentences(model.tokenizer, [line])[0][: MAX_SOURCE_TOKENS - 1]
    assert found.truncated_chars == len(line) - len(decode_sentence(model.tokenizer, kept))
    learned = replace(
        model, config=replace(model.config, max_trained_length=2 * MAX_SOURCE_TOKENS)
    )  # from lines as long
    assert cloze.translate(learned, line, max_length_ratio=0.0, beam=1).truncated_chars == 0


def test_a_sentence_too_long_for_learned_positions(learned):
    long = " ".join(TEXTS[:9])
    count = len(encode_sentences(learned.tokenizer, [long])[0])
    with raises(InputError, "2", count, "24"):
        cloze.translate(learned, [TEXTS[0], long], truncation="error")
    told = []
    found = cloze.translate(
        learned,
        [long, TEXTS[0]],
        truncation="error",
        on_error=lambda row, error: told.append((row, error.fix)),
    )
    assert told == [(0, "split the sentence, or choose a truncation: head, tail, head+tail")]
    assert found[0].candidates == ()
    assert found[0].text == ""
    assert found[1].text == cloze.translate(learned, TEXTS[0]).text
    cut = cloze.translate(learned, long, truncation="head")
    kept = decode_sentence(learned.tokenizer, encode_sentences(learned.tokenizer, [long])[0][:23])
    assert cut.truncated_chars == len(long) - len(kept)
    assert (
        cut.text
        == cloze.translate(
            learned,
            decode_sentence(learned.tokenizer, encode_sentences(learned.tokenizer, [long])[0][:23]),
            truncation="head",
        ).text
    )
    with raises(ConfigError, "window"):
        cloze.translate(learned, long, truncation="window")
    assert cloze.translate(translator(), long, beam=1).candidates  # waves have no end


def test_what_a_user_can_get_wrong(model):
    for changes, message in (
        ({"beam": 0}, ("beam", "0")),
        ({"n_best": 9}, ("best", "9")),
        ({"length_normalization": "x"}, ("length_normalization", "x")),
        ({"max_length_ratio": -1.0}, ("ratio", "-1.0")),
        ({"batch_tokens": 0}, ("batch_tokens", "0")),
        ({"truncation": "middle"}, ("truncation", "middle")),
    ):
        with raises(ConfigError, message):
            cloze.translate(model, "ein", **changes)


def test_models_that_cannot():
    with raises(InputError, "attention", fix="attention"):
        cloze.translate(translator("plain-lstm"), "ein", align=True)


def test_progress_is_told(model):
    told = []
    cloze.translate(
        model, TEXTS[:6], beam=2, batch_tokens=60, progress=lambda *both: told.append(both)
    )
    assert told[-1] == ("sentences", 6, 6)
    assert len(told) > 1
