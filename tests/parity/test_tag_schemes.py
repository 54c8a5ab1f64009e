"""Spans beside seqeval's, which follows conlleval."""

import random

import pytest

pytest.importorskip("seqeval")
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB1, IOB2, IOBES, Entities

from cloze.data.labelled.tag_schemes import spans_to_tags, tags_to_spans

pytestmark = pytest.mark.parity


def theirs(tags):
    return [(first, last + 1, label) for label, first, last in get_entities(tags)]


@pytest.mark.parametrize("letters", ["BI", "I", "BIES", "IE", "BIE", "BS"])
def test_any_tags_give_the_spans_of_seqeval(letters):
    rng = random.Random(0)
    known = ["O", *(f"{letter}-{label}" for letter in letters for label in ("A", "B", "a-b"))]
    for _ in range(3000):
        tags = rng.choices(known, k=rng.randint(1, 9))
        assert tags_to_spans(tags, "BIOES") == theirs(tags)
        if set(letters) <= {"B", "I"}:
            assert tags_to_spans(tags, "IOB1") == tags_to_spans(tags, "IOB2") == theirs(tags)


@pytest.mark.parametrize(("scheme", "name"), [(IOB1, "IOB1"), (IOB2, "IOB2"), (IOBES, "BIOES")])
def test_strict_reading_agrees_on_well_formed_tags(scheme, name):
    rng = random.Random(1)
    for _ in range(2000):
        spans, at = [], rng.randint(0, 2)
        while at < 9:
            end = at + rng.randint(1, 3)
            spans.append((at, end, rng.choice("AB")))
            at = end + rng.randint(0, 2)
        tags = list(spans_to_tags(spans, 12))
        for number, (first, last, label) in enumerate(spans):
            before = spans[number - 1] if number else None
            if name == "IOB1" and not (before and before[1:] == (first, label)):
                tags[first] = f"I-{label}"
            if name == "BIOES":
                tags[last - 1] = f"{'S' if last - first == 1 else 'E'}-{label}"
        (strict,) = Entities([tags], scheme).entities
        assert (
            [(one.start, one.end, one.tag) for one in strict] == spans == tags_to_spans(tags, name)
        )
