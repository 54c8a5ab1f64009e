"""Aggregation of token probabilities to tags of words, and of tags to spans."""

import numpy as np
import pytest

from cloze.tasks.aggregation import TaggedUnit, aggregate_tokens, join_spans, labels_single_words

# three words of 2, 1 and 3 pieces; three labels
CHANCES = np.array(
    [[0.6, 0.3, 0.1], [0.0, 0.9, 0.1], [0.2, 0.2, 0.6], [0.5, 0.1, 0.4], [0.1, 0.1, 0.8], [0, 0, 1]]
)
STARTS = [0, 2, 3]


@pytest.mark.parametrize(
    ("how", "labels", "scores"),
    [
        ("first", [0, 2, 0], [0.6, 0.6, 0.5]),
        ("simple", [0, 2, 0], [0.6, 0.6, 0.5]),
        ("average", [1, 2, 2], [0.6, 0.6, 2.2 / 3]),
        ("max", [1, 2, 2], [0.9, 0.6, 1.0]),
    ],
)
def test_the_pieces_of_a_word_decide(how, labels, scores):
    found = aggregate_tokens(CHANCES, STARTS, how)
    assert found[0] == labels
    assert found[1] == pytest.approx(scores)


def test_no_words():
    assert aggregate_tokens(np.empty((0, 3)), [], "average") == ([], [])


def found(tags, words=None, **how):
    """Units of one character each in the text abcdef…"""
    places = words or range(len(tags))
    units = [TaggedUnit(w, tag, 0.5, n, n + 1) for n, (w, tag) in enumerate(zip(places, tags))]  # noqa: B905
    return [
        (span.text, span.label) for span in join_spans("abcdefghi", units, **{"join": True, **how})
    ]


def test_spans_begin_with_b_or_with_another_kind():
    assert found(["B-X", "I-X", "O", "B-X", "B-X", "I-X"]) == [("ab", "X"), ("d", "X"), ("ef", "X")]
    assert found(["O", "I-X", "I-X", "I-Y", "O", "I-Y"]) == [("bc", "X"), ("d", "Y"), ("f", "Y")]
    assert found(["B-X", "I-Y"]) == [("a", "X"), ("b", "Y")]
    assert found(["O", "O"]) == found([]) == []


def test_tags_without_b_and_i():
    assert found(["PER", "PER", "LOC", "O"]) == [("ab", "PER"), ("c", "LOC")]


def test_words_apart():
    tags = ["NOUN", "NOUN", "VERB", "-LRB-"]
    assert found(tags, single_words=True) == list(zip("abcd", tags, strict=True))
    assert found(tags[:3], words=[0, 0, 1], single_words=True) == [("ab", "NOUN"), ("c", "VERB")]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("NOUN VERB PUNCT", True),
        ("NN -LRB- -RRB-", True),
        ("O B-PER I-PER", False),
        ("I-PER I-LOC", False),
        ("B-PER E-PER S-PER", False),
        ("O PER LOC", False),
    ],
)
def test_labels_of_single_words(labels, expected):
    assert labels_single_words(labels.split()) is expected


def test_a_word_that_was_not_read_parts_a_span():
    assert found(["B-X", "I-X"], words=[0, 1]) == [("ab", "X")]
    assert found(["B-X", "I-X"], words=[0, 2]) == [("a", "X"), ("b", "X")]
    assert found(["B-X", "I-X"], words=[0, 0]) == [("ab", "X")]  # pieces of one word


def test_every_piece_for_itself():
    assert found(["B-X", "I-X", "O"], join=False) == [("a", "B-X"), ("b", "I-X")]


def test_the_score_of_a_span_is_the_mean():
    units = [TaggedUnit(0, "B-X", 0.5, 0, 1), TaggedUnit(1, "I-X", 1.0, 2, 3)]
    (span,) = join_spans("a b", units, join=True)
    assert (span.text, span.start, span.end, span.score) == ("a b", 0, 3, 0.75)
