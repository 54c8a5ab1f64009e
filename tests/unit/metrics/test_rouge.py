"""ROUGE: tokenizers, lead-3 and mistakes; the scores themselves are in tests/parity."""

import pytest

from cloze.errors import ConfigError, InputError
from cloze.metrics.baselines import describe_failure
from cloze.metrics.rouge import choose_tokenizer, compute_rouge, score_summary, take_lead
from helpers import raises


def test_a_worked_example():
    found = score_summary("police killed the gunman", "police kill the gunman")
    assert found["rouge_1"].f1 == pytest.approx(3 / 4)
    assert found["rouge_2"].f1 == pytest.approx(1 / 3)
    assert found["rouge_l"].f1 == pytest.approx(3 / 4)  # police … the gunman


def test_other_scripts():
    assert choose_tokenizer(["猫在睡觉", "a"]) == "unicode"
    assert choose_tokenizer(["Das Café", "naïve"]) == "ascii"
    assert score_summary("猫在跑", "猫在睡")["rouge_1"].f1 == 0.0
    assert score_summary("猫在跑", "猫在睡", tokenize="unicode")["rouge_1"].f1 == pytest.approx(
        2 / 3
    )


def test_sentences_are_found_or_lines():
    one, other = "B c. A d.", "A d. B c."
    assert compute_rouge([one], [other]).scores["rouge_lsum"] < 1
    assert compute_rouge([one], [other], find_sentences=True).scores["rouge_lsum"] == 1


def test_lead():
    assert take_lead("One is. Two are. Three are. Four are.") == "One is.\nTwo are.\nThree are."
    assert "first three sentences" in str(describe_failure({"rouge_l": 0.2, "lead_3_rouge_l": 0.3}))
    assert describe_failure({"rouge_l": 0.4, "lead_3_rouge_l": 0.3}) is None


def test_mistakes():
    with raises(InputError, "2", "1"):
        compute_rouge(["a", "b"], ["a"])
    with raises(InputError, "no summary"):
        compute_rouge([], [])
    with raises(ConfigError, "klingon", fix="ascii"):
        compute_rouge(["a"], ["a"], tokenize="klingon")
