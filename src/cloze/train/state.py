"""Everything a run must remember to go on as if it had never stopped."""

import json
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cloze.checkpoint.state import (
    SavedState,
    newest_state,
    read_state,
    save_state,
    state_name,
    state_number,
)
from cloze.errors import FolderError
from cloze.files import sound
from cloze.train.budget import Progress
from cloze.train.config import LoopConfig
from cloze.train.distributed import ALONE, Team, parted, whole
from cloze.train.guard import (
    BadStepError,
    SkippedStepWarning,
    most_bad,
    name_samples,
    no_norms,
    remedy,
)
from cloze.train.step import Step


@dataclass
class TrainState:
    """A run in the middle.

    The position in the data is the number of steps, and all randomness is keyed by it, so neither
    needs a place of its own here.
    """

    learner: nn.Module  # what is called: the model with its objective, wrapped where parallel
    model: nn.Module  # what is saved
    optimizer: Optimizer
    config: LoopConfig = field(default_factory=LoopConfig)
    team: Team = ALONE
    progress: Progress = field(default_factory=Progress)
    limit: int | None = None  # most tokens of a micro-batch, once the memory has set one
    notes: dict[str, Any] = field(default_factory=dict)  # JSON: what consumers must remember
    extra: dict[str, Tensor] = field(default_factory=dict)  # tensors of consumers: an average …
    skipped: int = 0  # bad steps in a row

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device
        self.norms = no_norms(self.device)  # the last gradients', oldest first
        self.streak = torch.zeros((), device=self.device)  # `skipped`, as the device knows it
        self.unsettled: deque[tuple[Step, Progress]] = deque()  # with where they began
        self.proven = 0  # tokens of the largest micro-batch that fitted so far

    def copy_buffers(self) -> list[Tensor]:
        """Copies of the model's buffers, which it changes from step to step."""
        return [buffer.clone() for buffer in self.model.buffers()]

    def settle(self, *, wait: bool = True) -> None:
        """Read the verdict on the steps taken; `wait` for the very last one too.

        Where a bad step is one too many it raises, and the state is that of the step before it: the
        weights have not moved since, whatever was sent to the GPU in the meantime.
        """
        early = self.team.world == 1  # several processes must end after the same step
        while self.unsettled and (
            wait or len(self.unsettled) > 1 or (early and self.unsettled[0][0].ready)
        ):
            step, before = self.unsettled.popleft()
            if not step.bad:
                self.skipped = 0
                continue
            self.skipped += 1
            if self.skipped >= most_bad(self.config.guard):
                fault = _fault(step, self.skipped)
                self.progress, self.skipped = before, 0
                self.streak.zero_()
                self.unsettled.clear()
                raise BadStepError(
                    f"{fault} The weights are as they were before it.",
                    fix=remedy(self.config.guard),
                )
            warnings.warn(f"{_fault(step)} It was skipped.", SkippedStepWarning, stacklevel=3)


def save(state: TrainState, folder: Path, run: Mapping[str, Any], *, keep: int = 2) -> Path | None:
    """Save the state as the newest in `folder`; the first process writes, all must call."""
    saved = snapshot(state, run)
    return None if saved is None else save_state(folder, saved, keep=keep)


def resume(state: TrainState, folder: Path, run: Mapping[str, Any]) -> Path | None:
    """Go on from the newest whole state in `folder`; None when there never was one.

    The number of processes may be another than before.
    """
    found: Path | None = None

    def choose() -> None:
        nonlocal found
        found = newest_state(folder)
        if found is None and any(folder.glob("[0-9]*-step-*")):
            raise FolderError(
                f"none of the states in {folder} is whole",
                fix="put a copy of one back; or remove that folder, and resume from the beginning",
            )

    # the first process chooses; the others read the same files
    state.team.ahead(choose)
    serial, step = state.team.largest(state_number(found) if found else (0, 0))
    if not serial:
        return None
    path = folder / state_name(int(serial), int(step))
    restore(state, read_state(path), run)
    return path


def snapshot(state: TrainState, run: Mapping[str, Any]) -> SavedState | None:
    """The state as it goes to the disk, in the first process; None in the others.

    `run` says which run this is: whatever must be the same for a resumed run to go on exactly (the
    recipe, the digest of the corpus). All processes must call it: FSDP's parts come together here.
    """
    state.settle()
    team = state.team
    model = {name: _keep(weight, team) for name, weight in _weights(state.model).items()}
    moments = {
        f"{name}.{key}": _keep(value, team)
        for name, weight in _trained(state).items()
        for key, value in state.optimizer.state.get(weight, {}).items()
        if isinstance(value, Tensor)
    }
    extra = {name: _keep(tensor, team) for name, tensor in state.extra.items()}
    if not team.first:
        return None
    tensors = {"model": model, "optimiser": moments, "guard": {"norms": state.norms.cpu()}}
    if extra:
        tensors["extra"] = extra
    return SavedState(
        step=state.progress.step,
        tensors=tensors,
        facts={
            "run": _plain(run),
            "progress": asdict(state.progress),
            "skipped": state.skipped,
            "limit": state.limit,
            "notes": sound(state.notes),
            "groups": [_options(group) for group in state.optimizer.param_groups],
        },
    )


@torch.no_grad()
def restore(state: TrainState, saved: SavedState, run: Mapping[str, Any]) -> None:
    """Go back to what was saved, exactly; refuse what was saved by another run."""
    _same_run(saved.facts["run"], run)
    ours, theirs = _weights(state.model), saved.tensors["model"]
    _same_names(ours, theirs)
    for name, weight in ours.items():
        weight.copy_(parted(theirs[name], weight))
    _restore_optimiser(state, saved)
    state.norms.copy_(saved.tensors["guard"]["norms"])
    state.progress = Progress(**saved.facts["progress"])
    state.skipped = saved.facts["skipped"]
    state.streak.fill_(state.skipped)
    state.limit = saved.facts["limit"]
    state.notes = dict(saved.facts["notes"])
    extra = saved.tensors.get("extra", {})
    state.extra = {name: tensor.to(state.device) for name, tensor in extra.items()}


def _restore_optimiser(state: TrainState, saved: SavedState) -> None:
    """By the weights' names; torch's own loading then puts each moment where it belongs."""
    moments: dict[str, dict[str, Tensor]] = {}
    for name, value in saved.tensors["optimiser"].items():
        weight, _, key = name.rpartition(".")
        moments.setdefault(weight, {})[key] = value
    whole_state = state.optimizer.state_dict()
    trained = _trained(state)
    whole_state["state"] = {
        index: {
            key: parted(value, weight) if value.shape == weight.shape else value
            for key, value in moments[name].items()
        }
        for index, (name, weight) in enumerate(trained.items())
        if name in moments
    }
    for group, options in zip(whole_state["param_groups"], saved.facts["groups"], strict=True):
        for key, value in options.items():
            group[key] = tuple(value) if isinstance(group[key], tuple) else value
    state.optimizer.load_state_dict(whole_state)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight and buffer under one name, also where two names share it."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return dict(found.values())


def _trained(state: TrainState) -> dict[str, Tensor]:
    """The weights the optimiser knows, by name and in its order."""
    names = {id(weight): name for name, weight in state.model.named_parameters()}
    return {
        names[id(weight)]: weight
        for group in state.optimizer.param_groups
        for weight in group["params"]
    }


def _keep(tensor: Tensor, team: Team) -> Tensor:
    """A copy of its own: training may go on while it is being written."""
    full = whole(tensor.detach())
    return full.to("cpu", copy=True).contiguous() if team.first else torch.empty(0)


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in group.items()
        if key not in ("params", "lr")  # the schedule sets the rate anew for every step
    }


def _plain(run: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back: a tuple is a list there."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(run)))
    return plain


def _same_run(theirs: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    changed = [*_changes(theirs, _plain(run))]
    if changed:
        raise FolderError(
            f"the saved state is of another run: {'; '.join(changed)}",
            fix="resume with the settings and the data it was started with, "
            "or start anew in another folder",
        )


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What differs, in words: settings of the recipe with their values, all else by its name."""
    before, after = (_flat(run.get("recipe", {})) for run in (old, new))
    for name in sorted(before.keys() | after.keys()):
        was, is_ = (json.dumps(one.get(name), ensure_ascii=False) for one in (before, after))
        if was != is_:
            yield f"{name} was {was} and is {is_}".replace("null", "unset")
    for name in sorted((old.keys() | new.keys()) - {"recipe"}):
        if old.get(name) != new.get(name):
            yield f"the {name} is another one"


def _flat(table: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        inner = _flat(value, f"{within}{name}.") if isinstance(value, dict) else None
        found |= {f"{within}{name}": value} if inner is None else inner
    return found


def _same_names(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    wrong = [
        name
        for name in sorted(ours.keys() | theirs.keys())
        if name not in ours or name not in theirs or ours[name].shape != theirs[name].shape
    ]
    if wrong:
        raise FolderError(
            f"the saved state is of another model: {wrong[0]} differs, of {len(wrong)} weights",
            fix="resume with the model it was started with",
        )


def _fault(step: Step, times: int = 1) -> str:
    losses = ", ".join(f"{name} {value:.4g}" for name, value in step.means.items())
    again = f", bad step {times} in a row," if times > 1 else ""
    return (
        f"step {step.number}{again} went wrong: {losses}, gradient norm {step.norm:.4g}, "
        f"in {name_samples(step.sample_ids)}."
    )
