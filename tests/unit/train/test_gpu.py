"""What only a GPU can show: nothing waits for it, and its memory really runs out."""

import copy
import warnings
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from cloze.data.labelled.batch import EncodedExample, TaskBatch, collate_examples
from cloze.models.build import build
from cloze.objectives.core import Learner
from cloze.objectives.labelled import make_classification_objective
from cloze.objectives.pretraining import pretraining_objective
from cloze.train.config import OptimizerConfig
from cloze.train.cuda_graphs import CUDAGraphCache
from cloze.train.distributed import DistributedContext
from cloze.train.gradients import apply_gradients
from cloze.train.guard import TrainingError
from cloze.train.loop import evaluate_objective, training_steps
from cloze.train.memory import SmallerBatchWarning, gradient_checkpointing
from cloze.train.optim import build_optimizer
from cloze.train.schedule import Budget, Schedule
from cloze.train.state import TrainState, restore, snapshot
from helpers import raises
from training import data, new_state, packed, steps_of, tiny_bert

pytestmark = pytest.mark.gpu

GPU = DistributedContext(device=torch.device("cuda", 0))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_no_step_waits_for_the_gpu():
    """After the first steps, which set things up, any wait is an error."""
    state = new_state(tiny_bert(0.1), distributed=GPU, dtype="bf16")
    steps = training_steps(state, data(), budget=Budget(steps=30), schedule=Schedule())
    for _ in range(5):
        next(steps)
    torch.cuda.set_sync_debug_mode("error")
    try:
        taken = [next(steps) for _ in range(20)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [step.number for step in taken] == list(range(6, 26))
    assert all(step.means["mlm"] > 0 for step in taken)


def test_a_bad_step_on_a_gpu_leaves_the_weights_as_they_were():
    def objective(model, batch, rng):
        terms = dict(pretraining_objective(model, batch, rng))
        if 24 in batch.sample_ids:  # the fourth step
            terms["mlm"] = terms["mlm"] * torch.nan
        return terms

    bad, sound = new_state(objective=objective, distributed=GPU), new_state(distributed=GPU)
    steps_of(sound, 9, upto=3)
    with raises(TrainingError, "4", "nan", "24", "25", "26"):
        steps_of(bad, 9)
    assert bad.progress.step == 3
    for a, b in zip(bad.model.parameters(), sound.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # GPU sums differ from run to run
    assert all(weight.isfinite().all() for weight in bad.model.parameters())


def test_skipping_on_a_gpu_goes_on():
    def objective(model, batch, rng):
        terms = dict(pretraining_objective(model, batch, rng))
        if 24 in batch.sample_ids:
            terms["mlm"] = terms["mlm"] * torch.inf
        return terms

    state = new_state(objective=objective, distributed=GPU, guard="skip")
    with pytest.warns(UserWarning, match="step 4"):
        steps = steps_of(state, 9)
    assert [step.is_bad for step in steps] == [n == 4 for n in range(1, 10)]


def test_a_gpu_that_runs_out_of_memory_gives_the_same_gradients():
    """A large batch, and a GPU that is told to hold only part of what it needs."""
    wide = {"hidden_size": 512, "num_layers": 6, "num_heads": 8, "intermediate_size": 2048}
    source = data(parts=1, size=4096)
    roomy = new_state(tiny_bert(**wide), distributed=GPU, rate=1e-4)
    torch.cuda.reset_peak_memory_stats()
    expected = [(step.means, step.grad_norm) for step in steps_of(roomy, 2, source=source)]
    peak, total = torch.cuda.max_memory_allocated(), torch.cuda.mem_get_info()[1]
    del roomy
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.5 * peak / total)
    try:
        tight = new_state(tiny_bert(**wide), distributed=GPU, rate=1e-4)
        with pytest.warns(SmallerBatchWarning, match="micro-batches of at most"):
            found = [(step.means, step.grad_norm) for step in steps_of(tight, 2, source=source)]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    for (means, norm), (other, size) in zip(found, expected, strict=True):
        assert means == pytest.approx(other, rel=1e-3)
        assert norm == pytest.approx(size, rel=1e-3)


def test_recomputing_saves_memory_and_draws_the_same_dropout():
    wide = {"hidden_size": 256, "num_layers": 8, "num_heads": 4, "intermediate_size": 1024}
    source = data(parts=1, size=1024)
    peaks, losses = [], []
    for thrifty in (False, True):
        state = new_state(tiny_bert(0.2, **wide), distributed=GPU, rate=1e-4)
        torch.cuda.reset_peak_memory_stats()
        with gradient_checkpointing(state.model.blocks if thrifty else []):
            losses.append([step.means["mlm"] for step in steps_of(state, 3, source=source)])
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[1] < 0.6 * peaks[0]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_gpu_run_resumes_where_it_was():
    source = data(parts=2, size=8)
    straight = new_state(tiny_bert(0.1), distributed=GPU)
    expected = [step.means["mlm"] for step in steps_of(straight, 20, source=source)]
    stopped = new_state(tiny_bert(0.1), distributed=GPU)
    first = [step.means["mlm"] for step in steps_of(stopped, 20, upto=7, source=source)]
    saved = copy.deepcopy(snapshot(stopped, {}))
    assert saved is not None
    again = new_state(tiny_bert(0.1), distributed=GPU)
    restore(again, saved, {})
    second = [step.means["mlm"] for step in steps_of(again, 20, source=source)]
    assert first + second == pytest.approx(expected, rel=1e-3)


def test_a_gpu_learns_what_a_cpu_does():
    here, there = new_state(), new_state(distributed=GPU)
    batches = [packed(range(900, 910))]
    for a, b in zip(steps_of(here, 10), steps_of(there, 10), strict=True):
        assert a.means == pytest.approx(b.means, rel=1e-2, abs=1e-3)
    assert evaluate_objective(here, batches) == pytest.approx(
        evaluate_objective(there, batches), rel=1e-2, abs=1e-3
    )


def labelled(number, length=12):
    """Eight sequences of up to `length` tokens, of one of three classes each."""
    rng = np.random.default_rng(number)
    lengths = rng.integers(3, length + 1, 8)
    return collate_examples(
        "classify",
        [
            [
                EncodedExample(
                    ids=rng.integers(5, 50, n), type_ids=[0] * n, targets=(int(rng.integers(3)),)
                )
            ]
            for n in lengths
        ],
    )


def tuned(
    batches, *, recording, dropout=0.0, steps=12, objective=None, heads=("sequence",), **changes
):
    """The steps of a small classifier, recorded or taken one kernel after another."""
    config = replace(tiny_bert(dropout).config, max_positions=32, labels=("a", "b", "c"), **changes)
    model = build(config, heads, rng=torch.Generator().manual_seed(0)).cuda()
    made = build_optimizer(model, OptimizerConfig(lr=1e-3))
    state = TrainState(
        Learner(model, objective or make_classification_objective("sequence")),
        model,
        made,
        distributed=GPU,
    )
    graphs = CUDAGraphCache(apply_gradients)
    if not recording:
        graphs.run_step = lambda *_: None
    source = ([batches(number)] for number in range(steps))
    budget = Budget(steps=steps)
    taken = list(
        training_steps(state, lambda _: source, budget=budget, schedule=Schedule(), graphs=graphs)
    )
    return state, len(graphs), [step.means | {"norm": step.grad_norm} for step in taken]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_recorded_steps_are_the_steps(dropout):
    """The same losses and weights, with lengths that come and go, and the dropout of the key."""

    def batches(number):
        return labelled(number, 12 if number % 3 else 30)

    plain, _, expected = tuned(batches, recording=False, dropout=dropout)
    recorded, captured, found = tuned(batches, recording=True, dropout=dropout)
    assert captured == 2
    for a, b in zip(found, expected, strict=True):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-4)
    for a, b in zip(plain.model.parameters(), recorded.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_recorded_steps_with_an_auxiliary_loss_and_pairs_in_both_orders():
    """A causal model: the next tokens are targets, too, and a group has two sequences."""

    def batches(number):
        rng = np.random.default_rng(number)
        groups = []
        for n in rng.integers(3, 13, 6):
            one, other = (
                EncodedExample(ids=rng.integers(5, 50, n), type_ids=[0] * n, targets=targets)
                for targets in ((int(rng.integers(3)),), ())
            )
            groups.append([one, other])
        return collate_examples("classify", groups, has_lm=True)

    objective = make_classification_objective("sequence", lm_weight=0.5)
    options = {"objective": objective, "heads": ("sequence", "mlm"), "is_causal": True}
    plain, _, expected = tuned(batches, recording=False, **options)
    recorded, captured, found = tuned(batches, recording=True, **options)
    assert captured == 1
    for a, b in zip(found, expected, strict=True):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-4)
        assert a["lm"] > 0
    for a, b in zip(plain.model.parameters(), recorded.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


class Sometimes(TaskBatch):
    """A batch that has targets of a second kind where its first sequence is of class 0."""

    @property
    def counts(self):
        return {**super().counts, "second": int(self.targets[0] == 0)}


def test_a_recorded_loss_without_targets_is_not_reported():
    def batches(number):
        made = labelled(number)
        return Sometimes(**{field.name: getattr(made, field.name) for field in fields(made)})

    def objective(model, batch, rng=None):
        terms = make_classification_objective("sequence")(model, batch, rng)
        return {**terms, "second": terms["classify"] * 0}

    *_, expected = tuned(batches, recording=False, objective=objective)
    _, captured, found = tuned(batches, recording=True, objective=objective)
    assert captured == 1
    assert {"second" in one for one in found[2:]} == {True, False}
    assert [one.keys() for one in found] == [one.keys() for one in expected]


def test_a_sound_run_on_a_gpu_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps_of(new_state(tiny_bert(0.1), distributed=GPU, dtype="bf16"), 5)
