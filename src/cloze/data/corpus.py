"""A prepared corpus: text as ids on disk, opened in an instant and read where it is touched.

A folder holds `shards/` and, written last, `corpus.json`, which lists what is in there: the shards
(see cloze.data.shards) and an index of where every sentence and every document begins, and which
documents are held out. n tokens, s sentences, d documents.
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

from cloze.data.shards import Array, read_arrays, read_shard
from cloze.errors import FolderError
from cloze.files import read_json

FORMAT = "cloze corpus"
FORMAT_VERSION = 1
_MAX_DESCRIPTION_BYTES = 1 << 28  # bytes of the description, which lists every shard
DESCRIPTION = "corpus.json"
SHARDS = "shards"
_READ_TOKENS = 2**20  # tokens


@dataclass(frozen=True, kw_only=True)
class CorpusSummary:
    """What a corpus holds."""

    documents: int
    held_out: int  # of the documents
    sentences: int
    tokens: int
    words: int
    unknown: int  # of the tokens
    longest_sentence: int  # in tokens
    longest_document: int
    bytes: int  # on disk
    skipped: int  # rows that could not be read

    @property
    def unknown_rate(self) -> float:
        """The share of tokens that the vocabulary does not know."""
        return self.unknown / self.tokens


class Corpus:
    """Ids, word starts, sentences and documents of a prepared folder."""

    def __init__(self, folder: Path, description: Mapping[str, Any]) -> None:
        """Use `Corpus.open`."""
        self.folder = folder
        self.summary = CorpusSummary(**description["summary"])
        self.fingerprint: Mapping[str, Any] = description["fingerprint"]
        self.vocab_size = int(description["vocabulary"])  # all ids are below this
        arrays, _ = read_arrays(_resolve_entry(folder, description["index"]))
        self.sentence_starts = arrays["sentences"]  # s + 1: the token each one begins with, and n
        self.document_starts = arrays[
            "documents"
        ]  # d + 1: the sentence each one begins with, and s
        self._held_out = arrays["held_out"].view(np.bool_)  # d
        self._shards = [
            read_shard(_resolve_entry(folder, listed)) for listed in description["shards"]
        ]
        self._shard_starts = [0, *np.cumsum([len(shard.ids) for shard in self._shards]).tolist()]
        if self._shard_starts[-1] != self.sentence_starts[-1] or self.document_starts[
            -1
        ] + 1 != len(self.sentence_starts):
            raise ValueError("the index does not fit the shards")

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Self:
        """Open a prepared folder; sizes are checked here, contents by `is_whole`."""
        path = Path(folder)
        if not (path / DESCRIPTION).is_file():
            half = (path / SHARDS).is_dir()
            raise FolderError(
                f"{path} is a corpus only half prepared" if half else f"{path} is not a corpus",
                fix="run the same preparation again: finished shards are kept"
                if half
                else "prepare one there, or check the path",
            )
        description = read_json(
            path / DESCRIPTION, max_bytes=_MAX_DESCRIPTION_BYTES, fix="prepare the corpus again"
        )
        _check_format(path, description)
        try:
            return cls(path, description)
        except (KeyError, TypeError, ValueError) as error:
            raise FolderError(
                f"{path} is a damaged corpus ({error})", fix="prepare the corpus again"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return Corpus.open, (self.folder,)  # to another process goes the path, not the data

    def __repr__(self) -> str:
        return f"Corpus({str(self.folder)!r}, tokens={self.summary.tokens:,})"

    def __len__(self) -> int:
        """Number of tokens."""
        return self._shard_starts[-1]

    @cached_property
    def train(self) -> "CorpusSplit":
        """The documents to learn from."""
        return CorpusSplit(self, np.flatnonzero(~self._held_out))

    @cached_property
    def held_out(self) -> "CorpusSplit":
        """The documents to judge by."""
        return CorpusSplit(self, np.flatnonzero(self._held_out))

    def read_tokens(self, first: int, last: int) -> tuple[Array, NDArray[np.bool_]]:
        """Ids and word starts of tokens first … last of the whole corpus."""
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
        """Of all that is in it, whatever the text was called and wherever the folder lies."""
        digest = blake2b(str(self.vocab_size).encode(), digest_size=16)
        for shard in self._shards:
            digest.update(shard.digest.encode())
        for array in (self.sentence_starts, self.document_starts, self._held_out):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def is_intact(self) -> bool:
        """Whether every byte is as it was written; reads them all."""
        return all(shard.is_intact() for shard in self._shards)


@dataclass(frozen=True)
class CorpusSplit:
    """Some documents of a corpus, in order."""

    corpus: Corpus
    document_ids: NDArray[np.int64]  # their numbers

    def __len__(self) -> int:
        return len(self.document_ids)

    @cached_property
    def sentence_ranges(self) -> NDArray[np.int64]:
        """The first sentence of each document and the one after its last, d × 2."""
        begins = self.corpus.document_starts
        return np.stack([begins[self.document_ids], begins[self.document_ids + 1]], 1).astype(
            np.int64
        )

    def count_token_ids(self) -> NDArray[np.int64]:
        """How often each id occurs; reads every token."""
        counts = np.zeros(self.corpus.vocab_size, np.int64)
        first, last = self.corpus.sentence_starts[self.sentence_ranges].astype(np.int64).T
        apart = np.flatnonzero(first[1:] != last[:-1])  # neighbours are read in one go
        begins, ends = first[[0, *(apart + 1)]], last[[*apart, -1]]
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            for place in range(begin, end, _READ_TOKENS):
                ids, _ = self.corpus.read_tokens(place, min(place + _READ_TOKENS, end))
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
        raise FolderError(f"{path} is not a corpus", fix="prepare one there, or check the path")
    if description.get("format_version") != FORMAT_VERSION:
        raise FolderError(
            f"{path} is a corpus of format {description.get('format_version')}, "
            f"this version reads {FORMAT_VERSION}",
            fix="prepare it again in a new folder, or use the version that made it",
        )


def _make_entry(path: Path) -> Mapping[str, str | int]:
    return {"file": path.name, "bytes": path.stat().st_size}


def _resolve_entry(folder: Path, listing: Mapping[str, Any]) -> Path:
    """The path of a file that `corpus.json` lists, if it has the size it should have."""
    name = str(listing["file"])
    if Path(name).name != name:
        raise ValueError(f"a file named {name!r}")
    path = folder / SHARDS / name
    if path.exists() and path.stat().st_size != listing["bytes"]:
        raise FolderError(
            f"{path} is cut short: {path.stat().st_size:,} of {listing['bytes']:,} bytes",
            fix="prepare the corpus again: whatever is whole will be kept",
        )
    return path
