"""Context windows and BPTT batches."""

from itertools import pairwise

import numpy as np
import pytest

from cloze.data.language_model_batches import LOSS_NAME, BPTTBatches, ContextWindows

END, BOS = 2, 1
TEXT = np.array([5, 6, 7, END, 8, END, 9, 10, END], np.int32)


def test_every_token_occurs_once_per_epoch_with_its_context():
    windows = ContextWindows(TEXT, order=3, bos_id=BOS, eos_id=END, batch_size=3)
    assert windows.per_epoch == 3
    batches = [windows.batch(step) for step in range(3)]
    positions = np.concatenate([batch.sample_ids for batch in batches])
    assert sorted(positions) == list(range(len(TEXT)))
    seen = {
        int(position): (context.tolist(), int(word))
        for batch in batches
        for position, context, word in zip(
            batch.sample_ids, batch.inputs, batch.targets, strict=True
        )
    }
    assert seen[0] == ([BOS, BOS], 5)
    assert seen[1] == ([BOS, 5], 6)
    assert seen[3] == ([6, 7], END)
    assert seen[4] == ([BOS, BOS], 8)  # not past the end of the sentence before
    assert seen[8] == ([9, 10], END)
    again = np.concatenate([windows.batch(step).sample_ids for step in range(3, 6)])
    assert sorted(again) == sorted(positions)
    assert again.tolist() != positions.tolist()


def test_steps_can_be_read_in_any_order():
    for kind in (
        lambda: ContextWindows(TEXT, order=4, bos_id=BOS, eos_id=END, batch_size=2, seed=3),
        lambda: BPTTBatches(TEXT, batch_size=2, num_steps=2, seed=3),
        lambda: BPTTBatches(TEXT, batch_size=1, num_steps=2, seed=3, is_variable=True),
    ):
        straight, alone = kind(), kind()
        wanted = [straight.batch(step) for step in range(7)][-1]
        found = alone.batch(6)
        assert (wanted.inputs == found.inputs).all()
        assert (wanted.targets == found.targets).all()


def test_bptt_batches_continue_where_the_previous_one_ended():
    text = np.arange(100, dtype=np.int32)
    batches = BPTTBatches(text, batch_size=4, num_steps=5)
    assert batches.per_epoch == 5
    first, second = batches.batch(0), batches.batch(1)
    assert (first.targets == (first.inputs + 1) % 100).all()
    assert (second.inputs[:, 0] == first.targets[:, -1]).all()
    assert [set(batches.batch(n).keep_state) for n in (0, 1, 5)] == [{0.0}, {1.0}, {0.0}]
    assert first.inputs[1, 0] == (first.inputs[0, 0] + 25) % 100
    assert batches.batch(5).inputs[0, 0] != first.inputs[0, 0]  # another position of the circle


def test_some_states_are_reset():
    text = np.arange(1000, dtype=np.int32)
    batches = BPTTBatches(text, batch_size=10, num_steps=5, reset_prob=0.3)
    kept = np.stack([batches.batch(n).keep_state for n in range(1, 20)])
    assert 0.6 < kept.mean() < 0.8
    assert (kept == np.stack([batches.batch(n).keep_state for n in range(1, 20)])).all()


def test_a_text_shorter_than_a_batch_is_repeated():
    assert BPTTBatches(TEXT, batch_size=3, num_steps=7).batch(4).inputs.shape == (3, 7)
    windows = ContextWindows(TEXT, order=2, bos_id=BOS, eos_id=END, batch_size=20)
    assert len(set(windows.batch(0).sample_ids)) == len(TEXT)


def test_counts_arrays_and_parts():
    batch = BPTTBatches(TEXT, batch_size=4, num_steps=2).batch(0)
    assert batch.counts == {LOSS_NAME: 8}
    assert batch.lengths.tolist() == [2, 2, 2, 2]
    arrays = batch.arrays()
    assert {name: array.shape for name, array in arrays.items()} == {
        "inputs": (4, 2),
        "targets": (4, 2),
        "rows": (4,),
        "keep_state": (4,),
    }
    parts = batch.split(3)
    assert [len(part.inputs) for part in parts] == [2, 1, 1]
    assert np.concatenate([part.sample_ids for part in parts]).tolist() == [0, 1, 2, 3]
    assert len(batch.split(9)) == 4
    windows = ContextWindows(TEXT, order=3, bos_id=BOS, eos_id=END, batch_size=3).batch(0)
    assert windows.lengths.tolist() == [1, 1, 1]


def test_lengths_vary_around_the_usual_one_and_scale_the_learning_rate():
    text = np.arange(200_000, dtype=np.int32)
    batches = BPTTBatches(text, batch_size=4, num_steps=70, is_variable=True)
    some = [batches.batch(step) for step in range(batches.per_epoch)]
    lengths = np.array([one.inputs.shape[1] for one in some])
    assert abs(np.median(lengths) - 70) < 2
    assert 0.02 < (lengths < 50).mean() < 0.09
    assert 3 < lengths[lengths > 50].std() < 7
    assert [one.lr_scale for one in some] == pytest.approx(lengths / 70)
    for one, following in pairwise(some):
        assert (following.inputs[:, 0] == one.targets[:, -1]).all()
    read = lengths.sum() * 4 / len(text)
    assert 0.95 < read < 1.05
