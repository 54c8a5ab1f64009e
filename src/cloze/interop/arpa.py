r"""Read and write ARPA files, the text format of SRILM, KenLM and other n-gram toolkits.

    \data\
    ngram 1=3
    …
    \1-grams:
    -0.52   cat   -0.30
    …
    \end\

A row has log₁₀ p, the n-gram and log₁₀ of its back-off weight, separated by tabs; n-grams of the
highest order have no weight. A file is read into memory as a whole.
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
from cloze.models.ngram import Ints, Level, NGram, find_ranks

ZERO = -99.0  # log₁₀ of a probability of zero, as SRILM writes it for <s>
MISSING_UNK = -100.0  # log₁₀ p of <unk> if a file has none, as in KenLM
_OTHER_UNK = "<UNK>"  # the spelling of some toolkits
_COUNT = re.compile(r"ngram\s+(\d+)\s*=\s*(\d+)")
_LN10 = math.log(10)
_ROWS = 1 << 16  # formatted at once
_AGAIN = "download or write the file again"


def read_arpa(lines: Iterable[str], name: str) -> tuple[list[str], NGram]:
    """The words and the model of a file; `name` is its name in errors.

    <unk>, <s> and </s> have the first ids; the other words follow in the order of the file.
    """
    reader = _ArpaReader(lines, name)
    counts = reader.read_header()
    levels: list[Level] = []
    for order, count in enumerate(counts, 1):
        section = reader.read_section(order, count, is_last=order == len(counts))
        if order == 1:
            levels.append(_make_unigrams(section, reader))
        else:
            levels.append(_make_level(section, levels, reader))
    reader.expect_end()
    config = NGramConfig(order=len(counts), vocab_size=len(reader.words))
    return reader.words, NGram(config, levels)


def write_arpa(words: Sequence[str], model: NGram) -> Iterator[str]:
    """The text of a file, in chunks; numbers have nine digits, which preserve every float32."""
    for number, word in enumerate(words):
        if not word or re.search(r"\s", word) or (word in SYMBOLS and number >= len(SYMBOLS)):
            raise InputError(
                f"the token {word!r} cannot be written to an ARPA file",
                fix="use a vocabulary whose tokens have no whitespace, "
                "and none is <unk>, <s> or </s> except the model's own",
            )
    yield "\\data\\\n"
    yield "".join(f"ngram {n}={len(level.keys)}\n" for n, level in enumerate(model.levels, 1))
    table = np.array(words, dtype=object)
    for order, level in enumerate(model.levels, 1):
        yield f"\n\\{order}-grams:\n"
        for start in range(0, len(level.keys), _ROWS):
            yield _format_section(table, model, order, slice(start, start + _ROWS))
    yield "\n\\end\\\n"


def _format_section(words: NDArray[np.object_], model: NGram, order: int, span: slice) -> str:
    level, bits = model.levels[order - 1], model.config.bits
    keys = level.keys[span]
    columns = [words[keys & ((1 << bits) - 1)]]
    for below in reversed(model.levels[: order - 1]):  # from the last word to the first
        keys = below.keys[keys >> bits]
        columns.append(words[keys & ((1 << bits) - 1)])
    ngrams = map(" ".join, zip(*reversed(columns), strict=True))
    logs = map(_format_number, level.log_p[span].astype(np.float64) / _LN10)
    if order == model.config.order:
        return "".join(f"{log}\t{ngram}\n" for log, ngram in zip(logs, ngrams, strict=True))
    weights = map(_format_number, level.backoff[span].astype(np.float64) / _LN10)
    rows = zip(logs, ngrams, weights, strict=True)
    return "".join(f"{log}\t{ngram}\t{weight}\n" for log, ngram, weight in rows)


def _format_number(value: float) -> str:
    return f"{value:.9g}" if value > -math.inf else f"{ZERO:g}"


class _Section:
    """The n-grams of one order, in the order of the file."""

    def __init__(self, order: int, first_line: int) -> None:
        self.order = order
        self.first_line = first_line  # the line number of the first n-gram
        self.ids = array("i")  # of all n-grams, flattened
        self.log_p = array("d")
        self.backoff = array("d")


class _ArpaReader:
    """Reads the lines of a file and keeps the line number and the vocabulary."""

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self._lines = iter(lines)
        self._name = name
        self._line = 0
        self._ids = {word: id_ for id_, word in enumerate(SYMBOLS)}
        self.words: list[str] = []  # set after the 1-grams are read

    def fail(self, problem: str, *, line: int | None = None, fix: str = _AGAIN) -> NoReturn:
        raise InputError(f"{self._name}:{line or self._line}: {problem}", fix=fix)

    def read_header(self) -> list[int]:
        """The number of n-grams of each order."""
        while (line := self._read_line()) != "\\data\\":  # everything before it is a comment
            if line.startswith("\\"):
                self.fail(f"{line[:40]} comes before \\data\\")
        counts: list[int] = []
        for line in iter(self._read_line, "\\1-grams:"):
            found = _COUNT.fullmatch(line)
            if not found or int(found[1]) != len(counts) + 1:
                self.fail(
                    f"expected 'ngram {len(counts) + 1}=' and a count, but found {line[:40]!r}"
                )
            counts.append(int(found[2]))
        if not 1 <= len(counts) <= MAX_ORDER:
            self.fail(
                f"the header has {len(counts)} orders",
                fix=f"use a model of order 1 to {MAX_ORDER}",
            )
        return counts

    def read_section(self, order: int, count: int, *, is_last: bool) -> _Section:
        """Read the n-grams of one order; their number must be that of the header."""
        title = f"\\{order}-grams:"
        if order > 1:  # the header ends with the first title
            self._expect(title)
        section = _Section(order, self._line + 1)
        max_fields = order + (1 if is_last else 2)  # log p, the words, a weight
        for line in islice(self._lines, count):
            self._line += 1
            fields = line.rstrip("\r\n").replace("\t", " ").split(" ")
            if "" in fields:
                fields = [field for field in fields if field]
            if not fields or fields[0].startswith("\\"):
                read = self._line - section.first_line
                self.fail(f"{title} has {read:,} n-grams, the header says {count:,}")
            if not order < len(fields) <= max_fields:
                self.fail(f"the line is not a log probability and a {order}-gram")
            self._parse_row(section, fields)
        if order == 1:
            self.words = list(self._ids)
            self._ids[_OTHER_UNK] = UNK
        self._check_logs(section.log_p, "log probability", section.first_line, maximum=0.0)
        self._check_logs(section.backoff, "back-off weight", section.first_line, maximum=math.inf)
        return section

    def expect_end(self) -> None:
        self._expect("\\end\\")

    def _expect(self, title: str) -> None:
        line = self._read_line()
        if not line.startswith("\\"):
            self.fail("there are more n-grams than the header says")
        if line != title:
            self.fail(f"expected {title}, found {line[:40]}")

    def _read_line(self) -> str:
        """The next line that is not empty."""
        for line in self._lines:
            self._line += 1
            if line := line.strip():
                return line
        return self.fail("the file ends before \\end\\")

    def _parse_row(self, section: _Section, fields: list[str]) -> None:
        order, ids = section.order, self._ids
        try:
            section.log_p.append(float(fields[0]))
            section.backoff.append(float(fields[order + 1]) if len(fields) > order + 1 else 0.0)
            if order == 1:
                word = SYMBOLS[UNK] if fields[1] == _OTHER_UNK else fields[1]
                section.ids.append(ids.setdefault(word, len(ids)))
            else:
                section.ids.extend([ids[word] for word in fields[1 : order + 1]])
        except ValueError as error:
            self.fail(f"expected a number: {error}")
        except KeyError as error:
            self.fail(f"{error.args[0]!r} is not among the 1-grams")

    def _check_logs(
        self, logs: "array[float]", name: str, first_line: int, *, maximum: float
    ) -> None:
        values = np.array(logs)
        invalid = np.flatnonzero(~(np.isfinite(values) & (values <= maximum)))
        if len(invalid):
            self.fail(
                f"the {name} is {logs[invalid[0]]:g}",
                line=first_line + int(invalid[0]),
                fix="it must be the log₁₀ of a number" + (" up to 1" if maximum == 0 else ""),
            )


def _make_unigrams(section: _Section, reader: _ArpaReader) -> Level:
    ids = np.array(section.ids, dtype=np.int64)
    _check_unique(ids, section, reader)
    for symbol in (BOS, EOS):
        if symbol not in ids:
            reader.fail(f"there is no {SYMBOLS[symbol]} among the 1-grams")
    size = len(reader.words)
    log_p = np.zeros(size, dtype=np.float32)
    log_p[UNK] = MISSING_UNK * _LN10
    log_p[ids] = _to_natural_log(section.log_p)
    log_p[BOS] = -np.inf  # never predicted, whatever the file says
    backoff = np.zeros(size, dtype=np.float32)
    backoff[ids] = _to_natural_log(section.backoff)
    return Level(keys=np.arange(size), log_p=log_p, backoff=backoff)


def _make_level(section: _Section, below: list[Level], reader: _ArpaReader) -> Level:
    bits = (len(reader.words) - 1).bit_length()
    ids = np.array(section.ids, dtype=np.int64).reshape(-1, section.order)  # c n
    keys, *others = ids.T
    for level, word in zip(below, others, strict=True):
        rank = keys if level is below[0] else find_ranks(level.keys, keys)
        if (rank < 0).any():
            line = section.first_line + int(np.argmin(rank))
            reader.fail(f"the context of this {section.order}-gram is not in the file", line=line)
        keys = rank << bits | word
    _check_unique(keys, section, reader)
    order = np.argsort(keys)
    log_p, backoff = _to_natural_log(section.log_p), _to_natural_log(section.backoff)
    return Level(keys=keys[order], log_p=log_p[order], backoff=backoff[order])


def _check_unique(keys: Ints, section: _Section, reader: _ArpaReader) -> None:
    _, first = np.unique(keys, return_index=True)
    if len(first) < len(keys):
        index = int(np.setdiff1d(np.arange(len(keys)), first)[0])
        reader.fail(f"this {section.order}-gram is a duplicate", line=section.first_line + index)


def _to_natural_log(values: "array[float]") -> NDArray[np.floating[Any]]:
    return (np.array(values) * _LN10).astype(np.float32)
