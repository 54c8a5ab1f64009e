import pytest

from cloze.errors import InputError
from cloze.text.learn import learn
from helpers import tiny_tokenizer

#        0   4    9  12
TEXT = "the cats, abc."
PAIR = " 猫 sat"


def test_words_pieces_and_characters_are_linked():
    encoding = tiny_tokenizer().encode(TEXT)
    assert encoding.pieces == ["[CLS]", "the", "cat", "##s", ",", "a", "##b", "##c", ".", "[SEP]"]
    assert encoding.words == [None, 0, 1, 1, 2, 3, 3, 3, 4, None]
    assert encoding.pieces_of_word(1) == range(2, 4)
    assert encoding.word_chars(1) == (4, 8)
    assert encoding.word_chars(3) == (10, 13)
    assert encoding.chars_of(1, 3) == (0, 8)
    assert encoding.first_pieces() == [1, 2, 4, 5, 8]
    assert encoding.special == [True] + [False] * 8 + [True]
    assert len(encoding) == 10


def test_a_character_is_in_a_piece_and_a_word_or_in_none():
    encoding = tiny_tokenizer().encode(TEXT)
    assert [encoding.piece_at(n) for n in (0, 3, 7, 8, 12, 99)] == [1, None, 3, 4, 7, None]
    assert [encoding.word_at(n) for n in (0, 3, 7, 8, 12, 99)] == [0, None, 1, 2, 3, None]


@pytest.mark.parametrize(
    ("start", "end", "pieces"),
    [
        (0, 14, range(1, 9)),
        (4, 8, range(2, 4)),
        (5, 6, range(2, 3)),
        (2, 5, range(1, 3)),
        (3, 4, range(2, 2)),  # the space
        (6, 6, range(1, 1)),  # nothing asked
        (50, 60, range(9, 9)),
    ],
)
def test_a_stretch_of_characters_has_pieces(start: int, end: int, pieces: range):
    assert list(tiny_tokenizer().encode(TEXT).pieces_between(start, end)) == list(pieces)


def test_both_texts_of_a_pair_have_their_own_numbers():
    encoding = tiny_tokenizer().encode(TEXT, PAIR)
    assert encoding.pieces_of(1) == range(10, 12)
    assert encoding.sequences[8:] == [0, None, 1, 1, None]
    assert encoding.type_ids[8:] == [0, 0, 1, 1, 1]
    assert encoding.words[10:12] == [0, 1]
    assert encoding.word_chars(0, 1) == (1, 2)
    assert encoding.piece_at(1, 1) == 10
    assert encoding.word_at(4, 1) == 1
    assert encoding.pieces_between(0, 9, 1) == range(10, 12)
    assert encoding.first_pieces() == [1, 2, 4, 5, 8, 10, 11]


def test_without_a_pair_the_pair_has_no_pieces():
    encoding = tiny_tokenizer().encode("the")
    assert not encoding.pieces_of(1)
    assert encoding.piece_at(0, 1) is None


def test_the_first_of_several_pieces_covers_a_character():
    """A character spelled in bytes has several pieces with the same offsets."""
    encoding = learn(["abc"] * 3, kind="char", size=300, byte_fallback=True).encode("a猫c")
    assert encoding.offsets == [(0, 0), (0, 1), (1, 2), (1, 2), (1, 2), (2, 3), (0, 0)]
    assert encoding.piece_at(1) == 2
    assert encoding.pieces_between(1, 2) == range(2, 5)


def test_a_single_word_without_special_tokens_has_a_first_piece():
    assert tiny_tokenizer().encode("cats", special=False).first_pieces() == [0]


@pytest.mark.parametrize(("first", "last"), [(0, 1), (8, 11), (3, 2), (-1, 3), (1, 99), (9, 9)])
def test_pieces_that_are_no_stretch_of_one_text_are_refused(first: int, last: int):
    encoding = tiny_tokenizer().encode(TEXT, PAIR)
    with pytest.raises(InputError, match=f"pieces {first} to {last} are not a stretch of one text"):
        encoding.chars_of(first, last)


def test_a_word_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="there is no word 7 here\n  fix: take word numbers from"):
        tiny_tokenizer().encode("the").word_chars(7)
