import bz2
import gzip
import io
import json
import lzma
import os
import sys
import threading
from collections import UserDict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from cloze.data import unpack
from cloze.data.files import find
from cloze.data.readers import BATCH
from cloze.data.streams import Row, rows
from cloze.data.unpack import open_text
from cloze.errors import InputError, MissingExtraError

PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def parquet(path: Path, **columns: list[object]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def texts(source: object, **options: object) -> list[str]:
    return [row.text for row in rows(source, **options)]


def survey(source: object, **options: object) -> tuple[list[str], list[str]]:
    """The texts that could be read, and what was said about the rest."""
    errors: list[InputError] = []
    return texts(source, on_error=errors.append, **options), [error.problem for error in errors]


# --- what is read


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".csv", ".tsv", ".parquet"])
def test_every_kind_in_every_packing(tmp_path: Path, kind: str, packing: str) -> None:
    want = ["Erste Zeile", "第二行", "une « troisième »"]
    plain = tmp_path / f"plain{kind}"
    if kind == ".parquet":
        parquet(plain, id=[1, 2, 3], text=want)
    elif kind == ".jsonl":
        write(plain, "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in want))
    elif kind == ".txt":
        write(plain, "\n".join(want))
    else:
        between = "," if kind == ".csv" else "\t"
        write(plain, "\n".join(["id" + between + "text", *(f"1{between}{text}" for text in want)]))
    path = write(tmp_path / f"packed{kind.upper()}{packing}", PACK[packing](plain.read_bytes()))

    got = list(rows(path))

    assert [row.text for row in got] == want
    assert {row.file for row in got} == {str(path)}
    assert [row.line for row in got] == ([2, 3, 4] if kind in (".csv", ".tsv") else [1, 2, 3])


def test_lines_keep_their_spaces_and_blanks_but_not_their_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbf  one \r\n\r\n\ttwo\x0b\xe2\x80\xa8 \n\n")
    assert texts(path) == ["  one ", "", "\ttwo\x0b\u2028 ", ""]


def test_a_byte_order_mark_is_dropped_from_the_first_column_too(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.csv", "\ufefftext,n\nyes,1\n")) == ["yes"]
    assert texts(write(tmp_path / "a.jsonl", '\ufeff"yes"\n')) == ["yes"]


def test_several_streams_in_one_file_are_one_text(tmp_path: Path) -> None:
    for packing in (".gz", ".xz", ".bz2", ".zst"):
        data = PACK[packing](b"one\ntw") + PACK[packing](b"") + PACK[packing](b"o\nthree")
        assert texts(write(tmp_path / f"a.txt{packing}", data)) == ["one", "two", "three"]


def test_zeros_after_a_stream_are_padding(tmp_path: Path) -> None:
    data = lzma.compress(b"one\n") + bytes(4096) + lzma.compress(b"two\n") + bytes(4)
    assert texts(write(tmp_path / "a.txt.xz", data)) == ["one", "two"]


def test_dense_data_is_unfolded_a_little_at_a_time(tmp_path: Path) -> None:
    for packing in PACK:
        if packing:
            with unpack.open_bytes(
                write(tmp_path / f"a.txt{packing}", PACK[packing](b"a" * 2**26))
            ) as f:
                f.read(1)
                assert len(f.raw._ready) <= 2**25  # type: ignore[attr-defined]


def test_csv_fields_may_hold_quotes_commas_and_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'n,text\r\n1,"say ""hi"", he\r\nsaid"\r\n2,plain\r\n')
    assert list(rows(path)) == [
        Row('say "hi", he\r\nsaid', str(path), 2, whole=True),
        Row("plain", str(path), 4, whole=True),
    ]


def test_a_csv_field_may_be_long(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.csv", "text\n" + "x" * 200_000)) == ["x" * 200_000]


def test_quotes_in_tsv_are_characters(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'label\tsentence\n1\t" a lone quote\n0\t"both"\n')
    assert texts(path) == ['" a lone quote', '"both"']


def test_blank_lines_in_tables_hold_no_row(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.csv", "\ntext,n\n\na,1\n\n")) == ["a"]
    assert texts(write(tmp_path / "a.tsv", "\ntext\tn\n\na\t1\n\n")) == ["a"]
    assert texts(write(tmp_path / "b.tsv", "text\n\na\n")) == ["", "a"]  # here it is an empty text
    assert texts(write(tmp_path / "b.csv", 'text\na\n\n""\nb\n')) == ["a", "", "b"]


@pytest.mark.parametrize(
    ("header", "index"),
    [
        ("id,text,body", 1),
        ("id,Body,title", 1),
        ("id, sentence ", 1),
        ("utterance", 0),
    ],
)
def test_the_column_is_found_by_name(tmp_path: Path, header: str, index: int) -> None:
    fields = [f"field {number}" for number, _ in enumerate(header.split(","))]
    path = write(tmp_path / "a.csv", header + "\n" + ",".join(fields))
    assert texts(path) == [f"field {index}"]


def test_the_column_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.csv", "text,title\na,b\n"), column="title") == ["b"]
    assert texts(write(tmp_path / "a.jsonl", '{"text":"a","title":"b"}'), column="title") == ["b"]
    assert texts(parquet(tmp_path / "a.parquet", text=["a"], title=["b"]), column="title") == ["b"]


def test_json_lines_may_be_strings_and_blank(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '"one"\n\n{"content": "two\\n2"}\r\n')
    assert [(row.text, row.line) for row in rows(path)] == [("one", 1), ("two\n2", 3)]


def test_a_list_of_lines_is_a_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": ["one", "two"]}\n{"text": ["one", 2]}')
    assert survey(path) == (["one\ntwo"], [f"{path}:2: ['one', 2] is not text"])
    assert texts(parquet(tmp_path / "a.parquet", text=[["one", "two"]])) == ["one\ntwo"]


def test_parquet_is_read_by_batches_and_dictionaries_are_strings(tmp_path: Path) -> None:
    want = [f"row {number}" for number in range(3 * BATCH + 1)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(want).dictionary_encode()}), path, row_group_size=999)
    assert texts(path) == want
    assert [row.line for row in rows(path)] == list(range(1, len(want) + 1))


def test_standard_input_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("eins\nzwei é\n".encode())))
    assert list(rows("-")) == [Row("eins", "standard input", 1), Row("zwei é", "standard input", 2)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_by_name_is_lines(tmp_path: Path) -> None:
    pipe = tmp_path / "63"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("one\ntwo\n",))
    writer.start()
    assert texts(pipe) == ["one", "two"]
    writer.join()


def test_data_sets_are_read_by_what_they_yield() -> None:
    class Dataset:
        column_names = ("text", "label")

        def __iter__(self) -> object:
            return iter([UserDict(text="one", label=0), UserDict(text="two", label=1)])

    assert list(rows(Dataset())) == [
        Row("one", "<Dataset>", 1, whole=True),
        Row("two", "<Dataset>", 2, whole=True),
    ]
    assert texts(word for word in ("a", "b")) == ["a", "b"]
    assert texts([["a"], Dataset(), [{"title": "b"}]], column=None) == ["a", "one", "two", "b"]


def test_reading_is_lazy(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"good\n\xff\n")
    stream = rows([path, path])
    assert next(stream).text == "good"  # the bad line has not been reached


# --- what is found


def test_folders_and_globs_have_one_order(tmp_path: Path) -> None:
    for name in (
        "b.txt",
        "a/z.jsonl",
        "a/b/c.csv.gz",
        "a-b.tsv",
        "README.md",
        ".hidden.txt",
        "C.TXT",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    here = [str(path.relative_to(tmp_path)) for path in find(tmp_path)]
    assert here == ["C.TXT", "a/b/c.csv.gz", "a/z.jsonl", "a-b.tsv", "b.txt"]
    assert find([tmp_path / "b.txt", tmp_path / "b.txt"]) == [tmp_path / "b.txt"] * 2
    assert find(f"{tmp_path}/*.t*") == [tmp_path / "a-b.tsv", tmp_path / "b.txt"]
    assert find(f"{tmp_path}/**/*.jsonl") == [tmp_path / "a/z.jsonl"]
    assert find(f"{tmp_path}/[a]") == [tmp_path / "a/b/c.csv.gz", tmp_path / "a/z.jsonl"]


def test_links_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    write(tmp_path / "real/a.txt", "x")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "linked").symlink_to(tmp_path / "real")
    (corpus / "loop").symlink_to(corpus)
    assert find(corpus) == [corpus / "linked/a.txt"]


def test_a_file_may_look_like_a_glob(tmp_path: Path) -> None:
    path = write(tmp_path / "a[1].txt", "x")
    assert find(path) == [path]


# --- what is refused, and how


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


# --- the parts that others use


def test_open_text_gives_a_stream_and_names_the_line_of_what_is_wrong(tmp_path: Path) -> None:
    with open_text(write(tmp_path / "a.conll.gz", gzip.compress("\ufeffeins\nzwei".encode()))) as f:
        assert f.readline() == "eins\n"
        assert f.read() == "zwei"
    bad = write(tmp_path / "b.json", b"one\n" * 9999 + b"\xff\n")
    with open_text(bad) as f, pytest.raises(InputError, match=r"b\.json:10000: not UTF-8"):
        f.read()
    with open_text(bad) as f, pytest.raises(InputError, match=r"b\.json:10000: not UTF-8"):
        list(f)
    cut = write(tmp_path / "c.txt.xz", lzma.compress(b"one\n" * 9)[:-1])
    with open_text(cut) as f, pytest.raises(InputError, match=r"c\.txt\.xz:10: the xz data is cut"):
        f.read()


# --- real files


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "column", "count"),
    [
        ("glue/SST-2/train.tsv.xz", None, 67_349),
        ("glue/SST-2/dev.tsv", None, 872),
        ("glue/MRPC/train.tsv.xz", "#2 String", 3_667),  # a byte order mark, lone quotes
        ("imdb/train.tsv.xz", None, 6_000),
        ("news/bbc_news_summary.jsonl.xz", "paragraphs", 2_225),
    ],
)
def test_published_tables_have_all_their_rows(
    data_dir: Path, name: str, column: str | None, count: int
) -> None:
    assert sum(1 for _ in rows(data_dir / name, column=column)) == count


@pytest.mark.data
def test_published_text_is_read_as_the_standard_library_reads_it(data_dir: Path) -> None:
    path = data_dir / "text" / "wiki-zh-00.txt.xz"
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for row, line in zip(rows(path), lines, strict=True):
            assert row.text == line.rstrip("\n")
