from hypothesis import given
from hypothesis import strategies as st

from cloze.text.sentences import find_sentence_spans, split_sentences

PIECES = st.sampled_from(
    [
        *"。！？.!?…．\"'”」』)]\n\t ，と3",
        "U.S.",
        "Mr.",
        "The",
        "word",
        "No",
        "I",
        "世界",
        "[12]",
        ". ",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join))


@given(TEXTS)
def test_only_white_space_is_left_out(text: str):
    spans = find_sentence_spans(text)
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    assert edges == sorted(edges)
    between = zip(edges[::2], edges[1::2], strict=True)
    assert not "".join(text[start:end] for start, end in between).strip()


@given(TEXTS)
def test_sentences_have_no_surrounding_white_space(text: str):
    for sentence in split_sentences(text):
        assert sentence
        assert sentence == sentence.strip()


@given(st.lists(st.text("abc", min_size=1, max_size=5), min_size=1))
def test_plain_sentences_are_split(words: list[str]):
    made = [f"X{word} is here." for word in words]
    assert split_sentences(" ".join(made)) == made
