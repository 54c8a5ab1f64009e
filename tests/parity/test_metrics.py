"""Metrics against scikit-learn, scipy and seqeval on generated inputs; tolerance 1e-9."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.metrics import labels, regression
from cloze.metrics.labels import LabelScores
from cloze.metrics.scorer import compute_scores
from cloze.metrics.spans import score_spans

metrics = pytest.importorskip("sklearn.metrics", reason="pip install scikit-learn")
stats = pytest.importorskip("scipy.stats", reason="pip install scipy")
seqeval = pytest.importorskip("seqeval.metrics", reason="pip install seqeval")

pytestmark = pytest.mark.parity

# Few labels and few examples: classes that are never right, never predicted or alone are common.
pairs = st.integers(1, 4).flatmap(
    lambda count: st.lists(
        st.tuples(*[st.sampled_from("abcd"[:count])] * 2), min_size=1, max_size=25
    )
)


def close(a, b):
    return a == pytest.approx(b, abs=1e-9)


@given(pairs)
def test_labels_equal_scikit_learn(both):
    gold, predicted = map(list, zip(*both, strict=True))
    known = sorted({*gold, *predicted})
    found = compute_scores("classify", gold, predicted)
    assert close(found["accuracy"], metrics.accuracy_score(gold, predicted))
    macro = metrics.f1_score(gold, predicted, average="macro", zero_division=0)
    assert close(found["f1_macro"], macro)
    matrix = metrics.confusion_matrix(gold, predicted, labels=[*known, "e"])[:-1, :-1]
    assert labels.confusion_matrix(gold, predicted).tolist() == matrix.tolist()
    theirs = metrics.precision_recall_fscore_support(gold, predicted, labels=known, zero_division=0)
    for label, *values in zip(known, *theirs, strict=True):
        ours: LabelScores = labels.score_labels(gold, predicted)[label]
        assert close([ours.precision, ours.recall, ours.f1, ours.support], values)
    if len(known) == 2:  # of two the second is the positive one
        assert close(found["f1"], theirs[2][1])


def matthews(gold, predicted):
    return labels.matthews_correlation(labels.confusion_matrix(gold, predicted))


@given(pairs)
def test_matthews_correlation_equals_scikit_learn(both):
    gold, predicted = map(list, zip(*both, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs warns where all is one label
        assert close(matthews(gold, predicted), metrics.matthews_corrcoef(gold, predicted))


@pytest.mark.parametrize("seed", range(5))
def test_many_labels_and_examples(seed):
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, 40, 5_000)
    predicted = np.where(rng.random(5_000) < 0.6, gold, rng.integers(0, 45, 5_000))
    pair = gold.tolist(), predicted.tolist()
    assert close(matthews(*pair), metrics.matthews_corrcoef(*pair))
    theirs = metrics.f1_score(*pair, average="macro", zero_division=0)
    assert close(compute_scores("classify", *pair)["f1_macro"], theirs)


measured = st.integers(-4, 4).map(float) | st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


@given(st.lists(st.tuples(measured, measured), min_size=2, max_size=40))
def test_correlations_equal_scipy(both):
    gold, predicted = map(list, zip(*both, strict=True))
    if len({*gold}) == 1 or len({*predicted}) == 1:
        # theirs is NaN
        assert regression.pearson(gold, predicted) == regression.spearman(gold, predicted) == 0
    else:
        assert close(regression.pearson(gold, predicted), stats.pearsonr(gold, predicted).statistic)
        assert close(
            regression.spearman(gold, predicted), stats.spearmanr(gold, predicted).statistic
        )
    assert regression.compute_ranks(np.array(gold)).tolist() == stats.rankdata(gold).tolist()
    assert close(
        regression.mean_squared_error(gold, predicted), metrics.mean_squared_error(gold, predicted)
    )


def make_tags(letters):
    tag = st.just("O") | st.builds("{}-{}".format, st.sampled_from(letters), st.sampled_from("XYZ"))
    sentence = st.lists(st.tuples(tag, tag), min_size=1, max_size=12)
    return st.lists(sentence, min_size=1, max_size=6)


@given(make_tags("BI") | make_tags("BIES") | make_tags("I"))
def test_spans_equal_seqeval(sentences):
    """Any order of tags, most of them malformed, in all three schemes."""
    gold = [[one for one, _ in sentence] for sentence in sentences]
    predicted = [[one for _, one in sentence] for sentence in sentences]
    ours = score_spans(gold, predicted)
    assert close(ours.accuracy, seqeval.accuracy_score(gold, predicted))
    for name in ("precision", "recall", "f1"):
        peer = getattr(seqeval, f"{name}_score")(gold, predicted, zero_division=0)
        assert close(getattr(ours.overall, name), peer)
    if ours.by_label:
        report = seqeval.classification_report(gold, predicted, output_dict=True, zero_division=0)
        assert {*ours.by_label} == {*report} - {"micro avg", "macro avg", "weighted avg"}
        for label, rates in ours.by_label.items():
            theirs = report[label]
            assert close(
                [rates.precision, rates.recall, rates.f1, rates.support],
                [theirs[key] for key in ("precision", "recall", "f1-score", "support")],
            )
