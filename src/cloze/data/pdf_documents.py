"""PDF files → title and text, with pypdf (extra `pdf`)."""

import io
import logging
import warnings
from typing import Any, BinaryIO, NamedTuple

from cloze.data.input_files import UnreadableFileError
from cloze.errors import InputError, MissingExtraError

MAX_PDF_BYTES = 1 << 28
MAX_CONTENT_BYTES = 1 << 27  # of all pages, decompressed: several may share one content
MAX_PDF_CHARS = 1 << 27  # of the text of all pages


class PdfText(NamedTuple):
    """The text of all pages, with a blank line between two."""

    title: str | None
    text: str
    num_pages: int


def read_pdf(stream: BinaryIO, name: str) -> PdfText:
    """Read a PDF file; raise if it is damaged, encrypted or too large, or has no text."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError
    except ImportError:
        missing = MissingExtraError("reading PDF files", extra="pdf")
        raise InputError(f"{name}: {missing.problem}", fix=missing.fix) from None
    content = stream.read(MAX_PDF_BYTES + 1)
    if len(content) > MAX_PDF_BYTES:
        raise UnreadableFileError(
            f"{name}: a PDF may have at most {MAX_PDF_BYTES >> 20} MiB", fix="split it"
        )
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs each defect of a file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _read_pages(PdfReader(io.BytesIO(content)), name)
    except (InputError, MemoryError):
        raise
    except DependencyError:  # AES needs another library
        raise _encrypted_error(name) from None
    except Exception as error:  # damaged files raise errors of many kinds
        raise UnreadableFileError(
            f"{name}: the PDF cannot be read: {type(error).__name__}: {error}",
            fix="open it and print it to a new PDF, or leave it out",
        ) from None
    if not found.text:
        raise InputError(
            f"{name}: the PDF contains no text, only images perhaps",
            fix="recognize its text first, for example with ocrmypdf, or leave it out",
        )
    return found


def _read_pages(reader: Any, name: str) -> PdfText:  # noqa: ANN401 - a PdfReader
    if reader.is_encrypted and not reader.decrypt(""):
        raise _encrypted_error(name)
    pages: list[str] = []
    left = {"bytes": MAX_CONTENT_BYTES, "characters": MAX_PDF_CHARS}
    for page in reader.pages:
        content = page.get_contents()
        left["bytes"] -= 0 if content is None else len(content.get_data())
        if left["bytes"] >= 0:
            # lone surrogates and NUL characters come from damaged fonts
            text = page.extract_text().replace("\0", "").encode("utf-8", "ignore").decode()
            left["characters"] -= len(text)
            pages.append(text.strip())
        for unit, rest in left.items():
            if rest < 0:
                raise UnreadableFileError(
                    f"{name}: the pages of the PDF have too many {unit}", fix="split it"
                )
    title = getattr(reader.metadata, "title", None)
    cleaned = " ".join(str(title).replace("\0", "").split()) if title else ""
    return PdfText(
        title=cleaned.encode("utf-8", "ignore").decode() or None,
        text="\n\n".join(one for one in pages if one),
        num_pages=len(pages),
    )


def _encrypted_error(name: str) -> InputError:
    return UnreadableFileError(
        f"{name}: the PDF is encrypted",
        fix="remove its password (qpdf --decrypt --password=… IN OUT), or leave it out",
    )
