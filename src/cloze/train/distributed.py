"""Several processes training one model, as `torchrun` starts them.

Every process runs the same program on its part of each global batch. torch's DDP or FSDP2 joins the
gradients; the few numbers that all must agree on (counts, clock, who wants to stop) go over gloo,
from memory to memory, so that no GPU is waited for.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeVar, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cloze.config import one_of
from cloze.device import resolve_device
from cloze.nn.fuse import fuse, move_to_device
from cloze.train.config import Parallelism

T = TypeVar("T")
LINGER = 10.0  # seconds


@dataclass(frozen=True)
class Team:
    """The processes of one run, seen from one of them."""

    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (a value that never changes)

    @property
    def first(self) -> bool:
        """The one that writes files and speaks to the user."""
        return self.rank == 0

    def ahead(self, work: Callable[[], object]) -> None:
        """Let the first process do what all need; the others wait, and end with it if it fails.

        They end without a word: what is wrong is told once.
        """
        failed = 1.0
        try:
            if self.first:
                work()
            failed = 0.0
        finally:
            (failed,) = self.total([failed])
        if failed:
            time.sleep(LINGER)  # torchrun ends all when one ends: let it be the one that tells why
            raise SystemExit(1)

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Each number added up over the processes; the same list for all."""
        return self._agree(numbers, dist.ReduceOp.SUM)

    def largest(self, numbers: Sequence[float]) -> list[float]:
        """Each number's largest over the processes; the same list for all."""
        return self._agree(numbers, dist.ReduceOp.MAX)

    def add(self, tensor: Tensor) -> Tensor:
        """The tensor added up over the processes, where it is and without waiting for it."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def _agree(self, numbers: Sequence[float], how: dist.ReduceOp.RedOpType) -> list[float]:
        if self.world == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)  # exact for counts up to 2⁵³
        dist.all_reduce(values, how)
        return values.tolist()


ALONE = Team()


def processes() -> int:
    """How many there are, as torchrun says; one without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def assemble(device: str | None = None) -> Iterator[Team]:
    """The team that torchrun's environment describes; a team of one without torchrun."""
    world = processes()
    if world == 1:
        yield Team(device=resolve_device(device))
        return
    place = resolve_device(of_rank(device))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group("cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo")
    try:
        yield Team(rank=dist.get_rank(), world=world, device=place)
    finally:
        dist.destroy_process_group()


def of_rank(device: str | None) -> str:
    """The device for this process: of several GPUs each takes its own, whichever was named."""
    kind = str(resolve_device(None)) if device is None else device
    return f"cuda:{os.environ['LOCAL_RANK']}" if kind.partition(":")[0] == "cuda" else kind


def distribute(
    learner: nn.Module, team: Team, *, way: Parallelism = "ddp", blocks: Iterable[nn.Module] = ()
) -> nn.Module:
    """The learner ready to be called by every process, its weights on the team's device.

    `ddp` keeps a whole copy everywhere. `fsdp` keeps of each weight, gradient and moment only a
    part in each process, and fetches the rest block by block: for models that do not fit. Call it
    before the optimiser is made, with the model still in the computer's memory.
    """
    one_of("parallel", way, get_args(Parallelism))
    if team.world == 1:
        return move_to_device(learner, team.device)
    if way == "ddp":
        moved = move_to_device(learner, team.device)
        joined = DistributedDataParallel(moved, gradient_as_bucket_view=True)
        if team.device.type == "cpu":
            joined.register_comm_hook(team, _join_bucket)
        return joined
    from torch.distributed.device_mesh import init_device_mesh  # slow to import, seldom needed
    from torch.distributed.fsdp import fully_shard

    if team.device.type == "cuda":
        fuse(learner)
    mesh = init_device_mesh(team.device.type, (team.world,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(learner, mesh=mesh)  # in place, both
    return learner


def unjoined(learner: nn.Module) -> AbstractContextManager[object]:
    """Gradients inside stay in their process, where the way of running parallel allows it."""
    return learner.no_sync() if isinstance(learner, DistributedDataParallel) else nullcontext()


def join_gradients(learner: nn.Module, team: Team) -> None:
    """What DDP does as it goes backwards, afterwards: the mean of each gradient."""
    for weight in learner.parameters():
        if weight.grad is not None:
            _mean(weight.grad, team)


@torch.no_grad()
def _mean(tensor: Tensor, team: Team) -> Tensor:
    """The mean over the processes, in place.

    The libraries' sums depend in their last bits on where in a message a number stands, and DDP
    changes its messages as it goes. On the CPU, where a resumed run is to end with the same bits,
    the processes' parts are therefore added one after another.
    """
    if team.device.type != "cpu":
        dist.all_reduce(tensor.div_(team.world))
        return tensor
    parts = [torch.empty_like(tensor) for _ in range(team.world)]
    dist.all_gather(parts, tensor)
    return tensor.copy_(sum(parts[1:], start=parts[0]).div_(team.world))


def _join_bucket(
    team: Team,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """For DDP to call with several gradients at once."""
    joined: torch.futures.Future[Tensor] = torch.futures.Future()
    joined.set_result(_mean(bucket.buffer(), team))
    return joined


def whole(tensor: Tensor) -> Tensor:
    """A tensor of which FSDP keeps parts everywhere, put together; all processes must ask."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def parted(tensor: Tensor, like: Tensor) -> Tensor:
    """`tensor`, whole in every process, laid out as `like` is."""
    if not hasattr(like, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(
        tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    )
