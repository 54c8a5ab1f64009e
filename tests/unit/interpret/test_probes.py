"""Probes against scikit-learn, called directly."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from cloze.interpret.probes import ProbeData, assign_control_labels, fit_probe


def make_data(seed, rows=120):
    """Words of 30 types whose label is linear in their vectors."""
    rng = np.random.default_rng(seed)
    types = [f"w{n}" for n in rng.integers(0, 30, rows)]
    vectors = rng.normal(size=(rows, 8)) * 3 + 1
    labels = np.array(["a", "b", "c"])[vectors[:, :3].argmax(1)]
    return ProbeData(vectors=vectors, labels=list(labels), types=types)


@pytest.mark.parametrize("c", [1.0, 0.01])
def test_a_probe_equals_scikit_learn(c):
    train, test = make_data(0), make_data(1, 60)
    found = fit_probe(train, test, c=c, seed=5)
    scaler = StandardScaler().fit(train.vectors)
    control = assign_control_labels(train, test, 5)
    for labels, expected, correct in (
        (train.labels, test.labels, found.correct),
        (
            [control[one] for one in train.types],
            [control[one] for one in test.types],
            found.control_correct,
        ),
    ):
        model = LogisticRegression(C=c, max_iter=1000)
        model.fit(scaler.transform(train.vectors), labels)
        predicted = model.predict(scaler.transform(test.vectors))
        assert correct.tolist() == (predicted == np.array(expected)).tolist()
    assert found.has_converged
    assert found.accuracy > 0.65 > 0.6 > found.control_accuracy
    assert found.selectivity == found.accuracy - found.control_accuracy


def test_control_labels_are_those_of_word_types_with_the_frequencies_of_the_labels():
    train = ProbeData(
        vectors=np.zeros((1000, 1)),
        labels=["x"] * 900 + ["y"] * 100,
        types=[f"w{n}" for n in range(1000)],
    )
    test = ProbeData(vectors=np.zeros((1, 1)), labels=["x"], types=["new"])
    labels = assign_control_labels(train, test, 0)
    assert set(labels) == {*train.types, "new"}
    assert 50 < sum(label == "y" for label in labels.values()) < 150
    assert labels == assign_control_labels(train, test, 0) != assign_control_labels(train, test, 1)


def test_a_single_label_is_always_right():
    one = ProbeData(vectors=np.zeros((4, 2)), labels=["x"] * 4, types=list("abcd"))
    found = fit_probe(one, one)
    assert found.accuracy == found.control_accuracy == 1.0
