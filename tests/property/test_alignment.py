"""For all texts: the alignment is consistent, truncation is reported, and no byte is unknown."""

from functools import cache
from itertools import compress, pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cloze.text.alignment import TokenAlignment
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer
from cloze.text.truncation import (
    find_max_context_windows,
    split_windows,
    truncate,
    truncate_longest_first,
)
from generated_examples import examples
from texts import ANY_TEXT

TEXTS = [
    "The quick brown foxes jumped over the lazy dogs, again and again; playing, played, players.",
    "Élan vital, naïve façade, Straße, İstanbul, ΑΒΓ αβγς, Ещё один, 中文字符 日本語 ไทย 😀",
] * 3

MADE = {
    "uncased": {"kind": "wordpiece"},
    "cased": {"kind": "wordpiece", "lowercase": False},
    "bytes": {"kind": "wordpiece", "byte_fallback": True, "vocab_size": 900},
    "bpe": {"kind": "bpe", "vocab_size": 400},
    "word": {"kind": "word"},
    "char": {"kind": "char"},
    "char-bytes": {"kind": "char", "byte_fallback": True},
}


@cache
def made(name: str) -> Tokenizer:
    return train_tokenizer(TEXTS, **{"vocab_size": 500, **MADE[name]})


def check(encoding: TokenAlignment, text: str, sequence: int) -> None:
    inside = encoding.token_range(sequence)
    offsets = [encoding.offsets[n] for n in inside]
    words = [encoding.words[n] for n in inside]
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert offsets == sorted(offsets)
    assert [end for _, end in offsets] == sorted(end for _, end in offsets)
    assert None not in words
    assert words == sorted(words)
    spans = dict(zip(sorted(set(words)), encoding.word_spans(sequence), strict=True))
    for word, (start, end) in spans.items():
        tokens = [n for n in inside if encoding.words[n] == word]
        assert (start, end) == (encoding.offsets[tokens[0]][0], encoding.offsets[tokens[-1]][1])
        assert set(tokens) <= set(encoding.tokens_in_span(start, end, sequence)) or start == end
    for char in range(len(text)):
        covering = [n for n in inside if encoding.offsets[n][0] <= char < encoding.offsets[n][1]]
        assert [*encoding.tokens_in_span(char, char + 1, sequence)] == covering


@pytest.mark.parametrize("name", MADE)
@examples(100)
@given(text=ANY_TEXT, pair=ANY_TEXT)
def test_characters_words_and_tokens_agree(name: str, text: str, pair: str):
    encoding = made(name).encode(text, pair)
    check(encoding, text, 0)
    check(encoding, pair, 1)
    assert [made(name).token_to_id(token) for token in encoding.tokens] == encoding.ids
    assert made(name).encode_ids([text]) == [made(name).encode(text).ids]


@pytest.mark.parametrize("policy", ["head", "tail", "head+tail"])
@examples(200)
@given(text=ANY_TEXT, pair=st.none() | ANY_TEXT, limit=st.integers(4, 40))
def test_kept_and_truncated_tokens_are_all_tokens(
    policy: str, text: str, pair: str | None, limit: int
):
    tokenizer = made("uncased")
    whole = tokenizer.encode(text, pair)
    part = tokenizer.encode(text, pair, max_length=limit, truncation=policy)
    assert len(part) == min(limit, len(whole))
    for sequence in (0, 1):
        tokens = whole.token_range(sequence)
        kept = [tokens[n] for span in part.kept_ranges[sequence] for n in span]
        assert len(kept) + part.num_truncated[sequence] == len(tokens)
        for column in ("ids", "tokens", "offsets", "words", "type_ids"):
            expected = [getattr(whole, column)[n] for n in kept]
            assert [getattr(part, column)[n] for n in part.token_range(sequence)] == expected
    framed = [compress(encoding.ids, encoding.special_tokens_mask) for encoding in (part, whole)]
    assert list(framed[0]) == list(framed[1])


@given(text=ANY_TEXT, stride=st.integers(0, 5))
def test_every_token_has_one_window_with_the_most_context(text: str, stride: int):
    tokenizer = made("bpe")
    whole = tokenizer.encode(text)
    shown = tokenizer.encode_windows(text, max_length=6, overlap=stride)
    spans = [window.kept_ranges[0][0] for window in shown]
    ids = [
        shown[n].ids[token - spans[n].start]
        for token, n in enumerate(find_max_context_windows(spans))
    ]
    assert ids == whole.ids


@pytest.mark.parametrize("name", ["bytes", "char-bytes", "bpe"])
@examples(100)
@given(text=ANY_TEXT)
@example(text="\U0002b820" * 301)
def test_no_character_is_unknown_with_bytes(name: str, text: str):
    assert "[UNK]" not in made(name).encode(text).tokens


@pytest.mark.parametrize("name", ["char-bytes", "bpe"])
@examples(100)
@given(text=ANY_TEXT)
def test_decoding_is_lossless(name: str, text: str):
    assume("[MASK]" not in text)  # a special token even where it is typed
    assert made(name).decode(made(name).encode(text).ids) == text


@examples(100)
@given(text=ANY_TEXT)
@example(text="Don't stop. Why? He is n't, x .")
@example(text="ж" * 250)
def test_decoding_byte_tokens_gives_the_normalized_words(text: str):
    """One space between words, which are BERT's: longer ones in parts of a hundred."""
    assume("[MASK]" not in text)
    tokenizer, plain = made("bytes"), made("uncased").backend
    assert plain.normalizer is not None
    assert plain.pre_tokenizer is not None
    words = plain.pre_tokenizer.pre_tokenize_str(plain.normalizer.normalize_str(text))
    parts = [word[n : n + 100] for word, _ in words for n in range(0, len(word), 100)]
    assert tokenizer.decode(tokenizer.encode(text).ids) == " ".join(parts)


@given(st.sampled_from(["head", "tail", "head+tail"]), st.integers(0, 3000), st.integers(0, 1000))
def test_truncation_keeps_exactly_max_length_tokens_in_order(policy: str, count: int, limit: int):
    kept = [token for span in truncate(policy, count, limit) for token in span]
    assert len(kept) == min(count, limit)
    assert kept == sorted(set(kept))
    assert not kept or (policy == "tail" or kept[0] == 0 or limit < 4)
    assert not kept or (policy == "head" or kept[-1] == count - 1)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 80))
def test_truncation_of_a_pair_keeps_exactly_max_length_tokens(first: int, second: int, limit: int):
    kept = truncate_longest_first(first, second, limit)
    assert sum(kept) == min(first + second, limit)
    assert all(0 <= k <= whole for k, whole in zip(kept, (first, second), strict=True))
    # nothing is taken from one while the other is longer by more than the odd token
    assert kept[0] == first or kept[1] <= kept[0] + 1
    assert kept[1] == second or kept[0] <= kept[1] + 1


@given(st.integers(0, 300), st.integers(1, 50), st.integers(0, 49))
def test_windows_cover_everything_and_overlap(count: int, limit: int, stride: int):
    stride %= limit
    spans = split_windows(count, limit, stride)
    assert {token for span in spans for token in span} == set(range(count))
    assert all(len(span) <= limit for span in spans)
    assert all(len(span) == limit for span in spans[:-1])
    for left, right in pairwise(spans):
        assert left.stop - right.start == stride
    chosen = find_max_context_windows(spans)
    assert len(chosen) == count
    assert all(token in spans[number] for token, number in enumerate(chosen))
