"""The pairs of texts of a run: every different text once, and rows of text numbers.

g rows, k columns: anchor, positive, negatives.
"""

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.data.batch import Bools, Ints
from cloze.data.config import PairKind
from cloze.data.input_files import find_files, open_binary, split_endings
from cloze.data.labelled.columns import is_number
from cloze.data.labelled.pairs import PairColumns, PairExample, read_pair_examples
from cloze.data.made_pairs import make_pair_examples, read_documents
from cloze.data.pair_batch import MISSING
from cloze.data.sources import OnError, Source, as_list, is_stream
from cloze.errors import InputError

_PEEK_BYTES = 1 << 16
_PLAIN_TEXT = (".txt", ".text", "")  # endings of files that may be running text
_TWO = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class TextPairs:
    """Rows of texts: an anchor, a positive, and maybe negatives or a score."""

    texts: Sequence[str]  # different from each other
    rows: Ints  # g k: numbers of texts; MISSING where a row has fewer
    scores: NDArray[np.float32] | None = None  # g
    groups: Ints | None = None  # g: the kind of each row; None: all are of one
    documents: Ints | None = None  # g: the document of each row; None: unknown

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def kind(self) -> str:
        """What the rows are: pairs, triplets or scored pairs."""
        if self.scores is not None:
            return "scored pairs"
        return "pairs" if self.rows.shape[1] == _TWO else "triplets"

    @property
    def is_simcse(self) -> bool:
        """Whether the two texts of every row are the same."""
        return len(self.rows) > 0 and bool((self.rows[:, 0] == self.rows[:, 1]).all())

    @property
    def fingerprint(self) -> list[int]:
        """Identifies the data: counts and checksums."""
        digest = 0
        for text in self.texts:
            digest = zlib.crc32(text.encode("utf-8", "surrogatepass"), digest)
        digest = zlib.crc32(np.ascontiguousarray(self.rows).tobytes(), digest)
        if self.scores is not None:
            digest = zlib.crc32(self.scores.tobytes(), digest)
        return [len(self.rows), len(self.texts), digest]

    def select(self, chosen: Bools | Ints) -> "TextPairs":
        """Some of the rows, with their texts only."""
        rows = self.rows[chosen]
        used, numbers = np.unique(rows, return_inverse=True)
        has_missing = len(used) > 0 and used[0] == MISSING
        numbers = numbers.reshape(rows.shape) - int(has_missing)
        kept = [self.texts[n] for n in used[int(has_missing) :].tolist()]
        scores = None if self.scores is None else self.scores[chosen]
        groups = None if self.groups is None else self.groups[chosen]
        documents = None if self.documents is None else self.documents[chosen]
        return TextPairs(
            texts=kept, rows=numbers, scores=scores, groups=groups, documents=documents
        )

    def hold_out(self, fraction: float, most: int) -> "tuple[TextPairs, TextPairs]":
        """The rows for training, and a fraction of them for evaluation, of about `most` at most.

        Chosen by the hashes of the anchors, so that the rows of one anchor stay together, and the
        order of the rows does not matter.
        """
        anchors, inverse, counts = np.unique(
            self.rows[:, 0], return_inverse=True, return_counts=True
        )
        texts = (self.texts[n].encode("utf-8", "surrogatepass") for n in anchors.tolist())
        order = np.argsort([zlib.crc32(text) for text in texts], kind="stable")
        before = np.zeros(len(anchors), np.int64)  # rows of the anchors that are chosen earlier
        before[order] = counts[order].cumsum() - counts[order]
        is_dev = (before < min(round(fraction * len(self)), most))[inverse]
        return self.select(~is_dev), self.select(is_dev)

    def scale_scores(self) -> "TextPairs":
        """Scores that are not from −1 to 1, scaled so that the smallest is 0 and the largest 1."""
        if self.scores is None or not len(self) or np.abs(self.scores).max() <= 1:
            return self
        low, high = float(self.scores.min()), float(self.scores.max())
        return replace(self, scores=(self.scores - low) / max(high - low, 1e-12))


def load_text_pairs(
    sources: Source | Iterable[Any],
    *,
    kinds: Sequence[PairKind] = (),
    columns: PairColumns | None = None,
    max_per_document: int | None = None,
    seed: int = 0,
    on_error: OnError = "raise",
) -> TextPairs:
    """Load the pairs of all sources.

    Args:
        sources: tables with columns of texts (see `read_pair_examples`), running text, a list of
            tuples (anchor, positive), (anchor, positive, negative) or (a, b, score), or examples.
        kinds: the kinds of pairs to make from running text, or from the texts of a column. Without
            one, running text is trained on with simcse.
        columns: the columns of tables (default: auto-detected).
        max_per_document: number of pairs of each kind that are made from a document, at most.
        seed: of random choices when pairs are made.
        on_error: "raise", or a function that is called with each error; reading then continues.
    """
    listed = _convert_tuples(as_list(sources))
    if listed and isinstance(listed[0], PairExample):
        return collect_pairs(listed)
    columns = columns or PairColumns()
    if not kinds and not _is_running_text(listed):
        examples = read_pair_examples(listed, columns, on_error=on_error)
        first = next(examples, None)
        if first is None or first.positive is not None:
            return collect_pairs(chain([] if first is None else [first], examples))
        if any(map(is_stream, listed)):
            raise InputError(
                "the data have one text per row, and a stream can be read only once",
                fix="say how pairs are made: --make-pairs simcse (make_pairs= in Python)",
            )
    documents = read_documents(listed, text_column=columns.text, on_error=on_error)
    made = make_pair_examples(
        documents, kinds or ("simcse",), seed=seed, max_per_document=max_per_document
    )
    return collect_pairs(made)


def collect_pairs(examples: Iterable[PairExample]) -> TextPairs:
    """Number the texts of examples, which must all have scores or all have none."""
    numbers: dict[str, int] = {}
    rows: list[tuple[int, ...]] = []
    scores: list[float] = []
    groups: list[int] = []
    documents: list[int] = []
    for example in examples:
        positive = example.text if example.positive is None else example.positive
        texts = (example.text, positive, *example.negatives)
        rows.append(tuple(numbers.setdefault(text, len(numbers)) for text in texts))
        groups.append(example.group)
        documents.append(example.document)
        if example.score is not None:
            scores.append(example.score)
        if (example.score is None) == bool(scores):
            raise InputError(
                f"{example.origin}: some rows have a score and others have none",
                fix="use rows of one kind: pairs, triplets or scored pairs",
            )
    width = max(map(len, rows), default=_TWO)
    table = np.full((len(rows), width), MISSING, np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return TextPairs(
        texts=list(numbers),
        rows=table,
        scores=np.array(scores, np.float32) if scores else None,
        groups=np.array(groups, np.int64) if any(groups) else None,
        documents=np.array(documents, np.int64) if any(documents) else None,
    )


def _convert_tuples(listed: list[Any]) -> list[Any]:
    """Examples for a list of tuples of texts, or of two texts and a score."""
    first = listed[0] if listed else None
    if not isinstance(first, tuple) or len(first) < _TWO or not isinstance(first[1], str):
        return listed
    found = []
    for number, row in enumerate(listed, 1):
        texts = [one for one in row if isinstance(one, str)]
        others = [one for one in row if not isinstance(one, str)]
        if len(texts) < _TWO or len(others) > 1 or not all(map(is_number, others)):
            raise InputError(
                f"row {number} is {repr(row)[:60]}",
                fix="pass tuples (anchor, positive), (anchor, positive, negative) or (a, b, score)",
            )
        anchor, positive, *negatives = texts
        score = float(others[0]) if others else None
        found.append(
            PairExample(text=anchor, positive=positive, negatives=tuple(negatives), score=score)
        )
    return found


def _is_running_text(sources: Sequence[Any]) -> bool:
    """Whether the first file has lines of text without columns."""
    first = sources[0] if sources else None
    if not isinstance(first, str | os.PathLike) or first == "-" or isinstance(first, Mapping):
        return isinstance(first, Sequence) and bool(first) and isinstance(first[0], str)
    try:
        path = next(iter(find_files(first)), None)
        if path is None or path.is_fifo() or split_endings(path)[0] not in _PLAIN_TEXT:
            return False
        with open_binary(path) as stream:
            start = stream.read(_PEEK_BYTES)
    except (OSError, InputError):  # reported when it is read
        return False
    return b"\t" not in start and start.lstrip()[:1] not in (b"{", b"[")


def iterate_blocks(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """The texts in blocks, for a tokenizer that works on many at once."""
    for start in range(0, len(texts), size):
        yield texts[start : start + size]
