"""Errors of text that cannot be read."""

import bz2
import gzip
import lzma
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloze.data import input_files
from cloze.data.sources import read_rows
from cloze.errors import InputError, MissingExtraError
from helpers import Mentions, raises
from sources import PACK, parquet, survey, texts, write


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.txt", b"fine\ncaf\xe9\n", ("a.txt:2", "UTF-8", "4")),
        ("a.txt", b"fine\nn\0l\n", ("a.txt:2", "NUL")),
        ("a.txt", b"\x7fELF\0\0\n", "a.txt:1"),
        ("a.txt", b"", "a.txt"),
        ("a.txt", b"\xef\xbb\xbf", "a.txt"),
        ("a.txt", "x\n".encode("utf-16"), ("a.txt:1", "UTF-16")),
        ("a.txt", gzip.compress(b"x"), ("a.txt:1", "gzip")),
        ("a.txt", b"PK\x03\x04...", ("a.txt:1", "zip")),
        ("a.txt.gz", b"", "a.txt.gz"),
        ("a.txt.gz", b"plain text\n", ("a.txt.gz:1", "gzip")),
        ("a.txt.gz", gzip.compress(b"x\n" * 99)[:-9], ("100", "gzip")),
        ("a.txt.xz", lzma.compress(b"x\n" * 99)[:-9], ("100", "xz")),
        ("a.txt.bz2", bz2.compress(b"x\n" * 99)[:-9], ("100", "bzip2")),
        ("a.txt.zst", PACK[".zst"](b"x\n" * 99)[:-1], ("100", "zstd")),
        ("a.txt.xz", lzma.compress(b"x\n") + b"rest", ("2", "xz")),
        ("a.txt.bz2", bz2.compress(b"x\n") + b"rubbish", ("2", "bzip2")),
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', ("a.jsonl:2", "JSON")),
        ("a.jsonl", b'"x"\n' + b"[" * 100_000, ("a.jsonl:2", "JSON")),
        ("a.jsonl", b'{"text": null}', "a.jsonl:1"),
        (
            "a.jsonl",
            b'{"a": "x", "b": "y"}',
            ("a.jsonl:1", "a", "b"),
        ),
        ("a.jsonl", b'"\\ud800"', "a.jsonl:1"),
        ("a.jsonl", b'"\\u0000"', ("a.jsonl:1", "NUL")),
        ("a.jsonl", b"\n\n", "a.jsonl"),
        ("a.csv", b"a,b\n1,2\n", ("a.csv:1", "a", "b")),
        ("a.csv", b"text,text\n1,2\n", ("a.csv:1", "text")),
        ("a.csv", b"text,n\n1,2\n3\n", ("a.csv:3", "1", "2")),
        ("a.csv", b'text,n\n1,2\n"x,3\n', "a.csv:3"),
        ("a.csv", b'text,n\n1,2\n"x"y,3\n', "a.csv:3"),
        ("a.csv", b"text,n\n", "a.csv"),
        ("a.csv", b"text,n\n1,2\n\xff,2", ("a.csv:3", "UTF-8")),
        ("a.tsv", b"text\tn\n1\t2\t3\n", ("a.tsv:2", "3", "2")),
        ("a.parquet", b"PAR1 and no more", ("a.parquet:1", "parquet")),
        ("a.parquet", b"", ("a.parquet:1", "parquet")),
        (
            "a.parquet.gz",
            gzip.compress(b"PAR1" * 99)[:-1],
            ("1", "parquet", "gzip"),
        ),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
def test_invalid_input_is_reported(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    path = write(tmp_path / name, data)
    with raises(InputError, problem) as caught:
        texts(path)
    assert caught.value.fix


def test_parquet_rows_without_text_are_reported(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", text=["x", None, "y"])
    assert survey(path) == (["x", "y"], [Mentions(f"{path}:2: ", "None")])
    raw = pa.array([b"ok", b"\xff"]).view(pa.string())
    pq.write_table(pa.table({"text": raw}), path)
    assert survey(path) == (["ok"], [Mentions(f"{path}:2: ", "UTF-8")])
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    with raises(InputError, "a.parquet"):
        texts(path)


def test_a_missing_column_suggests_a_similar_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,title\na,b\n")
    with raises(InputError, "titel", fix="title"):
        texts(path, text_column="titel")


def test_missing_files_are_reported_before_reading(tmp_path: Path) -> None:
    good = write(tmp_path / "a.txt", "x")
    with raises(InputError, "folder"):
        read_rows([good, tmp_path / "missing.txt"])
    with raises(InputError, "match"):
        read_rows(f"{tmp_path}/*.csv")
    with raises(InputError, ".doc"):
        read_rows(write(tmp_path / "a.doc", "x"))
    with raises(InputError, "ending"):
        read_rows(write(tmp_path / "part-0", "x"))
    with raises(InputError, "too long"):
        read_rows("a text given for a path " * 99)
    (tmp_path / "empty").mkdir()
    with raises(InputError, "folder"):
        read_rows(tmp_path / "empty")


def test_a_file_without_permission_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / "a.txt", "x")
    monkeypatch.setattr("builtins.open", refuse)
    with raises(InputError, "a.txt", "Permission denied"):
        texts(path)


@pytest.mark.parametrize(
    ("wrong", "fix"), [({"train": ["a"]}, "data['train']"), ({"text": "a"}, "[row, row]")]
)
def test_splits_and_bare_rows_are_rejected(wrong: object, fix: str) -> None:
    with raises(InputError, "dict", "rows", fix=fix):
        read_rows(wrong)


def test_a_lazy_frame_is_rejected() -> None:
    polars = pytest.importorskip("polars")
    with raises(InputError, "LazyFrame", fix="collect()"):
        read_rows(polars.LazyFrame({"text": ["a"]}))


def test_on_error_receives_errors_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = write(tmp_path / "a.txt", b"one\n\xff\ntwo\n")
    objects = write(tmp_path / "b.jsonl", b'"three"\n{\n{"text": 4}\n"five"\n')
    table = write(tmp_path / "c.csv", b'text,n\nsix,6\nx\n"y"y,2\n\xff,1\nseven,7\n')
    cut = write(tmp_path / "d.txt.gz", gzip.compress(b"eight\n")[:-4])
    missing = tmp_path / "e.txt"
    got, problems = survey([lines, objects, table, cut, missing, ["nine", 10]])
    assert got == ["one", "two", "three", "five", "six", "seven", "eight", "nine"]
    named = [problem.removeprefix(f"{tmp_path}/").split(": ")[0] for problem in problems]
    assert named == [
        "e.txt", "a.txt:2", "b.jsonl:2", "b.jsonl:3", "c.csv:3", "c.csv:4", "c.csv:5", "d.txt.gz:2",
        "<list>:2",
    ]  # fmt: skip


def test_reading_stops_after_an_error_inside_quotes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'text\ngood\n"begins\n\xff\nends"\nafter\n')
    got, problems = survey(path)
    assert got == ["good"]
    assert problems == [Mentions("a.csv:4: ", "UTF-8")]


@pytest.mark.parametrize("kind", [".csv", ".tsv"])
def test_a_truncated_table_is_reported_once(tmp_path: Path, kind: str) -> None:
    packed = gzip.compress(b"text\n" + b"x\n" * 9)[:-4]
    path = write(tmp_path / f"a{kind}.gz", packed)
    assert survey(path) == (["x"] * 9, [Mentions(f"{path}:11: ", "gzip")])


def test_a_line_that_is_too_long_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "MAX_LINE_BYTES", 2**20)
    path = write(tmp_path / "a.txt", b"ok\n" + b"x" * 2**20 + b"y\n")
    with raises(InputError, "a.txt:2", "1"):
        texts(path)


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("zstandard", "a.txt.zst", "zstd"), ("pyarrow.parquet", "a.parquet", "parquet")],
)
def test_a_missing_library_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    path = write(tmp_path / name, b"anything")
    with raises(MissingExtraError, f"cloze[{extra}]"):
        texts(path)
