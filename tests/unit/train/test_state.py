import pytest
import torch

from cloze.checkpoint.state import DamagedStateWarning, read_state
from cloze.errors import FolderError
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.objectives.core import Learner
from cloze.objectives.pretraining import pretraining_objective
from cloze.train.config import OptimizerConfig
from cloze.train.distributed import SINGLE_PROCESS
from cloze.train.optim import build_optimizer
from cloze.train.state import (
    TrainState,
    restore,
    resume_training_state,
    save_training_state,
    snapshot,
)
from helpers import raises
from parallel_jobs import RUN, other_bert, resumed, told
from saving_jobs import kill_while_training
from training import data, in_one_process, in_processes, new_state, same, steps_of, tiny_bert


def everything(state):
    saved = snapshot(state, RUN)
    return {f"{kind}/{name}": t for kind, of in saved.tensors.items() for name, t in of.items()}


@pytest.mark.parametrize(
    "source", [data(parts=1, size=4), data(parts=4)], ids=["plain", "accumulated"]
)
@pytest.mark.parametrize(
    ("total", "stop"), [(24, 9), pytest.param(100, 37, marks=pytest.mark.stress)]
)
def test_a_run_in_two_parts_is_as_one(tmp_path, source, total, stop):
    config = {"seed": 3}
    straight = new_state(tiny_bert(0.1), **config)
    expected = told(steps_of(straight, total, source=source))

    stopped = new_state(tiny_bert(0.1), **config)
    first = told(steps_of(stopped, total, upto=stop, source=source))
    save_training_state(stopped, tmp_path, RUN)
    again = new_state(other_bert(0.1), **config)
    path = resume_training_state(again, tmp_path, RUN)
    assert path == tmp_path / f"000001-step-{stop}"
    second = told(steps_of(again, total, source=source))

    assert first + second == expected
    same(everything(straight), everything(again))
    moments = [name for name in everything(again) if name.startswith("optimizer/")]
    assert len(moments) == 3 * len(list(again.model.parameters())), "step and two moments of each"


def test_what_is_learned_after_a_resume_depends_on_the_moments():
    """The test above must be able to fail: without its moments a run goes another way."""
    straight, forgetful = new_state(), new_state()
    for state in (straight, forgetful):
        steps_of(state, 10, upto=5)
    forgetful.optimizer.state.clear()
    assert told(steps_of(straight, 10)) != told(steps_of(forgetful, 10))


def test_everything_else_comes_back_too(tmp_path):
    state = new_state()
    steps_of(state, 5, upto=3)
    state.max_micro_tokens, state.skipped, state.notes = 123, 2, {"early_stopping": {"best": 1.5}}
    save_training_state(state, tmp_path, RUN)
    back = new_state()
    resume_training_state(back, tmp_path, RUN)
    assert back.progress == state.progress
    assert (back.max_micro_tokens, back.skipped, back.notes) == (
        123,
        2,
        {"early_stopping": {"best": 1.5}},
    )
    assert back.recent_norms.tolist()[-3:] == state.recent_norms.tolist()[-3:]
    assert back.optimizer.param_groups[0]["betas"] == (0.9, 0.999)


def test_notes_that_are_no_numbers_can_be_saved(tmp_path):
    """JSON has no word for them."""
    state = new_state()
    state.notes = {"best": {"score": float("nan"), "scores": {"perplexity": float("inf"), "f1": 1}}}
    save_training_state(state, tmp_path, RUN)
    back = new_state()
    resume_training_state(back, tmp_path, RUN)
    assert back.notes == {"best": {"score": None, "scores": {"perplexity": None, "f1": 1}}}


def test_saving_goes_on_while_training_goes_on():
    """A snapshot holds copies."""
    state = new_state()
    steps_of(state, 6, upto=3)
    saved = snapshot(state, RUN)
    before = {name: tensor.clone() for name, tensor in saved.tensors["model"].items()}
    steps_of(state, 6)
    same(saved.tensors["model"], before)


def test_weights_that_two_names_share_are_saved_once():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4, bias=False)
            self.outer = torch.nn.Linear(4, 4, bias=False)
            self.outer.weight = self.inner.weight

    model = Tied()
    made = build_optimizer(model, OptimizerConfig())
    state = TrainState(Learner(model, pretraining_objective), model, made)
    saved = snapshot(state, RUN)
    assert list(saved.tensors["model"]) == ["inner.weight"]
    restore(state, saved, RUN)


def test_nothing_to_resume_from(tmp_path):
    assert resume_training_state(new_state(), tmp_path, RUN) is None
    assert resume_training_state(new_state(), tmp_path / "absent", RUN) is None


def test_states_of_which_none_is_whole_are_not_begun_over(tmp_path):
    state = new_state()
    for _ in range(2):
        path = save_training_state(state, tmp_path, RUN)
        (path / "metadata.json").write_text("{}")
    with (
        pytest.warns(DamagedStateWarning),
        raises(FolderError, "state", fix="folder"),
    ):
        resume_training_state(new_state(), tmp_path, RUN)


def test_a_first_saving_that_was_killed_left_no_state(tmp_path):
    (tmp_path / ".000001-step-3.1a2b3c4d").mkdir()
    assert resume_training_state(new_state(), tmp_path, RUN) is None


def test_another_run_is_refused(tmp_path):
    state = new_state()
    before = everything(state)
    table = {"steps": 3, "optimizer": {"lr": 0.1, "name": "adamw"}, "start": None}
    save_training_state(state, tmp_path, RUN | {"recipe": table})
    changed = table | {"optimizer": {"lr": 0.2, "name": "adamw"}, "start": "m"}
    with raises(FolderError, "optimizer.lr", "0.1", "0.2", "start", "unset", '"m"', "corpus"):
        resume_training_state(state, tmp_path, RUN | {"recipe": changed, "corpus": "xyz"})
    same(everything(state), before)


def test_another_model_is_refused(tmp_path):
    save_training_state(new_state(), tmp_path, RUN)
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=32,
        max_positions=16,
    )
    model = build(config, ["mlm", "nsp"], rng=torch.Generator().manual_seed(0))
    with raises(FolderError, "blocks.1.attention"):
        resume_training_state(new_state(model), tmp_path, RUN)


@pytest.mark.parametrize(
    ("world", "way", "total", "stop"),
    [
        (2, "ddp", 24, 9),
        (4, "ddp", 12, 5),
        (2, "fsdp", 16, 7),
        pytest.param(2, "ddp", 100, 37, marks=pytest.mark.stress),
    ],
)
def test_a_run_in_two_parts_is_as_one_in_several_processes(tmp_path, world, way, total, stop):
    """Of two, each takes two micro-batches to a step."""
    in_processes(world, resumed, tmp_path, way, total, stop)
    straight = read_state(tmp_path / "straight" / f"000001-step-{total}")
    again = read_state(tmp_path / "resumed" / f"000001-step-{total}")
    for kind in straight.tensors:
        same(straight.tensors[kind], again.tensors[kind])
    assert straight.metadata["progress"]["tokens"] == again.metadata["progress"]["tokens"]

    alone = new_state()  # and a run may go on with fewer processes
    resume_training_state(alone, tmp_path / "stopped", RUN)
    assert alone.distributed == SINGLE_PROCESS
    assert [step.number for step in steps_of(alone, stop + 2)] == [stop + 1, stop + 2]


def test_a_run_that_is_killed_again_and_again_ends_as_if_it_never_was(tmp_path):
    in_one_process(kill_while_training, tmp_path, 60)
