"""A picture by itself: in a file, or in a notebook."""

import os
from abc import ABC, abstractmethod
from pathlib import Path

from cloze.files import write_text
from cloze.plot.files import asset
from cloze.plot.svg import Element

NARROW, WIDE = 510, 1040  # half of a page, and all of it
EDGE = 4  # around every picture, so that round ends and wide letters are not cut


class Picture(ABC):
    """What is one SVG, light or dark as its reader likes."""

    @property
    @abstractmethod
    def width(self) -> float:
        """In pixels, without its edge."""

    @abstractmethod
    def svg(self, *children: Element) -> Element:
        """The picture alone; its colours come from chart.css."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write an .svg file."""
        picture = str(self._whole())
        named = picture.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
        return write_text(path, named)

    def _repr_html_(self) -> str:
        """In a notebook: no larger than it was drawn."""
        return str(Element("div", self._whole(), style=f"max-width: {self.width + 2 * EDGE:.0f}px"))

    def _whole(self) -> Element:
        style = Element("style", asset("chart.css"))
        ground = Element("rect", x=-EDGE, y=-EDGE, width="100%", height="100%", class_="ground")
        return self.svg(style, ground)
