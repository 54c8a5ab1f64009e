r"""ARPA files, the text format that SRILM, KenLM and others share: lines to a model, and back.

    \data\
    ngram 1=3
    …
    \1-grams:
    -0.52   cat   -0.30
    …
    \end\

A row is log₁₀ p, the n-gram and log₁₀ of its back-off weight, with tabs between; the highest order
has no weights. What is read stands in memory whole.
"""

import math
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from cloze.errors import InputError
from cloze.models.configs.ngram import BOS, EOS, MAX_ORDER, SYMBOLS, UNK, NGramConfig
from cloze.models.ngram import Ints, Level, NGram, find

ZERO = -99.0  # log₁₀ of nothing, as SRILM writes it for <s>
ABSENT = -100.0  # log₁₀ p of <unk> where a file has none, as KenLM takes it
_OTHER_UNK = "<UNK>"  # how some spell it
_COUNT = re.compile(r"ngram\s+(\d+)\s*=\s*(\d+)")
_LN10 = math.log(10)
_ROWS = 1 << 16  # written at once
_FETCH = "fetch the file, or write it, again"


def read_arpa(lines: Iterable[str], name: str) -> tuple[list[str], NGram]:
    """The words and the model of a file that errors call `name`.

    <unk>, <s> and </s> take the first ids, the other words follow as the file has them.
    """
    reader = _Reader(lines, name)
    counts = reader.header()
    levels: list[Level] = []
    for order, count in enumerate(counts, 1):
        rows = reader.section(order, count, last=order == len(counts))
        if order == 1:
            levels.append(_unigrams(rows, reader))
        else:
            levels.append(_level(rows, levels, reader))
    reader.end()
    config = NGramConfig(order=len(counts), vocab_size=len(reader.words))
    return reader.words, NGram(config, levels)


def write_arpa(words: Sequence[str], model: NGram) -> Iterator[str]:
    """The text of a file, in portions. Nine digits, so that every float32 comes back the same."""
    for number, word in enumerate(words):
        if not word or re.search(r"\s", word) or (word in SYMBOLS and number >= len(SYMBOLS)):
            raise InputError(
                f"the piece {word!r} cannot stand in an ARPA file",
                fix="use a vocabulary without white space in its pieces, "
                "and without <unk>, <s> and </s> beside the model's own",
            )
    yield "\\data\\\n"
    yield "".join(f"ngram {n}={len(level.keys)}\n" for n, level in enumerate(model.levels, 1))
    spelled = np.array(words, dtype=object)
    for order, level in enumerate(model.levels, 1):
        yield f"\n\\{order}-grams:\n"
        for start in range(0, len(level.keys), _ROWS):
            yield _text(spelled, model, order, slice(start, start + _ROWS))
    yield "\n\\end\\\n"


def _text(spelled: NDArray[np.object_], model: NGram, order: int, span: slice) -> str:
    level, bits = model.levels[order - 1], model.config.bits
    keys = level.keys[span]
    columns = [spelled[keys & ((1 << bits) - 1)]]
    for below in reversed(model.levels[: order - 1]):  # from the last word to the first
        keys = below.keys[keys >> bits]
        columns.append(spelled[keys & ((1 << bits) - 1)])
    grams = map(" ".join, zip(*reversed(columns), strict=True))
    logs = map(_number, level.log_p[span].astype(np.float64) / _LN10)
    if order == model.config.order:
        return "".join(f"{log}\t{gram}\n" for log, gram in zip(logs, grams, strict=True))
    weights = map(_number, level.backoff[span].astype(np.float64) / _LN10)
    rows = zip(logs, grams, weights, strict=True)
    return "".join(f"{log}\t{gram}\t{weight}\n" for log, gram, weight in rows)


def _number(value: float) -> str:
    return f"{value:.9g}" if value > -math.inf else f"{ZERO:g}"


class _Rows:
    """The n-grams of one section, as they stand."""

    def __init__(self, order: int, first: int) -> None:
        self.order = order
        self.first = first  # the line of the first
        self.ids = array("i")  # one behind the other
        self.log_p = array("d")
        self.backoff = array("d")


class _Reader:
    """Goes through the lines, and knows where it is and which words there are."""

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self._lines = iter(lines)
        self._name = name
        self._line = 0
        self._numbers = {word: number for number, word in enumerate(SYMBOLS)}
        self.words: list[str] = []  # once the 1-grams are read

    def fail(self, problem: str, *, line: int | None = None, fix: str = _FETCH) -> NoReturn:
        raise InputError(f"{self._name}:{line or self._line}: {problem}", fix=fix)

    def header(self) -> list[int]:
        """How many n-grams there are of each order."""
        while (line := self._next()) != "\\data\\":  # whatever stands before is a comment
            if line.startswith("\\"):
                self.fail(f"{line[:40]} comes before \\data\\")
        counts: list[int] = []
        for line in iter(self._next, "\\1-grams:"):
            found = _COUNT.fullmatch(line)
            if not found or int(found[1]) != len(counts) + 1:
                self.fail(f"{line[:40]!r} is not 'ngram {len(counts) + 1}=' and a count")
            counts.append(int(found[2]))
        if not 1 <= len(counts) <= MAX_ORDER:
            self.fail(
                f"the header counts {len(counts)} orders",
                fix=f"a model has from 1 to {MAX_ORDER} of them",
            )
        return counts

    def section(self, order: int, count: int, *, last: bool) -> _Rows:
        """The n-grams of one order, as many as the header said."""
        title = f"\\{order}-grams:"
        if order > 1:  # the header's end was the first title
            self._expect(title)
        rows = _Rows(order, self._line + 1)
        most = order + (1 if last else 2)  # fields: log p, the words, a weight
        for line in islice(self._lines, count):
            self._line += 1
            fields = line.rstrip("\r\n").replace("\t", " ").split(" ")
            if "" in fields:
                fields = [field for field in fields if field]
            if not fields or fields[0].startswith("\\"):
                read = self._line - rows.first
                self.fail(f"{title} holds {read:,} n-grams, the header says {count:,}")
            if not order < len(fields) <= most:
                self.fail(f"this is no {order}-gram with its log probability")
            self._row(rows, fields)
        if order == 1:
            self.words = list(self._numbers)
            self._numbers[_OTHER_UNK] = UNK
        self._check(rows.log_p, "log probability", rows.first, most=0.0)
        self._check(rows.backoff, "back-off weight", rows.first, most=math.inf)
        return rows

    def end(self) -> None:
        self._expect("\\end\\")

    def _expect(self, title: str) -> None:
        line = self._next()
        if not line.startswith("\\"):
            self.fail("there are more n-grams than the header says")
        if line != title:
            self.fail(f"{line[:40]} stands where {title} should")

    def _next(self) -> str:
        """The next line that is not blank."""
        for line in self._lines:
            self._line += 1
            if line := line.strip():
                return line
        return self.fail("the file ends before \\end\\")

    def _row(self, rows: _Rows, fields: list[str]) -> None:
        order, numbers = rows.order, self._numbers
        try:
            rows.log_p.append(float(fields[0]))
            rows.backoff.append(float(fields[order + 1]) if len(fields) > order + 1 else 0.0)
            if order == 1:
                word = SYMBOLS[UNK] if fields[1] == _OTHER_UNK else fields[1]
                rows.ids.append(numbers.setdefault(word, len(numbers)))
            else:
                rows.ids.extend([numbers[word] for word in fields[1 : order + 1]])
        except ValueError as error:
            self.fail(f"there is no number where one should be: {error}")
        except KeyError as error:
            self.fail(f"{error.args[0]!r} is not among the 1-grams")

    def _check(self, logs: "array[float]", what: str, first: int, *, most: float) -> None:
        values = np.array(logs)
        wrong = np.flatnonzero(~(np.isfinite(values) & (values <= most)))
        if len(wrong):
            self.fail(
                f"the {what} is {logs[wrong[0]]:g}",
                line=first + int(wrong[0]),
                fix="it is the log₁₀ of a number" + (" not above 1" if most == 0 else ""),
            )


def _unigrams(rows: _Rows, reader: _Reader) -> Level:
    ids = np.array(rows.ids, dtype=np.int64)
    _no_repeats(ids, rows, reader)
    for symbol in (BOS, EOS):
        if symbol not in ids:
            reader.fail(f"there is no {SYMBOLS[symbol]} among the 1-grams")
    size = len(reader.words)
    log_p = np.zeros(size, dtype=np.float32)
    log_p[UNK] = ABSENT * _LN10
    log_p[ids] = _natural(rows.log_p)
    log_p[BOS] = -np.inf  # never predicted, whatever is written
    backoff = np.zeros(size, dtype=np.float32)
    backoff[ids] = _natural(rows.backoff)
    return Level(keys=np.arange(size), log_p=log_p, backoff=backoff)


def _level(rows: _Rows, below: list[Level], reader: _Reader) -> Level:
    bits = (len(reader.words) - 1).bit_length()
    first, *others = np.array(rows.ids, dtype=np.int64).reshape(-1, rows.order).T  # n c
    keys = first
    for level, word in zip(below, others, strict=True):
        rank = keys if level is below[0] else find(level.keys, keys)
        if (rank < 0).any():
            at = rows.first + int(np.argmin(rank))
            reader.fail(f"the {rows.order}-gram's context is not among the n-grams above", line=at)
        keys = rank << bits | word
    _no_repeats(keys, rows, reader)
    order = np.argsort(keys)
    return Level(
        keys=keys[order], log_p=_natural(rows.log_p)[order], backoff=_natural(rows.backoff)[order]
    )


def _no_repeats(keys: Ints, rows: _Rows, reader: _Reader) -> None:
    _, first = np.unique(keys, return_index=True)
    if len(first) < len(keys):
        at = int(np.setdiff1d(np.arange(len(keys)), first)[0])
        reader.fail(f"this {rows.order}-gram stood above already", line=rows.first + at)


def _natural(values: "array[float]") -> NDArray[np.floating[Any]]:
    return (np.array(values) * _LN10).astype(np.float32)
