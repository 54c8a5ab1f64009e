"""Several processes training one model, as `torchrun` starts them.

Every process runs the same program on its part of each global batch. DDP or FSDP2 averages the
gradients; the few numbers that all processes must agree on (counts, clock, whether to stop) are
exchanged over gloo in CPU memory, so that no process waits for its GPU.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cloze.config import one_of
from cloze.device import resolve_device
from cloze.nn.fuse import fuse, move_to_device
from cloze.train.config import Parallelism

T = TypeVar("T")

EXIT_DELAY = 10.0  # seconds that other processes wait after the first one has failed


@dataclass(frozen=True)
class DistributedContext:
    """The processes of one run, seen from one of them."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (a value that never changes)

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and the log."""
        return self.rank == 0

    def run_on_first(self, work: Callable[[], object]) -> None:
        """Run `work` in the first process while the others wait; if it fails, all exit.

        Only the first process reports the error.
        """
        failed = 1.0
        try:
            if self.is_first:
                work()
            failed = 0.0
        finally:
            (failed,) = self.sum_over_processes([failed])
        if failed:
            exit_after_first()

    def wait_for_all(self) -> None:
        """Wait until every process is here: files that the first one wrote before can be read."""
        self.sum_over_processes([0.0])

    def sum_over_processes(self, numbers: Sequence[float]) -> list[float]:
        """The sum of each number over the processes."""
        return self._reduce(numbers, dist.ReduceOp.SUM)

    def max_over_processes(self, numbers: Sequence[float]) -> list[float]:
        """The maximum of each number over the processes."""
        return self._reduce(numbers, dist.ReduceOp.MAX)

    def gather_objects(self, value: T) -> list[T]:
        """The value of each process, in the order of their ranks; it is sent by pickle."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over the processes, in place and without synchronising."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def _reduce(self, numbers: Sequence[float], operation: dist.ReduceOp.RedOpType) -> list[float]:
        if self.world_size == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)  # exact for counts up to 2⁵³
        dist.all_reduce(values, operation)
        return values.tolist()


def exit_after_first() -> NoReturn:
    """End a process other than the first, which reports the error.

    torchrun kills all processes when one ends, so the first one should have reported it before.
    """
    time.sleep(EXIT_DELAY)
    raise SystemExit(1)


SINGLE_PROCESS = DistributedContext()


def world_size_from_env() -> int:
    """The number of processes that torchrun started; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def distributed_context(device: str | None = None) -> Iterator[DistributedContext]:
    """Join the processes that torchrun started; without torchrun there is one."""
    world = world_size_from_env()
    if world == 1:
        yield DistributedContext(device=resolve_device(device))
        return
    own_device = resolve_device(device_of_rank(device))
    if own_device.type == "cuda":
        torch.cuda.set_device(own_device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if own_device.type == "cuda" else "gloo")
    try:
        yield DistributedContext(rank=dist.get_rank(), world_size=world, device=own_device)
    finally:
        dist.destroy_process_group()


def device_of_rank(device: str | None) -> str:
    """The device of this process: each process uses its own GPU, whichever was named."""
    kind = str(resolve_device(None)) if device is None else device
    return f"cuda:{os.environ['LOCAL_RANK']}" if kind.partition(":")[0] == "cuda" else kind


def wrap_distributed(
    learner: nn.Module,
    distributed: DistributedContext,
    *,
    strategy: Parallelism = "ddp",
    blocks: Iterable[nn.Module] = (),
) -> nn.Module:
    """Move a learner to the device of its process, and wrap it for several processes.

    `ddp` keeps a full copy in every process. `fsdp` shards weights, gradients and optimizer state
    over the processes, and gathers them block by block, for models that do not fit otherwise. Call
    it before the optimizer is built, with the model on the CPU.
    """
    one_of("parallel", strategy, get_args(Parallelism))
    if distributed.world_size == 1:
        return move_to_device(learner, distributed.device)
    if strategy == "ddp":
        moved = move_to_device(learner, distributed.device)
        joined = DistributedDataParallel(moved, gradient_as_bucket_view=True)
        if distributed.device.type == "cpu":
            joined.register_comm_hook(distributed, _average_bucket)
        return joined
    from torch.distributed.device_mesh import init_device_mesh  # slow to import, seldom needed
    from torch.distributed.fsdp import fully_shard

    if distributed.device.type == "cuda":
        fuse(learner)
    mesh = init_device_mesh(distributed.device.type, (distributed.world_size,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(learner, mesh=mesh)  # in place, both
    return learner


def without_averaging(learner: nn.Module) -> AbstractContextManager[object]:
    """Do not average gradients inside, where the strategy allows it (DDP)."""
    return learner.no_sync() if isinstance(learner, DistributedDataParallel) else nullcontext()


def average_gradients(learner: nn.Module, distributed: DistributedContext) -> None:
    """Average the gradients after the backward pass, as DDP does during it."""
    for weight in learner.parameters():
        if weight.grad is not None:
            _average(weight.grad, distributed)


@torch.no_grad()
def _average(tensor: Tensor, distributed: DistributedContext) -> Tensor:
    """Average over the processes, in place.

    The last bits of gloo's sums depend on the position in a bucket, and DDP changes its buckets
    during a run. On the CPU, where resuming must be bit-exact, the parts of the processes are
    therefore added in a fixed order.
    """
    if distributed.device.type != "cpu":
        dist.all_reduce(tensor.div_(distributed.world_size))
        return tensor
    parts = [torch.empty_like(tensor) for _ in range(distributed.world_size)]
    dist.all_gather(parts, tensor)
    return tensor.copy_(sum(parts[1:], start=parts[0]).div_(distributed.world_size))


def _average_bucket(
    distributed: DistributedContext,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """The communication hook of DDP."""
    averaged: torch.futures.Future[Tensor] = torch.futures.Future()
    averaged.set_result(_average(bucket.buffer(), distributed))
    return averaged


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a tensor that FSDP has sharded; all processes must call it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def is_distributed(tensor: Tensor) -> bool:
    """Whether FSDP has sharded a tensor."""
    return hasattr(tensor, "full_tensor")


def local_rows(tensor: Tensor) -> Tensor:
    """The rows that this process has of a tensor that FSDP has sharded."""
    rows: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return rows


def distribute_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Shard a full tensor as `like` is sharded."""
    if not hasattr(like, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(
        tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    )
