"""A page in one file: its style and script are inside, and it can load nothing from anywhere.

The security policy names the one script and the one style by their hashes, so that a browser would
run no other even if one found its way in.
"""

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.files import write_text
from cloze.plot.files import asset
from cloze.plot.parts import Part
from cloze.plot.svg import Element


@dataclass(frozen=True, kw_only=True)
class Section:
    """Parts under one heading."""

    title: str
    parts: Sequence[Part]
    note: str = ""

    @property
    def data(self) -> dict[str, Any]:
        return {"title": self.title, "parts": [part.data for part in self.parts]}

    def element(self) -> Element:
        note = [Element("p", self.note, class_="muted")] if self.note else []
        parts = Element("div", *(part.element() for part in self.parts), class_="stack")
        return Element("section", Element("h2", self.title), *note, parts)


@dataclass(frozen=True, kw_only=True)
class Page:
    """Sections under a title."""

    title: str
    sections: Sequence[Section]
    note: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """Everything that is shown, exactly, as plain data."""
        return {"title": self.title, "sections": [section.data for section in self.sections]}

    def html(self) -> str:
        """The whole file."""
        style = asset("page.css") + asset("chart.css")
        script = asset("page.js")
        policy = (
            f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'"
        )
        head = Element(
            "head",
            Element("meta", charset="utf-8"),
            Element("meta", http_equiv="Content-Security-Policy", content=policy),
            Element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            Element("title", self.title),
            Element("style", style),
        )
        note = [Element("p", self.note, class_="muted")] if self.note else []
        sections = (section.element() for section in self.sections)
        main = Element("main", Element("h1", self.title), *note, *sections)
        body = Element("body", main, Element("script", script))
        return f"<!doctype html>\n{Element('html', head, body, lang='en')}\n"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file that shows the same on any machine."""
        return write_text(path, self.html())

    def _repr_html_(self) -> str:
        """In a notebook: in a frame, where neither can touch the other's style or script."""
        frame = Element(
            "iframe",
            srcdoc=self.html(),
            sandbox="allow-scripts",
            width="100%",
            height=640,
            frameborder="0",
        )
        return str(frame)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
