import itertools

from hypothesis import given
from hypothesis import strategies as st

from cloze.retrieval.chunks import Span, split_chunks


def count_words(texts):
    return [len(text.split()) for text in texts]


def test_chunks_are_whole_sentences_with_overlap():
    text = "One two three. Four five. Six seven eight nine. Ten."
    assert [text[a:b] for a, b in split_chunks(text, count_words, 5, 0)] == [
        "One two three. Four five.",
        "Six seven eight nine. Ten.",
    ]
    shared = [text[a:b] for a, b in split_chunks(text, count_words, 6, 2)]
    assert shared == ["One two three. Four five.", "Four five. Six seven eight nine.", "Ten."]
    assert split_chunks("", count_words, 5, 0) == split_chunks(" \n ", count_words, 5, 2) == []


def test_a_long_sentence_is_split_between_words_and_a_long_word_inside():
    text = " ".join(f"word{n}" for n in range(50)) + "."
    found = [text[a:b] for a, b in split_chunks(text, count_words, 10, 0)]
    assert " ".join(found) == text
    assert max(count_words(found)) <= 13
    assert split_chunks("x" * 90, lambda texts: [len(one) // 10 for one in texts], 3, 0) == [
        Span(0, 30),
        Span(30, 60),
        Span(60, 90),
    ]


TEXTS = st.lists(st.sampled_from(["a", "bb. ", "Cc", " ", "\n\n", "。", "字", "D. "])).map("".join)


@given(TEXTS, st.integers(1, 6), st.integers(0, 6))
def test_chunks_cover_the_text_in_order(text, size, overlap):
    spans = split_chunks(text, lambda texts: [len(one) for one in texts], size, overlap)
    covered = {n for start, end in spans for n in range(start, end)}
    assert {n for n, one in enumerate(text) if not one.isspace()} <= covered
    assert all(a.start < b.start and a.end < b.end for a, b in itertools.pairwise(spans))
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)
