"""Batches on several cores: order, errors, torch's number of threads; results of every function."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cloze
from cloze.nn import cores
from cloze.nn.cores import choose_tokens_per_core, map_on_cores
from cloze.tasks import inference
from helpers import tiny_model

TEXTS = ["the cat sat.", "a", "cats sat, the cat", "b c d e f", "the the", "", "a b c"]


MASKED = ["the [MASK] sat", "a [MASK]", "[MASK] b c d"]
FUNCTIONS = (
    ("sequence", lambda model: [one.scores["yes"] for one in cloze.classify(model, TEXTS)]),
    ("mlm", lambda model: cloze.embed(model, TEXTS)),
    ("mlm", lambda model: [x.vectors[0] for x in cloze.embed(model, TEXTS, pooling="none")]),
    ("mlm", lambda model: [one.masks[0].predictions[0].score for one in cloze.fill(model, MASKED)]),
)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_batches(two_threads, monkeypatch):
    """A few tokens are worth a core."""
    monkeypatch.setattr(cores, "MIN_TOKENS", 4)
    monkeypatch.setattr(cores, "MAX_TOKENS", 8)


def test_results_are_in_order_and_each_item_has_one_thread(two_threads):
    seen, both = [], threading.Barrier(2, timeout=20)

    def function(number):
        if number < 2:
            both.wait()  # at the same time
        seen.append((torch.get_num_threads(), torch.is_inference_mode_enabled()))
        return -number

    with torch.inference_mode():
        assert list(map_on_cores(function, range(7))) == [-n for n in range(7)]
    assert seen == [(1, True)] * 7
    assert torch.get_num_threads() == 2
    assert not list(map_on_cores(function, []))


def test_an_error_is_raised_and_the_threads_are_as_before(two_threads):
    def fail(number):
        if number == 3:
            raise ValueError(number)
        return number

    found = map_on_cores(fail, range(50))
    with pytest.raises(ValueError, match="3"):
        list(found)
    assert torch.get_num_threads() == 2
    left = map_on_cores(fail, range(3))
    assert next(left) == 0
    left.close()  # who reads no more
    assert torch.get_num_threads() == 2


def test_inside_another_call_items_are_computed_one_by_one(two_threads):
    outer = map_on_cores(lambda _: list(map_on_cores(abs, [-1, -2])), [0, 1])
    assert list(outer) == [[1, 2], [1, 2]]


@given(st.lists(st.integers(1, 512), min_size=1, max_size=200), st.integers(1, 16))
def test_batches_of_about_the_same_size(lengths, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        most = choose_tokens_per_core(lengths, 2048)
    finally:
        torch.set_num_threads(before)
    if threads == 1 or sum(lengths) < 2 * cores.MIN_TOKENS:
        assert most == 2048
    else:
        assert cores.MIN_TOKENS <= most <= cores.MAX_TOKENS + max(lengths)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_functions_compute_the_same_on_two_cores(dtype, small_batches, monkeypatch):
    used = []

    def count(function, items):
        used.append(len(items))
        return map_on_cores(function, items)

    monkeypatch.setattr(inference, "map_on_cores", count)
    for head, function in FUNCTIONS:
        model = tiny_model(head, hidden_size=32).to(dtype=dtype)
        used.clear()
        found = function(model)
        assert max(used) > 1
        torch.set_num_threads(1)
        expected = function(model)
        torch.set_num_threads(2)
        # in integers, a sum in another order may be rounded to the next one
        close = 1e-5 if dtype == "float32" else 0.2
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=close)
