"""Documents of files: HTML, PDF, hostile ones, and files that are left out."""

import gzip
import io
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PdfReader, PdfWriter

from cloze.data.documents import count_left_out, read_documents
from cloze.data.html_documents import MAX_HTML_BYTES, parse_page
from cloze.data.pdf_documents import read_pdf
from cloze.errors import InputError
from helpers import raises

PAGE = """<!DOCTYPE html><html><head><title>Foxes &amp; owls</title><style>p { color: red }</style>
<script>document.write("<p>no</p>")</script></head><body><nav><a href="/">Home</a></nav>
<header><h1>All <b>f</b>oxes</h1></header><p>A fox<br>ran. See <a href="x">here</a>.
<p>1 &lt; 2<div hidden>secret</div><ul><li>one<li>two</ul><table><tr><td>a</td><td>b</td></table>
<div role="navigation">More</div><footer>Imprint</footer>The end"""


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def make_pdf(text="The fox ran.", *, title=None, password=None):
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    parts = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    made = b"%PDF-1.4\n"
    starts = []
    for number, part in enumerate(parts, 1):
        starts.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % start for start in starts)
    end = b"xref\n0 6\n0000000000 65535 f \n%s" % table
    end += b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % len(made)
    if title is None and password is None:
        return made + end
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(made + end)))
    writer.add_metadata({"/Title": title or ""})
    if password is not None:
        writer.encrypt(password, algorithm="RC4-128")
    whole = io.BytesIO()
    writer.write(whole)
    return whole.getvalue()


def test_a_page_has_a_title_and_paragraphs_without_scripts_and_navigation():
    title, text = parse_page(PAGE)
    assert title == "Foxes & owls"
    assert text.split("\n\n") == [
        *("All foxes", "A fox ran. See here.", "1 < 2", "one", "two", "a b", "The end")
    ]


def test_the_first_heading_is_the_title_of_a_page_without_one(tmp_path):
    assert parse_page("<title> </title><h1>A <i>fox</i></h1><h1>Other</h1>").title == "A fox"
    assert parse_page("only text").title is None
    # navigation that is not closed ends where the contents start
    assert parse_page("<nav><a>Home</a><main>A fox</main>").text == "A fox"
    found = list(read_documents(write(tmp_path, "a.HTM", PAGE)))
    assert [(one.id, one.title) for one in found] == [(str(tmp_path / "a.HTM"), "Foxes & owls")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "windows-1252", "iso-8859-1", "gb18030"])
def test_the_encoding_of_a_page_is_the_one_it_declares(tmp_path, encoding):
    text = "狐狸" if encoding == "gb18030" else "Füchse"
    page = f'<html><meta charset="{encoding}"><p>{text}'.encode(encoding)
    (found,) = read_documents(write(tmp_path, "a.html.gz", gzip.compress(page)))
    assert found.text == text
    broken = write(tmp_path, "b.html", b'<meta charset="gb18030"><p>\xff\xff')
    with raises(InputError, "gb18030", fix="UTF-8"):
        list(read_documents(broken))


ENDLESS = ("<!--", '<a b="', "<script>", "<![CDATA[", "<?", "</")
NESTED = ("<div>", "<nav>", "<title>a", "<h1>a", "<a>", "&#x")


@pytest.mark.parametrize("markup", [*ENDLESS, *NESTED])
def test_markup_that_never_ends(markup):
    # with a search of the rest for each of them, the first kind would take minutes
    count = 300_000 if markup in ENDLESS else 20_000
    assert parse_page("<p>A fox." + markup * count).text.startswith("A fox.")


def test_a_huge_attribute():
    assert parse_page(f'<p title="{"<b>" * 1_000_000}">A fox').text == "A fox"


@given(st.text(alphabet="<>/!-[]?=\"' &;abnavscript\n\0", max_size=200))
def test_any_markup_is_read(markup):
    title, text = parse_page(markup)
    assert title is None or title.strip()
    assert text == text.strip()


@pytest.mark.parametrize(
    "content",
    [b"", b"<script>only</script>", b"\x89PNG\r\n\x1a\n\0\0\0", b"%PDF-1.4", b"<p>\xff\xfe\xfd"],
)
def test_pages_without_text_and_other_files(tmp_path, content):
    write(tmp_path, "a.html", content)
    write(tmp_path, "b.html", "<p>A fox")
    with raises(InputError, "a.html", fix="--skip-bad"):
        list(read_documents(tmp_path))
    errors = []
    (found,) = read_documents(tmp_path, on_error=errors.append)
    assert (found.text, len(errors)) == ("A fox", 1)


def test_a_page_that_is_too_large(tmp_path):
    path = write(tmp_path, "a.html.gz", gzip.compress(b"a" * (MAX_HTML_BYTES + 1), 1))
    with raises(InputError, "MiB", fix="split"):
        list(read_documents(path))


def test_a_pdf_is_a_document(tmp_path):
    write(tmp_path, "a.pdf", make_pdf())
    write(tmp_path, "b.pdf", make_pdf("An owl sat.", title="Owls"))
    first, second = read_documents(tmp_path)
    assert (first.text, first.title, first.metadata) == ("The fox ran.", None, {"pages": 1})
    assert (second.text, second.title) == ("An owl sat.", "Owls")


def test_a_pdf_that_needs_no_password_is_read(tmp_path):
    (found,) = read_documents(write(tmp_path, "a.pdf", make_pdf(password="")))
    assert found.text == "The fox ran."


PDFS = {
    "encrypted": (lambda: make_pdf(password="secret"), "encrypted"),
    "cut off": (lambda: make_pdf()[:200], "cannot be read"),
    "other": (lambda: b"\x89PNG" + b"\0" * 100, "cannot be read"),
    "empty": (lambda: b"", "cannot be read"),
    "no text": (lambda: make_pdf(""), "no text"),
    "own parent": (lambda: make_pdf().replace(b"[3 0 R]", b"[2 0 R]"), "a.pdf"),
}


@pytest.mark.parametrize(("make", "message"), PDFS.values(), ids=PDFS)
def test_pdfs_that_cannot_be_read(tmp_path, make, message):
    with raises(InputError, message, fix="--skip-bad"):
        list(read_documents(write(tmp_path, "a.pdf", make())))


@given(st.data())
def test_a_damaged_pdf_is_read_or_an_error(data):
    made = bytearray(make_pdf())
    for _ in range(data.draw(st.integers(1, 8))):
        made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InputError):
        assert read_pdf(io.BytesIO(bytes(made)), "a.pdf").text


def test_pages_that_share_a_large_content(tmp_path, monkeypatch):
    made = make_pdf().replace(b"/Kids [3 0 R] /Count 1", b"/Kids [3 0 R 3 0 R 3 0 R] /Count 3")
    path = write(tmp_path, "a.pdf", made)
    assert [one.metadata["pages"] for one in read_documents(path)] == [3]
    monkeypatch.setattr("cloze.data.pdf_documents.MAX_CONTENT_BYTES", 100)
    with raises(InputError, "bytes", fix="split"):
        list(read_documents(path))


def test_without_pypdf_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with raises(InputError, "PDF", fix="cloze[pdf]"):
        list(read_documents(write(tmp_path, "a.pdf", make_pdf())))


def test_files_of_other_types_are_counted(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.docx", "in/b.docx", "c", ".hidden.docx", "d.txt", "in/e.html", "f.png.gz"):
        write(tmp_path, name, "text")
    assert count_left_out([tmp_path]) == {"": 1, ".docx": 2, ".png": 1}
    assert count_left_out([str(tmp_path / "*")]) == {".docx": 1}  # others are errors
    assert count_left_out([tmp_path / "none", "-", [{"text": "a"}]]) == {}


def test_the_error_of_an_empty_file_names_the_option(tmp_path):
    with raises(InputError, "empty", fix="--skip-bad"):
        list(read_documents(write(tmp_path, "a.txt", "")))
    with pytest.raises(InputError) as error:  # a path that does not exist is another mistake
        list(read_documents(tmp_path / "none.txt"))
    assert "--skip-bad" not in error.value.fix
