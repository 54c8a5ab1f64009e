"""ROUGE against the package rouge-score."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.metrics.rouge import NAMES, compute_rouge, score_summary
from generated_examples import examples

rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
THEIRS = dict(zip(NAMES, ("rouge1", "rouge2", "rougeL", "rougeLsum"), strict=True))
SCORER = rouge_scorer.RougeScorer([*THEIRS.values()])

words = st.sampled_from(["the", "Cat", "sat", "on", "a", "mat.", "naïve", "x-y", "3.5", "", "猫"])
texts = st.lists(st.lists(words, max_size=7).map(" ".join), max_size=4).map("\n".join)


@examples(100)
@given(texts, texts)
def test_scores_equal_rouge_score(summary, reference):
    theirs = SCORER.score(reference, summary)
    ours = score_summary(summary, reference)
    for name, other in THEIRS.items():
        assert ours[name].precision == pytest.approx(theirs[other].precision, abs=1e-12)
        assert ours[name].recall == pytest.approx(theirs[other].recall, abs=1e-12)
        assert ours[name].f1 == pytest.approx(theirs[other].fmeasure, abs=1e-12)


@examples(50)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text(summary, reference):
    theirs = SCORER.score(reference, summary)
    ours = compute_rouge([summary], [reference]).scores
    for name, other in THEIRS.items():
        assert ours[name] == pytest.approx(theirs[other].fmeasure, abs=1e-12)
