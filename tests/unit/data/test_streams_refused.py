"""What text cannot be read, and how that is said."""

import bz2
import gzip
import lzma
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloze.data import unpack
from cloze.data.streams import rows
from cloze.errors import InputError, MissingExtraError
from sources import PACK, parquet, survey, texts, write


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.txt", b"fine\ncaf\xe9\n", r"a\.txt:2: not UTF-8: byte 0xe9 at position 4 of the line"),
        ("a.txt", b"fine\nn\0l\n", r"a\.txt:2: the line holds a NUL byte"),
        ("a.txt", b"\x7fELF\0\0\n", r"a\.txt:1: this is a binary file"),
        ("a.txt", b"", r"a\.txt: there is no text in it"),
        ("a.txt", b"\xef\xbb\xbf", r"a\.txt: there is no text in it"),
        ("a.txt", "x\n".encode("utf-16"), r"a\.txt:1: this is UTF-16 text"),
        ("a.txt", gzip.compress(b"x"), r"a\.txt:1: this is gzip data"),
        ("a.txt", b"PK\x03\x04...", r"a\.txt:1: this is a zip archive"),
        ("a.txt.gz", b"", r"a\.txt\.gz: there is no text in it"),
        ("a.txt.gz", b"plain text\n", r"a\.txt\.gz:1: the gzip data is broken"),
        ("a.txt.gz", gzip.compress(b"x\n" * 99)[:-9], r":100: the gzip data is cut short"),
        ("a.txt.xz", lzma.compress(b"x\n" * 99)[:-9], r":100: the xz data is cut short"),
        ("a.txt.bz2", bz2.compress(b"x\n" * 99)[:-9], r":100: the bzip2 data is cut short"),
        ("a.txt.zst", PACK[".zst"](b"x\n" * 99)[:-1], r":100: the zstd data is cut short"),
        ("a.txt.xz", lzma.compress(b"x\n") + b"rest", r":2: the xz data is (broken|cut short)"),
        ("a.txt.bz2", bz2.compress(b"x\n") + b"rubbish", r":2: the bzip2 data is broken"),
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', r"a\.jsonl:2: broken JSON: Expecting value"),
        ("a.jsonl", b'"x"\n' + b"[" * 100_000, r"a\.jsonl:2: broken JSON: "),
        ("a.jsonl", b'{"text": null}', r"a\.jsonl:1: None is not text"),
        (
            "a.jsonl",
            b'{"a": "x", "b": "y"}',
            r"a\.jsonl:1: which column holds the text\? .*'a', 'b'",
        ),
        ("a.jsonl", b'"\\ud800"', r"a\.jsonl:1: the text holds half of a surrogate pair"),
        ("a.jsonl", b'"\\u0000"', r"a\.jsonl:1: the text holds a NUL"),
        ("a.jsonl", b"\n\n", r"a\.jsonl: there is no text in it"),
        ("a.csv", b"a,b\n1,2\n", r"a\.csv:1: which column holds the text\? there are 'a', 'b'"),
        ("a.csv", b"text,text\n1,2\n", r"a\.csv:1: two columns are called 'text'"),
        ("a.csv", b"text,n\n1,2\n3\n", r"a\.csv:3: 1 columns where the header has 2"),
        ("a.csv", b'text,n\n1,2\n"x,3\n', r"a\.csv:3: broken quoting: unexpected end of data"),
        ("a.csv", b'text,n\n1,2\n"x"y,3\n', r"a\.csv:3: broken quoting"),
        ("a.csv", b"text,n\n", r"a\.csv: there is no text in it"),
        ("a.csv", b"text,n\n1,2\n\xff,2", r"a\.csv:3: not UTF-8"),
        ("a.tsv", b"text\tn\n1\t2\t3\n", r"a\.tsv:2: 3 columns where the header has 2"),
        ("a.parquet", b"PAR1 and no more", r"a\.parquet:1: broken parquet"),
        ("a.parquet", b"", r"a\.parquet:1: broken parquet"),
        (
            "a.parquet.gz",
            gzip.compress(b"PAR1" * 99)[:-1],
            r":1: broken parquet: the gzip data is cut",
        ),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    path = write(tmp_path / name, data)
    with pytest.raises(InputError, match=problem) as caught:
        texts(path)
    assert caught.value.fix


def test_parquet_rows_without_text_are_named(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", text=["x", None, "y"])
    assert survey(path) == (["x", "y"], [f"{path}:2: None is not text"])
    raw = pa.array([b"ok", b"\xff"]).view(pa.string())
    pq.write_table(pa.table({"text": raw}), path)
    assert survey(path) == (["ok"], [f"{path}:2: not UTF-8: invalid start byte"])
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    with pytest.raises(InputError, match="there is no text in it"):
        texts(path)


def test_a_missing_column_suggests_the_near_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,title\na,b\n")
    with pytest.raises(InputError, match=r"no column is called 'titel'.*\n.*did you mean 'title'"):
        texts(path, column="titel")


def test_missing_files_are_noticed_before_anything_is_read(tmp_path: Path) -> None:
    good = write(tmp_path / "a.txt", "x")
    with pytest.raises(InputError, match="there is no such file or folder"):
        rows([good, tmp_path / "missing.txt"])
    with pytest.raises(InputError, match="no file matches"):
        rows(f"{tmp_path}/*.csv")
    with pytest.raises(InputError, match=r"'\.doc' are not read\n.*one of \.txt"):
        rows(write(tmp_path / "a.doc", "x"))
    with pytest.raises(InputError, match="the name has no ending"):
        rows(write(tmp_path / "part-0", "x"))
    with pytest.raises(InputError, match="File name too long"):
        rows("a text given for a path " * 99)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no file in this folder ends in \.txt"):
        rows(tmp_path / "empty")


def test_a_file_that_may_not_be_read_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / "a.txt", "x")
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InputError, match=r"a\.txt: cannot be opened: Permission denied"):
        texts(path)


@pytest.mark.parametrize("wrong", [{"train": ["a"]}, [{"text": "a"}]])
def test_splits_and_bare_rows_are_no_sources(wrong: object) -> None:
    with pytest.raises(InputError, match=r"a dict is not a stream of rows\n.*\['train'\]"):
        rows(wrong)


def test_a_data_frame_is_no_stream_of_rows() -> None:
    class DataFrame:
        columns = ("text",)

        def __iter__(self) -> object:
            return iter(self.columns)

    with pytest.raises(InputError, match="a DataFrame is not a stream of rows"):
        rows(DataFrame())


def test_given_errors_are_handed_over_and_the_rest_is_read(tmp_path: Path) -> None:
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


def test_after_an_error_inside_quotes_nothing_is_guessed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'text\ngood\n"begins\n\xff\nends"\nafter\n')
    got, problems = survey(path)
    assert got == ["good"]
    assert len(problems) == 1
    assert "a.csv:4: not UTF-8" in problems[0]


@pytest.mark.parametrize("kind", [".csv", ".tsv"])
def test_a_table_that_breaks_off_is_said_to_once(tmp_path: Path, kind: str) -> None:
    packed = gzip.compress(b"text\n" + b"x\n" * 9)[:-4]
    path = write(tmp_path / f"a{kind}.gz", packed)
    assert survey(path) == (["x"] * 9, [f"{path}:11: the gzip data is cut short"])


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "LONGEST", 2**20)
    path = write(tmp_path / "a.txt", b"ok\n" + b"x" * 2**20 + b"y\n")
    with pytest.raises(InputError, match=r"a\.txt:2: the line is longer than 1 MiB"):
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
    with pytest.raises(MissingExtraError, match=rf"pip install 'cloze\[{extra}\]'"):
        texts(path)
