import io
import struct

import numpy as np
import pytest

from cloze.errors import ConfigError, InputError
from cloze.interop.word2vec import read_vectors, write_vectors
from helpers import raises

WORDS = ["the", "café", "北京"]
TABLE = np.array([[1, 2.5], [-0.1, 3e-8], [7, 1 / 3]], np.float32)


def write_bytes(**how) -> bytes:
    stream = io.BytesIO()
    write_vectors(stream, WORDS, TABLE, **how)
    return stream.getvalue()


def read(data: bytes, **how):
    return read_vectors(io.BytesIO(data), len(data), "x.vec", **how)


@pytest.mark.parametrize("how", [{}, {"binary": True}])
def test_written_vectors_are_read_unchanged(how):
    words, table = read(write_bytes(**how), **how)
    assert words == WORDS
    assert (table == TABLE).all()


def test_without_a_header():
    data = write_bytes(header=False)
    assert not data.startswith(b"3 2")
    for header in (None, False):
        words, table = read(data, header=header)
        assert words == WORDS
        assert (table == TABLE).all()


def test_a_first_line_of_numbers_without_a_header():
    words, table = read(b"3 2\n4 5\n", header=False)
    assert words == ["3", "4"]
    assert table.tolist() == [[2], [5]]


@pytest.mark.parametrize("how", [{}, {"binary": True}, {"header": False}])
def test_max_words_reads_the_first_words(how):
    words, table = read(write_bytes(**how), max_words=2, **how)
    assert words == WORDS[:2]
    assert (table == TABLE[:2]).all()


@pytest.mark.parametrize("how", [{}, {"binary": True}])
def test_max_words_may_be_larger_than_the_file(how):
    assert read(write_bytes(**how), max_words=99, **how)[0] == WORDS


@pytest.mark.parametrize("how", [{}, {"binary": True}])
def test_a_leading_newline_is_ignored(how):
    assert read(b"\n" + write_bytes(**how), **how)[0] == WORDS


def test_binary_files_without_newlines():
    data = b"2 1\n" + b"a " + struct.pack("<f", 1) + b"b " + struct.pack("<f", 2)
    assert read(data, binary=True)[0] == ["a", "b"]


def test_vectors_with_bytes_of_newlines_and_spaces():
    table = np.frombuffer(b"\n   \n\n\n ", "<f4").reshape(1, 2)
    stream = io.BytesIO()
    write_vectors(stream, ["a"], table, binary=True)
    assert (read(stream.getvalue(), binary=True)[1] == table).all()


def test_words_of_glove_may_contain_spaces():
    words, _ = read(b"the 1 2\n. . . 3 4\nat name 5 6\n")
    assert words == ["the", ". . .", "at name"]


def test_trailing_spaces_of_fasttext():
    assert read(b"1 2\na 1 2 \n")[1].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("data", "how", "wrong"),
    [
        (b"", {}, "x.vec:1"),
        (b"word\n", {}, "x.vec:1"),
        (b"hello there\n1 2\n", {"header": True}, "x.vec:1"),
        (b"nothing", {"binary": True}, "x.vec:1"),
        (b"0 2\n", {}, ("x.vec:1", "0", "2")),
        (b"2 0\n", {}, ("x.vec:1", "2", "0")),
        (b"2 999999\n", {}, ("x.vec:1", "2", "999,999")),
        (b"999999999999 300\n", {}, ("600,999,999,999,399", "bytes", "17")),
        (b"999999999999 300\n", {"binary": True}, ("1,200,999,999,998,799", "bytes")),
        (b"2 2\na 1 2\n", {}, ("x.vec", "1", "2")),
        (b"1 2\na 1 2\nb 1 2\n", {}, ("x.vec:3", "1")),
        (b"2 2\na 1 2\nb 1\n", {}, ("x.vec:3", "1", "2")),
        (b"2 2\na 1 2\nb 1 2 3\n", {}, ("x.vec:3", "3", "2")),
        (b"a 1 2\nb 1\n", {}, ("x.vec:2", "1", "2")),
        (b"a 1 2\nb 1 x\n", {}, "x.vec:2"),
        (b"a 1 2\nb 1 nan\n", {}, ("x.vec:2", "NaN")),
        (b"a 1 2\n\xff 1 2\n", {}, ("x.vec:2", "\\xff", "UTF-8")),
        (b"1 1\n" + b"\xff 1234", {"binary": True}, ("x.vec", "1", "\\xff", "UTF-8")),
        (b"1 1\na \0\0\xc0\x7f", {"binary": True}, ("x.vec", "1", "NaN")),
        (b"2 1\na 1234b 12", {"binary": True}, ("x.vec", "2")),
        (b"1 1\n" + b"a" * 20_000, {"binary": True}, ("x.vec", "1")),
        (b"1 1\na 1234b 1234", {"binary": True}, ("x.vec", "1")),
    ],
)
def test_invalid_files_are_errors(data, how, wrong):
    with raises(InputError, wrong):
        read(data, **how)


def test_max_words_of_zero_is_an_error():
    with raises(ConfigError, "max_words", "0"):
        read(write_bytes(), max_words=0)


@pytest.mark.parametrize("word", ["", "new york", " a", "a\n"])
def test_words_that_cannot_be_written(word):
    with raises(InputError, "format", fix="_"):
        write_vectors(io.BytesIO(), [word], TABLE[:1])
