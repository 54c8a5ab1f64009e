"""HTML files → title and text, without scripts, styles and navigation.

The parser of the standard library is fed once and never closed: what follows a construct that does
not end, such as a comment, is left out, as in a browser. Closing it would search the rest of the
file once for each of them.
"""

import codecs
import io
import re
from html.parser import HTMLParser
from typing import BinaryIO, NamedTuple

from cloze.data.input_files import TextLines, UnreadableFileError
from cloze.errors import InputError

MAX_HTML_BYTES = 1 << 25
_MAX_TITLE = 1000  # characters
_META_BYTES = 1 << 12  # in which the encoding is declared
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_\-]{1,40})""", re.I)
# Encodings that pages have; other codecs of Python are no encodings of text, or slow.
_ENCODING = re.compile(
    r"utf-?8|utf-?16(-?[lb]e)?|us-ascii|iso-?8859-\d\d?|latin-?1|(windows-|cp)\d{3,4}|"
    r"gb2312|gbk|gb18030|big5(-hkscs)?|shift[_-]jis|euc-(jp|kr)|iso-2022-jp|koi8-[ru]|macintosh",
    re.I,
)
_HIDDEN = {
    *("aside", "audio", "button", "canvas", "dialog", "footer", "iframe", "map", "menu", "nav"),
    *("noscript", "object", "script", "select", "style", "svg", "template", "video"),
}
_BLOCKS = {
    *("address", "article", "blockquote", "body", "caption", "dd", "details", "div", "dl"),
    *("dt", "fieldset", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "header"),
    *("hr", "legend", "li", "main", "ol", "p", "pre", "section", "summary", "table", "tbody"),
    *("tfoot", "thead", "title", "tr", "ul"),
}
_SPACES = frozenset(("br", "td", "th"))
_VOID = frozenset(("br", "hr", "img", "input", "link", "meta", "wbr"))
_PARAGRAPH = "\n\n"  # sentences end at a blank line


class Page(NamedTuple):
    """What a reader sees of an HTML file."""

    title: str | None
    text: str  # paragraphs, with a blank line between two


def read_page(stream: BinaryIO, name: str) -> Page:
    """Read an HTML file; raise if it is not text, too large, or shows nothing."""
    content = stream.read(MAX_HTML_BYTES + 1)
    if len(content) > MAX_HTML_BYTES:
        raise UnreadableFileError(
            f"{name}: an HTML file may have at most {MAX_HTML_BYTES >> 20} MiB", fix="split it"
        )
    page = parse_page("".join(TextLines(io.BytesIO(_encode_utf8(content, name)), name)))
    if not page.text:
        raise InputError(f"{name}: the page contains no visible text", fix="leave it out")
    return page


def parse_page(markup: str) -> Page:
    """The title and the text of HTML."""
    parser = _PageParser()
    parser.feed(markup)
    parser.feed(_PARAGRAPH + "<p>")  # text is reported when a tag follows
    return Page(parser.find_title(), _join_paragraphs(parser.parts))


def _encode_utf8(content: bytes, name: str) -> bytes:
    """The same text in UTF-8, from the encoding that the file declares."""
    encoding = _find_encoding(content)
    if encoding is None:
        return content
    try:
        return content.decode(encoding).encode()
    except (LookupError, UnicodeError) as error:
        raise UnreadableFileError(
            f"{name}: the file is declared as {encoding}, but cannot be read so: {error}",
            fix="convert it to UTF-8, and correct its <meta charset>",
        ) from None


def _find_encoding(content: bytes) -> str | None:
    """Another encoding than UTF-8, by the byte order mark or <meta charset>."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    found = _CHARSET.search(content[:_META_BYTES])
    encoding = found[1].decode("ascii").lower() if found else "utf-8"
    # a file whose declaration can be read as ASCII is not in UTF-16
    if not _ENCODING.fullmatch(encoding) or encoding.startswith("utf"):
        return None
    return "windows-1252" if encoding in ("iso-8859-1", "latin-1", "latin1") else encoding


def _join_paragraphs(parts: list[str]) -> str:
    paragraphs = (" ".join(one.split()) for one in "".join(parts).split(_PARAGRAPH))
    return _PARAGRAPH.join(one for one in paragraphs if one)


class _PageParser(HTMLParser):
    """Collects text; it keeps a count of hidden elements, not a tree, so depth does not matter."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._titles: dict[str, list[str]] = {"title": [], "h1": []}
        self._hidden = ""  # the element whose contents are left out
        self._depth = 0  # of elements with the same name in it
        self._inside = ""  # the first title, or the first h1

    def parse_html_declaration(self, i: int) -> int:
        """As in browsers, `<![…>` is a comment; `HTMLParser` fails for unknown ones."""
        if self.rawdata.startswith("<![", i):
            return self.parse_bogus_comment(i)
        return super().parse_html_declaration(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden and tag in ("body", "main"):  # navigation that was not closed
            self._hidden = ""
        if self._hidden:
            self._depth += tag == self._hidden
            return
        if tag in _HIDDEN or (tag not in _VOID and _is_hidden(attrs)):
            self._hidden, self._depth = tag, 1
            return
        self._add_space(tag)
        if tag in self._titles and not self._titles[tag]:
            self._inside = tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        """`<script/>`: an element without contents, in XHTML."""
        if not self._hidden:
            self._add_space(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            self._depth -= tag == self._hidden
            if not self._depth:
                self._hidden = ""
            return
        self._add_space(tag)
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._inside:
            self._titles[self._inside].append(data)
        if self._inside != "title":
            # a space where there was any, so that words of two elements stay apart or together
            before, after = data[:1].isspace(), data[-1:].isspace()
            self.parts.append(" " * before + " ".join(data.split()) + " " * after)

    def find_title(self) -> str | None:
        """The title, or the first heading."""
        found = ("".join(parts)[:_MAX_TITLE].split() for parts in self._titles.values())
        return next((" ".join(words) for words in found if words), None)

    def _add_space(self, tag: str) -> None:
        if tag in _BLOCKS:
            self.parts.append(_PARAGRAPH)
        elif tag in _SPACES:
            self.parts.append(" ")


def _is_hidden(attributes: list[tuple[str, str | None]]) -> bool:
    return any(
        name == "hidden"
        or (name == "aria-hidden" and value == "true")
        or (name == "role" and value in ("navigation", "search", "banner", "contentinfo"))
        for name, value in attributes
    )
