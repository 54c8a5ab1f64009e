"""Counting the words of chunks equals processing every text as a whole."""

from collections import Counter
from functools import partial
from string import ascii_lowercase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from cloze.text.backends import build_bert_normalizer, build_plain_normalizer
from cloze.text.counting import (
    count_characters,
    count_chunks,
    count_words,
    split_bert_words,
    split_with_spaces,
)
from generated_examples import examples
from texts import ANY_TEXT

FLAGS = [(True, None), (False, None), (True, False), (False, True)]


def whole(texts: list[str], normalizer, pre_tokenizer) -> Counter[str]:
    return Counter(
        word
        for text in texts
        for word, _ in pre_tokenizer.pre_tokenize_str(
            normalizer.normalize_str(text) if normalizer else text
        )
    )


@pytest.mark.parametrize("chinese", [True, False])
@pytest.mark.parametrize(("lowercase", "strip_accents"), FLAGS)
@examples(300)
@given(texts=st.lists(ANY_TEXT, max_size=4))
def test_bert_words(texts: list[str], lowercase: bool, strip_accents: bool | None, chinese: bool):
    normalizer = build_bert_normalizer(
        lowercase=lowercase, strip_accents=strip_accents, chinese=chinese
    )
    split = pre_tokenizers.BertPreTokenizer()
    chunks = count_chunks(texts, partial(split_bert_words, chinese=chinese), max_words=10**6)
    assert count_words(chunks, split, normalizer) == whole(texts, normalizer, split)


@pytest.mark.parametrize(("lowercase", "strip_accents"), FLAGS)
@examples(300)
@given(texts=st.lists(ANY_TEXT, max_size=4))
@example(texts=["a \u0300 b"])
def test_byte_level_bpe_words(texts: list[str], lowercase: bool, strip_accents: bool | None):
    normalizer = build_plain_normalizer(lowercase=lowercase, strip_accents=strip_accents)
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    spaced = partial(split_with_spaces, normalizer=normalizer)
    chunks = count_chunks(texts, spaced, max_words=10**6)
    assert count_words(chunks, split) == whole(texts, normalizer, split)


@pytest.mark.parametrize(("lowercase", "strip_accents"), FLAGS)
@examples(300)
@given(texts=st.lists(ANY_TEXT, max_size=4))
def test_characters(texts: list[str], lowercase: bool, strip_accents: bool | None):
    normalizer = build_plain_normalizer(lowercase=lowercase, strip_accents=strip_accents)
    chunks = count_chunks(texts, str, max_words=10**6)
    expected = Counter(
        character
        for text in texts
        for character in (normalizer.normalize_str(text) if normalizer else text)
    )
    assert count_characters(chunks, normalizer) == expected


@given(st.lists(st.text(ascii_lowercase[:6], min_size=1, max_size=2)), st.integers(2, 20))
def test_a_full_table_never_counts_too_much(chunks: list[str], max_words: int):
    found = count_chunks(chunks, str.split, max_words=max_words)
    assert len(found) <= max_words
    assert found <= Counter(chunks)
