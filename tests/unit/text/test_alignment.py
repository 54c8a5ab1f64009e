import pytest

from cloze.text.tokenizer_training import train_tokenizer
from helpers import tiny_tokenizer

#        0   4    9  12
TEXT = "the cats, abc."
PAIR = " 猫 sat"


def test_words_tokens_and_characters_are_aligned():
    encoding = tiny_tokenizer().encode(TEXT)
    assert encoding.tokens == ["[CLS]", "the", "cat", "##s", ",", "a", "##b", "##c", ".", "[SEP]"]
    assert encoding.words == [None, 0, 1, 1, 2, 3, 3, 3, 4, None]
    assert encoding.word_spans() == [(0, 3), (4, 8), (8, 9), (10, 13), (13, 14)]
    assert encoding.special_tokens_mask == [True] + [False] * 8 + [True]
    assert len(encoding) == 10


@pytest.mark.parametrize(
    ("start", "end", "tokens"),
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
def test_tokens_in_span(start: int, end: int, tokens: range):
    assert list(tiny_tokenizer().encode(TEXT).tokens_in_span(start, end)) == list(tokens)


def test_words_are_numbered_within_each_text_of_a_pair():
    encoding = tiny_tokenizer().encode(TEXT, PAIR)
    assert encoding.token_range(1) == range(10, 12)
    assert encoding.sequence_ids[8:] == [0, None, 1, 1, None]
    assert encoding.type_ids[8:] == [0, 0, 1, 1, 1]
    assert encoding.words[10:12] == [0, 1]
    assert encoding.word_spans(1) == [(1, 2), (3, 6)]
    assert encoding.tokens_in_span(0, 9, 1) == range(10, 12)


def test_without_a_pair_the_pair_has_no_tokens():
    encoding = tiny_tokenizer().encode("the")
    assert not encoding.token_range(1)
    assert encoding.word_spans(1) == []


def test_all_tokens_of_a_character_are_found():
    """A character spelled in bytes has several tokens with the same offsets."""
    encoding = train_tokenizer(["abc"] * 3, kind="char", vocab_size=300, byte_fallback=True).encode(
        "a猫c"
    )
    assert encoding.offsets == [(0, 0), (0, 1), (1, 2), (1, 2), (1, 2), (2, 3), (0, 0)]
    assert encoding.tokens_in_span(1, 2) == range(2, 5)
