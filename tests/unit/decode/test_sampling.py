"""Drawing the next token."""

from collections import Counter

import pytest
import torch

from cloze.decode.config import SamplingOptions
from cloze.decode.sampling import filter_probabilities, sample
from cloze.errors import ConfigError
from helpers import raises

LOGS = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()


class Constant:
    """The same probabilities after every token; the state counts the steps."""

    def __init__(self, logs):
        self.logs = logs

    def step(self, tokens, state):
        return self.logs.expand(len(tokens), -1), state + 1

    def reorder(self, state, rows):
        return state[rows]


def drawn(how=None, rows=1, limit=1, eos=None, seed=0, logs=LOGS, never=()):
    tokens = torch.zeros(rows, dtype=torch.long)
    rng = torch.Generator().manual_seed(seed)
    draws = torch.rand(rows, limit, generator=rng, dtype=torch.float64)
    sampling = how or SamplingOptions()
    return sample(
        Constant(logs), tokens, tokens, sampling, draws=draws, eos_id=eos, banned_ids=never
    )


def test_shares_by_each_filter():
    def of(**how):
        found, ids = filter_probabilities(LOGS, SamplingOptions(**how))
        return found[0][ids[0].argsort()].tolist()

    assert of() == pytest.approx([0.1, 0.4, 0.2, 0.3])
    assert of(top_k=2) == pytest.approx([0, 4 / 7, 0, 3 / 7])
    assert of(top_p=0.7) == pytest.approx([0, 4 / 7, 0, 3 / 7])
    assert of(top_p=0.71) == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9])
    assert of(top_p=1e-9) == of(temperature=0.0) == of(top_k=1) == [0, 1, 0, 0]
    half = [p**2 for p in (0.1, 0.4, 0.2, 0.3)]
    assert of(temperature=0.5) == pytest.approx([p / sum(half) for p in half])
    assert of(top_k=3, top_p=0.5) == pytest.approx([0, 4 / 7, 0, 3 / 7])


def test_draws_come_as_often_as_they_are_likely():
    counts = Counter(one.tokens[0] for one in drawn(rows=20_000))
    assert [counts[n] / 20_000 for n in range(4)] == pytest.approx([0.1, 0.4, 0.2, 0.3], abs=0.015)


def test_a_row_does_not_depend_on_how_many_there_are():
    alone, many = drawn(limit=9, rows=1), drawn(limit=9, rows=5)
    assert many[0] == alone[0]
    assert len({one.tokens for one in many}) > 1
    assert drawn(limit=9, seed=1)[0] != alone[0]


def test_the_end_ends_a_row_and_counts():
    found = drawn(rows=50, limit=4, eos=1)
    for one in found:
        assert 1 not in one.tokens
        assert one.finished or len(one.tokens) == 4
        said = [*one.tokens, *([1] if one.finished else [])]
        wanted = sum(LOGS[0, token].item() for token in said)
        assert one.log_probability == pytest.approx(wanted, rel=1e-5)
    assert {one.finished for one in found} == {True, False}


def test_what_is_forbidden_never_comes():
    said = {token for one in drawn(rows=200, limit=3, never=[1, 3]) for token in one.tokens}
    assert said == {0, 2}


def test_a_token_without_probability_is_never_drawn():
    logs = torch.tensor([[0.0, -torch.inf, -torch.inf]])
    assert all(one.tokens == (0, 0) for one in drawn(rows=100, limit=2, logs=logs))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"temperature": -1.0}, ("temperature", "-1.0")),
        ({"top_p": 0.0}, ("top_p", "0.0")),
        ({"top_k": 0}, ("top_k", "0")),
    ],
)
def test_choices_that_make_no_sense(how, said):
    with raises(ConfigError, said):
        SamplingOptions(**how)


def test_ids_are_exact_if_log_probabilities_are_not():
    logs = torch.full((1, 5000), -9.0, dtype=torch.float16)
    logs[0, 4097] = 0.0
    assert drawn(SamplingOptions(temperature=0.0), logs=logs)[0].tokens == (4097,)
