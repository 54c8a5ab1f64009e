"""Retrieve the neighbors of chunks from a database: what RETRO reads while it generates.

c chunks, k neighbors, m tokens of a chunk, l tokens of a neighbor (2m), d size of a key.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.decode.retro import RetroDecoder
from cloze.errors import ClozeError, FolderError, InputError
from cloze.files import PathLike
from cloze.models.language import LanguageModel
from cloze.retrieval.chunk_database import ChunkDatabase, KeySearch
from cloze.tasks.embed import embed
from cloze.text.tokenizer import Tokenizer

_REMEMBERED = 1 << 14  # chunks whose neighbors are kept
_EMBED_CHUNKS = 2048  # whose texts are in memory at once

Chunk = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Neighbor:
    """A chunk of the database that is similar to one of the text."""

    text: str
    continuation: str  # what follows it in its document
    score: float  # cosine of the keys

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the neighbor."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RetrievedChunk:
    """A chunk of a text, and the neighbors that the tokens after it read."""

    text: str
    neighbors: tuple[Neighbor, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the chunk."""
        return {"chunk": self.text, "neighbors": [one.to_dict() for one in self.neighbors]}


@dataclass(frozen=True)
class _Found:
    ids: NDArray[np.int64]  # k l
    mask: NDArray[np.bool_]  # k l
    scores: NDArray[Any]  # k


class ChunkRetriever:
    """Finds the neighbors of chunks; those of earlier calls are remembered."""

    def __init__(self, database: ChunkDatabase, model: Model, encoder: Model) -> None:
        self.database = database
        self._tokenizer, self._encoder = model.tokenizer, encoder
        self._count, self._length = model.config.num_neighbors, model.config.chunk_length
        self._search = KeySearch(database, encoder.device)
        self._known: dict[Chunk, _Found] = {}

    @classmethod
    def open(cls, folder: PathLike, model: Model) -> "ChunkRetriever":
        """Open the database of a folder, and the encoder that computed its keys."""
        database = ChunkDatabase.open(folder)
        check_database(database, model)
        info = database.info
        try:
            encoder = load(info.encoder, device=str(model.device), quiet=True)
        except ClozeError as error:
            raise InputError(
                f"the keys of {database.folder} were computed by {info.encoder}, which cannot be "
                f"loaded: {error.problem}",
                fix="put that model back, or build the database with another encoder",
            ) from error
        if digest_weights(encoder) != info.encoder_digest:
            raise InputError(
                f"the keys of {database.folder} were computed by another version of {info.encoder}",
                fix="build the database again with this version",
            )
        return cls(database, model, encoder)

    def find(self, chunks: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The tokens of the neighbors of each chunk (c k l), and where there are tokens."""
        found = self._find_all([tuple(chunk) for chunk in chunks])
        return np.stack([one.ids for one in found]), np.stack([one.mask for one in found])

    def describe(self, ids: Sequence[int]) -> tuple[RetrievedChunk, ...]:
        """The neighbors of each complete chunk of a text; `ids` begins with its begin token."""
        tokens = list(ids)[1:]
        chunks = [
            tuple(tokens[first : first + self._length])
            for first in range(0, len(tokens) - self._length + 1, self._length)
        ]
        return tuple(
            RetrievedChunk(text=self._decode(chunk), neighbors=self._describe(found))
            for chunk, found in zip(chunks, self._find_all(chunks), strict=True)
        )

    def _describe(self, found: _Found) -> tuple[Neighbor, ...]:
        length = self._length
        return tuple(
            Neighbor(
                text=self._decode(ids[:length]),
                continuation=self._decode(ids[length:][mask[length:]]),
                score=round(float(score), 4),
            )
            for ids, mask, score in zip(found.ids, found.mask, found.scores, strict=True)
            if mask.any()
        )

    def _decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        return self._tokenizer.decode([int(id_) for id_ in ids], skip_special_tokens=False)

    def _find_all(self, chunks: Sequence[Chunk]) -> list[_Found]:
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        new = list(dict.fromkeys(chunk for chunk in chunks if chunk not in self._known))
        if new:
            queries = embed_chunks(self._encoder, self._tokenizer, new)
            scores, numbers = self._search.find(torch.from_numpy(queries), self._count)
            ids, mask = self.database.read_values(numbers)
            self._known |= {
                chunk: _Found(ids[n], mask[n], scores[n]) for n, chunk in enumerate(new)
            }
        return [self._known[chunk] for chunk in chunks]


def add_database(model: LanguageModel, database: PathLike | None) -> LanguageModel:
    """The model with the database that it retrieves from; without one as it is."""
    if database is None:
        return model
    if not isinstance(model, RetroDecoder):
        raise InputError(
            "this model does not read a database",
            fix="leave database out, or use a RETRO (cloze pretrain --recipe retro trains one)",
        )
    found = cast(Model, model.model)
    return replace(model, retriever=ChunkRetriever.open(database, found))


def check_database(database: ChunkDatabase, model: Model) -> None:
    """Raise unless a model can read a database: same chunks, same tokens."""
    info, length = database.info, model.config.chunk_length
    if info.chunk_length != length:
        raise InputError(
            f"{database.folder} has chunks of {info.chunk_length} tokens, but the model reads "
            f"chunks of {length}",
            fix="use the database that the model was trained with, or build one for it",
        )
    if info.tokenizer != digest_tokenizer(model.tokenizer):
        raise InputError(
            f"{database.folder} was made with another vocabulary than that of the model",
            fix="use the database that the model was trained with, or build one for it",
        )


def embed_chunks(
    encoder: Model, tokenizer: Tokenizer, chunks: Sequence[Sequence[int] | NDArray[Any]]
) -> NDArray[np.float32]:
    """The keys of chunks: the mean of the encoder's token vectors, normalized (c d).

    Deviation: the paper compares by the distance of vectors that are not normalized.
    """
    parts = []
    for first in range(0, len(chunks), _EMBED_CHUNKS):
        some = [np.asarray(chunk).tolist() for chunk in chunks[first : first + _EMBED_CHUNKS]]
        texts = tokenizer.backend.decode_batch(some, skip_special_tokens=False)  # on all cores
        parts.append(
            embed(encoder, texts, pooling="mean", normalize=True, truncation="head", progress=False)
        )
    found = np.concatenate(parts).astype(np.float32)
    if not np.isfinite(found).all():
        raise FolderError("the encoder of the keys computes NaN", fix="use another encoder")
    return found


def digest_tokenizer(tokenizer: Tokenizer) -> str:
    """A hash of a tokenizer."""
    return blake2b(tokenizer.backend.to_str().encode(), digest_size=16).hexdigest()


def digest_weights(model: Model) -> str:
    """A hash of the weights of a model."""
    digest = blake2b(digest_size=16)
    for name, weight in sorted(model.module.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
