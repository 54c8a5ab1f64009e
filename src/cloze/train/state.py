"""The training state: everything that a run needs to be resumed exactly."""

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
    find_newest_state,
    format_state_name,
    parse_state_name,
    read_state,
    save_state,
)
from cloze.errors import FolderError
from cloze.files import replace_non_finite
from cloze.train.config import LoopConfig
from cloze.train.distributed import (
    SINGLE_PROCESS,
    DistributedContext,
    distribute_like,
    full_tensor,
    is_distributed,
    local_rows,
)
from cloze.train.guard import (
    BadStepError,
    ExplosionGuard,
    SkippedStepWarning,
    empty_norms,
    format_samples,
    max_bad_steps,
    suggest_fix,
)
from cloze.train.schedule import Progress
from cloze.train.sharded_state import save_sharded_state
from cloze.train.step import Step


@dataclass
class TrainState:
    """Model, optimizer and progress of a run.

    The position in the data follows from the number of steps, and all random numbers are keyed by
    it, so neither is stored.
    """

    learner: nn.Module  # the model with its objective, wrapped for several processes
    model: nn.Module  # its weights are saved
    optimizer: Optimizer
    config: LoopConfig = field(default_factory=LoopConfig)
    distributed: DistributedContext = SINGLE_PROCESS
    progress: Progress = field(default_factory=Progress)
    max_micro_tokens: int | None = None  # set when memory runs out
    notes: dict[str, Any] = field(default_factory=dict)  # JSON: state of step consumers
    extra: dict[str, Tensor] = field(default_factory=dict)  # tensors of step consumers
    skipped: int = 0  # bad steps in a row

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device
        self.recent_norms = empty_norms(self.device)  # oldest first
        self.bad_in_a_row = torch.zeros((), device=self.device)  # `skipped` on the device
        self.pending: deque[tuple[Step, Progress]] = deque()  # and where each began
        self.explosion = ExplosionGuard()
        self.largest_fitting = 0  # tokens of the largest micro-batch so far

    def copy_buffers(self) -> list[Tensor]:
        """Copies of the model's buffers, which it changes from step to step."""
        return [buffer.clone() for buffer in self.model.buffers()]

    def check_pending(self, *, wait: bool = True) -> None:
        """Check whether the steps taken were bad; `wait` for the last one too.

        After too many bad steps it raises, and the state is that of the step before: the weights
        have not changed since, whatever was launched on the GPU in the meantime.
        """
        early = self.distributed.world_size == 1  # several processes must end after the same step
        while self.pending and (
            wait or len(self.pending) > 1 or (early and self.pending[0][0].is_ready)
        ):
            step, before = self.pending.popleft()
            if not step.is_bad:
                self.skipped = 0
                self.explosion.check(step.number, step.loss, self.notes)
                continue
            self.skipped += 1
            if self.skipped >= max_bad_steps(self.config.guard):
                times = f", after {self.skipped} bad steps in a row" if self.skipped > 1 else ""
                self.progress, self.skipped = before, 0
                self.bad_in_a_row.zero_()
                self.pending.clear()
                raise BadStepError(
                    f"training diverged at {_describe_step(step)}{times}; "
                    "the weights are those before it",
                    fix=suggest_fix(self.config.guard),
                )
            warnings.warn(f"skipped bad {_describe_step(step)}", SkippedStepWarning, stacklevel=3)


def save_training_state(
    state: TrainState, folder: Path, fingerprint: Mapping[str, Any], *, keep: int = 2
) -> Path | None:
    """Save the state as the newest in `folder`; all processes must call it.

    The first one writes, and returns the path. With FSDP each process writes the rows that it has.
    """
    if any(map(is_distributed, _weights(state.model).values())):
        return save_sharded_state(
            folder, snapshot_shard(state, fingerprint), state.distributed, keep=keep
        )
    saved = snapshot(state, fingerprint)
    return None if saved is None else save_state(folder, saved, keep=keep)


def resume_training_state(
    state: TrainState, folder: Path, fingerprint: Mapping[str, Any]
) -> Path | None:
    """Restore the newest intact state in `folder`; None if none was ever saved.

    The number of processes may differ from before.
    """
    found: Path | None = None

    def choose() -> None:
        nonlocal found
        found = find_newest_state(folder)
        if found is None and any(folder.glob("[0-9]*-step-*")):
            raise FolderError(
                f"all training states in {folder} are damaged",
                fix="restore one from a backup; or remove that folder, and resume from the start",
            )

    # the first process chooses the state, and all read the same files
    state.distributed.run_on_first(choose)
    serial, step = state.distributed.max_over_processes(
        parse_state_name(found) if found else (0, 0)
    )
    if not serial:
        return None
    path = folder / format_state_name(int(serial), int(step))
    # the first process has just verified it
    restore(state, read_state(path, is_verified=True), fingerprint)
    return path


def snapshot(state: TrainState, fingerprint: Mapping[str, Any]) -> SavedState | None:
    """The state as it is saved, in the first process; None in the others.

    `fingerprint` identifies the run: what must be equal for a resumed run to continue exactly (the
    recipe, the digest of the corpus). All processes must call it, as FSDP's shards are gathered.
    """
    state.check_pending()
    distributed = state.distributed
    copied = {
        kind: {name: _copy_to_cpu(tensor, distributed) for name, tensor in tensors.items()}
        for kind, tensors in _collect_tensors(state).items()
    }
    return _make_saved_state(state, fingerprint, copied) if distributed.is_first else None


def snapshot_shard(state: TrainState, fingerprint: Mapping[str, Any]) -> SavedState:
    """The part of the state that this process has, and what is not sharded in the first."""
    state.check_pending()
    is_first = state.distributed.is_first
    copied = {
        kind: {
            name: (local_rows(tensor) if is_distributed(tensor) else tensor)
            .detach()
            .to("cpu", copy=True)
            .contiguous()
            for name, tensor in tensors.items()
            if is_first or is_distributed(tensor)
        }
        for kind, tensors in _collect_tensors(state).items()
    }
    return _make_saved_state(state, fingerprint, copied)


def _collect_tensors(state: TrainState) -> dict[str, dict[str, Tensor]]:
    """The tensors of a state, by kind and name."""
    weights = _weights(state.model)  # first: FSDP shards weights again that a forward pass gathered
    moments = {
        f"{name}.{key}": value
        for name, weight in _optimizer_weights(state).items()
        for key, value in state.optimizer.state.get(weight, {}).items()
        if isinstance(value, Tensor)
    }
    found = {"model": weights, "optimizer": moments}
    found["guard"] = {"norms": state.recent_norms}
    return found | ({"extra": state.extra} if state.extra else {})


def _make_saved_state(
    state: TrainState, fingerprint: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]
) -> SavedState:
    return SavedState(
        step=state.progress.step,
        tensors=tensors,
        metadata={
            "run": _as_json(fingerprint),
            "progress": asdict(state.progress),
            "skipped": state.skipped,
            "limit": state.max_micro_tokens,
            "notes": replace_non_finite(state.notes),
            "groups": [_options(group) for group in state.optimizer.param_groups],
        },
    )


@torch.no_grad()
def restore(state: TrainState, saved: SavedState, fingerprint: Mapping[str, Any]) -> None:
    """Restore a saved state exactly; refuse that of another run."""
    _check_same_run(saved.metadata["run"], fingerprint)
    ours, theirs = _weights(state.model), saved.tensors["model"]
    _check_same_weights(ours, theirs)
    for name, weight in ours.items():
        weight.copy_(distribute_like(theirs[name], weight))
    _restore_optimizer(state, saved)
    state.recent_norms.copy_(saved.tensors["guard"]["norms"])
    state.progress = Progress(**saved.metadata["progress"])
    state.skipped = saved.metadata["skipped"]
    state.bad_in_a_row.fill_(state.skipped)
    state.max_micro_tokens = saved.metadata["limit"]
    state.notes = dict(saved.metadata["notes"])
    extra = saved.tensors.get("extra", {})
    state.extra = {name: tensor.to(state.device) for name, tensor in extra.items()}


def _restore_optimizer(state: TrainState, saved: SavedState) -> None:
    """By the names of the weights; torch then assigns the optimizer state to them."""
    moments: dict[str, dict[str, Tensor]] = {}
    for name, value in saved.tensors["optimizer"].items():
        weight, _, key = name.rpartition(".")
        moments.setdefault(weight, {})[key] = value
    whole_state = state.optimizer.state_dict()
    trained = _optimizer_weights(state)
    whole_state["state"] = {
        index: {
            key: distribute_like(value, weight) if value.shape == weight.shape else value
            for key, value in moments[name].items()
        }
        for index, (name, weight) in enumerate(trained.items())
        if name in moments
    }
    for group, options in zip(whole_state["param_groups"], saved.metadata["groups"], strict=True):
        for key, value in options.items():
            group[key] = tuple(value) if isinstance(group[key], tuple) else value
    state.optimizer.load_state_dict(whole_state)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight and buffer under one name, even if two names share it."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return dict(found.values())


def _optimizer_weights(state: TrainState) -> dict[str, Tensor]:
    """The weights of the optimizer by name, in its order."""
    names = {id(weight): name for name, weight in state.model.named_parameters()}
    return {
        names[id(weight)]: weight
        for group in state.optimizer.param_groups
        for weight in group["params"]
    }


def _copy_to_cpu(tensor: Tensor, distributed: DistributedContext) -> Tensor:
    """A full copy, so that training may continue while it is written."""
    full = full_tensor(tensor.detach())
    return full.to("cpu", copy=True).contiguous() if distributed.is_first else torch.empty(0)


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in group.items()
        if key not in ("params", "lr")  # the schedule sets the learning rate in every step
    }


def _as_json(run: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON returns it: tuples become lists."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(run)))
    return plain


def _check_same_run(theirs: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    changed = [*_changes(theirs, _as_json(run))]
    if changed:
        raise FolderError(
            f"the saved state belongs to another run: {'; '.join(changed)}",
            fix="resume with the settings and the data that the run was started with, "
            "or start a new run in another folder",
        )


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """The differences: settings of the recipe with their values, everything else by name."""
    before, after = (_flat(run.get("recipe", {})) for run in (old, new))
    for name in sorted(before.keys() | after.keys()):
        was, is_ = (json.dumps(one.get(name), ensure_ascii=False) for one in (before, after))
        if was != is_:
            yield f"{name} was {was} and is {is_}".replace("null", "unset")
    for name in sorted((old.keys() | new.keys()) - {"recipe"}):
        if old.get(name) != new.get(name):
            yield f"the {name} has changed"


def _flat(table: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        inner = _flat(value, f"{within}{name}.") if isinstance(value, dict) else None
        found |= {f"{within}{name}": value} if inner is None else inner
    return found


def _check_same_weights(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    wrong = [
        name
        for name in sorted(ours.keys() | theirs.keys())
        if name not in ours or name not in theirs or ours[name].shape != theirs[name].shape
    ]
    if wrong:
        raise FolderError(
            f"the saved state belongs to another model: {len(wrong)} weights differ ({wrong[0]} …)",
            fix="resume with the model that the run was started with",
        )


def _describe_step(step: Step) -> str:
    losses = ", ".join(f"{name} {value:.4g}" for name, value in step.means.items())
    norm, samples = step.grad_norm, format_samples(step.sample_ids)
    return f"step {step.number} ({losses}, gradient norm {norm:.4g}, {samples})"
