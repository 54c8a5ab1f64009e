"""A view of a model: figures and their exact values, for notebooks, pages and files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.config import suggest
from cloze.errors import InputError
from cloze.files import replace_non_finite, write_bytes, write_json, write_text
from cloze.plot.page import Grid, Page, PagePart, Section
from cloze.plot.static import draw_parts, render_png
from cloze.plot.svg import Element

SUFFIXES = (".html", ".svg", ".png", ".json")


@dataclass(frozen=True, kw_only=True, repr=False)
class View:
    """What `cloze.explain` returns: it shows itself in a notebook, and `save` writes it to a file.

    `figures` are what is shown, `data` the exact values. A view is a part of a page, so that views
    can be put side by side.
    """

    title: str
    figures: Sequence[PagePart]
    data: dict[str, Any]
    note: str = ""

    @property
    def parts(self) -> Sequence[PagePart]:
        """The figures: the parts of this part of a page."""
        return self.figures

    def __repr__(self) -> str:
        return f"View({self.title!r}, values: {', '.join(self.data)})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the view: its exact values, None for those that are not finite."""
        found: dict[str, Any] = replace_non_finite(self.data)
        return found

    def element(self) -> Element:
        """The view as part of a page."""
        note = [Element("p", self.note, class_="muted")] if self.note else []
        parts = Element("div", *(part.element() for part in self.figures), class_="stack")
        return Element("div", Element("h3", self.title), *note, parts)

    def page(self) -> Page:
        """The view as a page of its own."""
        return Page(
            title=self.title, note=self.note, sections=[Section(title="", parts=self.figures)]
        )

    def html(self) -> str:
        """A self-contained HTML document."""
        return self.page().html()

    def svg(self) -> str:
        """The drawings as one SVG document; tables are left out."""
        drawing = draw_parts(self.figures)
        if drawing is None:
            raise InputError(
                f"the view {self.title!r} has no drawing", fix="save it as .html or .json"
            )
        return str(drawing).replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)

    def png(self, *, scale: float = 2.0, dark: bool = False) -> bytes:
        """The drawings as a PNG file, `scale` pixels for each unit (extra `explain`)."""
        return render_png(self.svg(), scale=scale, dark=dark)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the view; the suffix decides the format: .html, .svg, .png or .json."""
        suffix = check_suffix(path)
        if suffix == ".html":
            return write_text(path, self.html())
        if suffix == ".svg":
            return write_text(path, self.svg())
        if suffix == ".png":
            return write_bytes(path, self.png())
        return write_json(path, self.to_dict(), indent=None)

    def _repr_html_(self) -> str:
        return str(self.page().frame())


def check_suffix(path: str | os.PathLike[str]) -> str:
    """The suffix of a file that a view can be written to, in lower case."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"{os.fspath(path)}: a view is written as {', '.join(SUFFIXES)}",
            fix=suggest(suffix, SUFFIXES),
        )
    return suffix


def put_side_by_side(title: str, views: Sequence[View], note: str = "") -> View:
    """One view of several, beside each other where there is space."""
    return View(
        title=title,
        figures=[Grid(parts=views)],
        data={"views": [{"title": view.title, **view.data} for view in views]},
        note=note,
    )
