"""Blocks computed by the actors of a Ray cluster; see `cloze.data.map_blocks`.

Ray starts the workers, sends them blocks and computes those of a dead worker again. This file
keeps the results in order and the number of blocks in memory bounded.
"""

import os
import secrets
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from cloze.data.map_blocks import ExecutorOptions
from cloze.errors import ClozeError, ConfigError, MissingExtraError

RETRIES = 3  # of a block whose worker has died or failed
BLOCKS_PER_WORKER = 2  # one that is computed, one that waits
MAX_LEAD = 4  # blocks per worker that are sent, or finished before an earlier one
OBJECT_STORE_BYTES = 256 << 20  # shared memory of a Ray that is started here

B = TypeVar("B")
R = TypeVar("R")


class BlockWorker:
    """An actor: makes the function, for example loads a model, and applies it to blocks.

    Errors of this package are results: they would be the same in another attempt.
    """

    def __init__(self, make: Callable[[], Callable[[Any], Any]], threads: int) -> None:
        os.environ.setdefault("RAYON_NUM_THREADS", str(threads))  # of tokenizers
        self._function: Callable[[Any], Any] | None = None
        self._error: ClozeError | None = None
        try:
            self._function = make()
        except ClozeError as error:
            self._error = error

    def apply(self, block: Any) -> Any:  # noqa: ANN401
        """The result of a block, or the error."""
        if self._function is None:
            return self._error
        try:
            return self._function(block)
        except ClozeError as error:
            return error


def map_with_ray(
    make: Callable[[], Callable[[B], R]], blocks: Iterable[B], options: ExecutorOptions
) -> Iterator[R]:
    """Yield the result of each block, in order, computed by actors."""
    ray = _import_ray(options)
    with _connect(ray, options):
        plan = _plan_workers(ray.cluster_resources(), options)
        actor_class = ray.remote(
            num_cpus=plan.cpus,
            num_gpus=plan.gpus,
            max_restarts=-1,  # as often as blocks are computed again
            max_task_retries=RETRIES,
        )(BlockWorker)
        actors = [actor_class.remote(make, plan.cpus) for _ in range(plan.workers)]
        try:
            yield from _compute_in_order(ray, actors, blocks)
        finally:
            for actor in actors:
                ray.kill(actor)


def _compute_in_order(ray: Any, actors: list[Any], blocks: Iterable[B]) -> Iterator[Any]:  # noqa: ANN401
    remaining = enumerate(blocks, 1)
    free = deque(actors * BLOCKS_PER_WORKER)
    running: dict[Any, Any] = {}  # reference of a result -> its actor
    in_order: deque[tuple[int, Any]] = deque()  # block number, reference
    is_last = False
    while True:
        while free and not is_last and len(in_order) < MAX_LEAD * len(actors):
            number, block = next(remaining, (0, None))
            if not number:
                is_last = True
                break
            actor = free.popleft()
            reference = actor.apply.options(retry_exceptions=True).remote(block)
            del block  # it is in the object store
            running[reference] = actor
            in_order.append((number, reference))
        if not in_order:
            return
        if in_order[0][1] in running:
            ready, _ = ray.wait(list(running), num_returns=1)
            free.extend(running.pop(reference) for reference in ready)
            continue
        yield _get_result(ray, *in_order.popleft())


def _get_result(ray: Any, number: int, reference: Any) -> Any:  # noqa: ANN401
    try:
        found = ray.get(reference)
    except ray.exceptions.RayError as error:
        # the last line of a long report: the exception in the worker, or how it died
        reason = str(error).strip().splitlines()[-1].strip()
        raise ClozeError(
            f"block {number:,} failed {RETRIES + 1} times in workers of Ray: {reason}",
            fix="if memory ran out, use fewer workers (--workers) or smaller blocks "
            "(--block-rows); then run the same command again: finished parts are kept",
        ) from error
    if isinstance(found, ClozeError):
        raise found
    return found


class _WorkerPlan(NamedTuple):
    """How many actors, and what each reserves."""

    workers: int
    cpus: int
    gpus: int


def _plan_workers(resources: dict[str, float], options: ExecutorOptions) -> _WorkerPlan:
    """One worker per GPU, or per core if no GPU is used."""
    cpus, gpus = (int(resources.get(name, 0)) for name in ("CPU", "GPU"))
    use_gpu = gpus > 0 if options.use_gpu is None else options.use_gpu
    available = gpus if use_gpu else cpus
    workers = options.workers or available
    if workers > available or not workers:
        kind = "GPUs" if use_gpu else "cores"
        raise ConfigError(
            f"{max(workers, 1):,} workers need as many {kind}; the Ray cluster has {available:,}",
            fix=f"use --workers {available}" if available else "use --device cpu",
        )
    return _WorkerPlan(workers, max(1, cpus // workers) if cpus else 0, int(use_gpu))


def _import_ray(options: ExecutorOptions) -> Any:  # noqa: ANN401
    """Import Ray, without usage statistics; a Ray that is started here accepts only our token.

    Ray listens on all network interfaces, and who reaches its ports can run code. A program that
    has imported Ray before has made this choice itself: Ray reads it when it is imported.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default
    if options.address is None and "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
    except ImportError:
        raise MissingExtraError("engine ray", extra="ray") from None
    return ray


@contextmanager
def _connect(ray: Any, options: ExecutorOptions) -> Iterator[None]:  # noqa: ANN401
    """Use the connection of the caller; or connect to a cluster; or start Ray on this machine."""
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if options.address is not None:
            ray.init(address=options.address, **quiet)
        else:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
            cores = cores or os.cpu_count() or 1
            ray.init(
                address="local",
                num_cpus=cores if options.use_gpu else max(cores, options.workers or 1),
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                **quiet,
            )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = options.address or "this machine"
        raise ClozeError(
            f"Ray on {where} cannot be reached: {str(error).splitlines()[0]}",
            fix="check the address; a cluster is started with: ray start --head (first machine), "
            "ray start --address HOST:6379 (the others)",
        ) from error
    # Ray prints the deaths of workers to standard output, where results are read
    printer: Any = getattr(getattr(ray, "_private", None), "worker", None)
    before = getattr(printer, "_worker_logs_enabled", None)
    if before is not None:
        printer._worker_logs_enabled = False
    try:
        yield
    finally:
        ray.shutdown()
        if before is not None:
            printer._worker_logs_enabled = before
