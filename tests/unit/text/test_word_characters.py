"""Words as rows of character ids."""

import numpy as np
import pytest

from cloze.errors import ConfigError
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer, train_whitespace_tokenizer
from cloze.text.word_characters import (
    BOS_ROW,
    EOS_ROW,
    WordCharacterTokenizer,
    encode_rows,
    encode_word,
    load_tokenizer,
)
from helpers import raises

TEXT = ["The cat sat on the mat.", "A cat sat."] * 3


@pytest.fixture(scope="module")
def tokenizer():
    return WordCharacterTokenizer.from_tokenizer(
        train_tokenizer(TEXT, kind="word", lowercase=False)
    )


def test_a_row_has_begin_bytes_end_and_padding():
    assert encode_word("aß") == (258, 97, 0xC3, 0x9F, 259, *[260] * 45)
    long = encode_word("x" * 80)
    assert (len(long), long[0], long[48], long[49]) == (50, 258, ord("x"), 259)
    words = ["aß", "", "x" * 80, "é" * 30]
    assert encode_rows(words).tolist() == [list(encode_word(word)) for word in words]
    assert BOS_ROW[:4] == (258, 256, 259, 260)
    assert EOS_ROW[:4] == (258, 257, 259, 260)


def test_ids_are_rows_and_unknown_words_keep_their_spelling(tokenizer):
    found = tokenizer.encode("The Zyzzyva sat")
    assert found.ids == [BOS_ROW, *map(encode_word, ("The", "Zyzzyva", "sat")), EOS_ROW]
    assert found.tokens == ["<s>", "The", "Zyzzyva", "sat", "</s>"]
    assert found.offsets[2] == (4, 11)
    assert tokenizer.encode_ids(["The Zyzzyva sat"]) == [found.ids]
    assert tokenizer.encode_words(["The Zyzzyva sat"]) == [["The", "Zyzzyva", "sat"]]
    assert np.array(found.ids).shape == (5, 50)


def test_both_texts_of_a_pair_are_enclosed(tokenizer):
    found = tokenizer.encode("a wug", "two wugs")
    words = [encode_word(word) for word in ("a", "wug", "two", "wugs")]
    assert found.ids == [BOS_ROW, *words[:2], EOS_ROW, BOS_ROW, *words[2:], EOS_ROW]
    assert found.type_ids == [0, 0, 0, 0, 1, 1, 1, 1]
    both = tokenizer.encode_ids_and_types(["a wug", "a"], ["two wugs", None])
    assert both[0] == (found.ids, found.type_ids)
    assert both[1] == ([BOS_ROW, words[0], EOS_ROW], [0, 0, 0])


def test_a_lower_case_vocabulary_reads_lower_case_characters():
    made = WordCharacterTokenizer.from_tokenizer(train_tokenizer(TEXT, kind="word"))
    known, unknown = made.encode_ids(["CAT WUG"], add_special_tokens=False)[0]
    assert (known, unknown) == (encode_word("cat"), encode_word("wug"))


@pytest.mark.parametrize("size", [40, 9000])
def test_windows_and_truncation_keep_the_rows(tokenizer, size):
    text = " ".join(f"w{n}" for n in range(size))  # the longer one is read in parts
    whole = tokenizer.encode(text)
    windows = tokenizer.encode_windows(text, max_length=22, overlap=5)
    assert all(one.ids[0] == BOS_ROW and one.ids[-1] == EOS_ROW for one in windows)
    seen = {
        offset: row for one in windows for offset, row in zip(one.offsets, one.ids, strict=True)
    }
    inside = list(zip(whole.offsets, whole.ids, strict=True))[1:-1]
    assert all(seen[offset] == row for offset, row in inside)
    tail = tokenizer.encode(text, max_length=6, truncation="tail")
    assert tail.ids == [BOS_ROW, *whole.ids[-5:]]
    assert tokenizer.encode_ids([text], limit=8)[0][:9] == whole.ids[:9]


def test_windows_of_a_pair(tokenizer):
    second = " ".join(f"w{n}" for n in range(9000))
    first, *_ = tokenizer.encode_windows("who sat", second, max_length=30, overlap=3)
    assert first.ids[:5] == [BOS_ROW, encode_word("who"), encode_word("sat"), EOS_ROW, BOS_ROW]
    assert first.ids[5] == encode_word("w0")


def test_it_is_saved_and_known_again(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert isinstance(again, WordCharacterTokenizer)
    assert again.encode("a new word") == tokenizer.encode("a new word")
    again.with_max_length(9).save(tmp_path / "again")
    assert load_tokenizer(tmp_path / "again").max_length == 9
    train_whitespace_tokenizer(TEXT).save(tmp_path / "plain")
    assert type(load_tokenizer(tmp_path / "plain")) is Tokenizer


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "char"])
def test_only_whole_words_have_rows(kind):
    with raises(ConfigError, kind, fix="word"):
        WordCharacterTokenizer.from_tokenizer(train_tokenizer(TEXT, kind=kind, vocab_size=300))


@pytest.mark.parametrize(
    "text", ["a  cat\tsat.", "x\x1cy z", "a\x85b", "猫 sat猫on", "e\u0301 [UNK]x <unk>", ""]
)
@pytest.mark.parametrize("kind", ["word", "lower", "spaced"])
def test_chunks_have_the_words_of_the_text(kind, text):
    made = WordCharacterTokenizer.from_tokenizer(
        train_whitespace_tokenizer(TEXT)
        if kind == "spaced"
        else train_tokenizer(TEXT, kind="word", lowercase=kind == "lower")
    )
    parts = made.encode_words(made.split_chunks(text))
    assert [word for words in parts for word in words] == made.encode_words([text])[0]
