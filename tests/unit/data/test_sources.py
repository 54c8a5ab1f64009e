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

from cloze.data import input_files
from cloze.data.input_files import find_files, open_text
from cloze.data.readers import PARQUET_BATCH_ROWS
from cloze.data.sources import Row, collect_sources, read_rows, store_streams
from cloze.errors import InputError
from helpers import Mentions, raises
from sources import PACK, parquet, survey, texts, write

# --- what is read


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".csv", ".tsv", ".parquet"])
def test_every_format_in_every_compression(tmp_path: Path, kind: str, packing: str) -> None:
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

    got = list(read_rows(path))

    assert [row.text for row in got] == want
    assert {row.file for row in got} == {str(path)}
    assert [row.line for row in got] == ([2, 3, 4] if kind in (".csv", ".tsv") else [1, 2, 3])


def test_lines_keep_spaces_but_not_line_ends(tmp_path: Path) -> None:
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


def test_dense_data_is_decompressed_in_small_parts(tmp_path: Path) -> None:
    for packing in PACK:
        if packing:
            with input_files.open_binary(
                write(tmp_path / f"a.txt{packing}", PACK[packing](b"a" * 2**26))
            ) as f:
                f.read(1)
                assert len(f.raw._ready) <= 2**25  # type: ignore[attr-defined]


def test_csv_fields_may_contain_quotes_commas_and_newlines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'n,text\r\n1,"say ""hi"", he\r\nsaid"\r\n2,plain\r\n')
    assert list(read_rows(path)) == [
        Row('say "hi", he\r\nsaid', str(path), 2, is_document=True),
        Row("plain", str(path), 4, is_document=True),
    ]


def test_a_csv_field_may_be_long(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.csv", "text\n" + "x" * 200_000)) == ["x" * 200_000]


def test_quotes_in_tsv_are_characters(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'label\tsentence\n1\t" a lone quote\n0\t"both"\n')
    assert texts(path) == ['" a lone quote', '"both"']


def test_blank_lines_in_tables_are_skipped(tmp_path: Path) -> None:
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


def test_the_requested_column_is_used(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.csv", "text,title\na,b\n"), text_column="title") == ["b"]
    assert texts(write(tmp_path / "a.jsonl", '{"text":"a","title":"b"}'), text_column="title") == [
        "b"
    ]
    assert texts(parquet(tmp_path / "a.parquet", text=["a"], title=["b"]), text_column="title") == [
        "b"
    ]


def test_json_lines_may_be_strings_and_blank(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '"one"\n\n{"content": "two\\n2"}\r\n')
    assert [(row.text, row.line) for row in read_rows(path)] == [("one", 1), ("two\n2", 3)]


def test_a_list_of_lines_is_a_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": ["one", "two"]}\n{"text": ["one", 2]}')
    assert survey(path) == (["one\ntwo"], [Mentions(f"{path}:2: ", "['one', 2]")])
    assert texts(parquet(tmp_path / "a.parquet", text=[["one", "two"]])) == ["one\ntwo"]


def test_parquet_is_read_by_batches_and_dictionaries_are_strings(tmp_path: Path) -> None:
    want = [f"row {number}" for number in range(3 * PARQUET_BATCH_ROWS + 1)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(want).dictionary_encode()}), path, row_group_size=999)
    assert texts(path) == want
    assert [row.line for row in read_rows(path)] == list(range(1, len(want) + 1))


def test_standard_input_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("eins\nzwei é\n".encode())))
    assert list(read_rows("-")) == [
        Row("eins", "standard input", 1),
        Row("zwei é", "standard input", 2),
    ]


@pytest.mark.parametrize(
    ("data", "column", "expected"),
    [
        ("sentence,label\nA fine film.,pos\n", "sentence", ["A fine film."]),
        ('sentence,label\n"Fine, really.",pos\n', "1", ["Fine, really."]),
        ("label\tsentence\npos\tA, b.\n", "sentence", ["A, b."]),
        ('{"note": "A film.", "text": "x"}\n{"note": "B."}\n', "note", ["A film.", "B."]),
        ('{"sentence": "A fine film.", "label": "pos"}\n', None, ["A fine film."]),
        ('{"note": "A fine film."}\n', None, ['{"note": "A fine film."}']),
        ("sentence,label\nA film.,pos\n", None, ["sentence,label", "A film.,pos"]),
        ('{curly} "text": braces\n', None, ['{curly} "text": braces']),
    ],
)
def test_standard_input_is_a_table_if_a_column_is_requested_or_json_lines(
    data: str, column: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in (io.BytesIO(data.encode()), io.BufferedReader(io.BytesIO(data.encode()))):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        assert [row.text for row in read_rows("-", text_column=column)] == expected


def test_a_requested_column_that_standard_input_lacks_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    with pytest.raises(InputError, match="sentence"):
        list(read_rows("-", text_column="sentence"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_lines(tmp_path: Path) -> None:
    pipe = tmp_path / "63"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("one\ntwo\n",))
    writer.start()
    assert texts(pipe) == ["one", "two"]
    writer.join()


def test_data_sets_are_iterables_of_mappings() -> None:
    class Dataset:
        column_names = ("text", "label")

        def __iter__(self) -> object:
            return iter([UserDict(text="one", label=0), UserDict(text="two", label=1)])

    assert list(read_rows(Dataset())) == [
        Row("one", "<Dataset>", 1, is_document=True),
        Row("two", "<Dataset>", 2, is_document=True),
    ]
    assert texts(word for word in ("a", "b")) == ["a", "b"]
    assert texts([["a"], Dataset(), [{"title": "b"}]], text_column=None) == ["a", "one", "two", "b"]


def test_reading_is_lazy(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"good\n\xff\n")
    stream = read_rows([path, path])
    assert next(stream).text == "good"  # the bad line has not been reached


# --- what is found


def test_folders_and_globs_are_sorted(tmp_path: Path) -> None:
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
    here = [str(path.relative_to(tmp_path)) for path in find_files(tmp_path)]
    assert here == ["C.TXT", "a/b/c.csv.gz", "a/z.jsonl", "a-b.tsv", "b.txt"]
    assert find_files([tmp_path / "b.txt", tmp_path / "b.txt"]) == [tmp_path / "b.txt"] * 2
    assert find_files(f"{tmp_path}/*.t*") == [tmp_path / "a-b.tsv", tmp_path / "b.txt"]
    assert find_files(f"{tmp_path}/**/*.jsonl") == [tmp_path / "a/z.jsonl"]
    assert find_files(f"{tmp_path}/[a]") == [tmp_path / "a/b/c.csv.gz", tmp_path / "a/z.jsonl"]


def test_links_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    write(tmp_path / "real/a.txt", "x")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "linked").symlink_to(tmp_path / "real")
    (corpus / "loop").symlink_to(corpus)
    assert find_files(corpus) == [corpus / "linked/a.txt"]


def test_a_file_may_look_like_a_glob(tmp_path: Path) -> None:
    path = write(tmp_path / "a[1].txt", "x")
    assert find_files(path) == [path]


# --- the parts that others use


def test_errors_of_open_text_have_line_numbers(tmp_path: Path) -> None:
    with open_text(write(tmp_path / "a.conll.gz", gzip.compress("\ufeffeins\nzwei".encode()))) as f:
        assert f.readline() == "eins\n"
        assert f.read() == "zwei"
    bad = write(tmp_path / "b.json", b"one\n" * 9999 + b"\xff\n")
    with open_text(bad) as f, raises(InputError, "b.json:10000", "UTF-8"):
        f.read()
    with open_text(bad) as f, raises(InputError, "b.json:10000", "UTF-8"):
        list(f)
    cut = write(tmp_path / "c.txt.xz", lzma.compress(b"one\n" * 9)[:-1])
    with open_text(cut) as f, raises(InputError, "c.txt.xz:10", "xz"):
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
    assert sum(1 for _ in read_rows(data_dir / name, text_column=column)) == count


@pytest.mark.data
def test_published_text_is_read_as_the_standard_library_reads_it(data_dir: Path) -> None:
    path = data_dir / "text" / "wiki-zh-00.txt.xz"
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for row, line in zip(read_rows(path), lines, strict=True):
            assert row.text == line.rstrip("\n")


# --- streams that are stored in files


def test_stored_streams_are_read_like_files(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "a cat.\nit sat.\n\na dog.\n"
    threading.Thread(target=pipe.write_text, args=(text,)).start()
    file = write(tmp_path / "a.txt", text)
    mixed = [{"words": "one", "n": 1}, "two", {"words": ["three", "four"], "n": 2}]
    with store_streams([pipe, file, iter(mixed)], tmp_path, text_column="words") as kept:
        assert kept[1] == file
        for _ in range(2):
            piped, plain, given = ([row[::3] for row in read_rows(one)] for one in kept)
            assert piped == plain == [row[::3] for row in read_rows(file)]
            assert given == [row[::3] for row in read_rows([mixed], text_column="words")]
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "a.txt"}


def test_invalid_items_of_a_stream_are_raised_or_skipped(tmp_path: Path) -> None:
    with raises(InputError, "3"), store_streams([iter([3])], tmp_path):
        pass
    with store_streams([iter(["one", 3, "two"])], tmp_path, skip_broken=True) as kept:
        errors: list[InputError] = []
        assert [row.text for row in read_rows(kept, on_error=errors.append)] == ["one", "two"]
        assert len(errors) == 1


def test_paths_may_come_from_an_iterator_or_a_set(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"text {name}\n", encoding="utf-8")
    for given in (
        tmp_path.glob("*.txt"),
        iter(sorted(tmp_path.iterdir())),
        {tmp_path / "a.txt", tmp_path / "b.txt"},
        tuple(tmp_path.iterdir()),
    ):
        rows = read_rows(collect_sources(given))
        assert sorted(row.text for row in rows) == ["text a", "text b"]


def test_an_iterator_of_texts_is_one_source_and_nothing_of_it_is_lost():
    (source,) = collect_sources(text for text in ("one", "two"))
    assert [row.text for row in read_rows([source])] == ["one", "two"]
    (source,) = collect_sources(iter([{"text": "one"}]))
    assert [row.text for row in read_rows([source])] == ["one"]
    assert list(*collect_sources(iter(()))) == []
    assert collect_sources("a.txt") == ["a.txt"]
    assert collect_sources(["a.txt", "b.txt"]) == ["a.txt", "b.txt"]
