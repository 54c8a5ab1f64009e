"""word2vec's two formats, which GloVe and fastText share.  v words, d width.

Text is `V D` on a line, then `word f f …` on each; GloVe leaves the first line out. Binary has the
same first line, then a word, a space and d little-endian float32, word after word, with or without
a newline between. What the first line claims is held against the size before room is made for it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import IO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.config import in_range
from cloze.errors import InputError

Floats: TypeAlias = NDArray[np.float32]

LONGEST = 10_000  # bytes of a word
WIDEST = 1 << 16
_HEADER = re.compile(rb"\s*(\d{1,12})[ \t](\d{1,6})\s*")
_BLOCK = 1 << 20
_CUT = "it may be cut off or damaged: fetch it again"


def read_vectors(
    stream: IO[bytes],
    size: int,
    name: str,
    *,
    binary: bool = False,
    header: bool | None = None,
    limit: int | None = None,
) -> tuple[list[str], Floats]:
    """Words and vectors from a stream of `size` bytes.

    Args:
        stream: at its start.
        size: of all that the stream holds.
        name: of the file, for errors.
        binary: the binary format, not text.
        header: whether the first line is `V D`; by default as it looks, in binary always.
        limit: read no more than the first so many, which are the most frequent.
    """
    if limit is not None:
        in_range("limit", limit, 1, 1 << 40)
    first = stream.readline(_BLOCK)
    if not first.strip():  # a leading newline
        first = stream.readline(_BLOCK)
    sizes = _HEADER.fullmatch(first)
    if (binary or header) and not sizes:
        raise InputError(
            f"{name}:1: the first line is not the number of words and the width",
            fix="is this another kind of file?"
            if binary
            else "say --no-header for GloVe files, or is this another kind of file?",
        )
    if sizes and header is not False:
        count, width = int(sizes[1]), int(sizes[2])
        count = min(count, limit or count)
        _check_sizes(count, width, size, name, binary)
        if binary:
            return _binary(stream, count, width, name, whole=limit is None)
        return _text(_lines(stream, 2), count, width, name, whole=limit is None)
    width = len(first.split()) - 1
    if width < 1 or not all(map(_is_number, first.split()[1:])):
        raise InputError(
            f"{name}:1: there is no vector: a word, then its numbers",
            fix="name a file of word2vec, GloVe or fastText, or the folder of a model",
        )
    in_range("width", width, 1, WIDEST)
    return _text(_lines(stream, 2, first), limit, width, name, whole=False)


def looks_like_vectors(line: bytes) -> bool:
    """Whether a first line is that of a text file of vectors: a header, or a word and numbers."""
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
    """The same, out; text keeps nine digits, which is all that float32 has."""
    if header or binary:
        stream.write(f"{len(words)} {vectors.shape[1]}\n".encode())
    for word, vector in zip(words, vectors, strict=True):
        if not word or len(word.split()) != 1 or word != word.strip():
            raise InputError(
                f"the word {word!r} has no place in this format",
                fix="leave it out, or write _ for its spaces",
            )
        if binary:
            stream.write(word.encode() + b" " + vector.astype("<f4").tobytes() + b"\n")
        else:
            numbers = " ".join(f"{x:.9g}" for x in vector.tolist())
            stream.write(f"{word} {numbers}\n".encode())


def _check_sizes(count: int, width: int, size: int, name: str, binary: bool) -> None:
    if not count or not 1 <= width <= WIDEST:
        raise InputError(f"{name}:1: {count:,} words of width {width:,}", fix=_CUT)
    least = count * (4 * width + 1 if binary else 2 * width + 1)
    if least > size:
        raise InputError(
            f"{name}: {count:,} vectors of width {width:,} need {least:,} bytes, "
            f"the file has {size:,}",
            fix=_CUT,
        )


def _lines(stream: IO[bytes], number: int, *before: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank."""
    for at, line in enumerate(before, number - len(before)):
        yield at, line
    for at, line in enumerate(stream, number):
        if line.strip():
            yield at, line


def _text(
    lines: Iterator[tuple[int, bytes]], count: int | None, width: int, name: str, *, whole: bool
) -> tuple[list[str], Floats]:
    words: list[str] = []
    rows: list[Floats] = []
    for at, line in lines:
        if count is not None and len(words) == count:
            if whole:
                raise InputError(f"{name}:{at}: more than the {count:,} words promised", fix=_CUT)
            break
        word, row = _row(line, width, f"{name}:{at}")
        words.append(word)
        rows.append(row)
    if whole and len(words) != count:
        raise InputError(f"{name}: {len(words):,} words where {count:,} are promised", fix=_CUT)
    return words, np.stack(rows)


def _row(line: bytes, width: int, where: str) -> tuple[str, Floats]:
    word, *numbers = line.strip().rsplit(maxsplit=width)
    # GloVe's words may hold spaces; one that holds numbers is a vector that is too wide
    extra = word.split()[1:]
    if len(numbers) != width or (extra and all(map(_is_number, extra))):
        found = len(line.split()) - 1
        raise InputError(f"{where}: {found:,} numbers where there should be {width:,}", fix=_CUT)
    try:
        row = np.array([float(number) for number in numbers], np.float32)
    except ValueError as error:
        raise InputError(f"{where}: {error}", fix=_CUT) from None
    return _decoded(word, where), _finite(row, where)


def _binary(
    stream: IO[bytes], count: int, width: int, name: str, *, whole: bool
) -> tuple[list[str], Floats]:
    words: list[str] = []
    vectors = np.empty((count, width), np.float32)
    held, at = b"", 0
    for row in range(count):
        where = f"{name}, word {row + 1:,}"
        while (space := held.find(b" ", at)) < 0 or len(held) < space + 1 + 4 * width:
            if space < 0 and len(held) - at > LONGEST:
                raise InputError(f"{where}: it has no end", fix="is this the binary format?")
            more = stream.read(_BLOCK)
            if not more:
                raise InputError(f"{where}: the file ends before it does", fix=_CUT)
            held, at = held[at:] + more, 0
        words.append(_decoded(held[at:space].lstrip(b"\n"), where))
        vectors[row] = _finite(np.frombuffer(held, "<f4", width, space + 1), where)
        at = space + 1 + 4 * width
    if whole and (held[at:] + stream.read(LONGEST)).strip(b"\n"):
        raise InputError(f"{name}: more than the {count:,} words promised", fix=_CUT)
    return words, vectors


def _decoded(word: bytes, where: str) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise InputError(f"{where}: {word[:40]!r} is not UTF-8", fix=_CUT) from None


def _finite(row: NDArray[np.float32], where: str) -> Floats:
    if not np.isfinite(row).all():
        raise InputError(f"{where}: a number is NaN or infinite", fix=_CUT)
    return row


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
