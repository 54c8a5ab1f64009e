"""States that FSDP saves in shards: read by any number of processes, whole after any kill."""

import json

import pytest
import torch
from torch.multiprocessing.spawn import ProcessExitedException

from cloze.checkpoint.state import find_newest_state, parse_state_name, read_state
from cloze.train.state import resume_training_state, save_training_state
from helpers import check_mentions
from parallel_jobs import RUN, die_while_saving, other_bert, report_steps, save_until_killed, shard
from training import in_processes, new_state, steps_of, tiny_bert

TOTAL, STOP = 12, 5


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One process, straight and stopped; two processes that go on, and their own state."""
    folder = tmp_path_factory.mktemp("runs")
    straight = report_steps(steps_of(new_state(tiny_bert(0.0), seed=3), TOTAL))
    stopped = new_state(tiny_bert(0.0), seed=3)
    steps_of(stopped, TOTAL, upto=STOP)
    save_training_state(stopped, folder / "one", RUN)
    in_processes(2, shard, folder, TOTAL, STOP)
    return folder, straight


def test_each_process_writes_its_rows(runs):
    folder, _ = runs
    path = folder / "two" / f"000001-step-{STOP}"
    names = {file.name for file in path.iterdir()}
    shards = {
        f"{kind}-0000{n}-of-00002.safetensors" for kind in ("model", "optimizer") for n in (1, 2)
    }
    assert shards | {"metadata.json", "manifest.json"} <= names
    sizes = [(path / f"model-0000{n}-of-00002.safetensors").stat().st_size for n in (1, 2)]
    assert min(sizes) > 0.8 * max(sizes), "about half each"
    one = read_state(folder / "one" / f"000001-step-{STOP}")
    two = read_state(path)
    for kind in ("model", "optimizer"):
        assert set(two.tensors[kind]) == set(one.tensors[kind])
        for name, tensor in one.tensors[kind].items():
            torch.testing.assert_close(two.tensors[kind][name], tensor, atol=1e-4, rtol=1e-4)


def test_one_process_continues_what_two_saved(runs):
    folder, straight = runs
    state = new_state(other_bert(0.0), seed=3)
    assert resume_training_state(state, folder / "two", RUN) is not None
    check_same_run(report_steps(steps_of(state, TOTAL)), straight[STOP:])


def test_two_processes_continue_what_one_saved(runs):
    folder, straight = runs
    found = [json.loads((folder / f"continued-{rank}.json").read_text()) for rank in range(2)]
    both = [(loss, norm, ids + found[1][n][2]) for n, (loss, norm, ids) in enumerate(found[0])]
    check_same_run(both, straight[STOP:])


def check_same_run(found, expected) -> None:
    """The same samples in every step, and losses within 1e-5."""
    assert len(found) == len(expected) > 0
    for (loss, norm, ids), (loss_there, norm_there, ids_there) in zip(found, expected, strict=True):
        assert sorted(ids) == sorted(ids_there)
        assert loss == pytest.approx(loss_there, abs=1e-5)
        assert norm == pytest.approx(norm_there, abs=1e-5)


def test_a_process_that_cannot_write_ends_the_run_and_keeps_the_older_state(runs):
    folder, _ = runs
    first, second = ((folder / f"failed-{rank}.txt").read_text() for rank in range(2))
    check_mentions(first, "FolderError", "process 1", "disk is full", "--resume")
    assert second == "SystemExit: 1"
    assert [path.name for path in (folder / "two").iterdir()] == [f"000001-step-{STOP}"]


@pytest.mark.parametrize(("rank", "at"), [(1, "write_tensor_files"), (0, "write_manifest")])
def test_the_older_state_survives_a_kill_while_saving(tmp_path, rank, at):
    folder = tmp_path / "states"
    with pytest.raises(ProcessExitedException):
        in_processes(2, die_while_saving, folder, rank, at)
    names = json.loads(folder.with_suffix(".json").read_text())
    assert any(name.startswith(".") for name in names), "it was being written"
    state = new_state(other_bert(0.0), seed=3)
    path = resume_training_state(state, folder, RUN)
    assert parse_state_name(path)[1] == state.progress.step == 2


@pytest.mark.stress
def test_twenty_kills_at_random_moments(tmp_path):
    """Two processes save after every step; one of them is killed, and the run goes on."""
    steps = []
    for seed in range(20):
        with pytest.raises(ProcessExitedException):
            in_processes(2, save_until_killed, tmp_path, seed)
        path = find_newest_state(tmp_path)
        assert path is not None
        steps.append(read_state(path).step)
    assert steps == sorted(steps)
    assert steps[-1] > len(steps), "each saved at least once"
