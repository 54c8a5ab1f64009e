import json

import pytest
import torch

from cloze.checkpoint.state import read_state
from cloze.errors import ConfigError
from cloze.train.distributed import (
    SINGLE_PROCESS,
    DistributedContext,
    device_of_rank,
    distributed_context,
    wrap_distributed,
)
from cloze.train.guard import TrainingError
from cloze.train.state import resume_training_state
from helpers import raises
from parallel_jobs import RUN, several_things, trained
from training import data, in_processes, new_state, same, steps_of


def read(folder, world):
    return [json.loads((folder / f"{world}-{rank}.json").read_text()) for rank in range(world)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process sees and learns."""
    folder = tmp_path_factory.mktemp("alone")
    trained(SINGLE_PROCESS, folder, "ddp")
    return read(folder, 1)[0], read_state(folder / "state-1" / "000001-step-12")


@pytest.mark.parametrize(("world", "way"), [(2, "ddp"), (4, "ddp"), (2, "fsdp")])
def test_several_processes_learn_what_one_would(tmp_path, alone, world, way):
    """Same samples in every step, losses within 1e-5, the same weights."""
    in_processes(world, trained, tmp_path, way)
    one, state = alone
    reports = read(tmp_path, world)
    for report in reports:
        assert report["losses"] == reports[0]["losses"], "all are told the same"
        assert report["scores"] == reports[0]["scores"]
        assert report["tokens"] == one["tokens"]
    for ours, theirs in zip(reports[0]["losses"], one["losses"], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    assert reports[0]["norms"] == pytest.approx(one["norms"], abs=1e-5)
    assert reports[0]["scores"] == pytest.approx(one["scores"], abs=1e-5)
    for step, expected in enumerate(one["samples"]):
        seen = [number for report in reports for number in report["samples"][step]]
        assert sorted(seen) == sorted(expected)
    together = read_state(tmp_path / f"state-{world}" / "000001-step-12")
    for name, weight in state.tensors["model"].items():
        torch.testing.assert_close(together.tensors["model"][name], weight, atol=1e-4, rtol=1e-4)
    back = new_state()  # saved by several, read by one
    resume_training_state(back, tmp_path / f"state-{world}", RUN)
    same(back.model.state_dict(), together.tensors["model"])


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two processes that meet with one thing after another."""
    folder = tmp_path_factory.mktemp("two")
    in_processes(2, several_things, folder)
    return folder


def test_all_stop_after_the_same_step_when_one_is_asked(two):
    seen = [json.loads((two / f"{rank}.json").read_text()) for rank in range(2)]
    assert seen[0] == seen[1] == [1, 2, 3, 4]


def test_all_begin_a_step_again_when_one_runs_out_of_memory(two):
    reports = [json.loads((two / f"cramped-{rank}.json").read_text()) for rank in range(2)]
    assert reports[0] == reports[1]
    expected = steps_of(new_state(), 6, source=data(parts=2, size=4))
    for ours, step in zip(reports[0]["losses"], expected, strict=True):
        assert ours == pytest.approx(step.means, abs=1e-5)


def test_a_nan_in_one_part_stops_all_before_the_step(two):
    texts = [(two / f"poisoned-{rank}.txt").read_text() for rank in range(2)]
    assert all("step 4 (mlm nan" in text for text in texts)
    assert "samples 24, 25, 28, 29" in texts[0]
    assert "samples 26, 27, 30, 31" in texts[1]


def test_a_proven_size_that_fails_in_a_parallel_step_says_what_to_do(monkeypatch):
    """FSDP, or DDP after the first steps: the others are waiting with gradients half joined."""
    from cloze.train import gradients as room

    state = new_state()
    state.distributed = DistributedContext(rank=0, world_size=2)
    monkeypatch.setattr(room, "_accumulate_gradients", _burst)
    with raises(TrainingError, "out of memory", "step 1"):
        room.compute_gradients(state, [], {}, max_tokens=10)


def _burst(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_without_torchrun_there_is_one(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with distributed_context("cpu") as distributed:
        assert distributed == DistributedContext(rank=0, world_size=1, device=torch.device("cpu"))
        assert distributed.is_first
        assert distributed.sum_over_processes([1, 2.5]) == [1, 2.5]
        assert distributed.max_over_processes([3]) == [3]


def test_an_unknown_way_names_those_there_are():
    with raises(ConfigError, "fsdp"):
        wrap_distributed(torch.nn.Linear(1, 1), SINGLE_PROCESS, strategy="fsdp2")


@pytest.mark.parametrize("name", ["gpu", "cuda:77", "cpu:cpu"])
def test_a_device_that_is_not_there(name):
    with raises(ConfigError, "device", name, fix="cpu"), distributed_context(name):
        pass


def test_each_process_takes_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert [device_of_rank(name) for name in ("cuda", "cuda:0", "cpu")] == [
        "cuda:3",
        "cuda:3",
        "cpu",
    ]
