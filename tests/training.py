"""A tiny BERT, data of any length for it, and processes to train it in."""

import multiprocessing
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as processes

from cloze.data.batch import PackedBatch
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.nn.encoder import Encoder
from cloze.objectives.core import Learner
from cloze.objectives.pretraining import pretraining_objective
from cloze.train.config import LoopConfig, OptimizerConfig
from cloze.train.distributed import (
    SINGLE_PROCESS,
    DistributedContext,
    distributed_context,
    wrap_distributed,
)
from cloze.train.loop import training_steps
from cloze.train.optim import build_optimizer
from cloze.train.schedule import Budget, Schedule
from cloze.train.state import TrainState
from cloze.train.step import Step

torch.set_num_threads(1)  # for nets this small a second thread only waits for the first

VOCABULARY = 50
PRELOADED = ["torch._dynamo", "torch.distributed.fsdp", "parallel_jobs", "saving_jobs"]
SHAPE = {
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_positions": 16,
}


def tiny_bert(dropout: float = 0.0, **changes) -> Encoder:
    options = SHAPE | {"dropout": dropout, "attention_dropout": dropout} | changes
    config = BertConfig(vocab_size=VOCABULARY, **options)
    return build(config, ["mlm", "nsp"], rng=torch.Generator().manual_seed(1))


def packed(sample_ids) -> PackedBatch:
    """Samples that depend on their number only: what follows from one token is the next number."""
    draws = [np.random.default_rng(int(number)) for number in sample_ids]
    lengths = np.array([rng.integers(5, 10) for rng in draws])
    starts = lengths.cumsum() - lengths
    ids = np.concatenate(
        [
            (rng.integers(VOCABULARY) + np.arange(n)) % VOCABULARY
            for rng, n in zip(draws, lengths, strict=True)
        ]
    )
    positions = np.concatenate(
        [
            s + np.sort(rng.choice(n, 1 + rng.integers(3), replace=False))
            for rng, s, n in zip(draws, starts, lengths, strict=True)
        ]
    )
    targets = ids[positions]
    hidden = ids.copy()
    hidden[positions] = 3
    return PackedBatch(
        input_ids=hidden,
        token_type_ids=np.concatenate([np.arange(n) // 4 % 2 for n in lengths]),
        lengths=lengths,
        word_starts=np.ones(len(ids), bool),
        maskable=np.ones(len(ids), bool),
        labels=np.array([rng.integers(2) for rng in draws]),
        sample_ids=np.asarray(sample_ids, np.int64),
        epoch=0,
        masked_positions=positions,
        targets=targets,
    )


def micro_batches(step: int, parts: int = 4, size: int = 2) -> list[PackedBatch]:
    """The global batch of a step."""
    first = step * parts * size
    return [packed(range(first + i * size, first + (i + 1) * size)) for i in range(parts)]


def data(distributed: DistributedContext = SINGLE_PROCESS, parts: int = 4, size: int = 2):
    """For each step from `start` on, this process's part of the global batch."""

    def groups(start: int) -> Iterator[Any]:
        return (
            micro_batches(step, parts, size)[distributed.rank :: distributed.world_size]
            for step in count(start)
        )

    return groups


def new_state(
    model: Encoder | None = None,
    *,
    objective=pretraining_objective,
    distributed: DistributedContext = SINGLE_PROCESS,
    way: str = "ddp",
    rate: float = 1e-2,
    made=None,
    **config,
) -> TrainState:
    model = model or tiny_bert()
    learner = wrap_distributed(
        Learner(model, objective), distributed, strategy=way, blocks=getattr(model, "blocks", ())
    )
    how = made(model) if made else build_optimizer(model, OptimizerConfig(lr=rate))
    return TrainState(learner, model, how, LoopConfig(**config), distributed)


def steps_of(state: TrainState, steps: int, upto: int | None = None, source=None) -> list[Step]:
    """Train towards `steps`, but only `upto` some step."""
    source = source or data(state.distributed)
    taken = []
    for step in training_steps(
        state, source, budget=Budget(steps=steps), schedule=Schedule(warmup=0.1)
    ):
        taken.append(step)
        if step.number == upto:
            break
    return taken


def same(one, other) -> None:
    """The same tensors under the same names, bit for bit."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype
        assert torch.equal(value.isnan(), other[name].isnan()), name
        assert torch.equal(value.nan_to_num(), other[name].nan_to_num()), name


def in_processes(world: int, job: Callable[..., None], *args) -> None:
    """`job(distributed, *args)` in so many processes, as torchrun would start them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # importing takes longer than what is done then: one server does it for all processes
    multiprocessing.set_forkserver_preload(PRELOADED)
    processes.start_processes(
        _begin, (world, port, job, args), nprocs=world, start_method="forkserver"
    )


def in_one_process(job: Callable[..., None], *args) -> None:
    """In a fresh one, which has no threads and so can be forked by the dozen."""
    multiprocessing.set_forkserver_preload(PRELOADED)
    process = multiprocessing.get_context("forkserver").Process(target=job, args=args)
    process.start()
    process.join()
    assert process.exitcode == 0


def _begin(rank: int, world: int, port: int, job: Callable[..., None], args) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    warnings.simplefilter("error")
    with distributed_context("cpu") as distributed:
        job(distributed, *args)
