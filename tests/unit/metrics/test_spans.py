import pytest

from cloze.errors import InputError
from cloze.metrics.rates import Rates
from cloze.metrics.spans import common_scheme, span_scores

GOLD = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-PER"]]


def test_a_span_is_right_as_a_whole_or_not_at_all():
    said = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "B-PER"]]
    found = span_scores(GOLD, said)
    assert found.by_label == {
        "LOC": Rates(right=1, found=1, wanted=1),
        "PER": Rates(right=1, found=3, wanted=2),
    }
    assert found.overall == Rates(right=2, found=4, wanted=3)
    assert (found.overall.precision, found.overall.recall) == (0.5, pytest.approx(2 / 3))
    assert found.accuracy == pytest.approx(4 / 6)


def test_the_right_words_with_another_label_are_wrong_twice():
    found = span_scores([["B-PER"]], [["B-LOC"]])
    assert found.overall == Rates(right=0, found=1, wanted=1)
    assert (found.by_label["PER"].wanted, found.by_label["LOC"].found) == (1, 1)


@pytest.mark.parametrize(
    "tags",
    [
        [["I-PER", "I-PER", "O", "I-LOC"], ["O", "I-PER"]],
        [["B-PER", "E-PER", "O", "S-LOC"], ["O", "S-PER"]],
        [["B-PER", "I-PER", "O", "I-LOC"], ["O", "I-PER"]],
    ],
    ids=["IOB1", "BIOES", "no B"],
)
def test_schemes_may_differ(tags):
    assert span_scores(GOLD, tags).overall == Rates(right=3, found=3, wanted=3)


def test_a_sentence_does_not_go_on_in_the_next():
    gold = [["B-PER"], ["I-PER"]]
    assert span_scores(gold, gold).overall == Rates(right=2, found=2, wanted=2)


def test_nothing_to_find_and_nothing_found():
    found = span_scores([["O", "O"], []], [["O", "O"], []])
    assert (found.overall.f1, found.accuracy, found.by_label) == (0, 1, {})


def test_plain_tags_are_known_as_such():
    assert common_scheme([["NOUN", "VERB"]], [["NOUN", "ADJ"]]) == "plain"
    assert common_scheme(GOLD, GOLD) == "IOB2"


def test_every_word_needs_its_tag():
    with pytest.raises(InputError, match="sentence 2 has 2 words and 1 predicted tags\n  fix: giv"):
        span_scores(GOLD, [GOLD[0], ["O"]])
    with pytest.raises(InputError, match="there are 2 examples and 1 predictions"):
        span_scores(GOLD, GOLD[:1])
