import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.train.forward_context import seed_rng

CPU = torch.device("cpu")
keys = st.tuples(*[st.integers(0, 2**63 - 1)] * 4)


def drawn(*key):
    """From the global generator, which dropout uses, and from the one handed over."""
    with seed_rng(CPU, *key) as rng:
        return torch.rand(4).tolist(), torch.rand(4, generator=rng).tolist()


@given(keys, keys)
def test_the_same_key_draws_the_same_and_another_key_something_else(one, other):
    assert drawn(*one) == drawn(*one)
    assert (drawn(*one) == drawn(*other)) == (one == other)


def test_every_part_of_a_key_counts():
    near = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    assert len({str(drawn(*key)) for key in near}) == len(near)


def test_what_was_outside_is_there_again():
    torch.manual_seed(5)
    expected = torch.rand(6).tolist()
    torch.manual_seed(5)
    before = torch.rand(3).tolist()
    drawn(1, 2)
    assert before + torch.rand(3).tolist() == expected
