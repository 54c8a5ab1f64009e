"""Read and write word2vec's text and binary formats, which GloVe and fastText share.

v words, d dimensions. A text file has the header `V D`, then a line `word f f …` for each word;
GloVe's files have no header. A binary file has the same header, then for each word the word, a
space and d little-endian float32, with or without a newline after them. The header is compared with
the size of the file before memory is allocated.
"""

import re
from collections.abc import Iterator, Sequence
from typing import IO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.config import in_range
from cloze.errors import InputError

Floats: TypeAlias = NDArray[np.float32]

MAX_WORD_BYTES = 10_000
MAX_DIMENSIONS = 1 << 16
_HEADER = re.compile(rb"\s*(\d{1,12})[ \t](\d{1,6})\s*")
_BLOCK = 1 << 20
_AGAIN = "download the file again: it may be incomplete or damaged"


def read_vectors(
    stream: IO[bytes],
    size: int,
    name: str,
    *,
    binary: bool = False,
    header: bool | None = None,
    max_words: int | None = None,
) -> tuple[list[str], Floats]:
    """Read words and vectors from a stream.

    Args:
        stream: the stream, at its start.
        size: the number of bytes in the stream.
        name: the name of the file, for errors.
        binary: read the binary format instead of text.
        header: whether the first line is `V D`; None detects it; binary files always have it.
        max_words: the maximum number of words to read, from the start.
    """
    if max_words is not None:
        in_range("max_words", max_words, 1, 1 << 40)
    first = stream.readline(_BLOCK)
    if not first.strip():  # a leading newline
        first = stream.readline(_BLOCK)
    sizes = _HEADER.fullmatch(first)
    if (binary or header) and not sizes:
        raise InputError(
            f"{name}:1: the first line is not the number of words and of dimensions",
            fix="use a file in word2vec's binary format"
            if binary
            else "use --no-header for GloVe files, or another file",
        )
    if sizes and header is not False:
        count, dimensions = int(sizes[1]), int(sizes[2])
        count = min(count, max_words or count)
        _check_sizes(count, dimensions, size, name, binary)
        if binary:
            return _read_binary(stream, count, dimensions, name, to_end=max_words is None)
        lines = _number_lines(stream, 2)
        return _read_text(lines, count, dimensions, name, to_end=max_words is None)
    dimensions = len(first.split()) - 1
    if dimensions < 1 or not all(map(_is_number, first.split()[1:])):
        raise InputError(
            f"{name}:1: the line is not a word and its vector",
            fix="use a file of word2vec, GloVe or fastText, or a model folder; if this is data, "
            "give the model first, then the data",
        )
    in_range("dimensions", dimensions, 1, MAX_DIMENSIONS)
    lines = _number_lines(stream, 2, first)
    return _read_text(lines, max_words, dimensions, name, to_end=False)


def looks_like_vectors(line: bytes) -> bool:
    """Whether the first line of a text file is a header, or a word and numbers."""
    numbers = line.split()[1:]
    return bool(_HEADER.fullmatch(line)) or (len(numbers) > 1 and all(map(_is_number, numbers)))


def write_vectors(
    stream: IO[bytes],
    words: Sequence[str],
    vectors: Floats,
    *,
    binary: bool = False,
    header: bool = True,
) -> None:
    """Write words and vectors; text has nine digits, which preserve every float32."""
    if header or binary:
        stream.write(f"{len(words)} {vectors.shape[1]}\n".encode())
    for word, vector in zip(words, vectors, strict=True):
        if not word or len(word.split()) != 1 or word != word.strip():
            raise InputError(
                f"the word {word!r} has whitespace, which the format does not allow",
                fix="remove the word, or replace the spaces by _",
            )
        if binary:
            stream.write(word.encode() + b" " + vector.astype("<f4").tobytes() + b"\n")
        else:
            numbers = " ".join(f"{x:.9g}" for x in vector.tolist())
            stream.write(f"{word} {numbers}\n".encode())


def _check_sizes(count: int, dimensions: int, size: int, name: str, binary: bool) -> None:
    if not count or not 1 <= dimensions <= MAX_DIMENSIONS:
        raise InputError(
            f"{name}:1: the header says {count:,} words of {dimensions:,} dimensions", fix=_AGAIN
        )
    minimum = count * (4 * dimensions + 1 if binary else 2 * dimensions + 1)
    if minimum > size:
        raise InputError(
            f"{name}: {count:,} vectors of {dimensions:,} dimensions need {minimum:,} bytes, "
            f"the file has {size:,}",
            fix=_AGAIN,
        )


def _number_lines(stream: IO[bytes], number: int, *before: bytes) -> Iterator[tuple[int, bytes]]:
    """Line numbers and lines, without empty ones; `number` is that of the stream's next line."""
    yield from enumerate(before, number - len(before))
    for index, line in enumerate(stream, number):
        if line.strip():
            yield index, line


def _read_text(
    lines: Iterator[tuple[int, bytes]],
    count: int | None,
    dimensions: int,
    name: str,
    *,
    to_end: bool,
) -> tuple[list[str], Floats]:
    words: list[str] = []
    rows: list[Floats] = []
    for number, line in lines:
        if count is not None and len(words) == count:
            if to_end:
                raise InputError(
                    f"{name}:{number}: the file has more than the {count:,} words of its header",
                    fix=_AGAIN,
                )
            break
        word, row = _parse_row(line, dimensions, f"{name}:{number}")
        words.append(word)
        rows.append(row)
    if to_end and len(words) != count:
        raise InputError(
            f"{name}: the file has {len(words):,} words, its header says {count:,}", fix=_AGAIN
        )
    return words, np.stack(rows)


def _parse_row(line: bytes, dimensions: int, location: str) -> tuple[str, Floats]:
    word, *numbers = line.strip().rsplit(maxsplit=dimensions)
    # GloVe's words may contain spaces; if the rest are numbers, the vector is too long
    rest = word.split()[1:]
    if len(numbers) != dimensions or (rest and all(map(_is_number, rest))):
        found = len(line.split()) - 1
        raise InputError(f"{location}: {found:,} numbers instead of {dimensions:,}", fix=_AGAIN)
    try:
        row = np.array([float(number) for number in numbers], np.float32)
    except ValueError as error:
        raise InputError(f"{location}: {error}", fix=_AGAIN) from None
    return _decode_word(word, location), _check_finite(row, location)


def _read_binary(
    stream: IO[bytes], count: int, dimensions: int, name: str, *, to_end: bool
) -> tuple[list[str], Floats]:
    words: list[str] = []
    vectors = np.empty((count, dimensions), np.float32)
    buffer, start = b"", 0
    for row in range(count):
        location = f"{name}, word {row + 1:,}"
        while (space := buffer.find(b" ", start)) < 0 or len(buffer) < space + 1 + 4 * dimensions:
            if space < 0 and len(buffer) - start > MAX_WORD_BYTES:
                raise InputError(
                    f"{location}: the word is longer than {MAX_WORD_BYTES:,} bytes",
                    fix="use a file in word2vec's binary format",
                )
            more = stream.read(_BLOCK)
            if not more:
                raise InputError(f"{location}: the file ends before the vector", fix=_AGAIN)
            buffer, start = buffer[start:] + more, 0
        words.append(_decode_word(buffer[start:space].lstrip(b"\n"), location))
        vector = np.frombuffer(buffer, "<f4", dimensions, space + 1)
        vectors[row] = _check_finite(vector, location)
        start = space + 1 + 4 * dimensions
    if to_end and (buffer[start:] + stream.read(MAX_WORD_BYTES)).strip(b"\n"):
        raise InputError(
            f"{name}: the file has more than the {count:,} words of its header", fix=_AGAIN
        )
    return words, vectors


def _decode_word(word: bytes, location: str) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise InputError(f"{location}: {word[:40]!r} is not UTF-8", fix=_AGAIN) from None


def _check_finite(row: NDArray[np.float32], location: str) -> Floats:
    if not np.isfinite(row).all():
        raise InputError(f"{location}: the vector contains NaN or infinite values", fix=_AGAIN)
    return row


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
