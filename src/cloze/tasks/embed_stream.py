"""`embed` for more texts than fit into memory: a stream in, records out, a file if wanted."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Unpack

from cloze.checkpoint.model import Model
from cloze.data.vector_files import EmbeddingRecord
from cloze.errors import InputError
from cloze.tasks.embed import EmbedOptions, TokenVectors, Vectors, embed

CHUNK = 20_000  # texts that are sorted by length and embedded together


def embed_stream(
    model: Model,
    texts: Iterable[str],
    *,
    pooling: str | None = None,
    chunk: int = CHUNK,
    **options: Unpack[EmbedOptions],
) -> Iterator[list[EmbeddingRecord]]:
    """One record per text, in order and in chunks; a text that fails carries its error."""
    waiting = iter(texts)
    while batch := list(islice(waiting, chunk)):
        errors: dict[int, InputError] = {}
        cuts: dict[int, int] = {}
        options["on_error"], options["on_cut"] = errors.__setitem__, cuts.__setitem__
        found = embed(model, batch, pooling=pooling, **options)
        yield [
            EmbeddingRecord(text=text, error=errors[number])
            if number in errors
            else _record(text, found[number], cuts.get(number, 0))
            for number, text in enumerate(batch)
        ]


def _record(text: str, found: Vectors | TokenVectors | None, cut: int) -> EmbeddingRecord:
    if isinstance(found, TokenVectors):
        return EmbeddingRecord(
            text=text, vectors=found.vectors, encoding=found.encoding, truncated=cut
        )
    return EmbeddingRecord(text=text, vectors=found, truncated=cut)
