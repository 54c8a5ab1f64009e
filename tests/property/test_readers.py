"""Written text is read back; damaged files give an error or the same text."""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cloze.data.document_chunks import DocumentChunks
from cloze.data.sources import Row, read_rows
from cloze.errors import InputError

# A byte order mark is dropped where a file begins, so no text may begin with one here.
ANY = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=40)
LINE = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff\r\n"), max_size=40)
FIELD = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff\r\n\t"), max_size=40)


def to_txt(texts: list[str]) -> bytes:
    return "".join(text + "\n" for text in texts).encode()


def to_jsonl(texts: list[str]) -> bytes:
    lines = [json.dumps({"n": 1, "text": text}, ensure_ascii=len(text) % 2 == 0) for text in texts]
    return "".join(line + "\r\n" for line in lines).encode()


def to_csv(texts: list[str]) -> bytes:
    table = io.StringIO(newline="")
    csv.writer(table).writerows([["n", "text"], *([n, text] for n, text in enumerate(texts))])
    return table.getvalue().encode()


def to_tsv(texts: list[str]) -> bytes:
    return "".join(
        f"{text}\t{n}\n" for text, n in [("text", "n"), *((text, 1) for text in texts)]
    ).encode()


def to_parquet(texts: list[str]) -> bytes:
    file = io.BytesIO()
    table = pa.table({"n": range(len(texts)), "text": pa.array(texts, pa.string())})
    pq.write_table(table, file, row_group_size=3, write_page_checksum=True)
    return file.getvalue()


WRITERS: dict[str, tuple[Callable[[list[str]], bytes], st.SearchStrategy[str]]] = {
    ".txt": (to_txt, LINE),
    ".jsonl": (to_jsonl, ANY),
    ".csv": (to_csv, ANY),
    ".tsv": (to_tsv, FIELD),
    ".parquet": (to_parquet, ANY),
}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[str], bytes]:
    """A kind of file, the texts in it, and its bytes."""
    kind = draw(st.sampled_from(list(WRITERS)))
    write, text = WRITERS[kind]
    texts = draw(st.lists(text, min_size=1, max_size=8))
    return kind, texts, write(texts)


@contextmanager
def a_file(name: str, data: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        yield path


def read(path: Path) -> list[Row] | InputError:
    """All rows, or the error, which must name the file and, within it, the line."""
    try:
        return list(read_rows(path))
    except InputError as error:
        wrong = error
    assert re.match(rf"{re.escape(str(path))}(:\d+|: )", wrong.problem)
    return wrong


def same_or_error(path: Path, texts: list[str]) -> None:
    got = read(path)
    assert isinstance(got, InputError) or [row.text for row in got] == texts


@given(tables(), st.sampled_from(["", *PACKERS]))
def test_written_rows_are_read(table: tuple[str, list[str], bytes], packing: str) -> None:
    kind, texts, data = table
    packed = PACKERS[packing](data) if packing else data
    with a_file(f"a{kind}{packing}", packed) as path:
        got = list(read_rows(path))
    assert [row.text for row in got] == texts
    assert all(row.file == str(path) for row in got)
    assert [row.line for row in got] == sorted({row.line for row in got})


@given(st.lists(ANY), st.booleans())
def test_items_of_an_iterable_are_read(texts: list[str], mappings: bool) -> None:
    given_rows = [{"text": text, "label": 0} for text in texts] if mappings else texts
    assert [row.text for row in read_rows([given_rows])] == texts


@given(tables(), st.sampled_from(list(PACKERS)), st.data())
def test_a_damaged_compressed_file_is_an_error_or_unchanged(
    table: tuple[str, list[str], bytes], packing: str, data: st.DataObject
) -> None:
    kind, texts, plain = table
    packed = bytearray(
        PACKERS[packing](plain[: len(plain) // 2]) + PACKERS[packing](plain[len(plain) // 2 :])
    )
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with a_file(f"a{kind}{packing}", bytes(packed)) as path:
        same_or_error(path, texts)


@given(tables(), st.sampled_from(list(PACKERS)), st.data())
def test_a_truncated_compressed_file_is_an_error(
    table: tuple[str, list[str], bytes], packing: str, data: st.DataObject
) -> None:
    kind, _, plain = table
    packed = PACKERS[packing](plain)
    cut = data.draw(st.integers(0, len(packed) - 1))
    with a_file(f"a{kind}{packing}", packed[:cut]) as path:
        assert isinstance(read(path), InputError)


@given(st.lists(ANY, min_size=1, max_size=8), st.data())
def test_a_damaged_parquet_file_is_an_error_or_unchanged(
    texts: list[str], data: st.DataObject
) -> None:
    plain = bytearray(to_parquet(texts))
    plain[data.draw(st.integers(0, len(plain) - 1))] ^= data.draw(st.integers(1, 255))
    with a_file("a.parquet", bytes(plain)) as path:
        same_or_error(path, texts)


@given(tables(), st.data())
def test_a_truncated_table_keeps_the_rows_before_the_end(
    table: tuple[str, list[str], bytes], data: st.DataObject
) -> None:
    kind, texts, plain = table
    cut = data.draw(st.integers(0, len(plain) - 1))
    with a_file(f"a{kind}", plain[:cut]) as path:
        got = read(path)
    if kind == ".parquet":
        assert isinstance(got, InputError)
    elif not isinstance(got, InputError):
        read_texts = [row.text for row in got]
        assert read_texts[:-1] == texts[: len(read_texts) - 1]
        assert texts[len(read_texts) - 1].startswith(read_texts[-1].rstrip("\r"))


@given(tables(), st.data())
def test_rows_before_a_damaged_one_are_read(
    table: tuple[str, list[str], bytes], data: st.DataObject
) -> None:
    kind, texts, plain = table
    assume(kind != ".parquet")
    write, _ = WRITERS[kind]
    spared = data.draw(st.integers(1, len(texts)))
    start = len(write(texts[:spared]))
    assume(start < len(plain))
    damaged = bytearray(plain)
    damaged[data.draw(st.integers(start, len(plain) - 1))] ^= data.draw(st.integers(1, 255))
    errors: list[InputError] = []
    with a_file(f"a{kind}", bytes(damaged)) as path:
        got = [row.text for row in read_rows(path, on_error=errors.append)]
    assert got[:spared] == texts[:spared]
    assert all(str(path) in error.problem for error in errors)


@given(
    st.binary(max_size=200), st.sampled_from([*WRITERS, *(f".txt{packing}" for packing in PACKERS)])
)
@example(b"\xff\xfe", ".csv")
def test_no_bytes_crash_a_reader(data: bytes, ending: str) -> None:
    with a_file(f"a{ending}", data) as path:
        read(path)


@given(st.binary(max_size=200))
def test_lines_and_errors_account_for_every_line(data: bytes) -> None:
    errors: list[InputError] = []
    with a_file("a.txt", b"first\n" + data) as path:
        got = list(read_rows(path, on_error=errors.append))
    lines = (b"first\n" + data).removesuffix(b"\n").split(b"\n")
    bad = [int(error.problem.removeprefix(f"{path}:").split(":")[0]) for error in errors]
    assert sorted([row.line for row in got] + bad) == list(range(1, len(lines) + 1))
    for row in got:
        assert row.text.encode() == lines[row.line - 1].removesuffix(b"\r")


@given(st.lists(st.lists(LINE.filter(lambda text: text.strip()), min_size=1), min_size=1))
def test_documents_are_separated_by_blank_lines(groups: list[list[str]]) -> None:
    data = "\n \n\n".join("\n".join(group) for group in groups).encode()
    with a_file("a.txt", data) as path:
        found = [
            document for chunk in DocumentChunks(read_rows(path)) for document in chunk.documents
        ]
    assert [[line.decode() for line in document] for document in found] == groups
