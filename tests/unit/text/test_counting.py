from collections import Counter

from tokenizers import normalizers, pre_tokenizers

from cloze.errors import InputError
from cloze.text.counting import (
    count_characters,
    count_chunks,
    count_words,
    split_bert_words,
    split_with_spaces,
)
from helpers import raises


def test_ideographs_are_separate_chunks_if_chinese():
    assert split_bert_words("a中文b c", chinese=True) == ["a", "中", "文", "b", "c"]
    assert split_bert_words("a中文b c", chinese=False) == ["a中文b", "c"]


def test_a_control_character_does_not_split_a_word():
    assert split_bert_words("a\x1cb\x85c d", chinese=True) == ["abc", "d"]


def test_spaced_chunks_keep_the_white_space_before_them():
    assert split_with_spaces("a  b\n c \t") == ["a", "  b", "\n c", " \t"]
    assert split_with_spaces("a\x1cb") == ["a\x1cb"]


def test_words_are_counted_by_chunk():
    chunks = Counter({"don't": 3, "Don't": 2, "x": 1})
    words = count_words(chunks, pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer())
    assert words == {"don": 5, "'": 5, "t": 5, "x": 1}


def test_characters_are_counted_after_normalization():
    assert count_characters(Counter({"é": 2, "E": 3}), normalizers.BertNormalizer()) == {"e": 5}
    assert count_characters(Counter({"ab": 2, "b": 1})) == {"a": 2, "b": 3}


def test_a_full_table_loses_rare_chunks_and_keeps_frequent_ones():
    texts = [f"often only{n} once{n}" for n in range(1000)]
    counts = count_chunks(texts, str.split, max_words=50)
    assert counts["often"] == 1000
    assert len(counts) <= 50


def test_a_count_is_too_low_by_at_most_the_thresholds():
    """A chunk seen in every third text survives with nearly its whole count."""
    texts = [f"x{n} y{n} z{n} " + ("third" if n % 3 == 0 else "") for n in range(3000)]
    bars = 3000 * 3 // 150 + 1  # at most so many times is a table of 300 halved
    assert count_chunks(texts, str.split, max_words=300)["third"] >= 1000 - sum(range(bars))


def test_progress_is_reported():
    seen: list[tuple[str, int, int | None]] = []
    count_chunks(["a"] * 20_000, str.split, max_words=9, progress=lambda *at: seen.append(at))
    assert seen == [("texts counted", 10_000, None), ("texts counted", 20_000, None)]


def test_a_single_string_is_rejected():
    with raises(InputError, "single", fix="list"):
        count_chunks("a text", str.split, max_words=9)


def test_other_types_than_str_are_rejected():
    with raises(InputError, "text 2", "bytes", fix="str"):
        count_chunks(["a", b"b"], str.split, max_words=9)  # type: ignore[list-item]


def test_a_lone_surrogate_is_rejected():
    with raises(InputError, "text 1", "surrogate", "character 1"):
        count_chunks(["a\ud83d"], str.split, max_words=9)
