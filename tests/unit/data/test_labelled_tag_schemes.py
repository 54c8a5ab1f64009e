"""Tag schemes and the spans they encode."""

import pytest

from cloze.data.labelled.tag_schemes import (
    convert_to_iob2,
    detect_tag_scheme,
    parse_scheme,
    spans_to_tags,
    tags_to_spans,
)
from cloze.errors import InputError
from helpers import raises


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("I-PER O I-LOC B-LOC", "IOB1"),
        ("I-PER I-LOC", "IOB1"),
        ("B-PER I-PER O B-LOC B-LOC", "IOB2"),
        ("B-PER O I-LOC", "IOB2"),  # malformed, for IOB1 would not write this B
        ("O O", "IOB2"),
        ("", "IOB2"),
        ("B-PER E-PER O S-LOC", "BIOES"),
        ("B-PER M-PER E-PER", "BIOES"),
        ("B-PER I-PER L-PER O U-LOC", "BIOES"),
        ("I-PER E-PER", "BIOES"),
        ("DET NOUN VERB", "plain"),
        ("PER O LOC", "plain"),
        ("B M E S", "plain"),
        ("B-PER I-PER PER", "IOB2"),  # one slip does not make a file of another kind
    ],
)
def test_the_scheme_is_detected_from_the_tags(tags: str, scheme: str) -> None:
    assert detect_tag_scheme(tags.split()) == scheme
    assert detect_tag_scheme([["O"], tags.split(), []]) == scheme


def test_the_scheme_is_detected_from_all_sentences() -> None:
    assert detect_tag_scheme([["B-PER"], ["I-PER"]]) == "IOB2"
    assert detect_tag_scheme([["I-PER", "B-PER"], ["I-LOC"]]) == "IOB1"  # they do not touch
    assert detect_tag_scheme([["I-PER"], ["S-PER"]]) == "BIOES"


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-A I-A B-A", [(0, 2, "A"), (2, 3, "A")]),
        ("I-A I-A O I-A", [(0, 2, "A"), (3, 4, "A")]),
        ("B-A I-B", [(0, 1, "A"), (1, 2, "B")]),
        ("B-A M-A E-A S-B O", [(0, 3, "A"), (3, 4, "B")]),
        ("E-A E-A", [(0, 1, "A"), (1, 2, "A")]),
        ("I-A S-A I-A", [(0, 1, "A"), (1, 2, "A"), (2, 3, "A")]),
        ("B-person-actor I-person-actor", [(0, 2, "person-actor")]),
        ("PER PER O LOC", [(0, 2, "PER"), (3, 4, "LOC")]),
        ("B-A I-A A", [(0, 3, "A")]),
        ("", []),
    ],
)
def test_spans_are_decoded_like_conlleval(tags: str, spans: list[object]) -> None:
    assert tags_to_spans(tags.split()) == spans


def test_a_given_scheme_is_used() -> None:
    assert tags_to_spans(["B-A", "I-A"], "plain") == [(0, 1, "B-A"), (1, 2, "I-A")]
    assert convert_to_iob2(["PER", "PER", "O"], "IOB1") == ("B-PER", "I-PER", "O")
    assert convert_to_iob2(["B-A", "M-A"], "bmes") == ("B-A", "I-A")
    assert convert_to_iob2(["NOUN", "O"]) == ("NOUN", "O")
    assert [parse_scheme(name) for name in ("bio", "IOB", "Plain", "BILOU")] == [
        "IOB2", "IOB1", "plain", "BIOES",
    ]  # fmt: skip
    with raises(InputError, "IOB3", fix="IOB"):
        tags_to_spans(["O"], "IOB3")


def test_invalid_spans_are_rejected() -> None:
    assert spans_to_tags([(1, 3, "A"), (3, 4, "A")], 5) == ("O", "B-A", "I-A", "B-A", "O")
    with raises(InputError, "spans", "1", "3"):
        spans_to_tags([(0, 2, "A"), (1, 3, "B")], 3)
    for wrong in [(-1, 1, "A"), (2, 4, "A")]:
        with raises(InputError, "span", "3 words", fix="exclusive"):
            spans_to_tags([wrong], 3)
    for start, end in [(1, 1), (2, 1)]:
        with raises(InputError, f"span {start} to {end}", fix=f"{start} to {start + 1}"):
            spans_to_tags([(start, end, "A")], 3)
