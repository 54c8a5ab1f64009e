import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.data.labelled.batch import TaskBatch
from cloze.data.pair_batch import PairBatch, PairLayout
from cloze.data.parallel_text import TranslationBatch
from cloze.objectives.pretraining import pretraining_objective
from cloze.train.guard import TrainingError
from cloze.train.memory import SmallerBatchWarning, is_out_of_memory, split_batch
from helpers import raises
from training import data, new_state, packed, steps_of, tiny_bert

SAMPLES = 8  # to a step, in one micro-batch


class SmallDevice:
    """An objective on a device that holds so many tokens and no more.

    It runs out going forwards, or half-way back: then some weights have their gradients already.
    """

    def __init__(self, holds: int, *, backwards: bool, error: RuntimeError) -> None:
        self.holds, self.backwards, self.error = holds, backwards, error
        self.sizes: list[int] = []
        self.left: list[int] = []  # how many weights had a gradient when it failed half-way

    def __call__(self, model, batch, rng):
        self.sizes.append(batch.size)
        full = batch.size > self.holds
        if full and not self.backwards:
            raise self.error
        terms = pretraining_objective(model, batch, rng)
        handles = []

        def burst(_):
            handles.pop().remove()
            self.left.append(sum(weight.grad is not None for weight in model.parameters()))
            raise self.error

        if full:
            handles.append(model.blocks[0].attention.qkv.weight.register_hook(burst))
        return terms


def weights_after(state, steps=3):
    taken = steps_of(state, steps, source=data(parts=1, size=SAMPLES))
    return taken, [weight.detach().clone() for weight in state.model.parameters()]


WORDS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 7 bytes"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("holds", [10, 20, 35, 45])
def test_running_out_of_memory_halves_and_gives_the_same_gradients(holds, backwards):
    small = SmallDevice(holds, backwards=backwards, error=WORDS[0])
    state = new_state(tiny_bert().double(), objective=small)
    with pytest.warns(SmallerBatchWarning, match="micro-batches of at most [0-9]+ tokens"):
        tight, weights = weights_after(state)
    roomy, expected = weights_after(new_state(tiny_bert().double()))
    for a, b in zip(tight, roomy, strict=True):
        assert a.means == pytest.approx(b.means, rel=1e-12)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-12)
        assert np.concatenate(a.sample_ids).tolist() == np.concatenate(b.sample_ids).tolist()
    for a, b in zip(weights, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    assert state.max_micro_tokens is not None
    assert state.max_micro_tokens <= 60
    assert any(size > holds for size in small.sizes), "it did run out"
    assert all(small.left)
    assert bool(small.left) == backwards


def test_what_was_found_to_fit_is_kept_to_from_then_on():
    small = SmallDevice(30, backwards=False, error=WORDS[0])
    with pytest.warns(SmallerBatchWarning) as told:
        weights_after(new_state(objective=small), steps=6)
    tried = [size > 30 for size in small.sizes]
    assert len(told) == sum(tried)
    assert not any(tried[tried.index(False) + 3 :]), "only the first steps ran out"


@pytest.mark.parametrize("error", WORDS, ids=["cuda", "cpu", "cublas"])
def test_all_words_for_it_are_understood(error):
    assert is_out_of_memory(error)
    small = SmallDevice(30, backwards=False, error=error)
    with pytest.warns(SmallerBatchWarning):
        weights_after(new_state(objective=small), steps=1)


def test_another_error_is_not_taken_for_it():
    small = SmallDevice(30, backwards=False, error=RuntimeError("mat1 and mat2 do not fit"))
    with raises(RuntimeError, "mat1 and mat2"):
        weights_after(new_state(objective=small))
    assert len(small.sizes) == 1


def test_a_single_sequence_that_does_not_fit_ends_the_run():
    small = SmallDevice(2, backwards=True, error=WORDS[0])
    state = new_state(objective=small)
    with (
        pytest.warns(SmallerBatchWarning),
        raises(TrainingError, "out of memory", "step 1"),
    ):
        weights_after(state)
    assert all(weight.grad is None for weight in state.model.parameters())


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=20, unique=True),
    st.integers(1, 120),
)
def test_pieces_hold_every_sequence_once_and_keep_to_the_limit(sample_ids, limit):
    batch = packed(sample_ids)
    cut = split_batch(batch, limit)
    assert all(piece.size <= limit or len(piece) == 1 for piece in cut)
    for name in ("sample_ids", "input_ids", "lengths", "targets", "labels"):
        joined = np.concatenate([getattr(piece, name) for piece in cut])
        assert joined.tolist() == getattr(batch, name).tolist()
    assert split_batch(batch, None) == [batch]


def make_batches(lengths, group_sizes):
    """Sequences of these lengths in every kind of batch of packed sequences."""
    sizes, ids = np.array(lengths), np.arange(sum(lengths))
    rows, ones = np.arange(len(lengths)), np.ones(len(lengths), np.int64)
    layout = PairLayout.from_rows(rows[:, None])
    groups = np.array(group_sizes)
    return [
        PairBatch(layout=layout, input_ids=ids, lengths=sizes, vectors=rows),
        TranslationBatch(
            source=ids,
            target=ids[: len(rows)],
            source_lengths=sizes,
            target_lengths=ones,
            sample_ids=rows,
        ),
        TaskBatch(
            name="choose",
            input_ids=ids,
            token_type_ids=ids,
            lengths=sizes,
            positions=ids[: len(rows)],
            position_counts=ones,
            group_sizes=groups,
            targets=np.zeros(len(groups)),
            target_counts=np.ones_like(groups),
            sample_ids=rows,
        ),
    ]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.integers(1, 400), st.data())
def test_batches_of_very_different_lengths_are_split(lengths, limit, drawn):
    cuts = drawn.draw(st.sets(st.integers(1, max(1, len(lengths) - 1))))
    borders = [0, *sorted(cuts - {len(lengths)}), len(lengths)]
    for batch in make_batches(lengths, np.diff(borders)):
        is_grouped = isinstance(batch, TaskBatch)
        parts = split_batch(batch, limit)
        for part in parts:
            units = len(part.group_sizes) if is_grouped else len(part.lengths)
            assert part.size <= limit or units == 1
        joined = np.concatenate([part.lengths for part in parts])
        assert joined.tolist() == batch.lengths.tolist()
