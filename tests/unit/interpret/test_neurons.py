"""Factors and clusters of neurons equal scikit-learn."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF

from cloze.errors import InputError
from cloze.interpret.neurons import cluster_neurons, factorize_activations, select_active_neurons
from helpers import raises

RNG = np.random.default_rng(3)
ACTIVATIONS = RNG.gamma(0.4, size=(40, 3)) @ RNG.gamma(0.4, size=(3, 9)) + RNG.normal(
    scale=0.05, size=(40, 9)
)
ACTIVATIONS[7] = -1.0  # a neuron that is never active
POSITIVE = np.maximum(ACTIVATIONS, 0)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_factors_equal_scikit_learn(count):
    found = factorize_activations(ACTIVATIONS, count, seed=4)
    model = NMF(count, init="nndsvda", random_state=4, max_iter=1000)
    tokens = model.fit_transform(POSITIVE.T)  # t k
    products = [np.outer(model.components_[n], tokens[:, n]) for n in range(count)]  # n t
    order = sorted(
        range(count),
        key=lambda n: -tokens[:, n].sum() * np.sqrt(np.square(model.components_[n]).mean()),
    )
    for number, n in enumerate(order):
        product = np.outer(found.neurons[:, number], found.tokens[number])
        np.testing.assert_allclose(product, products[n], atol=1e-10)
        assert np.square(found.neurons[:, number]).mean() == pytest.approx(1)
    error = model.reconstruction_err_**2 / np.square(POSITIVE).sum()
    assert found.explained == pytest.approx(1 - error, abs=1e-9)
    assert found.strongest == found.tokens.argmax(0).tolist()


def test_clusters_equal_scikit_learn():
    found = cluster_neurons(ACTIVATIONS, 3, seed=4)
    active = np.delete(np.arange(40), 7)
    patterns = POSITIVE[active] / np.linalg.norm(POSITIVE[active], axis=1, keepdims=True)
    expected = KMeans(3, n_init=10, random_state=4).fit_predict(patterns)
    assert found.labels[7] == -1
    names = dict(zip(expected.tolist(), found.labels[active].tolist(), strict=True))
    assert [names[label] for label in expected] == found.labels[active].tolist()
    assert sorted(names.values()) == [0, 1, 2]
    sizes = np.bincount(found.labels[active])
    assert found.sizes == tuple(sizes) == tuple(sorted(sizes, reverse=True))
    np.testing.assert_allclose(found.tokens[1], POSITIVE[found.labels == 1].mean(0))


def test_a_token_without_any_activation_has_no_factor():
    silent = np.concatenate([POSITIVE, np.zeros((40, 1))], 1)
    assert factorize_activations(silent, 2).strongest[-1] is None


def test_the_most_active_neurons_are_selected_in_order():
    found = select_active_neurons(POSITIVE, 5)
    best = sorted(np.argsort(-POSITIVE.max(1))[:5].tolist())
    assert found.tolist() == best
    assert select_active_neurons(np.zeros((3, 2)), 2).tolist() == []


def test_wrong_numbers_are_rejected():
    with raises(InputError, "10", "factors", fix="9"):
        factorize_activations(ACTIVATIONS, 10)
    with raises(InputError, "1", "clusters"):
        cluster_neurons(ACTIVATIONS, 1)
    with raises(InputError, "tokens"):
        factorize_activations(ACTIVATIONS[:, :0], 2)
    with raises(InputError, "NaN"):
        cluster_neurons(ACTIVATIONS * np.nan, 2)
