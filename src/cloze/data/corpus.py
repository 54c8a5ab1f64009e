"""A prepared corpus: token ids on disk, memory-mapped.

The folder contains `shards/` and `corpus.json`, which is written last and lists the files in
`shards/`: the shards (see cloze.data.shards) and an index with the start of every sentence and
document and with the documents that are held out. n tokens, s sentences, d documents.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloze.data.shards import RUN_AGAIN, Array, read_arrays, read_shard
from cloze.errors import FolderError
from cloze.files import read_json

FORMAT = "cloze corpus"
FORMAT_VERSION = 1
_MAX_DESCRIPTION_BYTES = 1 << 28  # it lists every shard
DESCRIPTION = "corpus.json"
SHARDS = "shards"
_READ_TOKENS = 2**20  # tokens read at once


@dataclass(frozen=True, kw_only=True)
class CorpusSummary:
    """The size of a corpus."""

    documents: int
    held_out: int  # documents that are held out
    sentences: int
    tokens: int
    words: int
    unknown: int  # tokens that are [UNK]
    longest_sentence: int  # in tokens
    longest_document: int  # in tokens
    bytes: int  # on disk
    skipped: int  # rows that could not be read

    @property
    def unknown_rate(self) -> float:
        """The fraction of the tokens that are [UNK]."""
        return self.unknown / self.tokens


class Corpus:
    """Token ids, word starts, sentences and documents of a prepared folder."""

    def __init__(self, folder: Path, description: Mapping[str, Any]) -> None:
        """Use `Corpus.open`."""
        self.folder = folder
        self.summary = CorpusSummary(**description["summary"])
        self.fingerprint: Mapping[str, Any] = description["fingerprint"]
        self.vocab_size = int(description["vocabulary"])  # all ids are below this
        arrays, _ = read_arrays(_resolve_entry(folder, description["index"]))
        self.sentence_starts = arrays["sentences"]  # s + 1: first token of each sentence, and n
        self.document_starts = arrays["documents"]  # d + 1: first sentence of each document, and s
        self._held_out = arrays["held_out"].view(np.bool_)  # d
        self._shards = [
            read_shard(_resolve_entry(folder, entry)) for entry in description["shards"]
        ]
        self._shard_starts = [0, *np.cumsum([len(shard.ids) for shard in self._shards]).tolist()]
        if self._shard_starts[-1] != self.sentence_starts[-1] or self.document_starts[
            -1
        ] + 1 != len(self.sentence_starts):
            raise ValueError("the index does not match the shards")

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Self:
        """Open a prepared folder; sizes are checked here, contents by `is_whole`."""
        path = Path(folder)
        if not (path / DESCRIPTION).is_file():
            is_partial = (path / SHARDS).is_dir()
            raise FolderError(
                f"{path} is an incomplete corpus" if is_partial else f"{path} is not a corpus",
                fix="run the same command again; finished shards are reused"
                if is_partial
                else "prepare a corpus there, or check the path",
            )
        description = read_json(
            path / DESCRIPTION,
            max_bytes=_MAX_DESCRIPTION_BYTES,
            fix=RUN_AGAIN,
        )
        _check_format(path, description)
        try:
            return cls(path, description)
        except (KeyError, TypeError, ValueError) as error:
            raise FolderError(
                f"{path} is a damaged corpus ({error})",
                fix=RUN_AGAIN,
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return Corpus.open, (self.folder,)  # pickled as its path

    def __repr__(self) -> str:
        return f"Corpus({str(self.folder)!r}, tokens={self.summary.tokens:,})"

    def __len__(self) -> int:
        """Number of tokens."""
        return self._shard_starts[-1]

    @cached_property
    def train(self) -> "CorpusSplit":
        """The training documents."""
        return CorpusSplit(self, np.flatnonzero(~self._held_out))

    @cached_property
    def held_out(self) -> "CorpusSplit":
        """The held-out documents, for evaluation."""
        return CorpusSplit(self, np.flatnonzero(self._held_out))

    def read_tokens(self, first: int, last: int) -> tuple[Array, NDArray[np.bool_]]:
        """Ids and word starts of the tokens from `first` up to `last`."""
        number = bisect_right(self._shard_starts, first) - 1
        base, end = self._shard_starts[number : number + 2]
        if last <= end:
            shard = self._shards[number]
            return shard.ids[first - base : last - base], shard.word_starts(
                first - base, last - base
            )
        ids, starts = zip(self.read_tokens(first, end), self.read_tokens(end, last), strict=True)
        return np.concatenate(ids), np.concatenate(starts)

    @cached_property
    def digest(self) -> str:
        """A hash of the contents; it does not depend on the names of the files or of the folder."""
        digest = blake2b(str(self.vocab_size).encode(), digest_size=16)
        for shard in self._shards:
            digest.update(shard.digest.encode())
        for array in (self.sentence_starts, self.document_starts, self._held_out):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def is_intact(self) -> bool:
        """Whether the contents have the digests that were written; reads all files."""
        return all(shard.is_intact() for shard in self._shards)


@dataclass(frozen=True)
class CorpusSplit:
    """Some documents of a corpus, in order: the training or the held-out ones."""

    corpus: Corpus
    document_ids: NDArray[np.int64]  # d, in increasing order

    def __len__(self) -> int:
        return len(self.document_ids)

    @cached_property
    def sentence_ranges(self) -> NDArray[np.int64]:
        """First sentence of each document, and the one after its last: d 2."""
        begins = self.corpus.document_starts
        return np.stack([begins[self.document_ids], begins[self.document_ids + 1]], 1).astype(
            np.int64
        )

    def count_token_ids(self) -> NDArray[np.int64]:
        """The number of occurrences of each token id; reads all tokens."""
        counts = np.zeros(self.corpus.vocab_size, np.int64)
        first, last = self.corpus.sentence_starts[self.sentence_ranges].astype(np.int64).T
        gaps = np.flatnonzero(first[1:] != last[:-1])  # adjacent documents are read together
        starts, ends = first[[0, *(gaps + 1)]], last[[*gaps, -1]]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            for token in range(start, end, _READ_TOKENS):
                ids, _ = self.corpus.read_tokens(token, min(token + _READ_TOKENS, end))
                counts += np.bincount(ids, minlength=len(counts))
        return counts


def make_description(
    *,
    fingerprint: Mapping[str, Any],
    vocab_size: int,
    summary: CorpusSummary,
    index: Path,
    shards: Sequence[Path],
) -> dict[str, Any]:
    """The contents of `corpus.json`."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "fingerprint": fingerprint,
        "vocabulary": vocab_size,
        "summary": asdict(summary),
        "index": _make_entry(index),
        "shards": [_make_entry(path) for path in shards],
    }


def _check_format(path: Path, description: object) -> None:
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise FolderError(
            f"{path} is not a corpus", fix="prepare a corpus there, or check the path"
        )
    if description.get("format_version") != FORMAT_VERSION:
        raise FolderError(
            f"{path} has corpus format {description.get('format_version')}, but this version reads "
            f"format {FORMAT_VERSION}",
            fix="prepare it again in a new folder, or use the version that wrote it",
        )


def _make_entry(path: Path) -> Mapping[str, str | int]:
    return {"file": path.name, "bytes": path.stat().st_size}


def _resolve_entry(folder: Path, entry: Mapping[str, Any]) -> Path:
    """The path of a file that `corpus.json` lists; raise if it has another size."""
    name = str(entry["file"])
    if Path(name).name != name:
        raise ValueError(f"invalid file name {name!r}")
    path = folder / SHARDS / name
    if path.exists() and path.stat().st_size != entry["bytes"]:
        raise FolderError(
            f"{path} is truncated: {path.stat().st_size:,} of {entry['bytes']:,} bytes",
            fix=RUN_AGAIN,
        )
    return path
