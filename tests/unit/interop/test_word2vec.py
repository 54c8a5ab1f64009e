import io
import struct

import numpy as np
import pytest

from cloze.errors import ConfigError, InputError
from cloze.interop.word2vec import read_vectors, write_vectors
from helpers import raises

WORDS = ["the", "café", "北京"]
TABLE = np.array([[1, 2.5], [-0.1, 3e-8], [7, 1 / 3]], np.float32)


def written(**how) -> bytes:
    stream = io.BytesIO()
    write_vectors(stream, WORDS, TABLE, **how)
    return stream.getvalue()


def read(data: bytes, **how):
    return read_vectors(io.BytesIO(data), len(data), "x.vec", **how)


@pytest.mark.parametrize("how", [{}, {"binary": True}])
def test_what_is_written_is_read_bit_for_bit(how):
    words, table = read(written(**how), **how)
    assert words == WORDS
    assert (table == TABLE).all()


def test_without_a_header():
    data = written(header=False)
    assert not data.startswith(b"3 2")
    for header in (None, False):
        words, table = read(data, header=header)
        assert words == WORDS
        assert (table == TABLE).all()


def test_numbers_for_a_word_are_no_header_if_told_so():
    words, table = read(b"3 2\n4 5\n", header=False)
    assert words == ["3", "4"]
    assert table.tolist() == [[2], [5]]


@pytest.mark.parametrize("how", [{}, {"binary": True}, {"header": False}])
def test_a_limit_reads_the_first_words(how):
    words, table = read(written(**how), max_words=2, **how)
    assert words == WORDS[:2]
    assert (table == TABLE[:2]).all()


@pytest.mark.parametrize("how", [{}, {"binary": True}])
def test_a_limit_may_be_larger_than_the_file(how):
    assert read(written(**how), max_words=99, **how)[0] == WORDS


@pytest.mark.parametrize("how", [{}, {"binary": True}])
def test_a_leading_newline_is_tolerated(how):
    assert read(b"\n" + written(**how), **how)[0] == WORDS


def test_binary_words_need_no_newline_between():
    data = b"2 1\n" + b"a " + struct.pack("<f", 1) + b"b " + struct.pack("<f", 2)
    assert read(data, binary=True)[0] == ["a", "b"]


def test_a_vector_may_hold_bytes_that_look_like_newlines_and_spaces():
    table = np.frombuffer(b"\n   \n\n\n ", "<f4").reshape(1, 2)
    stream = io.BytesIO()
    write_vectors(stream, ["a"], table, binary=True)
    assert (read(stream.getvalue(), binary=True)[1] == table).all()


def test_words_of_glove_may_hold_spaces():
    words, _ = read(b"the 1 2\n. . . 3 4\nat name 5 6\n")
    assert words == ["the", ". . .", "at name"]


def test_trailing_spaces_as_fasttext_has_them():
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
def test_bad_files_are_told(data, how, wrong):
    with raises(InputError, wrong):
        read(data, **how)


def test_a_limit_of_none_is_told():
    with raises(ConfigError, "max_words", "0"):
        read(written(), max_words=0)


@pytest.mark.parametrize("word", ["", "new york", " a", "a\n"])
def test_words_that_the_format_cannot_hold(word):
    with raises(InputError, "format", fix="_"):
        write_vectors(io.BytesIO(), [word], TABLE[:1])
