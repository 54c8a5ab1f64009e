"""Packing loses and repeats nothing, adds little padding, and is deterministic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.data.config import Batching
from cloze.data.packing import PackedBatches, pack_sequences
from cloze.data.samples import Sampling
from cloze.errors import ConfigError
from corpora import InMemory
from helpers import raises

LENGTHS = st.lists(st.integers(1, 60), max_size=200).map(lambda a: np.array(a, np.int64))


@given(LENGTHS, st.integers(60, 300), st.integers(1, 40))
def test_every_sequence_is_in_one_batch_and_fits(lengths, capacity, window):
    packing = pack_sequences(lengths, capacity, window=window)
    batches = [packing[number] for number in range(len(packing))]
    assert sorted(n for batch in batches for n in batch.tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert 0 < lengths[batch].sum() <= capacity
        assert (np.diff(lengths[batch]) <= 0).all()  # equal lengths are neighbours


@given(LENGTHS, st.integers(60, 300), st.integers(1, 40))
def test_a_sequence_overtakes_fewer_than_the_window(lengths, capacity, window):
    packing = pack_sequences(lengths, capacity, window=window)
    batch_of = np.repeat(np.arange(len(packing)), np.diff(packing.starts))
    batch_of = batch_of[np.argsort(packing.members)]
    for number, batch in enumerate(batch_of.tolist()):
        assert (batch_of[:number] > batch).sum() < window


@given(LENGTHS)
def test_the_same_lengths_give_the_same_batches(lengths):
    assert np.array_equal(
        pack_sequences(lengths, 100).members, pack_sequences(lengths.copy(), 100).members
    )


def as_in_text(count: int, length: int, full: float, seed: int) -> np.ndarray:
    """Many samples full to the brim, the others of any length, as the ends of documents are."""
    rng = np.random.default_rng(seed)
    rest = rng.integers(8, length, count)
    return np.where(rng.random(count) < full, length, rest)


@pytest.mark.parametrize("length", [128, 512])
@pytest.mark.parametrize("full", [0.0, 0.4, 0.7])
@pytest.mark.parametrize("sequences", [4, 16, 64])
def test_there_is_little_padding(length, full, sequences):
    packing = pack_sequences(as_in_text(20_000, length, full, seed=sequences), length * sequences)
    assert packing.non_padding_fraction >= 0.98


def test_batches_as_long_as_one_sequence_have_little_padding():
    assert pack_sequences(as_in_text(5000, 128, 0.5, seed=0), 128).non_padding_fraction >= 0.98


def test_a_sequence_longer_than_a_batch_is_reported():
    with raises(ConfigError, "9 tokens", "8"):
        pack_sequences(np.array([3, 9]), 8)


# Steps.


def batches(per_step: int = 1, **settings) -> PackedBatches:
    corpus = InMemory([[5, 9, 3, 7] * 3] * 12)
    sampling = Sampling(**{"max_length": 24, "seed": 7, **settings})
    batching = Batching(tokens=100, per_step=per_step)
    return PackedBatches(corpus.split, corpus.tokenizer, sampling, batching)


def sample_ids_of(
    made: PackedBatches, steps: int, start: int = 0, **process
) -> list[list[tuple[int, int]]]:
    """The (epoch, sample) pairs of each step."""
    return [
        [(batch.epoch, n) for batch in mine for n in batch.sample_ids.tolist()]
        for mine in (made.step(n, **process) for n in range(start, start + steps))
    ]


def test_steps_that_cross_epochs_lose_no_sample():
    made = batches(per_step=3, pairs="none")
    seen = sample_ids_of(made, -(-(len(made.epoch(0)) + len(made.epoch(1))) // 3))
    samples = [sample for step in seen for sample in step if sample[0] < 2]
    expected = [(e, n) for e in (0, 1) for n in range(len(made.epoch(e).samples))]
    assert sorted(samples) == expected
    assert all(len(step) > 0 for step in seen)


@pytest.mark.parametrize("stop", [1, 13, 29])
def test_a_resumed_run_has_the_same_batches(stop):
    first = batches(per_step=2)
    straight = sample_ids_of(first, 30)
    assert straight[-1][-1][0] >= 1
    assert sample_ids_of(batches(per_step=2), 30 - stop, stop) == straight[stop:]


def test_known_epoch_sizes_avoid_planning_earlier_epochs():
    first = batches(per_step=2)
    straight = sample_ids_of(first, 40)
    later = next(n for n, step in enumerate(straight) if all(epoch == 1 for epoch, _ in step))
    resumed = batches(per_step=2)
    resumed.epoch_sizes[:] = first.epoch_sizes
    assert sample_ids_of(resumed, 1, later) == straight[later : later + 1]
    assert list(resumed._epochs) == [1]


@pytest.mark.parametrize("world", [2, 4])
def test_steps_do_not_depend_on_the_number_of_processes(world):
    alone = sample_ids_of(batches(per_step=4), 20)
    processes = [
        sample_ids_of(batches(per_step=4), 20, rank=rank, world_size=world) for rank in range(world)
    ]
    for step, together in enumerate(alone):
        parts = [process[step] for process in processes]
        assert all(parts)
        assert sorted(sample for part in parts for sample in part) == sorted(together)


def test_a_step_that_cannot_be_distributed_is_reported():
    with raises(ConfigError, "3", "2", fix="2"):
        batches(per_step=3).step(0, world_size=2)


def test_a_batch_consists_of_its_samples_in_order():
    epoch = batches().epoch(0)
    for number in range(len(epoch)):
        batch = epoch[number]
        assert len(batch.input_ids) == batch.lengths.sum() <= 100
        parts = np.split(np.arange(len(batch.input_ids)), batch.starts[1:-1])
        for sample, sequences in zip(batch.sample_ids.tolist(), parts, strict=True):
            single = epoch.samples.make_batch(np.array([sample]))
            assert np.array_equal(batch.input_ids[sequences], single.input_ids)
            assert np.array_equal(batch.token_type_ids[sequences], single.token_type_ids)
            assert np.array_equal(batch.word_starts[sequences], single.word_starts)
            assert np.array_equal(batch.maskable[sequences], single.maskable)
