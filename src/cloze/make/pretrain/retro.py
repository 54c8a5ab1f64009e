"""Train RETRO: the database of a run, the neighbors of its text, and its batches.

Beside what every pre-training run has, the folder contains

    database/          chunks of the training text and their keys (`cloze.retrieval.chunk_database`)
    neighbors/         the neighbors of every chunk of the corpus, precomputed by exact search
    retrieval.json     sizes, and how much neighbors overlap with what is to be predicted
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import nn

from cloze.checkpoint.atomic import translate_write_errors
from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.data.batch import Ints
from cloze.data.chunks import ChunkTable
from cloze.data.device_corpus import CorpusSliceBatch
from cloze.data.shards import read_arrays
from cloze.errors import ConfigError, FolderError
from cloze.files import write_bytes, write_json
from cloze.make.build_database import build_text_database
from cloze.make.pretrain.setup import PretrainingSetup
from cloze.make.recipe.retro import DECODERS, RetroRecipe
from cloze.metrics.neighbor_overlap import measure_overlap
from cloze.models.build import build
from cloze.models.configs.retro import RetroConfig
from cloze.models.retro import Retro
from cloze.objectives.core import Objective
from cloze.objectives.retro import CorpusNeighbors, RetroBatch, retro_objective
from cloze.retrieval.chunk_database import (
    PART,
    ChunkDatabase,
    DatabaseText,
    KeySearch,
)
from cloze.tasks.chunk_retriever import check_database, embed_chunks
from cloze.train.callbacks import CallbackList
from cloze.train.distributed import DistributedContext
from cloze.train.run_files import DATABASE, NEIGHBOR_FOLDER, RETRIEVAL_FACTS


@dataclass(frozen=True, kw_only=True)
class RetroSetup(PretrainingSetup):
    """Everything of a training run of RETRO but the training state."""

    neighbors: CorpusNeighbors | None = None
    neighbors_digest: str = ""

    can_compile: ClassVar[bool] = False  # the number of chunks differs between batches

    def objective(self, device: torch.device) -> Objective[Any]:  # noqa: ARG002
        """The next token, with neighbors."""
        return retro_objective

    def describe_data(self) -> dict[str, Any]:
        """What else must be equal for a resumed run to continue exactly."""
        return {"neighbors": self.neighbors_digest}

    def trained_module(self) -> nn.Module:
        """The model; its decoder is frozen if the recipe says so."""
        assert isinstance(self.recipe, RetroRecipe)
        module: Retro = self.model.module
        if resolve_freezing(self.recipe):
            for name, weight in module.named_parameters():
                weight.requires_grad_(module.is_retrieval_weight(name))
        return module

    def _assign_objective(
        self,
        batches: list[CorpusSliceBatch],
        numbers: Iterable[int] | None = None,  # noqa: ARG002
    ) -> list[CorpusSliceBatch]:
        return [RetroBatch.from_batch(batch, neighbors=self.neighbors) for batch in batches]


def resolve_freezing(recipe: RetroRecipe) -> bool:
    """Whether only retrieval is trained: by default if the run starts from another family."""
    if recipe.retrieval.freeze_decoder is not None:
        return recipe.retrieval.freeze_decoder
    base = recipe.init_from
    if base is None:
        return False
    from cloze.make.recipe.model import detect_family

    family = detect_family(base)
    return family is not None and family.name in DECODERS


@torch.no_grad()
def extend_decoder(base: Model, recipe: RetroRecipe, *, rng: torch.Generator) -> Model:
    """A RETRO whose decoder has the weights of a GPT-2; retrieval is initialised at random.

    RETROfit: Borgeaud et al. 2021, §2.4 and §4.2. Deviation: chunked cross-attention adds nothing
    before the first step.
    """
    if base.config.family not in DECODERS:
        raise ConfigError(
            f"RETRO cannot start from {base.family.description}: its blocks differ",
            fix="start from a GPT-2 (cloze pretrain --recipe gpt trains one)",
        )
    shared = {one.name: getattr(base.config, one.name) for one in fields(base.config)}
    config = RetroConfig(**shared, **recipe.retrieval.model_settings)
    module: Retro = build(config, ("lm",), rng=rng)
    weights = base.module.state_dict()
    ours = module.state_dict()
    for name, weight in ours.items():
        if not Retro.is_retrieval_weight(name):
            weight.copy_(weights[name])
    for attention in module.retrieval_attentions:  # at first the model is the GPT-2
        attention.out.weight.zero_()
    return Model(module=module.eval(), tokenizer=base.tokenizer, config=config)


def add_retrieval(
    setup: PretrainingSetup, out: Path, distributed: DistributedContext, callbacks: CallbackList
) -> RetroSetup:
    """Build the database and find the neighbors, unless both are there."""
    recipe = setup.recipe
    assert isinstance(recipe, RetroRecipe)
    values = {one.name: getattr(setup, one.name) for one in fields(setup)}
    if not recipe.retrieval.enabled:
        return RetroSetup(**values)
    device = distributed.device
    builder = NeighborBuilder(setup, recipe, out, device, callbacks)
    distributed.run_on_first(builder.build)
    neighbors = builder.open()
    digest = blake2b(neighbors.numbers.tobytes(), digest_size=16)
    digest.update(builder.database.info.fingerprint.encode())
    return RetroSetup(**values, neighbors=neighbors, neighbors_digest=digest.hexdigest())


class NeighborBuilder:
    """Builds the database of a run, and finds the neighbors of its corpus."""

    def __init__(
        self,
        setup: PretrainingSetup,
        recipe: RetroRecipe,
        out: Path,
        device: torch.device,
        callbacks: CallbackList,
    ) -> None:
        self._model, self._tokenizer, self._recipe = setup.model, setup.tokenizer, recipe
        self._out, self._device, self._callbacks = out, device, callbacks
        self._chunks = ChunkTable(setup.corpus, setup.model.config.chunk_length)
        self._folder = out / NEIGHBOR_FOLDER
        named = recipe.retrieval.database
        self._is_own = named is None
        self._database_folder = out / DATABASE if named is None else Path(named)
        self._encoder: Model | None = None

    @property
    def database(self) -> ChunkDatabase:
        """The database, when it is built."""
        return ChunkDatabase.open(self._database_folder)

    def build(self) -> None:
        """Write what is not there yet."""
        database = self._build_database() if self._is_own else self.database
        check_database(database, self._model)
        missing = [one for one in self._list_parts(database) if not self._is_intact(*one)]
        if missing:
            self._find_neighbors(database, missing)
        if missing or not (self._out / RETRIEVAL_FACTS).is_file():
            self._write_facts(database)

    def open(self) -> CorpusNeighbors:
        """The neighbors of all chunks of the corpus."""
        database, k = self.database, self._model.config.num_neighbors
        parts = [read_arrays(path)[0]["numbers"] for path, _, _ in self._list_parts(database)]
        numbers = np.concatenate([np.zeros(0, np.uint32), *parts]).astype(np.int64) - 1
        numbers = numbers.reshape(-1, k)
        if len(numbers) != len(self._chunks) or numbers.max(initial=-1) >= len(database):
            raise FolderError(
                f"{self._folder} does not match the corpus or the database",
                fix="remove that folder and run the same command again",
            )
        return CorpusNeighbors(self._chunks, database, numbers)

    def _load_encoder(self) -> Model:
        if self._encoder is None:
            own = self._recipe.retrieval.encoder
            name = own if self._is_own else self.database.info.encoder
            self._encoder = load(name, device=str(self._device), quiet=True)
        return self._encoder

    def _build_database(self) -> ChunkDatabase:
        model = replace(self._model, tokenizer=self._tokenizer)
        encoder, name = self._load_encoder(), self._recipe.retrieval.encoder
        return build_text_database(
            self._database_folder,
            self._chunks,
            model,
            encoder,
            name=name,
            progress=self._callbacks.on_progress,
        )

    def _list_parts(self, database: ChunkDatabase) -> list[tuple[Path, int, int]]:
        """The files of neighbors, with the chunks from … up to … that each is for."""
        k, total = self._model.config.num_neighbors, len(self._chunks)
        key = f"{database.info.fingerprint} {self._chunks.corpus.digest} {k}".encode()
        name = blake2b(key, digest_size=8).hexdigest()
        return [
            (self._folder / f"{name}-{n:05d}.safetensors", first, min(first + PART, total))
            for n, first in enumerate(range(0, total, PART))
        ]

    def _is_intact(self, path: Path, first: int, last: int) -> bool:
        try:
            arrays, metadata = read_arrays(path)
            numbers = arrays["numbers"]
        except (FolderError, KeyError):
            return False
        count = (last - first) * self._model.config.num_neighbors
        return len(numbers) == count and metadata.get("digest") == _digest(numbers)

    def _find_neighbors(
        self, database: ChunkDatabase, missing: list[tuple[Path, int, int]]
    ) -> None:
        """Exact search of the nearest chunks of other documents, for each chunk of the corpus."""
        chunks, k = self._chunks, self._model.config.num_neighbors
        self._callbacks.on_log(
            f"finding {k} neighbors of {len(chunks):,} chunks in a database of {len(database):,}"
        )
        search, own = KeySearch(database, self._device), match_chunks(chunks, database.text)
        self._folder.mkdir(parents=True, exist_ok=True)
        for path, first, last in missing:
            queries = torch.empty(last - first, database.info.dimension, device=self._device)
            stored = own[first:last] >= 0
            rows = torch.from_numpy(own[first:last][stored]).to(self._device)
            known = torch.from_numpy(stored).to(self._device)
            queries[known] = search.keys[rows].float()
            if not stored.all():
                others = [chunks.read_chunk(first + n) for n in np.flatnonzero(~stored).tolist()]
                keys = embed_chunks(self._load_encoder(), self._tokenizer, others)
                queries[~known] = torch.from_numpy(keys).to(self._device)
            _, numbers = search.find(queries, k, chunks.digests[first:last])
            found = (numbers.reshape(-1) + 1).astype(np.uint32)  # 0: there is none
            metadata = json.dumps({"digest": _digest(found)})
            with translate_write_errors(self._folder):
                write_bytes(path, safetensors.numpy.save({"numbers": found}, {"cloze": metadata}))
            self._callbacks.on_progress("neighbors found", last, len(chunks))
        kept = {path.name for path, _, _ in self._list_parts(database)}
        for path in self._folder.glob("*.safetensors"):
            if path.name not in kept:
                path.unlink()

    def _write_facts(self, database: ChunkDatabase) -> None:
        neighbors = self.open()
        facts = {
            "database": str(database.folder),
            "encoder": database.info.encoder,
            "chunk_length": database.info.chunk_length,
            "database_chunks": len(database),
            "corpus_chunks": len(self._chunks),
            "chunks_without_neighbors": int((neighbors.numbers < 0).all(1).sum()),
            "overlap": {
                name: measure_overlap(self._chunks, database, neighbors.numbers, rows)
                for name, rows in (
                    ("train", np.flatnonzero(self._chunks.is_train)),
                    ("held_out", np.flatnonzero(~self._chunks.is_train)),
                )
            },
        }
        write_json(self._out / RETRIEVAL_FACTS, facts)


def match_chunks(chunks: ChunkTable, text: DatabaseText) -> Ints:
    """The number of each chunk of a corpus in a database; −1 if it is not there (c).

    Chunks are the same if they are at the same place of documents with the same tokens, so their
    keys need not be computed again.
    """
    ours, theirs = (
        np.stack([documents, _count_before(starts, ends)], 1)
        for documents, starts, ends in (
            (chunks.digests, chunks.starts, chunks.ends),
            (text.documents, text.starts, text.ends),
        )
    )
    keys, wanted = (
        np.ascontiguousarray(one).view([("document", np.int64), ("place", np.int64)])[:, 0]
        for one in (theirs, ours)
    )
    order = np.argsort(keys, kind="stable")
    found = order[np.searchsorted(keys, wanted, sorter=order).clip(max=len(order) - 1)]
    return np.where((theirs[found] == ours).all(1), found, -1)


def _count_before(starts: Ints, ends: Ints) -> Ints:
    """The number of chunks of the same document before each."""
    is_first = np.diff(ends, prepend=-1) != 0
    number = np.arange(len(starts))
    return number - np.maximum.accumulate(np.where(is_first, number, 0))


def _digest(array: NDArray[Any]) -> str:
    return blake2b(np.ascontiguousarray(array).data, digest_size=16).hexdigest()
