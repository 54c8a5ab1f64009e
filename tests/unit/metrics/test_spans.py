import pytest

from cloze.errors import InputError
from cloze.metrics.labels import LabelScores
from cloze.metrics.spans import detect_scheme, score_spans
from helpers import raises

GOLD = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-PER"]]


def test_a_span_is_correct_only_as_a_whole():
    predictions = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "B-PER"]]
    found = score_spans(GOLD, predictions)
    assert found.by_label == {
        "LOC": LabelScores(true_positives=1, predicted=1, support=1),
        "PER": LabelScores(true_positives=1, predicted=3, support=2),
    }
    assert found.overall == LabelScores(true_positives=2, predicted=4, support=3)
    assert (found.overall.precision, found.overall.recall) == (0.5, pytest.approx(2 / 3))
    assert found.accuracy == pytest.approx(4 / 6)


def test_a_wrong_label_is_a_false_positive_and_a_false_negative():
    found = score_spans([["B-PER"]], [["B-LOC"]])
    assert found.overall == LabelScores(true_positives=0, predicted=1, support=1)
    assert (found.by_label["PER"].support, found.by_label["LOC"].predicted) == (1, 1)


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
    assert score_spans(GOLD, tags).overall == LabelScores(true_positives=3, predicted=3, support=3)


def test_spans_end_with_their_sentence():
    gold = [["B-PER"], ["I-PER"]]
    assert score_spans(gold, gold).overall == LabelScores(true_positives=2, predicted=2, support=2)


def test_without_spans():
    found = score_spans([["O", "O"], []], [["O", "O"], []])
    assert (found.overall.f1, found.accuracy, found.by_label) == (0, 1, {})


def test_plain_tags_are_detected():
    assert detect_scheme([["NOUN", "VERB"]], [["NOUN", "ADJ"]]) == "plain"
    assert detect_scheme(GOLD, GOLD) == "IOB2"


def test_every_word_needs_its_tag():
    with raises(InputError, "sentence 2", "2", "1"):
        score_spans(GOLD, [GOLD[0], ["O"]])
    with raises(InputError, "2 examples", "1 prediction"):
        score_spans(GOLD, GOLD[:1])
